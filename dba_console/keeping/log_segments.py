"""The files of a log with a bound: its beginning in `out.log`, its end in segments of which the older go.

What is written is one stream of stamped lines. The first `head_bytes` of it are `out.log`; what comes after goes to
`out-<offset>-<line>.tail`, named after the place in the stream where the file begins. Of these the last two are kept,
each of half of `tail_bytes`: of a long output at least the last half of `tail_bytes` is there, at most all of it. Lines
are never divided between files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dba_console.keeping.atomic_files import sync_directory, write_all

if TYPE_CHECKING:
    from dba_console.keeping.line_stamps import Block

LOG_NAME = "out"
"""Of a keeper's log; others may be called otherwise."""
SEGMENTS_KEPT = 2


def head_name(log: str) -> str:
    return f"{log}.log"


def segment_name(log: str, offset: int, line: int) -> str:
    return f"{log}-{offset}-{line}.tail"


def parse_segment_name(log: str, name: str) -> tuple[int, int] | None:
    """Offset and number of the first line of a segment, None where the name is another file's.

    >>> parse_segment_name("out", "out-4096-17.tail"), parse_segment_name("out", "out.log")
    ((4096, 17), None)
    """
    if not (name.startswith(f"{log}-") and name.endswith(".tail")):
        return None
    offset, _, line = name[len(log) + 1 : -5].partition("-")
    if not (offset.isdecimal() and line.isdecimal()):
        return None
    found = int(offset), int(line)
    # Nothing of a stream begins at 0 but its head; another spelling of a number is not the name of a file of ours.
    return found if found[0] and name == segment_name(log, *found) else None


class SegmentedLog:
    """Writes the files. Not shared between threads."""

    def __init__(self, directory: str, head_bytes: int, tail_bytes: int, name: str = LOG_NAME) -> None:
        """Makes `<name>.log`. Raises OSError."""
        self._directory, self._name = directory, name
        self._segment_bytes = max(1, tail_bytes // SEGMENTS_KEPT)
        self._descriptor = self._create(head_name(name))
        self._size, self._room = 0, head_bytes
        self._segments: list[tuple[int, int]] = []
        self.offset = 0
        self.lines = 0
        """Bytes and lines written since the beginning."""
        self.rolled_lines = 0
        self.rolled_bytes = 0
        """What was written and is no longer there."""
        self.error: OSError | None = None

    def append(self, block: bytes, lines: int) -> Block:
        """Write a block of so many whole lines. Gives what was not written, whole lines too; `error` says why."""
        done, self.error = 0, None
        while done < len(block):
            fitting = self._fitting_end(block, done)
            try:
                if fitting == done:
                    self._roll()
                    continue
                write_all(self._descriptor, memoryview(block)[done:fitting])
            except OSError as error:
                self.error = error
                # Of a line that was begun nothing stays. Shrinking needs no room.
                os.ftruncate(self._descriptor, self._size)
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
                break
            self._size += fitting - done
            self.offset += fitting - done
            written = lines if fitting == len(block) else block.count(b"\n", done, fitting)
            self.lines += written
            lines -= written
            done = fitting
        return block[done:], lines

    def _fitting_end(self, block: bytes, begin: int) -> int:
        """Where the lines end that still fit into the open file; one that fits nowhere goes into an empty one."""
        room = self._room - self._size
        if len(block) - begin <= room:
            return len(block)
        end = block.rfind(b"\n", begin, begin + max(room, 0)) + 1
        if end <= begin and self._size == 0:
            end = block.find(b"\n", begin) + 1
        return max(end, begin)

    def _roll(self) -> None:
        if not self._segments:
            os.fdatasync(self._descriptor)
        descriptor = self._create(segment_name(self._name, self.offset, self.lines))
        os.close(self._descriptor)
        self._descriptor, self._size, self._room = descriptor, 0, self._segment_bytes
        self._segments.append((self.offset, self.lines))
        if len(self._segments) > SEGMENTS_KEPT:
            oldest, second = self._segments.pop(0), self._segments[0]
            os.unlink(os.path.join(self._directory, segment_name(self._name, *oldest)))
            self.rolled_bytes += second[0] - oldest[0]
            self.rolled_lines += second[1] - oldest[1]

    def _create(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(os.path.join(self._directory, name), flags, 0o600)

    def sync(self) -> None:
        """What the open file holds is durable after this. Raises OSError."""
        os.fdatasync(self._descriptor)

    def finish(self) -> None:
        """All that is kept is durable after this, and nothing more is written. Raises OSError."""
        self.sync()
        for segment in self._segments[:-1]:
            descriptor = os.open(
                os.path.join(self._directory, segment_name(self._name, *segment)), os.O_RDONLY | os.O_CLOEXEC
            )
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(self._directory)
        os.close(self._descriptor)
