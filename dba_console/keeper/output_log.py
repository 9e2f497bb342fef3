"""The log of a command's output: line stamps, log files with a size limit, and a writer thread.

The thread decouples the command from a hanging disk, with a bounded backlog in between. While the disk accepts writes,
a command that writes faster waits as for any pipe. Once a write has not returned for WRITE_TIMEOUT_S, or fails, the
command no longer waits: what does not fit is dropped, oldest first (the end of the output matters most), counted, and
noted in the log at that place.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from dba_console.core.atomic_files import sync_directory, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable

# Line stamps: `<microseconds since 1970> <letter> <text>`. The letter is `o` or `e` for a whole line of stdout or
# stderr, `O` or `E` for a partial line (a progress line that overwrites itself with carriage returns, a prompt without
# a line end), `k` for a message of the keeper.
#
# Bytes are kept as they came, including control characters, except the line end. Of a line that overwrote itself the
# last text is kept; meanwhile it is logged as a partial line, at most once a second. All lines of one read carry the
# time of that read.

Block = tuple[bytes, int]
"""Stamped lines, and their number: counting them again would cost as much as stamping them."""
NO_LINES: Block = (b"", 0)

LINE_LIMIT = 1 << 16
"""Bytes; a longer line is cut into several."""


class LineStamper:
    """Stamps the lines of one output stream of a command."""

    def __init__(self, letter: bytes) -> None:
        """`letter` is b"o" or b"e"."""
        self._letter = letter
        self._open = b""
        """The partial line. A carriage return at its end may be half of a line end."""
        self._shown = b""
        self.overwrites = False
        """Whether the partial line overwrote itself, so that more of it may come for hours."""

    def feed(self, text: bytes, wall_us: int) -> Block:
        """Return the stamped lines that `text` completes."""
        text = self._open + text
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        cut = text.rfind(b"\n")
        self._open = text[cut + 1 :]
        if cut >= 0:
            self.overwrites = False
        if b"\r" in self._open:
            self.overwrites = True
            self._open = _visible_text(self._open) + (b"\r" if self._open.endswith(b"\r") else b"")
        lines = text[:cut] if cut >= 0 else None
        if len(self._open) >= LINE_LIMIT:
            lines = self._open if lines is None else lines + b"\n" + self._open
            self._open = b""
        if lines is None:
            return NO_LINES
        self._shown = b""
        if b"\r" in lines:
            lines = b"\n".join(map(_visible_text, lines.split(b"\n")))
        return _stamp_lines(lines, wall_us, self._letter)

    def partial_line(self, wall_us: int) -> Block:
        """Return the partial line, stamped; nothing if it was returned already."""
        text = self._open.rstrip(b"\r")
        if not text or text == self._shown:
            return NO_LINES
        self._shown = text
        return _stamp_lines(text, wall_us, self._letter.upper())

    @property
    def has_partial_line(self) -> bool:
        """Whether `partial_line` would return something."""
        return self._open.rstrip(b"\r") not in (b"", self._shown)

    def close(self, wall_us: int) -> Block:
        """End the stream; return a last line without a line end, stamped."""
        text, self._open = self._open.rstrip(b"\r"), b""
        return _stamp_lines(text, wall_us, self._letter) if text else NO_LINES


def _visible_text(line: bytes) -> bytes:
    """Return the visible text of a line that overwrote itself.

    >>> _visible_text(b"10%\\r20%\\r"), _visible_text(b"plain")
    (b'20%', b'plain')
    """
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def _stamp_lines(lines: bytes, wall_us: int, letter: bytes) -> Block:
    """
    >>> _stamp_lines(b"a\\nb", 7, b"o")
    (b'7 o a\\n7 o b\\n', 2)
    """
    stamp = b"%d %b " % (wall_us, letter)
    stamped = stamp + lines.replace(b"\n", b"\n" + stamp) + b"\n"
    return stamped, (len(stamped) - len(lines) - 1) // len(stamp)


# The log files, limited in size: the start of the output in `out.log`, its end in segments, of which older ones are
# deleted. The log is one stream of stamped lines. Its first `head_bytes` are `out.log`; the rest goes to
# `out-<offset>-<line>.tail`, named by its start in the stream. The last two of these are kept, each of half of
# `tail_bytes`: of a long output at least the last half of `tail_bytes` is there, at most all of it. Lines are never
# split between files.

LOG_NAME = "out"
"""Name of a keeper's log; others may have another name."""
SEGMENTS_KEPT = 2


