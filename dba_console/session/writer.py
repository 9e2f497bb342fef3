"""The thread that writes. It alone waits for the disk; when the disk fails it keeps trying, and says how it stands."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from dba_console.clock import SYSTEM, Clock
from dba_console.session.backlog import Backlog
from dba_console.session.store import Store

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 5.0


class Writer:
    """Empties a backlog into a store until the backlog is closed and empty."""

    def __init__(
        self, store: Store, backlog: Backlog, clock: Clock = SYSTEM, recovered: Callable[[str], None] | None = None
    ) -> None:
        """`recovered` is called, in this thread, with what was wrong once writing works again."""
        self._store = store
        self._backlog = backlog
        self._clock = clock
        self._recovered = recovered
        self._reason = "closed"
        self.failure: str | None = None
        """Why the last write failed, None while writing works."""
        self.busy_since_us: int | None = None
        """Monotonic time at which the write under way began."""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recording-writer", daemon=True)
        self._thread.start()

    def end(self, reason: str) -> None:
        """Let it end once everything is written; an unwritable disk is tried once more and then given up."""
        self._reason = reason
        self._backlog.close()

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while self._wait(retry_s if self.failure else None):
            if self._write():
                retry_s = FIRST_RETRY_S
            elif self._backlog.closing:
                break
            else:
                retry_s = min(retry_s * 2, LAST_RETRY_S)
        self._finish()
        self.ended.set()

    def _wait(self, retry_s: float | None) -> bool:
        """True when there is something to write; False when all is written and nothing will come."""
        backlog = self._backlog
        with backlog.changed:
            if retry_s is not None:
                backlog.changed.wait_for(lambda: backlog.closing, retry_s)
            backlog.changed.wait_for(lambda: backlog.closing or not backlog.empty())
            return not backlog.empty()

    def _write(self) -> bool:
        batch = self._backlog.take()
        self.busy_since_us = self._clock.mono_us()
        try:
            self._store.write(batch)
        except (sqlite3.Error, OSError) as error:
            self.failure = explain(error)
            return False
        finally:
            self.busy_since_us = None
        self._backlog.written(batch)
        failure, self.failure = self.failure, None
        if failure is not None and self._recovered is not None:
            self._recovered(failure)
        return True

    def _finish(self) -> None:
        self.busy_since_us = self._clock.mono_us()
        try:
            if self.failure is None:
                self._store.finish(self._reason)
            self._store.close()
        except (sqlite3.Error, OSError) as error:
            self.failure = explain(error)
        finally:
            self.busy_since_us = None


def explain(error: Exception, path: Path | None = None) -> str:
    """One sentence: what the disk said, and what would help.

    >>> explain(OSError(28, "No space left on device"))
    'no space left for the recording: free some, it goes on by itself'
    """
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    lowered = text.lower()
    where = f" ({path})" if path is not None else ""
    if "full" in lowered or "no space" in lowered or "quota" in lowered:
        return f"no space left for the recording{where}: free some, it goes on by itself"
    if "no such file" in lowered or "another file" in lowered:
        return f"the session directory was removed{where}: restart the agent to record again"
    if "readonly" in lowered or "read-only" in lowered:
        return f"the file system of the recording is read-only{where}: look at the kernel's log, remount it"
    if "i/o error" in lowered or "input/output" in lowered:
        return f"the disk of the recording reports I/O errors{where}: look at the kernel's log"
    return f"the recording cannot be written{where}: {text}"
