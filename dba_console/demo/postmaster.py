"""What the host knows of a postmaster: whether it is ready, and who its children are. Linux only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

_READY = ("ready", "standby")
"""Line 8 of postmaster.pid (LOCK_FILE_LINE_PM_STATUS in PostgreSQL's miscadmin.h), which pg_ctl waits for too."""


def is_ready(data_directory: Path, pid: int) -> bool:
    """True when the postmaster `pid` says in its lock file that it accepts connections."""
    try:
        lines = (data_directory / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() in _READY


def children_of(pid: int) -> list[int]:
    """The process ids whose parent is `pid`, in no order."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        # The command in parentheses may hold anything; the parent is the second field after it (proc(5)).
        if int(stat.rpartition(b")")[2].split()[1]) == pid:
            found.append(int(entry))
    return found


def resume(pids: Iterable[int]) -> None:
    """Let processes run again that a SIGSTOP froze; one that ended meanwhile is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
