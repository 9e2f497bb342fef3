"""Store the result of a sweep for the next dump of the same database, and format it as text.

The file is 0600 in the state directory and is validated when read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from dba_console.core import paths
from dba_console.core.atomic_files import read_small, write_atomically
from dba_console.core.decoding import from_json
from dba_console.core.units import human_bytes, human_duration, human_pct

NOWHERE = "nowhere"
MAX_JOBS = 64
WINDOW_S = 30.0
"""A trial is cut after this time: by then every job has worked long enough to measure the rate."""
FORMAT = 1
MAX_FILES = 200
_LIMIT = 1 << 20


class SweepRow(Struct, frozen=True, kw_only=True):
    """The result for one number of jobs."""

    jobs: int
    seconds: float
    """For the whole database."""
    measured: bool
    """False: estimated from a run that was cut or dumped only some tables."""
    ran_s: float | None
    """Duration of the run; None if there was none."""
    rate: float
    """Table bytes per second with all jobs busy."""
    host_busy_pct: float | None = None
    read_pct: float | None = None
    """Disk reads as a percentage of the dumped bytes; None if not measured."""


class SweepResult(Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    jobs: int
    """The recommended number: the fewest jobs whose time exceeds the best by at most 5 %."""
    best_jobs: int
    at_us: int
    """Host wall time."""
    target: str
    database: str
    rows: tuple[SweepRow, ...]
    limit: str
    """The bottleneck: cpu, table, read, write, connections, tables, most, unknown."""
    sentence: str
    """The bottleneck as text."""
    host: str
    cpus: int
    program: str
    """Version of pg_dump."""
    compression: str | None
    """As requested; None: pg_dump's default."""
    place: str
    """Directory, or `nowhere`."""
    table_bytes: int
    """Of all tables."""
    chosen_bytes: int
    chosen_tables: int
    tables: int
    ratio: float | None
    """Dump bytes per table byte; None if no run was complete."""
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    version: int = FORMAT


def result_path(target_key: str) -> Path:
    """Return the file's path; a target's key consists of server, database and role."""
    return paths.state_dir() / "sweeps" / f"{target_key}.json"


def load_result(target_key: str) -> SweepResult | None:
    """Return the stored result, None if it is missing or not readable."""
    try:
        result = from_json(read_small(result_path(target_key), _LIMIT), SweepResult)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return result if result.version == FORMAT and result.jobs >= 1 else None


def save_result(target_key: str, result: SweepResult) -> Path:
    """Replace the stored result. Raises OSError or ConsoleError; then the previous one is unchanged."""
    path = result_path(target_key)
    paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    _delete_oldest(path)
    write_atomically(str(path.parent), path.name, msgspec.json.encode(result))
    return path


def _delete_oldest(path: Path) -> None:
    if path.exists():
        return
    files = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: max(0, len(files) - MAX_FILES + 1)]:
        file.unlink(missing_ok=True)


# A sweep as text: its table, the recommended number of jobs, the bottleneck. Pure functions.

HEAD = ("jobs", "time", "of one", "rate", "host busy", "from disk", "")
NUMBER_COLUMNS = (0, 1, 2, 3, 4, 5)
"""Columns of numbers."""


def sweep_table(result: SweepResult) -> list[list[str]]:
    """Return a row for each number of jobs tried, fewest first."""
    one = next((row for row in result.rows if row.jobs == 1), None)
    return [_table_row(result, row, one) for row in result.rows]


def _table_row(result: SweepResult, row: SweepRow, one: SweepRow | None) -> list[str]:
    mark = "← recommended" if row.jobs == result.jobs else "← fastest" if row.jobs == result.best_jobs else ""
    return [
        str(row.jobs), ("" if row.measured else "~") + seconds_text(row.seconds),
        "?" if one is None else f"{row.seconds / one.seconds:.2f}", human_bytes(row.rate, per_s=True),
        human_pct(row.host_busy_pct), human_pct(row.read_pct), mark,
    ]  # fmt: skip


def seconds_text(value: float) -> str:
    """Format seconds; below ten minutes with one decimal, because runs are compared by it."""
    return f"{value:.1f}s" if value < 600 else human_duration(value)


def conclusion_lines(result: SweepResult) -> list[str]:
    """Return the recommended number of jobs, the bottleneck, and how they were measured, as text lines."""
    best = next(row for row in result.rows if row.jobs == result.best_jobs)
    recommended = next(row for row in result.rows if row.jobs == result.jobs)
    lines = [
        f"-j {result.jobs}: {_time_text(recommended)} for {human_bytes(result.table_bytes)} of tables "
        f"in {result.database}"
    ]
    if result.best_jobs != result.jobs:
        lines.append(f"the fastest was -j {result.best_jobs} with {_time_text(best)}, hardly better")
    lines.append(f"limited by {result.sentence}")
    lines += measurement_lines(result)
    return lines


def _time_text(row: SweepRow) -> str:
    return seconds_text(row.seconds) if row.measured else f"about {seconds_text(row.seconds)} (estimated)"


def measurement_lines(result: SweepResult) -> list[str]:
    """Return what was measured, and what was not, as text lines."""
    part = "all tables" if result.chosen_tables == result.tables else (
        f"{result.chosen_tables} of {result.tables} tables ({human_bytes(result.chosen_bytes)} of "
        f"{human_bytes(result.table_bytes)}), the largest and a sample by size"
    )  # fmt: skip
    where = "to nowhere (no disk writes)" if result.place == NOWHERE else f"to {result.place}"
    lines = [f"measured in {human_duration(result.took_s)} with pg_dump {result.program} of {part}, {where}"]
    if not all(row.measured for row in result.rows):
        lines.append(
            "~: estimated from the rate of a run that was cut, with the order of pg_dump -j: largest table first"
        )
    return [*lines, *result.notes]
