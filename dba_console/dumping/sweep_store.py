"""What a sweep found, kept for the next dump of the same database: 0600 in the state directory, never trusted."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from dba_console import paths
from dba_console.decoding import from_json
from dba_console.keeping.atomic_files import write_atomically

FORMAT = 1
MAX_FILES = 200
_LIMIT = 1 << 20


class SweepRow(Struct, frozen=True, kw_only=True):
    """A dump with so many jobs."""

    jobs: int
    seconds: float
    """Of the whole database."""
    measured: bool
    """False: reckoned from a run that was cut, or that dumped a part."""
    ran_s: float | None
    """What the run itself took; None where there was none."""
    rate: float
    """Bytes of tables a second with all jobs at work."""
    host_busy_pct: float | None = None
    read_pct: float | None = None
    """Of what was dumped, how much the disk was read for; None where that could not be seen."""


class SweepResult(Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    jobs: int
    """The knee: the fewest jobs with which it takes no longer than the best by more than a twentieth."""
    best_jobs: int
    at_us: int
    """Host wall time."""
    target: str
    database: str
    rows: tuple[SweepRow, ...]
    limit: str
    """cpu, table, read, write, connections, tables, most, unknown: what more jobs run into."""
    sentence: str
    """The same for people."""
    host: str
    cpus: int
    program: str
    """Version of pg_dump."""
    compression: str | None
    """As it was asked for; None: pg_dump's own default."""
    place: str
    """Directory, or `nowhere`."""
    table_bytes: int
    """Of the whole database."""
    chosen_bytes: int
    chosen_tables: int
    tables: int
    ratio: float | None
    """Bytes of the dump to bytes of tables; None where no run came to its end."""
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    version: int = FORMAT


def result_path(target_key: str) -> Path:
    """Where it lies: a target's key is of server, database and role."""
    return paths.state_dir() / "sweeps" / f"{target_key}.json"


def load_result(target_key: str) -> SweepResult | None:
    """What is kept, None where nothing is, or nothing that can be read."""
    try:
        descriptor = os.open(result_path(target_key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            result = from_json(file.read(_LIMIT), SweepResult)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return result if result.version == FORMAT and result.jobs >= 1 else None


def save_result(target_key: str, result: SweepResult) -> Path:
    """Keep it in place of what was. Raises OSError or ConsoleError; what was is then as it was."""
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
