"""What earlier runs of a runbook took, read when one begins; and the figures of this one, kept when it has ended.

Neither is waited for long: a disk that hangs costs the figures, not the run.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from dba_console.clock import Clock
from dba_console.probes.lane import Lane, LaneTimeout
from dba_console.records import from_json
from dba_console.runbook.summary import Summary
from dba_console.runbook.usual import MOST_RUNS, Usual, usual_times
from dba_console.session.runlisting import all_run_directories
from dba_console.session.runplaces import SUMMARY, parse_run_id

DISK_S = 3.0
SIZE_LIMIT = 4 << 20


def usual_of(sessions: Path, runbook: str, clock: Clock) -> dict[str, Usual]:
    """By step; empty where nothing is known or it cannot be read in time."""
    lane = Lane("runs-past", clock)
    try:
        return usual_times(runbook, lane.call(lambda: _earlier(sessions, runbook), DISK_S))
    except (LaneTimeout, OSError):
        return {}
    finally:
        lane.close()


def keep_summary(directory: Path, summary: Summary, clock: Clock) -> None:
    """Write it beside the journal it was made from; it can be made again from that at any time."""
    lane = Lane("runs-summary", clock)
    try:
        lane.call(lambda: _write(directory / SUMMARY, msgspec.json.format(msgspec.json.encode(summary))), DISK_S)
    except (LaneTimeout, OSError):
        pass
    finally:
        lane.close()


def _earlier(sessions: Path, runbook: str) -> list[Summary]:
    found = []
    for directory in reversed(all_run_directories(sessions)):
        name = parse_run_id(directory.name)
        if name is None or name.runbook != runbook:
            continue
        summary = _read(directory / SUMMARY)
        if summary is not None and summary.runbook == runbook:
            found.append(summary)
        if len(found) >= MOST_RUNS:
            break
    return found


def _read(path: Path) -> Summary | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return from_json(file.read(SIZE_LIMIT), Summary)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(new, path)
