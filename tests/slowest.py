"""Where the seconds of a run of the tests go: by directory, and the slowest. `make slowest` prints the last run's.

The seconds of a test are those of its setup, its call and its teardown. Several workers spend them at the same time:
the sum is larger than the run.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

STORE = Path(__file__).resolve().parent.parent / ".cache" / "durations.json"
SHOWN = 30
_GROUP = re.compile(r"@[\w/.-]+$")
"""What pytest-xdist adds to the name of a test that belongs to a group."""
LONG_RUN_S = 60.0
"""A run that takes longer says at its end where its seconds went."""


class Durations:
    """Keeps what each test of this run took, and writes it down at the end."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._took: dict[str, dict[str, float]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[_GROUP.sub("", report.nodeid)][report.when] = report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        wall_s = time.monotonic() - self._began
        STORE.parent.mkdir(exist_ok=True)
        STORE.write_text(json.dumps({"wall_s": round(wall_s, 1), "tests": self._took}))
        if wall_s >= LONG_RUN_S:
            terminalreporter.section("seconds by directory, of all workers together")
            for directory, tests, seconds in by_directory(self._took):
                terminalreporter.line(f"{seconds:8.1f} s  {tests:5d} tests  {directory}")


def by_directory(took: dict[str, dict[str, float]]) -> list[tuple[str, int, float]]:
    """Directories with their number of tests and seconds, the longest first.

    >>> by_directory({"tests/cli/test_a.py::b": {"setup": 1.0, "call": 0.5}, "tests/test_c.py::d": {"call": 9}})
    [('tests', 1, 9.0), ('tests/cli', 1, 1.5)]
    """
    tests: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for name, phases in took.items():
        parts = name.partition("::")[0].split("/")[:-1]
        directory = "/".join(parts[:2] if parts[:1] == ["tests"] else parts[:1])
        tests[directory] += 1
        seconds[directory] += sum(phases.values())
    return sorted(((one, tests[one], seconds[one]) for one in tests), key=lambda row: -row[2])


def report(took: dict[str, dict[str, float]], wall_s: float) -> Iterable[str]:
    """Both tables in Markdown."""
    rows = by_directory(took)
    yield f"{sum(tests for _, tests, _ in rows)} tests in {wall_s / 60:.1f} min\n"
    yield "| directory | tests | seconds, of all workers together |\n|---|---|---|"
    yield from (f"| `{directory}` | {tests} | {seconds:.0f} |" for directory, tests, seconds in rows)
    yield f"\n| seconds | the slowest {SHOWN} |\n|---|---|"
    slowest = sorted(took.items(), key=lambda item: -sum(item[1].values()))[:SHOWN]
    yield from (f"| {sum(phases.values()):.1f} | `{name.removeprefix('tests/')}` |" for name, phases in slowest)


def main() -> int:
    if not STORE.exists():
        print("no run of the tests is on record\nhint: make test")
        return 2
    kept = json.loads(STORE.read_text())
    print("\n".join(report(kept["tests"], kept["wall_s"])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
