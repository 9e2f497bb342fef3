"""`python -m bench [smoke|all|NAME…]`: measure and print the figures as Markdown; `failover --case NAME`: one case.

A smoke run only checks that everything works: its benches run in parallel, each in its own process.
"""

from __future__ import annotations

import os
import sys

from bench.figure import Figure, table
from bench.measure import measure, side_by_side

NAMES = (
    "cutover", "watching", "runbook_keys", "cluster_watch", "cost", "postmortem", "quiet", "share", "recording",
    "failover", "restore", "stalled", "keys", "eta", "growth", "cutover_killed", "sweep", "shrink", "exports",
    "rules", "fuzz", "restore_overhead", "many_tables", "long_queries", "startup", "stamp", "run_overhead",
    "managers", "diary",
)  # fmt: skip
"""The longest smoke run first: the others fill the time beside it."""
LONG = ("quiet", "fuzz", "cutover", "cutover_killed", "failover", "managers")
"""Take an hour (`quiet`) or about a quarter of an hour each: measured only when named, not with `all`."""


def main(arguments: list[str]) -> int:
    while "--case" in arguments[:-1]:
        at = arguments.index("--case")
        os.environ["FAILOVER_CASES"] = f"{os.environ.get('FAILOVER_CASES', '')} {arguments[at + 1]}"
        arguments = arguments[:at] + arguments[at + 2 :]
    smoke = arguments[:1] == ["smoke"]
    names = [name for name in arguments if name not in ("smoke", "all")] or [
        one for one in NAMES if smoke or one not in LONG
    ]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"unknown bench: {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for found in side_by_side(names) if smoke else (measure(name, smoke) for name in names):
        figures += found
    if smoke:
        print("Smoke run: too short for meaningful figures.\n")
    print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