def head_name(log: str) -> str:
    return f"{log}.log"


def segment_name(log: str, offset: int, line: int) -> str:
    return f"{log}-{offset}-{line}.tail"


def parse_segment_name(log: str, name: str) -> tuple[int, int] | None:
    """Return offset and number of the first line of a segment, None for another file's name.

    >>> parse_segment_name("out", "out-4096-17.tail"), parse_segment_name("out", "out.log")
    ((4096, 17), None)
    """
    if not (name.startswith(f"{log}-") and name.endswith(".tail")):
        return None
    offset, _, line = name[len(log) + 1 : -5].partition("-")
    if not (offset.isdecimal() and line.isdecimal()):
        return None
    found = int(offset), int(line)
    # Only the head starts at 0; a number spelled differently is not a name of our files.
    return found if found[0] and name == segment_name(log, *found) else None


class SegmentedLog:
    """Writes the log files. Not thread-safe."""

    def __init__(self, directory: str, head_bytes: int, tail_bytes: int, name: str = LOG_NAME) -> None:
        """Create `<name>.log`. Raises OSError."""
        self._directory, self._name = directory, name
        self._segment_bytes = max(1, tail_bytes // SEGMENTS_KEPT)
        self._descriptor = self._create(head_name(name))
        self._size, self._limit = 0, head_bytes
        self._segments: list[tuple[int, int]] = []
        self.offset = 0
        self.lines = 0
        """Bytes and lines written since the start."""
        self.rolled_lines = 0
        self.rolled_bytes = 0
        """Lines and bytes of deleted segments."""
        self.error: OSError | None = None

    def append(self, block: bytes, lines: int) -> Block:
        """Write a block of `lines` whole lines. Return what was not written, whole lines too; `error` is the reason."""
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
                # Remove a partially written line. Truncating needs no space.
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
        """Return the end of the lines that fit into the open file; a line too long for any goes into an empty one."""
        space = self._limit - self._size
        if len(block) - begin <= space:
            return len(block)
        end = block.rfind(b"\n", begin, begin + max(space, 0)) + 1
        if end <= begin and self._size == 0:
            end = block.find(b"\n", begin) + 1
        return max(end, begin)

    def _roll(self) -> None:
        if not self._segments:
            os.fdatasync(self._descriptor)
        descriptor = self._create(segment_name(self._name, self.offset, self.lines))
        os.close(self._descriptor)
        self._descriptor, self._size, self._limit = descriptor, 0, self._segment_bytes
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
        """Make the content of the open file durable. Raises OSError."""
        os.fdatasync(self._descriptor)

    def finish(self) -> None:
        """Make everything durable and close the log. Raises OSError."""
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


BACKLOG_BYTES = 1 << 20
"""Maximum bytes waiting to be written; the keeper stays small."""
WRITE_TIMEOUT_S = 2.0
"""Longer than a busy disk needs for a write into the page cache, short for a command that waits for it."""
RETRY_S = 1.0
UNWRITTEN_END_BYTES = 1000
SYNC_S = 1.0
"""Older output is durable, unless it comes without a pause: a log is not worth a sync per line."""


class OutputLog:
    """`put` is called by one thread; another writes the files."""

    def __init__(self, files: SegmentedLog) -> None:
        self._files = files
        self._changed = threading.Condition()
        self._waiting: deque[Block] = deque()
        self._waiting_bytes = 0
        self._unwritten: Block = NO_LINES
        """What a write did not complete; older than all that waits."""
        self._missing = [0, 0]
        self.dropped_lines = 0
        self.dropped_bytes = 0
        self._busy_since: float | None = None
        self._failing = False
        self._stuck = False
        self._complete = False
        self.unwritten_end = b""
        """The end of what could not be written, at most UNWRITTEN_END_BYTES."""
        self._close_deadline: float | None = None
        self._synced_at = 0.0
        self._dirty = False
        # A daemon: a write that hangs in the kernel must not keep the keeper from ending.
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def put(self, block: Block) -> None:
        """Queue a block of whole lines. Waits only while the disk accepts writes."""
        with self._changed:
            while self._waiting and self._waiting_bytes + len(block[0]) > BACKLOG_BYTES and not self._disk_unusable():
                self._changed.wait(WRITE_TIMEOUT_S / 4)
            self._waiting.append(block)
            self._waiting_bytes += len(block[0])
            while self._waiting_bytes > BACKLOG_BYTES and len(self._waiting) > 1:
                self._drop(self._waiting.popleft())
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Write what waits and make everything durable; return whether that succeeded.

        A disk that refuses writes is retried for `timeout_s`. For one that hangs there is no limit: nothing else could
        be written to it either.
        """
        with self._changed:
            self._close_deadline = time.monotonic() + timeout_s
            self._changed.notify_all()
        self._thread.join()
        return self._complete

    def _disk_unusable(self) -> bool:
        if self._busy_since is not None and time.monotonic() - self._busy_since > WRITE_TIMEOUT_S:
            self._stuck = True
        return self._stuck or self._failing

    def _drop(self, block: Block) -> None:
        self._waiting_bytes -= len(block[0])
        self._count_missing(block)

    def _count_missing(self, block: Block) -> None:
        text, lines = block
        self._missing[0] += lines
        self._missing[1] += len(text)
        self.dropped_lines += lines
        self.dropped_bytes += len(text)

    def _work(self) -> None:
        while (block := self._next()) is not None:
            if block[1]:
                self._write(block)
            elif self._dirty:
                self._sync()
        self._finish()

    def _next(self) -> Block | None:
        """Return what to write next, no lines when a sync is due, None at the end."""
        with self._changed:
            while True:
                closing = self._close_deadline is not None
                if self._failing:
                    if self._close_deadline_passed():
                        return None
                    # `put` wakes this thread; a full disk is not retried for each line.
                    self._pause(RETRY_S)
                if self._unwritten[1] or self._waiting:
                    return self._take()
                if closing:
                    return None
                left = self._synced_at + SYNC_S - time.monotonic() if self._dirty else None
                if left is not None and left <= 0:
                    return NO_LINES
                self._changed.wait(left)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._close_deadline_passed():
            self._changed.wait(left)

    def _close_deadline_passed(self) -> bool:
        return self._close_deadline is not None and time.monotonic() >= self._close_deadline

    def _take(self) -> Block:
        self._busy_since = time.monotonic()
        if self._unwritten[1]:
            return self._unwritten
        block = _joined((self._missing_line(), *self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._changed.notify_all()
        return block

    def _missing_line(self) -> Block:
        lines, size = self._missing
        if not lines:
            return NO_LINES
        self._missing = [0, 0]
        words = b"%d k missing %d lines, %d bytes: the log's disk did not accept them\n"
        return words % (time.time_ns() // 1000, lines, size), 1

    def _write(self, block: Block) -> None:
        rest = self._files.append(*block)
        with self._changed:
            self._unwritten, self._failing = rest, bool(rest[1])
            self._write_returned()

    def _sync(self) -> None:
        with self._changed:
            self._busy_since = time.monotonic()
        try:
            self._files.sync()
        except OSError:
            pass  # the end reports whether all is durable
        with self._changed:
            self._synced_at, self._dirty = time.monotonic(), False
            self._busy_since, self._stuck = None, False

    def _write_returned(self) -> None:
        if not self._dirty:
            self._synced_at = time.monotonic()
        self._dirty, self._stuck, self._busy_since = True, False, None
        self._changed.notify_all()

    def _finish(self) -> None:
        with self._changed:
            left = _joined((self._unwritten, *self._waiting))
            self.unwritten_end = left[0][-UNWRITTEN_END_BYTES:]
            self._waiting.clear()
            self._count_missing(left)
            missing = self._missing_line()
        try:
            self._complete = not self._files.append(*missing)[1] and not left[1]
            self._files.finish()
        except OSError:
            self._complete = False


def _joined(blocks: Iterable[Block]) -> Block:
    texts, counts = zip(*blocks, strict=True)
    return b"".join(texts), sum(counts)
