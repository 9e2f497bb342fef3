"""When the programs behind the sessions are looked at, and in which lane: the tick starts a look and never waits.

What looks is loaded with the first job: an agent that watches none carries none of it. A look that hangs, with a dead
mount under a dump, is abandoned with all that was known of the jobs; what is then not known any more is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dba_console.agent.jobs.look import Look, Question
from dba_console.clock import Clock
from dba_console.probes.lane import Lane, LaneTimeout, Pending

EVERY_US = 2_000_000
SHARE = 20
"""A look is followed by a pause of so many times what it took: five percent of one processor at most."""
HURRY_US = 150_000
"""A look that is asked for at once comes no sooner than this after the last one."""
HURRIED_SHARE = 4
"""Nor sooner than so many times what that one took: sessions may come and go each second for hours."""
SLOW_US = 20_000_000
"""A look that takes longer is abandoned."""


class Eye(Protocol):
    """What looks, again and again, in the lane; it remembers what it saw."""

    def look(self, question: Question) -> Look: ...


def _tracker(clock: Clock) -> Eye:
    from dba_console.agent.jobs.tracker import Tracker

    return Tracker(clock)


class Looking:
    """Used by the tick alone."""

    def __init__(self, clock: Clock, eye: Callable[[Clock], Eye] = _tracker) -> None:
        self._clock, self._make = clock, eye
        self._lane = Lane("programs", clock)
        self._eye: Eye | None = None
        self._pending: Pending[Look] | None = None
        self._begun_us = 0
        self._next_us = 0
        self._soonest_us = 0
        """A look that is asked for at once may begin."""
        self._hurry = False
        self.idle = True
        """The last look found no job."""
        self.trouble: str | None = None
        """Why nothing is known of the programs now."""

    @property
    def stuck(self) -> int:
        return self._lane.stuck

    def hurry(self) -> None:
        """Sessions of a job came or went: look at once."""
        self._hurry = True

    def tick(self, ask: Callable[[], Question], *, wanted: bool) -> Look | None:
        """The look that ended since, and begin the next one where it is due: while there are jobs, or there may be."""
        look = self._take()
        if self._pending is None and (wanted or not self.idle):
            self._begin(ask)
        return look

    def close(self) -> None:
        self._lane.close()

    def _take(self) -> Look | None:
        if self._pending is None:
            return None
        now_us = self._clock.mono_us()
        if not self._pending.ready(0):
            if now_us - self._begun_us > SLOW_US:
                self._fail("does not end: a file system or a process of theirs hangs")
                self._lane.abandon()
            return None
        pending, self._pending = self._pending, None
        try:
            look = pending.result(0)
        except Exception as error:  # whatever a host may hold: it costs what is known of programs and no more
            self._fail(f"failed: {type(error).__name__}: {error}")
            return None
        self.trouble, self.idle = None, not look.now.jobs
        self._soonest_us = now_us + max(HURRY_US, HURRIED_SHARE * look.took_us)
        self._next_us = now_us + max(EVERY_US - (now_us - self._begun_us), SHARE * look.took_us)
        return look

    def _begin(self, ask: Callable[[], Question]) -> None:
        now_us = self._clock.mono_us()
        if now_us < self._next_us and not (self._hurry and now_us >= self._soonest_us):
            return
        question = ask()
        try:
            self._pending = self._lane.start(lambda: self._look(question))
        except LaneTimeout:
            self._fail("does not end: its lanes hang")
            return
        self._begun_us, self._hurry = now_us, False

    def _look(self, question: Question) -> Look:
        if self._eye is None:
            self._eye = self._make(self._clock)
        return self._eye.look(question)

    def _fail(self, why: str) -> None:
        self._pending, self._eye = None, None
        self._next_us = self._soonest_us = self._clock.mono_us() + 5 * EVERY_US
        self.trouble = f"the look at the programs of dumps and restores {why}"
