"""What the heartbeat process writes down: one JSON array a line, appended by one thread, collected from all.

Beats are `["w", begun, ended, server]` and `["r", …]`, failed ones `["W", begun, ended, error]`, in microseconds of the
monotonic clock. Beats wait in memory for the next flush: a disk that hangs delays the record, not the beats.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dba_console.clock import SYSTEM
from dba_console.keeping.atomic_files import write_all

WRITE, READ = "w", "r"
MOST_LINES = 200_000
"""Kept in memory while the disk takes nothing: half an hour of beats."""


class BeatRecord:
    """The lines that are not on disk yet. Used by all threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._lock = threading.Lock()
        self._lines: list[list[Any]] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._ended_us: int | None = None
        self.first_write_ended = threading.Event()
        """There was a write, acknowledged or not."""

    def put(self, *line: Any) -> None:
        with self._lock:
            self._lines.append(list(line))

    def beat(self, sign: str, begun_us: int, answer: Mapping[str, str]) -> None:
        """An acknowledged beat, ended now."""
        ended_us = SYSTEM.mono_us()
        server = {name: answer.get(name) for name in ("address", "port", "in_recovery", "timeline")}
        self.put(sign, begun_us, ended_us, self._number("server", server))
        self._note_first_write(sign)

    def failure(self, sign: str, begun_us: int, text: str) -> None:
        self.put(sign.upper(), begun_us, SYSTEM.mono_us(), self._number("error", text))
        self._note_first_write(sign)

    def _note_first_write(self, sign: str) -> None:
        if sign == WRITE:
            self.first_write_ended.set()

    def removed(self) -> bool:
        """Whether its file is gone: nobody will read it."""
        return os.fstat(self._descriptor).st_nlink == 0

    def end(self) -> None:
        """Nothing is measured from now on."""
        self._ended_us = SYSTEM.mono_us()

    def flush(self) -> None:
        """Append what is there. What the disk does not take now is kept for the next time."""
        with self._lock:
            # Taken under the lock: every beat that ended before this time is in these lines or already on disk.
            lines, self._lines = [*self._lines, ["at", self._ended_us or SYSTEM.mono_us()]], []
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        try:
            write_all(self._descriptor, data)
            self._size += len(data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            with self._lock:
                self._lines = (lines[:-1] + self._lines)[-MOST_LINES:]

    def _number(self, kind: str, value: Any) -> int:
        """A server or an error by its number; introduced by a line of its own when it is met first."""
        with self._lock:
            key = (kind, json.dumps(value))
            if key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._lines.append([kind, self._numbers[key], value])
            return self._numbers[key]
