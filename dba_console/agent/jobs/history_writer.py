"""The history's file, read and written in a lane: the tick asks how it goes and never waits.

Nothing is written before the file was read, so that a disk that stalls at the start costs no history. What cannot be
read or written is said once, and tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dba_console.agent.jobs import history_files
from dba_console.agent.jobs.job_history import KeptHistory, KeptServer
from dba_console.agent.jobs.server_history import load_server_history
from dba_console.clock import Clock
from dba_console.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.target import Address

IO_TIMEOUT_US = 30_000_000
"""A read or a write that takes longer is given up."""
RETRY_US = 60_000_000
"""From one that failed to the next."""
WRITE_INTERVAL_US = 600_000_000
"""Written so often where nothing happens: how long a hole an agent that is killed leaves."""
CLOSE_S = 1.0
"""The end waits so long for the last write."""


class HistoryFile:
    """Used by the tick alone. Without `keep` it reads only."""

    def __init__(self, path: Path, clock: Clock, address: Address | None = None, *, keep: bool = True) -> None:
        self._path, self._clock, self._address, self._keep = path, clock, address, keep
        self._lane = Lane("jobs", clock)
        self._job: PendingCall[KeptHistory | None] | None = None
        self._begun_us = 0
        self._retry_us = 0
        self._next_us = 0
        self.loaded = False
        """The file was read, or there is none: from now on it is written."""
        self.error: str | None = None
        """Why the history is not read or written now."""

    def read(self, server: KeptServer | None = None) -> KeptHistory | None:
        """The history, once, in the tick in which it has been read; before and after that None. With it comes what
        other targets of `server` have kept.
        """
        if self._job is None:
            self._start(lambda: load_server_history(self._path, server, self._address, keep=self._keep))
            return None
        if not self._ready():
            return None
        history: KeptHistory | None = None
        try:
            history = self._take()
        except history_files.DamagedHistory as error:
            self.error = str(error)  # said once: the next write begins a new file
        except history_files.FAILURES as error:
            self._failed("read", error)
            return None
        else:
            self.error = None
        self.loaded, self._next_us = True, self._clock.mono_us() + WRITE_INTERVAL_US
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
            except history_files.FAILURES as error:
                self._failed("written", error)
            else:
                self.error = None
        mono_us = self._clock.mono_us()
        if self._job is not None or mono_us < self._retry_us or not (now or mono_us >= self._next_us):
            return False
        history = made()
        self._next_us = mono_us + WRITE_INTERVAL_US
        return self._start(lambda: self._save(history))

    def close(self, history: KeptHistory | None) -> None:
        """Write it, where there is one, and wait a second for that; a disk that does not answer is left alone."""
        end_us = self._clock.mono_us() + int(CLOSE_S * 1e6)
        if self._keep and history is not None and self.loaded and self._wait_for_io(end_us):
            self._retry_us = 0
            if self._start(lambda: self._save(history)):
                self._wait_for_io(end_us)
        self._lane.close()

    def _wait_for_io(self, until_us: int) -> bool:
        return self._job is None or self._job.ready(until_us)

    def _save(self, history: KeptHistory) -> None:
        history_files.save_history(self._path, history)

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
        if self._clock.mono_us() - self._begun_us > IO_TIMEOUT_US:
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
        self.error = f"the history of jobs cannot be {done}: {error}"
