"""The log of a command's output: written by a thread of its own, so that a disk that hangs does not hang the command.

Between the two lies a bounded backlog. While the disk takes what it is given, a command that writes faster waits for it
as for any pipe. Once one write has not returned for PATIENCE_S, or fails, nobody waits any more: what does not fit is
dropped, oldest first (how it ended matters most), counted, and the log says so where it is missing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from dba_console.keeping.line_stamps import NO_LINES, Block
from dba_console.keeping.log_segments import SegmentedLog

if TYPE_CHECKING:
    from collections.abc import Iterable

BACKLOG_BYTES = 1 << 20
"""Bytes waiting to be written; the keeper stays small."""
WRITE_TIMEOUT_S = 2.0
"""Longer than a busy disk takes for a write into the page cache, short for whoever waits behind the command."""
RETRY_S = 1.0
UNWRITTEN_END_BYTES = 1000
SYNC_S = 1.0
"""What was printed longer ago is durable, unless it flows without a pause: a log is not worth a sync per line."""


class OutputLog:
    """`put` from one thread; the files are written by another."""

    def __init__(self, files: SegmentedLog) -> None:
        self._files = files
        self._changed = threading.Condition()
        self._waiting: deque[Block] = deque()
        self._waiting_bytes = 0
        self._unwritten: Block = NO_LINES
        """What a write did not take; older than all that waits."""
        self._missing = [0, 0]
        self.dropped_lines = 0
        self.dropped_bytes = 0
        self._busy_since: float | None = None
        self._failing = False
        self._stuck = False
        self._complete = False
        self.unwritten_end = b""
        """The last of what could not be written, at most UNWRITTEN_END bytes."""
        self._close_deadline: float | None = None
        self._synced_at = 0.0
        self._dirty = False
        # A daemon: what hangs in the kernel must not keep the keeper from ending when it is told to.
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def put(self, block: Block) -> None:
        """Have a block of whole lines written. Waits only for a disk that takes what it is given."""
        with self._changed:
            while self._waiting and self._waiting_bytes + len(block[0]) > BACKLOG_BYTES and not self._disk_unusable():
                self._changed.wait(WRITE_TIMEOUT_S / 4)
            self._waiting.append(block)
            self._waiting_bytes += len(block[0])
            while self._waiting_bytes > BACKLOG_BYTES and len(self._waiting) > 1:
                self._drop(self._waiting.popleft())
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Write what waits and make all of it durable; whether that was done.

        A disk that refuses is asked again for `timeout_s`. For one that hangs there is no limit: nothing else could be
        written to it either.
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
        """What to write next, nothing where it is time to sync, None at the end."""
        with self._changed:
            while True:
                closing = self._close_deadline is not None
                if self._failing:
                    if self._close_deadline_passed():
                        return None
                    # Whoever puts something wakes us; a full disk is not asked again for each line.
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
        words = b"%d k missing %d lines, %d bytes: the disk of the log did not take them\n"
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
            pass  # the end says whether all is durable
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
