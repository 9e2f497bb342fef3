"""What operators said of findings, kept beside the agent's socket so that the next agent knows it too.

That directory is memory-backed on most hosts and may be on a stalled disk on others ($DBA_CONSOLE_RUNTIME, /tmp): so it
is read and written in a lane, and neither the tick nor whoever spoke waits for it. It is gone with a reboot, which is
news enough.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from dba_console.clock import Clock
from dba_console.findings.quiet import Word
from dba_console.probes.lane import Lane, LaneTimeout, Pending
from dba_console.records import json_decoder

Words = dict[str, dict[str, Word]]

_DECODER = json_decoder(Words)
SIZE_LIMIT = 1 << 20
READ_S = 1.0
"""The start waits so long for what was said before; then it goes on without."""
SLOW_US = 30_000_000
"""A write that takes longer is given up, and begun anew in another thread."""
CLOSE_S = 1.0
"""The end waits so long for the last write."""


class Said:
    """The file of one target. `keep` may be called by any thread, the rest by the tick's alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._lane = Lane("said", clock)
        self._job: Pending[None] | None = None
        self._begun_us = 0
        self._kept: Words = {}
        self._wanted = self._writing = self._kept

    def load(self) -> Words:
        """What was said before; nothing where there is no such file, or it cannot be read in time."""
        try:
            return self._lane.call(lambda: load_words(self._path), READ_S)
        except LaneTimeout:
            return {}

    def keep(self, words: Words) -> None:
        """To be written in the next tick, where it is not what was kept last."""
        if words != self._wanted:
            self._wanted = words

    def attend(self) -> None:
        """See to the file, without waiting for it."""
        if self._job is not None:
            if self._job.ready(0):
                self._job, self._kept = None, self._writing
            elif self._clock.mono_us() - self._begun_us > SLOW_US:
                self._lane.abandon()
                self._job = None
        words = self._wanted
        if self._job is None and words is not self._kept:
            try:
                self._job = self._lane.start(lambda: save_words(self._path, words))
            except LaneTimeout:
                return
            self._writing, self._begun_us = words, self._clock.mono_us()

    def close(self) -> None:
        """Write what was said last; a disk that does not answer is waited for a second."""
        until_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._job is None or self._job.ready(until_us):
            self.attend()
        if self._job is not None:
            self._job.ready(until_us)
        self._lane.close()


def load_words(path: Path) -> Words:
    """What the file holds; nothing where there is none or it cannot be read."""
    try:
        data = path.read_bytes()
        return _DECODER.decode(data) if len(data) <= SIZE_LIMIT else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def save_words(path: Path, words: Words) -> None:
    """Write what was said, readable by its owner alone. A failure costs only that the next agent does not know it."""
    if not any(words.values()) and not path.exists():
        return
    new = path.with_suffix(".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(words))
        os.replace(new, path)
    except OSError:
        pass
