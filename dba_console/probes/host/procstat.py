"""/proc/PID/stat and /proc/PID/io of one process (proc_pid_stat(5), proc_pid_io(5)): read, and understood.

Neither takes the process's mmap lock, unlike its command line, so neither waits for what the process does.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.probes.host.kernel_files import read_once

STAT_SIZE = 1024
"""More than any /proc/PID/stat has: 52 numbers and a name of 64 bytes."""


class ProcStat(NamedTuple):
    """The fields used here. Times are in ticks of USER_HZ (1/100 s), `rss` in pages."""

    command: str
    state: str
    parent: int
    user_ticks: int
    system_ticks: int
    start_ticks: int
    rss_pages: int
    blkio_ticks: int | None


def read_stat(proc: str, pid: int) -> ProcStat | None:
    """The process now, None where it has ended or is not visible."""
    try:
        return parse_stat(read_once(f"{proc}/{pid}/stat", STAT_SIZE))
    except (OSError, ValueError, IndexError):
        return None


def parse_stat(data: bytes) -> ProcStat:
    """The reading in /proc/PID/stat. Raises ValueError or IndexError on what is not one.

    The command stands in parentheses and may itself hold blanks and parentheses: fields are counted after the last one.
    """
    opening, closing = data.index(b"("), data.rindex(b")")
    words = data[closing + 2 :].split(None, 40)
    return ProcStat(
        data[opening + 1 : closing].decode("utf-8", "backslashreplace"), words[0].decode("ascii", "replace"),
        int(words[1]), int(words[11]), int(words[12]), int(words[19]), int(words[21]),
        int(words[39]) if len(words) > 39 else None,
    )  # fmt: skip


def parse_io(data: bytes) -> tuple[int | None, int | None]:
    """Bytes the process caused to be read from and written to storage; None where the kernel does not account them."""
    words = data.split()
    if len(words) >= 12 and words[8] == b"read_bytes:" and words[10] == b"write_bytes:":
        return int(words[9]), int(words[11])
    return None, None
