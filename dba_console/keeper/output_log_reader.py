"""Read the output log of a command while it grows, from any position; lines already rotated away are counted."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import BinaryIO

from dba_console.keeper.output_log import LOG_NAME, head_name, parse_segment_name, segment_name

CHUNK = 1 << 20
MAX_LINE_BYTES = 8 << 20
"""Bytes. A keeper cuts lines much earlier: a file with this many bytes without a line end is not read further."""
_MAX_DIGITS = 18
"""Maximum digits of times and counts: longer ones are invalid, and exceed 64 bits."""


@dataclass(frozen=True, slots=True)
class StampedLine:
    """One line as it arrived. `stream` is o, e, or k for a message of the keeper itself."""

    wall_us: int
    stream: str
    text: str
    """Bytes that are not UTF-8 are surrogates in it (errors="surrogateescape")."""
    whole: bool = True
    """False: a partial line; it comes again."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in the stream of everything ever written: bytes and lines before it."""

    offset: int = 0
    line: int = 0


LOG_START = LogPosition()


class LogReader:
    """Reads from a position; `place` is where the next `read` starts. The log may be from a foreign recording: links
    and special files are not opened."""

    def __init__(
        self, directory: str | os.PathLike[str], position: LogPosition = LOG_START, *, name: str = LOG_NAME
    ) -> None:
        self._directory, self._name = os.fspath(directory), name
        self.place = position
        self.dropped_lines = 0
        self.dropped_bytes = 0
        """Lines and bytes this reader missed because they are not in the log, or no longer."""

    def read(self, limit: int = CHUNK) -> list[StampedLine]:
        """Return the next whole lines, about `limit` bytes; empty if there are none yet. Raises OSError."""
        while True:
            starts = self._list_files()
            current = max((start for start in starts if start.offset <= self.place.offset), default=None, key=_offset)
            later = min((start for start in starts if start.offset > self.place.offset), default=None, key=_offset)
            if current is None and later is None:
                return []
            data = b"" if current is None else self._read_lines(current, limit)
            if data is None:
                continue  # removed since it was listed
            if data:
                return self._parse_lines(data)
            if later is None:
                return []
            # A file is complete once a later one exists: nothing is left up to its start.
            self.dropped_lines += later.line - self.place.line
            self.dropped_bytes += later.offset - self.place.offset
            self.place = later

    def _list_files(self) -> list[LogPosition]:
        found = []
        for name in os.listdir(self._directory):
            if name == head_name(self._name):
                found.append(LogPosition())
            elif (segment := parse_segment_name(self._name, name)) is not None:
                found.append(LogPosition(*segment))
        return found

    def _read_lines(self, start: LogPosition, limit: int) -> bytes | None:
        """Return whole lines from the position on, None if the file was deleted."""
        name = segment_name(self._name, start.offset, start.line) if start.offset else head_name(self._name)
        try:
            with _open_regular(os.path.join(self._directory, name)) as file:
                file.seek(self.place.offset - start.offset)
                data = file.read(limit)
                while data and b"\n" not in data and len(data) < MAX_LINE_BYTES and (more := file.read(limit)):
                    data += more
        except FileNotFoundError:
            return None
        return data[: data.rfind(b"\n") + 1]

    def _parse_lines(self, data: bytes) -> list[StampedLine]:
        lines = [_parse_line(text) for text in data[:-1].split(b"\n")]
        self.place = LogPosition(self.place.offset + len(data), self.place.line + len(lines))
        for line in lines:
            if line.stream == "k":
                self._count_missing(line.text)
        return lines

    def _count_missing(self, text: str) -> None:
        match text.split():
            case ["missing", lines, _, size, *_] if _is_number(lines) and _is_number(size):
                self.dropped_lines += int(lines)
                self.dropped_bytes += int(size)


def _open_regular(path: str) -> BinaryIO:
    """Open a regular file. Raises OSError, also for a link, a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return os.fdopen(descriptor, "rb")


def _offset(place: LogPosition) -> int:
    return place.offset


def _is_number(word: str | bytes) -> bool:
    return word.isdigit() and word.isascii() and len(word) <= _MAX_DIGITS


def _parse_line(data: bytes) -> StampedLine:
    """
    >>> _parse_line(b"17 O 42%")
    StampedLine(wall_us=17, stream='o', text='42%', whole=False)
    """
    stamp, _, rest = data.partition(b" ")
    letter, _, text = rest.partition(b" ")
    if not _is_number(stamp) or len(letter) != 1:
        # After a power failure a file may contain blocks that were never written.
        return StampedLine(0, "k", "a line of the log cannot be read")
    stream = letter.decode("ascii", "replace")
    return StampedLine(int(stamp), stream.lower(), text.decode("utf-8", "surrogateescape"), not stream.isupper())
