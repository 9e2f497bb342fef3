"""The history's file, read and written in a lane: the tick asks how it goes and never waits.

Nothing is written before the file was read, so that a disk that stalls at the start costs no history. What cannot be
read or written is said once, and tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dba_console.agent.jobs import store
from dba_console.agent.jobs.gathering import gather
from dba_console.agent.jobs.history import KeptHistory, KeptServer
from dba_console.clock import Clock
from dba_console.probes.lane import Lane, LaneTimeout, Pending
from dba_console.target import Address

SLOW_US = 30_000_000
"""A read or a write that takes longer is given up."""
RETRY_US = 60_000_000
"""From one that failed to the next."""
KEEP_US = 600_000_000
"""Written so often where nothing happens: how long a hole an agent that is killed leaves."""
CLOSE_S = 1.0
"""The end waits so long for the last write."""


class Keeping:
    """Used by the tick alone. Without `keep` it reads only."""

    def __init__(self, path: Path, clock: Clock, address: Address | None = None, *, keep: bool = True) -> None:
        self._path, self._clock, self._address, self._keep = path, clock, address, keep
        self._lane = Lane("jobs", clock)
        self._job: Pending[KeptHistory | None] | None = None
        self._begun_us = 0
        self._retry_us = 0
        self._next_us = 0
        self.loaded = False
        """The file was read, or there is none: from now on it is written."""
        self.trouble: str | None = None
        """Why the history is not read or written now."""

    def read(self, server: KeptServer | None = None) -> KeptHistory | None:
        """The history, once, in the tick in which it has been read; before and after that None. With it comes what
        other targets of `server` have kept.
        """
        if self._job is None:
            self._start(lambda: gather(self._path, server, self._address, keep=self._keep))
            return None
        if not self._ready():
            return None
        history: KeptHistory | None = None
        try:
            history = self._take()
        except store.Damaged as error:
            self.trouble = str(error)  # said once: the next write begins a new file
        except store.FAILURES as error:
            self._failed("read", error)
            return None
        else:
            self.trouble = None
        self.loaded, self._next_us = True, self._clock.mono_us() + KEEP_US
        return history

    def write(self, made: Callable[[], KeptHistory], *, now: bool) -> bool:
        """Go on writing, and begin where nothing is under way and it is due, or `now` that something changed; True when
        it was begun.
        """
        if not self._keep:
            return False
        if self._job is not None and self._ready():
            try:
                self._take()
            except store.FAILURES as error:
                self._failed("written", error)
            else:
                self.trouble = None
        mono_us = self._clock.mono_us()
        if self._job is not None or mono_us < self._retry_us or not (now or mono_us >= self._next_us):
            return False
        history = made()
        self._next_us = mono_us + KEEP_US
        return self._start(lambda: self._save(history))

    def close(self, history: KeptHistory | None) -> None:
        """Write it, where there is one, and wait a second for that; a disk that does not answer is left alone."""
        end_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._keep and history is not None and self.loaded and self._settled(end_us):
            self._retry_us = 0
            if self._start(lambda: self._save(history)):
                self._settled(end_us)
        self._lane.close()

    def _settled(self, until_us: int) -> bool:
        return self._job is None or self._job.ready(until_us)

    def _save(self, history: KeptHistory) -> None:
        store.save(self._path, history)

    def _start(self, call: Callable[[], KeptHistory | None]) -> bool:
        mono_us = self._clock.mono_us()
        if mono_us < self._retry_us:
            return False
        try:
            self._job, self._begun_us = self._lane.start(call), mono_us
        except LaneTimeout:
            return False
        return True

    def _ready(self) -> bool:
        assert self._job is not None
        if self._job.ready(0):
            return True
        if self._clock.mono_us() - self._begun_us > SLOW_US:
            self._lane.abandon()
            self._failed("reached", "its disk does not answer")
        return False

    def _take(self) -> KeptHistory | None:
        assert self._job is not None
        job, self._job = self._job, None
        return job.result(0)

    def _failed(self, done: str, error: Exception | str) -> None:
        self._job = None
        self._retry_us = self._next_us = self._clock.mono_us() + RETRY_US
        self.trouble = f"the history of jobs cannot be {done}: {error}"
