"""Stop, pause and progress of the running act. Set by the listener's thread, read by the run's."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dba_console.core.clock import Clock
from dba_console.core.units import human_duration

PROGRESS_INTERVAL_US = 250_000
"""Minimum interval between two progress texts that are shown."""


class ActionControl:
    """Implements `actions.action.Control`. `told` is called after a change to show."""

    def __init__(self, clock: Clock, told: Callable[[], None]) -> None:
        self._clock, self._on_progress = clock, told
        self._condition = threading.Condition()
        self._stopped = self._paused = False
        self._last_us = 0
        self.stopped_by = ""
        self.active = False
        """An act that can be stopped is running."""
        self.progress = ""

    def begin(self, stopped_by: str = "") -> None:
        """Start an act; earlier requests do not apply to it. `stopped_by`: the operator who has already stopped it."""
        with self._condition:
            self._stopped, self._paused = bool(stopped_by), False
            self.stopped_by, self.progress, self.active = stopped_by, "", True
        self._on_progress()

    def end(self) -> None:
        with self._condition:
            self.active, self.progress = False, ""

    def stop(self, who: str) -> bool:
        """Stop the act at its next safe point; return whether there was one."""
        with self._condition:
            if not self.active:
                return False
            self._stopped, self._paused, self.stopped_by = True, False, who
            self._condition.notify_all()
            return True

    def pause(self, paused: bool) -> bool:
        """Pause or continue the act; return whether there was one."""
        with self._condition:
            if not self.active:
                return False
            self._paused = paused
            self._condition.notify_all()
            return True

    def stop_requested(self) -> bool:
        return self._stopped

    def pause_requested(self) -> bool:
        return self._paused

    def report_progress(self, text: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        self.progress = _progress(text, done, total, unit)
        now = self._clock.mono_us()
        if now - self._last_us >= PROGRESS_INTERVAL_US:
            self._last_us = now
            self._on_progress()

    def wait(self, seconds: float) -> bool:
        until_us = self._clock.mono_us() + int(seconds * 1e6)
        with self._condition:
            while not self._stopped and (left_us := until_us - self._clock.mono_us()) > 0:
                self._condition.wait(left_us / 1e6)
            return self._stopped


def _progress(text: str, done: float | None, total: float | None, unit: str) -> str:
    """
    >>> _progress("cutting", 1.0, 4.0, "GB"), _progress("waits", None, None, "")
    ('cutting: 1 of 4 GB (25 %)', 'waits')
    """
    if done is None:
        return text
    if total is None or total <= 0:
        return f"{text}: {_figure(done, unit)}"
    share = f"{done / total * 100:.0f} %"
    if unit == "bytes":
        return f"{text}: {_figure(done, unit)} of {_figure(total, unit)} ({share})"
    if unit == "s":
        return f"{text}: {human_duration(done)} of {human_duration(total)} ({share})"
    return f"{text}: {done:g} of {total:g} {unit}".rstrip() + f" ({share})"


def _figure(value: float, unit: str) -> str:
    from dba_console.core.units import human_bytes

    return human_bytes(int(value)) if unit == "bytes" else f"{value:g} {unit}".rstrip()
