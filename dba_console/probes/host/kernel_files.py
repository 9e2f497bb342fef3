"""Small files of the kernel, read whole and cheaply.

Files under /proc and /sys are made anew at each read from offset 0, so one descriptor serves for ever: opening is
dearer than reading. A descriptor under /proc/PID goes with its process and never shows another one's numbers.
"""

from __future__ import annotations

import os

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
