"""Reads small kernel files completely and cheaply, and parses those of one process and of TCP.

Files under /proc and /sys are generated at each read from offset 0, so one descriptor can be reused: opening costs more
than reading. A descriptor under /proc/PID ends with its process and never shows another one's numbers.

Not psutil: it opens each file anew for each number, so a tick costs 1.4 times as much (docs/architecture.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

_CHUNK = 16384


class KernelFile:
    """A kernel file kept open between reads. Not thread-safe."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def read(self) -> bytes:
        """Return the whole content. Raises OSError; the next read then opens the file again."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return read_whole(self._fd)
        except OSError:
            self.close()
            raise

    def read_once(self, size: int) -> bytes:
        """Return one read of `size` bytes: complete for a file the kernel generates in one piece. Raises OSError."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fd, size, 0)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the descriptor; the next read opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_whole(fd: int) -> bytes:
    """Return the whole content of `fd`. The kernel returns longer files a page at a time, so read until empty."""
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
    """Return the whole content of a file that is read rarely. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_whole(fd)
    finally:
        os.close(fd)


def read_once(path: str, size: int) -> bytes:
    """Return the result of one read of at most `size` bytes: complete for a file the kernel generates in one piece."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, 0)
    finally:
        os.close(fd)


def read_word(path: str) -> str | None:
    """Return the stripped content, None if the file is missing or not readable."""
    try:
        return printable(read_file(path).strip())
    except OSError:
        return None


def read_int(path: str) -> int | None:
    """Return the number in the file, None if it has none."""
    word = read_word(path)
    try:
        return None if word is None else int(word)
    except ValueError:
        return None


def printable(data: bytes | str) -> str:
    """Return bytes of the host as text that can be stored: what is not UTF-8 becomes `\\xNN`.

    >>> printable(b"/data\\xff"), printable("/data\\udcff")
    ('/data\\\\xff', '/data\\\\xff')
    """
    raw = os.fsencode(data) if isinstance(data, str) else data
    return raw.decode("utf-8", "backslashreplace")


# /proc/PID/stat and /proc/PID/io of one process (proc_pid_stat(5), proc_pid_io(5)). Neither takes the process's mmap
# lock, unlike cmdline, so neither waits for the process.

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
    """Return the process's stat, None if it has ended or is not visible."""
    try:
        return parse_stat(read_once(f"{proc}/{pid}/stat", STAT_SIZE))
    except (OSError, ValueError, IndexError):
        return None


def parse_stat(data: bytes) -> ProcStat:
    """Parse /proc/PID/stat. Raises ValueError or IndexError for invalid content.

    The command is in parentheses and may contain blanks and parentheses: fields are counted after the last one.
    """
    opening, closing = data.index(b"("), data.rindex(b")")
    words = data[closing + 2 :].split(None, 40)
    return ProcStat(
        data[opening + 1 : closing].decode("utf-8", "backslashreplace"), words[0].decode("ascii", "replace"),
        int(words[1]), int(words[11]), int(words[12]), int(words[19]), int(words[21]),
        int(words[39]) if len(words) > 39 else None,
    )  # fmt: skip


def list_pids(proc: str) -> list[int]:
    """Return the processes of the host, in no order. Raises OSError."""
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def process_text(proc: str, pid: int) -> str:
    """Return a process as text: `gzip (process 812)`."""
    stat = read_stat(proc, pid)
    return f"process {pid}" if stat is None else f"{stat.command} (process {pid})"


def parse_io(data: bytes) -> tuple[int | None, int | None]:
    """Return bytes the process caused to be read from and written to storage; None if the kernel does not count
    them."""
    words = data.split()
    if len(words) >= 12 and words[8] == b"read_bytes:" and words[10] == b"write_bytes:":
        return int(words[9]), int(words[11])
    return None, None


# /proc/net/tcp and tcp6 (proc_pid_net(5)), which every user may read.

_MAPPED = b"0000000000000000FFFF0000"
"""Prefix of an IPv4-mapped IPv6 address in the table, on little-endian machines."""

Endpoint = tuple[bytes, bytes]
"""Address and port in the kernel's hexadecimal."""


class TcpConnection(NamedTuple):
    """An established connection, from the view of the socket at one end."""

    local: Endpoint
    remote: Endpoint
    uid: int
    inode: int


def tcp_connections(proc: str) -> Iterator[TcpConnection]:
    """Yield the established connections of this host."""
    for name in ("tcp", "tcp6"):
        try:
            yield from parse_connections(read_file(f"{proc}/net/{name}"))
        except OSError:
            continue  # a kernel without IPv6


def parse_connections(table: bytes) -> Iterator[TcpConnection]:
    """Yield the established connections of one table.

    >>> line = b" 0: 0100007F:1538 0100007F:CB20 01 00000000:00000000 00:00000000 00000000 112 0 7541 1 00 20 4 30 10"
    >>> list(parse_connections(b"sl ..." + chr(10).encode() + line))
    [TcpConnection(local=(b'0100007F', b'1538'), remote=(b'0100007F', b'CB20'), uid=112, inode=7541)]
    """
    for line in table.splitlines()[1:]:
        words = line.split(None, 10)
        if len(words) > 9 and words[3] == b"01":
            yield TcpConnection(_endpoint(words[1]), _endpoint(words[2]), int(words[7]), int(words[9]))


def _endpoint(word: bytes) -> Endpoint:
    address, _, port = word.partition(b":")
    return address.removeprefix(_MAPPED) if len(address) == 32 else address, port
