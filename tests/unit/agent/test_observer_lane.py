"""Job programs are observed in a lane, while there are jobs, within a cost limit; the tick never waits."""

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

REQUEST = ObservationRequest(sessions(), (), None, "", here=True, wall_us=1, mono_us=1)
JOB = of(JobNow, kind="pg_dump", grade="unknown", eta_grade="unknown")


class ScriptedObserver:
    """Returns the given jobs, as soon as `free` is set."""

    def __init__(self) -> None:
        self.observations = 0
        self.jobs: tuple[JobNow, ...] = (JOB,)
        self.cpu_us = 0
        self.error: Exception | None = None
        self.free = threading.Event()
        self.free.set()

    def observe(self, request: ObservationRequest) -> Observation:
        self.observations += 1
        assert self.free.wait(60)
        if self.error is not None:
            raise self.error
        now = JobsNow(1, self.jobs)
        return Observation(0, 0, now, make_part("jobs.now", now, at_us=0), {}, {}, self.cpu_us)


class LaneSetup:
    def __init__(self) -> None:
        self.clock = HeldClock(SYSTEM.wall_us(), SYSTEM.mono_us())
        self.observer = ScriptedObserver()
        self.loaded = 0
        self.lane = ObserverLane(self.clock, self._make)

    def _make(self, clock: Clock) -> Observe:
        self.loaded += 1
        return self.observer.observe

    def tick(self, *, wanted: bool = True) -> Observation | None:
        return self.lane.tick(lambda: REQUEST, wanted=wanted)

    def observe_once(self) -> Observation:
        """Start one observation and wait for its end."""
        return wait_until(self.tick, 60, what="a look")


@pytest.fixture
def lane_setup() -> Iterator[LaneSetup]:
    made = LaneSetup()
    yield made
    made.observer.free.set()
    made.lane.call.close()


def test_nothing_is_loaded_or_observed_while_no_session_may_be_a_job(lane_setup: LaneSetup) -> None:
    assert lane_setup.tick(wanted=False) is None
    assert (lane_setup.loaded, lane_setup.observer.observations) == (0, 0)


def test_jobs_are_observed_every_two_seconds_and_not_more_often(lane_setup: LaneSetup) -> None:
    lane_setup.observe_once()
    lane_setup.tick()
    assert lane_setup.observer.observations == 1
    lane_setup.clock.advance(EVERY_US / 1e6)
    lane_setup.observe_once()
    assert lane_setup.observer.observations == 2


@pytest.mark.parametrize(("cpu_us", "pause_s"), [(300_000, 6), (3_000_000, 10)])
def test_a_costly_observation_is_followed_by_a_pause_of_ten_seconds_at_most(
    lane_setup: LaneSetup, cpu_us: int, pause_s: int
) -> None:
    lane_setup.observer.cpu_us = cpu_us
    lane_setup.observe_once()
    lane_setup.clock.advance(pause_s - 1)
    assert lane_setup.tick() is None
    assert lane_setup.observer.observations == 1
    lane_setup.clock.advance(2)
    lane_setup.observe_once()


def test_new_and_ended_sessions_are_observed_at_once(lane_setup: LaneSetup) -> None:
    lane_setup.observe_once()
    lane_setup.clock.advance(0.5)
    lane_setup.lane.request_soon()
    lane_setup.observe_once()
    assert lane_setup.observer.observations == 2


def test_constantly_changing_sessions_do_not_use_a_whole_cpu(lane_setup: LaneSetup) -> None:
    lane_setup.observer.cpu_us = 1_000_000
    lane_setup.observe_once()
    lane_setup.lane.request_soon()
    lane_setup.clock.advance(3)
    assert lane_setup.tick() is None
    assert lane_setup.observer.observations == 1
    lane_setup.clock.advance(2)
    lane_setup.observe_once()
    assert lane_setup.observer.observations == 2


def test_a_job_without_a_session_is_observed_until_it_is_gone(lane_setup: LaneSetup) -> None:
    lane_setup.observe_once()
    lane_setup.clock.advance(3)
    lane_setup.observer.jobs = ()
    assert wait_until(lambda: lane_setup.tick(wanted=False), 60, what="its end").now.jobs == ()
    lane_setup.clock.advance(3)
    assert lane_setup.tick(wanted=False) is None
    assert lane_setup.observer.observations == 2


def test_a_hanging_observation_is_abandoned_and_reported(lane_setup: LaneSetup) -> None:
    lane_setup.observer.free.clear()
    assert lane_setup.tick() is None
    wait_until(lambda: lane_setup.observer.observations == 1, 60, what="the look begun")
    lane_setup.clock.advance(OBSERVATION_TIMEOUT_US / 1e6 + 1)
    assert lane_setup.tick() is None
    assert "does not end" in (lane_setup.lane.error or "")
    assert lane_setup.lane.call.stuck == 1
    lane_setup.observer.free.set()
    lane_setup.clock.advance(60)
    lane_setup.observe_once()
    assert (lane_setup.loaded, lane_setup.lane.error) == (2, None)


def test_an_error_in_an_observation_costs_only_that_observation(lane_setup: LaneSetup) -> None:
    lane_setup.observer.error = ValueError("a file nobody foresaw")
    lane_setup.tick()
    wait_until(lambda: lane_setup.tick() is None and lane_setup.lane.error, 60, what="the trouble")
    assert "a file nobody foresaw" in (lane_setup.lane.error or "")
    lane_setup.observer.error = None
    lane_setup.clock.advance(60)
    lane_setup.observe_once()
