"""When the programs behind the sessions are looked at, and in which lane: the tick starts a look and never waits.

What looks is loaded with the first job: an agent that watches none carries none of it. A look that hangs, with a dead
mount under a dump, is abandoned with all that was known of the jobs; what is then not known any more is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dba_console.agent.jobs.observation import Observation, ObservationRequest
from dba_console.clock import Clock
from dba_console.probes.deadline_lane import Lane, LaneTimeout, PendingCall

EVERY_US = 2_000_000
PAUSE_FACTOR = 20
"""A look is followed by a pause of so many times what it took: five percent of one processor at most."""
MIN_PAUSE_US = 150_000
"""A look that is asked for at once comes no sooner than this after the last one."""
MIN_PAUSE_FACTOR = 4
"""Nor sooner than so many times what that one took: sessions may come and go each second for hours."""
OBSERVATION_TIMEOUT_US = 20_000_000
"""A look that takes longer is abandoned."""


class JobObserverApi(Protocol):
    """What looks, again and again, in the lane; it remembers what it saw."""

    def observe(self, question: ObservationRequest) -> Observation: ...


def _tracker(clock: Clock) -> JobObserverApi:
    from dba_console.agent.jobs.job_observer import JobObserver

    return JobObserver(clock)


class ObserverLane:
    """Used by the tick alone."""

    def __init__(self, clock: Clock, eye: Callable[[Clock], JobObserverApi] = _tracker) -> None:
        self._clock, self._make = clock, eye
        self._lane = Lane("programs", clock)
        self._observer: JobObserverApi | None = None
        self._pending: PendingCall[Observation] | None = None
        self._begun_us = 0
        self._next_us = 0
        self._soonest_us = 0
        """A look that is asked for at once may begin."""
        self._requested_soon = False
        self.idle = True
        """The last look found no job."""
        self.error: str | None = None
        """Why nothing is known of the programs now."""

    @property
    def stuck(self) -> int:
        return self._lane.stuck

    def request_soon(self) -> None:
        """Sessions of a job came or went: look at once."""
        self._requested_soon = True

    def tick(self, ask: Callable[[], ObservationRequest], *, wanted: bool) -> Observation | None:
        """The look that ended since, and begin the next one where it is due: while there are jobs, or there may be."""
        look = self._collect()
        if self._pending is None and (wanted or not self.idle):
            self._begin(ask)
        return look

    def close(self) -> None:
        self._lane.close()

    def _collect(self) -> Observation | None:
        if self._pending is None:
            return None
        now_us = self._clock.mono_us()
        if not self._pending.ready(0):
            if now_us - self._begun_us > OBSERVATION_TIMEOUT_US:
                self._fail("does not end: a file system or a process of theirs hangs")
                self._lane.abandon()
            return None
        pending, self._pending = self._pending, None
        try:
            look = pending.result(0)
        except Exception as error:  # whatever a host may hold: it costs what is known of programs and no more
            self._fail(f"failed: {type(error).__name__}: {error}")
            return None
        self.error, self.idle = None, not look.now.jobs
        self._soonest_us = now_us + max(MIN_PAUSE_US, MIN_PAUSE_FACTOR * look.took_us)
        self._next_us = now_us + max(EVERY_US - (now_us - self._begun_us), PAUSE_FACTOR * look.took_us)
        return look

    def _begin(self, ask: Callable[[], ObservationRequest]) -> None:
        now_us = self._clock.mono_us()
        if now_us < self._next_us and not (self._requested_soon and now_us >= self._soonest_us):
            return
        question = ask()
        try:
            self._pending = self._lane.start(lambda: self._observe(question))
        except LaneTimeout:
            self._fail("does not end: its lanes hang")
            return
        self._begun_us, self._requested_soon = now_us, False

    def _observe(self, question: ObservationRequest) -> Observation:
        if self._observer is None:
            self._observer = self._make(self._clock)
        return self._observer.observe(question)

    def _fail(self, why: str) -> None:
        self._pending, self._observer = None, None
        self._next_us = self._soonest_us = self._clock.mono_us() + 5 * EVERY_US
        self.error = f"the look at the programs of dumps and restores {why}"
