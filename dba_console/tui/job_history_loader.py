"""The history of dumps and restores, read by a thread of its own: a dead mount costs it, never the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.clock import SYSTEM, Clock
from dba_console.errors import ConsoleError
from dba_console.frames.past_jobs import TargetJobHistory
from dba_console.redact import redact

if TYPE_CHECKING:
    from dba_console.tui.feed import Session

REREAD_US = 30_000_000
"""While it is looked at it is read again so often: a job that ends meanwhile is soon in it."""


@dataclass(frozen=True, slots=True)
class JobHistoryArrived:
    """The history as it was just read."""

    history: TargetJobHistory


class JobHistoryLoader:
    """Reads the history when it is wanted; `put` is told from the thread that read it."""

    def __init__(
        self, load: Callable[[], TargetJobHistory], put: Callable[[JobHistoryArrived], None], clock: Clock = SYSTEM
    ) -> None:
        self._load, self._put, self._clock = load, put, clock
        self._reading = threading.Lock()
        self._read_us: int | None = None

    def request_read(self) -> None:
        """Read it again, unless it is being read."""
        if self._reading.acquire(blocking=False):
            self._read_us = self._clock.mono_us()
            threading.Thread(target=self._read, name="history", daemon=True).start()

    def reread_if_old(self) -> None:
        """Read it again where what was read last is old."""
        if self._read_us is None or self._clock.mono_us() - self._read_us >= REREAD_US:
            self.request_read()

    def wait_until_read(self, seconds: float) -> bool:
        """Wait until what is being read has been read; False where that takes longer."""
        if not self._reading.acquire(timeout=seconds):
            return False
        self._reading.release()
        return True

    def _read(self) -> None:
        try:
            job_history = self._load()
        except ConsoleError as error:
            job_history = TargetJobHistory(note=redact(error.message))
        except Exception as error:
            # Whatever a file system raises: the screen lives on and says so.
            job_history = TargetJobHistory(note=redact(f"the history of jobs cannot be read: {error}"))
        try:
            self._put(JobHistoryArrived(job_history))
        finally:
            self._reading.release()


def read_history(session: Session) -> TargetJobHistory:
    """The history of the target that is shown. Waits for the disk."""
    from dba_console.agent.jobs.history_reader import read_job_history  # a screen that nobody asks for it does without

    key = session.target_key or _recorded_target_key(session.directory)
    if key is None:
        return TargetJobHistory(note="whose history is meant is not known: the agent has not told its target yet")
    return read_job_history(key)


def _recorded_target_key(directory: Path | None) -> str | None:
    """The target a recording is of; None where it does not say."""
    from dba_console.session.recording import Recording

    if directory is None:
        return None
    recording = Recording.open(directory)
    try:
        return None if recording.meta is None else recording.meta.target_key
    finally:
        recording.close()
