"""Loads the runbooks and the job history, each in its own thread: a dead mount never blocks the screen."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.jobs.history.duration_trend import TargetJobHistory

if TYPE_CHECKING:
    from dba_console.runbooks.library import ListedRunbook
    from dba_console.tui.feed import Session


T = TypeVar("T")

REREAD_US = 30_000_000
"""Age from which what is shown is read again, so that a job that ends appears soon."""


class BackgroundLoader(Generic[T]):
    """Reads something on request, one read at a time; `put` is called from the reading thread.

    `describe_failure` makes what is put in place of something that cannot be read, from the reason.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], T],
        describe_failure: Callable[[str], T],
        put: Callable[[T], None],
        clock: Clock = SYSTEM,
    ) -> None:
        self._name, self._load, self._describe_failure = name, load, describe_failure
        self._put, self._clock = put, clock
        self._reading = threading.Lock()
        self._read_us: int | None = None

    def request_read(self) -> None:
        """Read it again, unless a read is in progress."""
        if self._reading.acquire(blocking=False):
            self._read_us = self._clock.mono_us()
            threading.Thread(target=self._read, name=f"read {self._name}", daemon=True).start()

    def reread_if_old(self) -> None:
        """Read it again if the last read is old."""
        if self._read_us is None or self._clock.mono_us() - self._read_us >= REREAD_US:
            self.request_read()

    def wait_until_read(self, seconds: float) -> bool:
        """Wait until the read in progress has finished; False if it takes longer."""
        if not self._reading.acquire(timeout=seconds):
            return False
        self._reading.release()
        return True

    def _read(self) -> None:
        try:
            self._put(self._load())
        except ConsoleError as error:
            self._put(self._describe_failure(redact("; ".join(filter(None, (error.message, error.hint))))))
        except Exception as error:
            # A file system may raise anything: the screen keeps running and shows it.
            self._put(self._describe_failure(redact(f"cannot read the {self._name}: {error}")))
        finally:
            self._reading.release()


# The runbooks.


@dataclass(frozen=True, slots=True)
class RunbooksArrived:
    """All runbooks, or the reason why they cannot be read."""

    runbooks: tuple[ListedRunbook, ...] = ()
    problem: str = ""

    def find(self, runbook_id: str) -> ListedRunbook | None:
        """Return the runbook of that id, None if not found."""
        return next((book for book in self.runbooks if book.entry.id == runbook_id), None)


def read_runbooks(directories: Sequence[str]) -> RunbooksArrived:
    """Read the shipped runbooks and those of the directories, with the problems of those that cannot be read.

    Settings of actions are not checked here: the agent compiles a document again before it runs anything.
    """
    from dba_console.runbooks import library

    return RunbooksArrived(tuple(library.listed(directories)), "; ".join(library.unreadable(directories)))


# The history of dumps and restores.


def read_history(session: Session) -> TargetJobHistory:
    """Read the history of the target shown. Waits for the disk."""
    from dba_console.jobs.history.history_reader import (
        read_job_history,  # imported only when the history is opened
    )

    key = session.target_key or _recorded_target_key(session.directory)
    if key is None:
        return TargetJobHistory(note="the agent has not reported its target yet, so its history cannot be found")
    return read_job_history(key)


def _recorded_target_key(directory: Path | None) -> str | None:
    """Return the target of a recording; None if the recording does not name it."""
    from dba_console.recording.recording import Recording

    if directory is None:
        return None
    recording = Recording.open(directory)
    try:
        return None if recording.meta is None else recording.meta.target_key
    finally:
        recording.close()


# The postmortem of a finding.


def write_postmortem(session: Path, finding: str | None, at_us: int | None) -> str:
    """Write it below the state directory, for the session without a finding; return a sentence with its directory.

    `at_us`: the time shown, when the finding was open.
    """
    from dba_console.core.paths import private_dir, state_dir
    from dba_console.recording.recording import Recording
    from dba_console.reports.postmortem import render
    from dba_console.reports.postmortem.gather import Asked

    subject = re.sub(r"[^A-Za-z0-9_-]+", "-", finding or "session")[:60]
    directory = private_dir(state_dir() / "reports") / f"{session.name}-{subject}-{time.strftime('%H%M%S')}"
    recording = Recording.open(session)
    try:
        render.write_postmortem(recording, Asked(finding=finding, at_us=at_us), directory)
    finally:
        recording.close()
    return f"postmortem.md and postmortem.html written to {directory}"
