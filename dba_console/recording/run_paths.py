"""Directories and ids of runs.

<session>/runs/<run>/runbook.md  plan.json  journal.jsonl  lock  reserve  summary.json
                     steps/<step>.<block>.<execution>/
"""

from __future__ import annotations

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dba_console.core.paths import private_dir
from dba_console.recording.layout import is_held

RUNS = "runs"
DOCUMENT = "runbook.md"
PLAN = "plan.json"
JOURNAL = "journal.jsonl"
LOCK = "lock"
RESERVE = "reserve"
SUMMARY = "summary.json"
STEPS = "steps"

_MEMORY = Path("/dev/shm")
"""Memory-backed on every Linux with glibc, lost at a reboot."""
_RUN = re.compile(r"(\d{8}T\d{6}Z)-([A-Za-z0-9][A-Za-z0-9._-]{0,99})-([0-9a-f]{4})")
_SESSION_DEPTH = 2
"""Directory levels from a run's up to its session's."""


class RunName(NamedTuple):
    """The three parts of a run's id."""

    start: str
    runbook: str
    token: str


def new_run_id(runbook: str, wall_us: int, token: str | None = None) -> str:
    """Return a new id: `20261120T145307Z-cache-drop-1a2b`.

    >>> new_run_id("cache drop!", 0, "1a2b")
    '19700101T000000Z-cache-drop-1a2b'
    """
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", runbook).strip("-.")[:100] or "runbook"
    return f"{datetime.fromtimestamp(wall_us / 1e6, UTC):%Y%m%dT%H%M%SZ}-{word}-{token or secrets.token_hex(2)}"


def parse_run_id(name: str) -> RunName | None:
    """Return the parts of a run's id, None if it is not one.

    >>> parse_run_id("20261120T145307Z-cache-drop-1a2b").runbook, parse_run_id("../x")
    ('cache-drop', None)
    """
    match = _RUN.fullmatch(name)
    return None if match is None else RunName(match[1], match[2], match[3])


def run_directory(session: Path, run: str) -> Path:
    """Return the directory of a run in its session."""
    return session / RUNS / run


def session_of(directory: Path) -> Path:
    """Return the session of a run's directory."""
    return directory.parents[_SESSION_DEPTH - 1]


def execution_directory(directory: Path, block: str, execution: int) -> Path:
    """Return the directory where the keeper of one execution of a block writes.

    >>> str(execution_directory(Path("r"), "drop/run-2", 3))
    'r/steps/drop.run-2.3'
    """
    return directory / STEPS / f"{block.replace('/', '.')}.{execution}"


def memory_directory(run: str, uid: int) -> Path:
    """Return where the journal of a run continues while the disk of its session does not accept writes."""
    return _MEMORY / f"dba-console-{uid}" / run


def make_memory_directory(run: str) -> Path:
    """Create that directory, 0700. Raises PermissionDenied or ConfigError if another user owns it."""
    return private_dir(memory_directory(run, os.geteuid()))


def run_directories(session: Path) -> list[Path]:
    """Return the runs of a session, oldest first."""
    try:
        names = os.listdir(session / RUNS)
    except OSError:
        return []
    return [session / RUNS / name for name in sorted(names) if parse_run_id(name) is not None]


def is_open(directory: Path) -> bool:
    """Return whether an agent has the journal of this run open."""
    return is_held(directory / LOCK)
