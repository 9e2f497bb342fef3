"""A sweep as lines: its table beside the one of story S4, the knee, what limits it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.dumping.kept import Kept, Row
from dba_console.units import human_bytes, human_duration, human_pct

S4 = {1: 70.3, 2: 43.6, 3: 38.8, 4: 33.7, 5: 31.0, 6: 30.5, 60: 30.5}
"""Seconds by jobs: 10 tables of 20 million rows, PostgreSQL on an i7-2600 (4 cores, 8 threads) with one USB 3 disk."""
S4_CUSTOM_S = 298.8
"""The same with -Fc, which has one job."""
S4_TOLD = (
    f"S4: 10 tables of 20 million rows, i7-2600 (4 cores, 8 threads), one disk; with -Fc it took "
    f"{human_duration(S4_CUSTOM_S)}"
)
HEAD = ("jobs", "time", "of one", "rate", "host busy", "from disk", "", "S4", "of one")
RIGHT = (0, 1, 2, 3, 4, 5, 7, 8)
"""Columns of numbers."""


def table(kept: Kept) -> list[list[str]]:
    """A line for each number of jobs that was tried here or there, fewest first."""
    here = {row.jobs: row for row in kept.rows}
    one = here.get(1)
    return [_line(kept, jobs, here.get(jobs), one) for jobs in sorted({*here, *S4})]


def _line(kept: Kept, jobs: int, row: Row | None, one: Row | None) -> list[str]:
    theirs = S4.get(jobs)
    there = ["", ""] if theirs is None else [f"{theirs:.1f}s", f"{theirs / S4[1]:.2f}"]
    if row is None:
        return [str(jobs), "", "", "", "", "", "", *there]
    mark = "← knee" if jobs == kept.jobs else "← best" if jobs == kept.best_jobs else ""
    return [
        str(jobs), ("" if row.measured else "~") + seconds(row.seconds),
        "?" if one is None else f"{row.seconds / one.seconds:.2f}", human_bytes(row.rate, per_s=True),
        human_pct(row.host_busy_pct), human_pct(row.read_pct), mark, *there,
    ]  # fmt: skip


def seconds(value: float) -> str:
    """Below ten minutes with a tenth, for runs are compared by it."""
    return f"{value:.1f}s" if value < 600 else human_duration(value)


def conclusion(kept: Kept) -> list[str]:
    """The knee, the limit, and how they are known."""
    best = next(row for row in kept.rows if row.jobs == kept.best_jobs)
    knee = next(row for row in kept.rows if row.jobs == kept.jobs)
    lines = [f"-j {kept.jobs}: {_about(knee)} for {human_bytes(kept.table_bytes)} of tables in {kept.database}"]
    if kept.best_jobs != kept.jobs:
        lines.append(f"the quickest was -j {kept.best_jobs} with {_about(best)}, which is hardly more")
    lines.append(f"limited by {kept.sentence}")
    lines += how_known(kept)
    return lines


def _about(row: Row) -> str:
    return seconds(row.seconds) if row.measured else f"about {seconds(row.seconds)} (estimated)"


def how_known(kept: Kept) -> list[str]:
    """What was measured, and what was left out."""
    part = "all tables" if kept.chosen_tables == kept.tables else (
        f"{kept.chosen_tables} of {kept.tables} tables ({human_bytes(kept.chosen_bytes)} of "
        f"{human_bytes(kept.table_bytes)}), the biggest and every so many by size"
    )  # fmt: skip
    where = "to nowhere: the disk it will be written to is not in it" if kept.place == "nowhere" else f"to {kept.place}"
    lines = [f"measured with pg_dump {kept.program} of {part}, {where}; it took {human_duration(kept.took_s)}"]
    if not all(row.measured for row in kept.rows):
        lines.append(
            "~: reckoned from the rate of a run that was cut, the biggest table first, as pg_dump -j takes them"
        )
    return [*lines, *kept.notes]


def progress_words(rows: Sequence[Row]) -> str:
    """All of them in a line, for a log."""
    return ", ".join(f"-j {row.jobs} {'' if row.measured else '~'}{seconds(row.seconds)}" for row in rows)
