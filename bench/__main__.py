"""`python -m bench [smoke|all|NAME…]`: measure and print the figures as Markdown.

A smoke run only shows that everything works: its benches run side by side, each in a process of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from bench.figure import Figure, table

NAMES = (
    "cost", "startup", "recording", "growth", "keys", "stalled", "rules", "shrink", "stamp",
    "watching", "many_tables", "restore", "eta", "sweep", "quiet",
)  # fmt: skip
LONG = ("quiet",)
"""Takes an hour: measured when it is named, not with all."""
SIDE_BY_SIDE = 4
"""Benches of a smoke run at a time: most of each is waiting."""


def main(arguments: list[str]) -> int:
    smoke = arguments[:1] == ["smoke"]
    names = [name for name in arguments if name not in ("smoke", "all")] or [
        one for one in NAMES if smoke or one not in LONG
    ]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for found in side_by_side(names) if smoke else (measure(name, smoke) for name in names):
        figures += found
    if smoke:
        print("A smoke run: too short for its figures to mean anything.\n")
    print(table(figures))
    return 0


def measure(name: str, smoke: bool) -> Sequence[Figure]:
    """The figures of one bench."""
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    found: Sequence[Figure] = importlib.import_module(f"bench.{name}").run(smoke)
    return found


def side_by_side(names: Sequence[str]) -> Iterator[Sequence[Figure]]:
    """The figures of smoke runs, in the order of the names. Raises what the first of them to fail raised."""
    with ProcessPoolExecutor(SIDE_BY_SIDE, get_context("spawn"), max_tasks_per_child=1) as pool:
        try:
            yield from pool.map(measure, names, [True] * len(names))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
