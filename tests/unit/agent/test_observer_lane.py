"""The programs of jobs are looked at in a lane, while there are jobs, as often as it may cost; the tick never waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dba_console.agent.job_service import EVERY_US, OBSERVATION_TIMEOUT_US, Observe, ObserverLane
from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.following.job_detection import Observation, ObservationRequest
from dba_console.watch.samples.jobs import JobNow, JobsNow
from dba_console.watch.samples.sample import make_part
from tests.background import wait_until
from tests.clocks import HeldClock
from tests.readings import of, sessions

QUESTION = ObservationRequest(sessions(), (), None, "", here=True, wall_us=1, mono_us=1)
JOB = of(JobNow, kind="pg_dump", grade="unknown", eta_grade="unknown")


class Eye:
    """Sees what it is told to, once it is let."""

    def __init__(self) -> None:
        self.looks = 0
        self.jobs: tuple[JobNow, ...] = (JOB,)
        self.took_us = 0
        self.error: Exception | None = None
        self.free = threading.Event()
        self.free.set()

    def observe(self, question: ObservationRequest) -> Observation:
        self.looks += 1
        assert self.free.wait(60)
        if self.error is not None:
            raise self.error
        now = JobsNow(1, self.jobs)
        return Observation(0, self.took_us, now, make_part("jobs.now", now, at_us=0), {}, {})


class World:
    def __init__(self) -> None:
        self.clock = HeldClock(SYSTEM.wall_us(), SYSTEM.mono_us())
        self.eye = Eye()
        self.made = 0
        self.looking = ObserverLane(self.clock, self._make)

    def _make(self, clock: Clock) -> Observe:
        self.made += 1
        return self.eye.observe

    def tick(self, *, wanted: bool = True) -> Observation | None:
        return self.looking.tick(lambda: QUESTION, wanted=wanted)

    def look(self) -> Observation:
        """One look begun and ended."""
        return wait_until(self.tick, 60, what="a look")


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.eye.free.set()
    made.looking.close()


def test_nothing_is_loaded_or_observed_while_no_session_may_be_a_job(world: World) -> None:
    assert world.tick(wanted=False) is None
    assert (world.made, world.eye.looks) == (0, 0)


def test_jobs_are_observed_every_two_seconds_and_not_more_often(world: World) -> None:
    world.look()
    world.tick()
    assert world.eye.looks == 1
    world.clock.advance(EVERY_US / 1e6)
    world.look()
    assert world.eye.looks == 2


def test_a_slow_observation_is_followed_by_a_long_pause(world: World) -> None:
    world.eye.took_us = 1_000_000
    world.look()
    world.clock.advance(19)
    assert world.tick() is None
    assert world.eye.looks == 1
    world.clock.advance(2)
    world.look()


def test_new_and_ended_sessions_are_observed_at_once(world: World) -> None:
    world.look()
    world.clock.advance(0.5)
    world.looking.request_soon()
    world.look()
    assert world.eye.looks == 2


def test_constantly_changing_sessions_do_not_use_a_whole_cpu(world: World) -> None:
    world.eye.took_us = 1_000_000
    world.look()
    world.looking.request_soon()
    world.clock.advance(3)
    assert world.tick() is None
    assert world.eye.looks == 1
    world.clock.advance(2)
    world.look()
    assert world.eye.looks == 2


def test_a_job_without_a_session_is_observed_until_it_is_gone(world: World) -> None:
    world.look()
    world.clock.advance(3)
    world.eye.jobs = ()
    assert wait_until(lambda: world.tick(wanted=False), 60, what="its end").now.jobs == ()
    world.clock.advance(3)
    assert world.tick(wanted=False) is None
    assert world.eye.looks == 2


def test_a_hanging_observation_is_abandoned_and_reported(world: World) -> None:
    world.eye.free.clear()
    assert world.tick() is None
    wait_until(lambda: world.eye.looks == 1, 60, what="the look begun")
    world.clock.advance(OBSERVATION_TIMEOUT_US / 1e6 + 1)
    assert world.tick() is None
    assert "does not end" in (world.looking.error or "")
    assert world.looking.stuck == 1
    world.eye.free.set()
    world.clock.advance(60)
    world.look()
    assert (world.made, world.looking.error) == (2, None)


def test_an_error_in_an_observation_costs_only_that_observation(world: World) -> None:
    world.eye.error = ValueError("a file nobody foresaw")
    world.tick()
    wait_until(lambda: world.tick() is None and world.looking.error, 60, what="the trouble")
    assert "a file nobody foresaw" in (world.looking.error or "")
    world.eye.error = None
    world.clock.advance(60)
    world.look()
