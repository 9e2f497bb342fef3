"""Progress of a server in crash recovery, read on its host: what it has replayed, what is left, and for how long."""

from __future__ import annotations

import re
import threading

from msgspec import Struct

from dba_console.clusters.cluster_check import parse_lsn
from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.wal_files import SEGMENT, segment_start
from dba_console.core.units import human_bytes, human_duration

BETWEEN_S = 2.0
"""Time between the two measurements of the speed."""
_SCRIPT = """LC_ALL=C; export LC_ALL; echo "dba-console: content"
pid=$(sed 's/[^0-9]//g; q' "$1/postmaster.pid") || exit
echo "title $(ps --ppid "$pid" -o etimes=,args= | grep 'startup' | head -n 1)"
newest=$(ls -t "$1/pg_wal" | grep -E '^[0-9A-F]{24}$' | head -n 1)
echo "newest $newest"; echo "size $(stat -c %s "$1/pg_wal/$newest")"
"""
_TITLE = re.compile(r"^title\s+(\d+)\s.*?(?:recovering ([0-9A-F]{24}))?$", re.M)
_NEWEST = re.compile(r"^newest ([0-9A-F]{24})$", re.M)
_SIZE = re.compile(r"^size (\d+)$", re.M)


class RecoveryProgress(Struct, frozen=True, kw_only=True):
    """Positions are bytes from 0/0, exact to a segment."""

    state: str
    """State in pg_control."""
    begun: int
    """The checkpoint before the crash, from which it replays."""
    at: int | None = None
    """The segment it replays now; None: its process does not show it."""
    end: int | None = None
    """End of the segment that was written last."""
    left_s: float | None = None
    """Estimated time left; None: unknown."""

    @property
    def text(self) -> str:
        if self.at is None or self.end is None:
            return f"pg_control says {self.state or 'nothing'}; how far it is cannot be read"
        done, total = max(0, self.at - self.begun), max(0, self.end - self.begun)
        left = "time left unknown" if self.left_s is None else f"about {human_duration(self.left_s)} left"
        return f"about {human_bytes(min(done, total))} of {human_bytes(total)} of WAL replayed, {left}"


def read_recovery(control: ServerControl) -> RecoveryProgress:
    """Measure twice on the host. Raises ConsoleError."""
    found = control.control_file()
    begun = parse_lsn(found.checkpoint_lsn or "0/0")
    first = _measure(control)
    if first is None:
        return RecoveryProgress(state=found.state or "", begun=begun)
    threading.Event().wait(BETWEEN_S)
    second = _measure(control) or first
    return estimate(found.state or "", begun, first, second)


def estimate(state: str, begun: int, first: tuple[float, int, int], second: tuple[float, int, int]) -> RecoveryProgress:
    """Return the progress by two measurements: seconds since the process started, position, end.

    The speed is that between the two; if they are in one segment, the average since the start.

    >>> estimate("in crash recovery", 0, (4.0, 64 << 20, 160 << 20), (6.0, 96 << 20, 160 << 20)).left_s
    4.0
    """
    seconds, at, end = second
    speed = 0.0
    if at > first[1] and seconds > first[0]:
        speed = (at - first[1]) / (seconds - first[0])
    elif at > begun and seconds > 0:
        speed = (at - begun) / seconds
    left_s = max(0, end - at) / speed if speed else None
    return RecoveryProgress(state=state, begun=begun, at=at, end=end, left_s=left_s)


def _measure(control: ServerControl) -> tuple[float, int, int] | None:
    """Return seconds since the process started, the start of its segment, and the end of the newest one."""
    ended = control.host.run(["sh", "-c", _SCRIPT, "sh", control.data_directory], user=control.owner(), repeatable=True)
    title, newest, size = _TITLE.search(ended.output), _NEWEST.search(ended.output), _SIZE.search(ended.output)
    if title is None or title[2] is None or newest is None:
        return None
    segment = int(size[1]) if size is not None and int(size[1]) else SEGMENT
    return float(title[1]), segment_start(title[2], segment), segment_start(newest[1], segment) + segment
