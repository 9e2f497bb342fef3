"""Small files of the kernel, read whole and cheaply.

Files under /proc and /sys are made anew at each read from offset 0, so one descriptor serves for ever: opening is
dearer than reading. A descriptor under /proc/PID goes with its process and never shows another one's numbers.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_CHUNK = 16384


class KernelFile:
    """A kernel file kept open between reads. Used by one thread."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def read(self) -> bytes:
        """The whole content now. Raises OSError; the next read then opens it anew."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return read_whole(self._fd)
        except OSError:
            self.close()
            raise

    def read_once(self, size: int) -> bytes:
        """What one read of `size` bytes gives now: all of a file the kernel makes in one piece. Raises OSError."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fd, size, 0)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let the descriptor go. Reading again opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_whole(fd: int) -> bytes:
    """Everything in `fd` from its start. The kernel hands out longer files a page at a time, so until nothing comes."""
    data = os.pread(fd, _CHUNK, 0)
    if not data:
        return data
    pieces = [data]
    offset = len(data)
    while data := os.pread(fd, _CHUNK, offset):
        pieces.append(data)
        offset += len(data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_file(path: str) -> bytes:
    """The whole content of a file read rarely. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_whole(fd)
    finally:
        os.close(fd)


def read_once(path: str, size: int) -> bytes:
    """What one read of at most `size` bytes gives: enough where the kernel makes the file in one piece."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, 0)
    finally:
        os.close(fd)


def read_word(path: str) -> str | None:
    """The content without its line end, None where the file is absent or not readable."""
    try:
        return printable(read_file(path).strip())
    except OSError:
        return None


def read_int(path: str) -> int | None:
    """The number in the file, None where there is none."""
    word = read_word(path)
    try:
        return None if word is None else int(word)
    except ValueError:
        return None


def printable(data: bytes | str) -> str:
    """Bytes of the host as text that can be stored: what is not UTF-8 becomes `\\xNN`.

    >>> printable(b"/data\\xff"), printable("/data\\udcff")
    ('/data\\\\xff', '/data\\\\xff')
    """
    raw = os.fsencode(data) if isinstance(data, str) else data
    return raw.decode("utf-8", "backslashreplace")


# /proc/PID/stat and /proc/PID/io of one process (proc_pid_stat(5), proc_pid_io(5)): read, and understood.
#
# Neither takes the process's mmap lock, unlike its command line, so neither waits for what the process does.

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
