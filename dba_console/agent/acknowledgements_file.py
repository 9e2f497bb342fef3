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
from dba_console.decoding import json_decoder
from dba_console.findings.silences import FindingMark
from dba_console.probes.deadline_lane import Lane, LaneTimeout, PendingCall

OperatorEntries = dict[str, dict[str, FindingMark]]

_DECODER = json_decoder(OperatorEntries)
SIZE_LIMIT = 1 << 20
READ_S = 1.0
"""The start waits so long for what was said before; then it goes on without."""
WRITE_TIMEOUT_US = 30_000_000
"""A write that takes longer is given up, and begun anew in another thread."""
CLOSE_S = 1.0
"""The end waits so long for the last write."""


class AcknowledgementsFile:
    """The file of one target. `set_entries` may be called by any thread, the rest by the tick's alone."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._lane = Lane("said", clock)
        self._job: PendingCall[None] | None = None
        self._begun_us = 0
        self._written: OperatorEntries = {}
        self._latest = self._writing = self._written

    def load(self) -> OperatorEntries:
        """What was said before; nothing where there is no such file, or it cannot be read in time."""
        try:
            return self._lane.call(lambda: load_entries(self._path), READ_S)
        except LaneTimeout:
            return {}

    def set_entries(self, words: OperatorEntries) -> None:
        """To be written in the next tick, where it is not what was kept last."""
        if words != self._latest:
            self._latest = words

    def write_if_due(self) -> None:
        """See to the file, without waiting for it."""
        if self._job is not None:
            if self._job.ready(0):
                self._job, self._written = None, self._writing
            elif self._clock.mono_us() - self._begun_us > WRITE_TIMEOUT_US:
                self._lane.abandon()
                self._job = None
        words = self._latest
        if self._job is None and words is not self._written:
            try:
                self._job = self._lane.start(lambda: save_entries(self._path, words))
            except LaneTimeout:
                return
            self._writing, self._begun_us = words, self._clock.mono_us()

    def close(self) -> None:
        """Write what was said last; a disk that does not answer is waited for a second."""
        until_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._job is None or self._job.ready(until_us):
            self.write_if_due()
        if self._job is not None:
            self._job.ready(until_us)
        self._lane.close()


def load_entries(path: Path) -> OperatorEntries:
    """What the file holds; nothing where there is none or it cannot be read."""
    try:
        data = path.read_bytes()
        return _DECODER.decode(data) if len(data) <= SIZE_LIMIT else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def save_entries(path: Path, words: OperatorEntries) -> None:
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
