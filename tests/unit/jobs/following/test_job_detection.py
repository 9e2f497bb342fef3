"""Start and end of a job are detected from its sessions, and only from consecutive readings."""

from __future__ import annotations

import pytest

from dba_console.jobs.following.job_detection import (
    GAP_US,
    NO_PROGRAMS,
    EndedJob,
    JobDetector,
    ObservedJobProgram,
    ObservedJobPrograms,
)
from dba_console.watch.job_sessions import TRIAL_APPLICATION, ClientProgram
from dba_console.watch.samples.postgres import Activity
from tests.build import NOW_US
from tests.readings import activity, sessions

SECOND = 1_000_000


def session(pid: int = 1, kind: str = "pg_dump", *, begun_s: float | None = 0.0, **fields: object) -> Activity:
    start = None if begun_s is None else NOW_US + int(begun_s * SECOND)
    return activity(pid, "active", application=kind, backend_start=start, **fields)


class JobReadings:
    """Readings one after another; `at_s` is both clocks' time since the test began."""

    def __init__(self) -> None:
        self.watch = JobDetector()
        self.holes: list[tuple[int, int]] = []

    def __call__(
        self, at_s: float, *rows: Activity, clock_s: float | None = None, programs: ObservedJobPrograms = NO_PROGRAMS
    ) -> list[EndedJob]:
        now_us = NOW_US + int((at_s if clock_s is None else clock_s) * SECOND)
        ended, hole = self.watch.compare(sessions(*rows, now_us=now_us), int(at_s * SECOND), programs)
        if hole is not None:
            self.holes.append(hole)
        return ended

    @property
    def running(self) -> list[tuple[str, str | None, str | None]]:
        return [job.key for job in self.watch.running(0)]


@pytest.fixture
def readings() -> JobReadings:
    return JobReadings()


def test_a_job_ends_with_its_session_and_lasted_since_its_connection(readings: JobReadings) -> None:
    assert readings(0) == []
    assert readings(1, session(begun_s=0.5)) == []
    assert readings.running == [("pg_dump", "appdb", "app")]
    assert readings(2, session(begun_s=0.5)) == []
    (ended,) = readings(3, activity(7))
    assert (ended.key, ended.seconds, ended.end_unobserved) == (("pg_dump", "appdb", "app"), 1.5, False)
    assert readings.running == []
    assert readings.holes == []


def test_a_dump_started_before_the_agent_has_its_start_time(readings: JobReadings) -> None:
    readings(0, session(begun_s=-3600))
    readings(1, session(begun_s=-3600))
    (ended,) = readings(2)
    assert ended.seconds == 3601.0


def test_the_clock_may_be_set_while_a_job_runs(readings: JobReadings) -> None:
    readings(0, session(begun_s=-10))
    readings(1, session(begun_s=-10), clock_s=-7200)
    readings(2, session(begun_s=-10), clock_s=86_400)
    (ended,) = readings(3)
    assert ended.seconds == 12.0


def test_short_lived_workers_are_not_jobs_of_their_own(readings: JobReadings) -> None:
    readings(0, session(1))
    readings(1, session(1), session(2, begun_s=0.5), session(3, begun_s=0.6))
    assert readings(2, session(1)) == []
    (ended,) = readings(3)
    assert ended.seconds == 2.0


def test_a_dump_that_immediately_follows_another_is_a_new_job(readings: JobReadings) -> None:
    readings(0, session(1))
    (ended,) = readings(1, session(2, begun_s=0.5))
    assert ended.seconds == 0.0
    assert readings.running == [("pg_dump", "appdb", "app")]


def test_two_overlapping_dumps_each_end_with_their_own_session(readings: JobReadings) -> None:
    readings(0, session(1))
    readings(1, session(1), session(2, begun_s=1))
    (first,) = readings(2, session(2, begun_s=1))
    (second,) = readings(3)
    assert (first.seconds, second.seconds) == (1.0, 1.0)


def test_a_restore_continues_while_its_sessions_alternate(readings: JobReadings) -> None:
    readings(0)
    readings(1, session(1, "pg_restore"))
    assert readings(2) == [], "between its first session and its workers there may be none for a moment"
    assert readings(3, session(2, "pg_restore", begun_s=2.5), session(3, "pg_restore", begun_s=2.6)) == []
    assert readings(4, session(4, "pg_restore", begun_s=3.5)) == []
    ends = [readings(at) for at in (5, 6, 7)]
    assert [len(one) for one in ends] == [0, 0, 1]
    assert ends[2][0].seconds == 4.0, "until its last session was seen"


def test_a_restore_started_before_the_agent_may_be_older_than_its_sessions(readings: JobReadings) -> None:
    readings(0, session(5, "pg_restore", begun_s=-60))
    readings(1, session(5, "pg_restore", begun_s=-60))
    (ended,) = [one for at in (2, 3, 4) for one in readings(at)]
    assert ended.seconds is None


@pytest.mark.parametrize("lost", [True, False])
def test_a_job_that_disappeared_during_an_outage_has_no_known_end(lost: bool, readings: JobReadings) -> None:
    readings(0)
    readings(1, session())
    if lost:
        readings.watch.connection_lost()
    after = 2 if lost else 2 + GAP_US // SECOND
    (ended,) = readings(after)
    assert ended.end_unobserved and ended.seconds is None
    assert readings.holes[-1] == (SECOND, after * SECOND)


def test_a_dump_still_running_after_an_outage_continues(readings: JobReadings) -> None:
    readings(0, session())
    readings.watch.connection_lost()
    assert readings(30, session()) == []
    (ended,) = readings(31)
    assert ended.seconds == 30.0


def test_the_next_dump_after_an_outage_is_a_new_job(readings: JobReadings) -> None:
    readings(0, session(1))
    readings.watch.connection_lost()
    (ended,) = readings(30, session(2, begun_s=20))
    assert ended.end_unobserved


def test_if_the_start_is_hidden_the_duration_is_unknown(readings: JobReadings) -> None:
    readings(0, session(1, begun_s=None))
    (ended,) = readings(5)
    assert ended.seconds is None and not ended.end_unobserved


def test_the_same_program_of_two_users_is_two_jobs(readings: JobReadings) -> None:
    readings(0, session(1), session(2, user="other"), session(3, database="second"))
    assert len(readings.running) == 3
    (ended,) = readings(1, session(2, user="other"), session(3, database="second"))
    assert ended.key == ("pg_dump", "appdb", "app")


def test_a_pgcopydb_is_one_job_whatever_its_process_name(readings: JobReadings) -> None:
    readings(0)
    readings(1, session(1, "pgcopydb[7] copy"))
    assert readings.running == [("pgcopydb", "appdb", "app")]


DUMP, OTHER = ClientProgram("pg_dump", 812), ClientProgram("pg_dump", 900)


def live_program(at_s: float, elapsed_s: float, *backends: int) -> ObservedJobProgram:
    return ObservedJobProgram(frozenset(backends), elapsed_s, int(at_s * SECOND))


def test_a_job_continues_while_its_program_does(readings: JobReadings) -> None:
    readings(0)
    readings(1, session(1, begun_s=0.5))
    readings(2, session(1, begun_s=0.5), programs={DUMP: live_program(2, 2.0, 1)})
    assert readings(3, programs={DUMP: live_program(2, 2.0)}) == []
    assert readings(9, programs={DUMP: live_program(8, 8.0)}) == [], "it syncs what it wrote"
    assert readings.running == [("pg_dump", "appdb", "app")]
    (ended,) = readings(10)
    assert (ended.seconds, ended.last_us, ended.owner) == (8.0, 8 * SECOND, DUMP)


@pytest.mark.parametrize("first_row", [1, 2])
def test_two_dumps_of_one_name_are_distinguished_once_their_programs_are_known(
    first_row: int, readings: JobReadings
) -> None:
    readings(0)
    both = [session(1, begun_s=0.5), session(2, begun_s=1)]
    readings(1, *(both if first_row == 1 else reversed(both)))
    assert len(readings.running) == 1
    programs = {DUMP: live_program(2, 1.5, 1), OTHER: live_program(2, 1.0, 2)}
    assert readings(2, *(both if first_row == 1 else reversed(both)), programs=programs) == []
    assert len(readings.running) == 2
    (second,) = readings(3, both[0], programs={DUMP: live_program(3, 2.5, 1)})
    assert (second.owner, second.seconds) == (OTHER, 1.0)
    (first,) = readings(4)
    assert (first.owner, first.seconds) == (DUMP, 2.5)


def test_a_restore_started_before_the_agent_is_as_old_as_its_program(readings: JobReadings) -> None:
    restore = ClientProgram("pg_restore", 77)
    readings(0, session(5, "pg_restore", begun_s=-60))
    readings(1, session(5, "pg_restore", begun_s=-60), programs={restore: live_program(1, 301.0, 5)})
    (ended,) = readings(2)
    assert ended.seconds == 301.0


def test_a_restore_with_a_known_program_ends_at_once(readings: JobReadings) -> None:
    restore = ClientProgram("pg_restore", 77)
    readings(0)
    readings(1, session(5, "pg_restore"), programs={restore: live_program(1, 1.0, 5)})
    assert len(readings(2)) == 1


def test_a_program_that_outlives_the_server_has_not_ended(readings: JobReadings) -> None:
    readings(0)
    readings(1, session(1), programs={DUMP: live_program(1, 1.0, 1)})
    readings.watch.connection_lost()
    assert readings(20, programs={DUMP: live_program(20, 20.0)}) == []
    (ended,) = readings(21)
    assert ended.seconds == 20.0


def test_a_base_backup_continues_while_its_wal_is_streamed(readings: JobReadings) -> None:
    readings(0)
    readings(1, session(1, "pg_basebackup"), session(2, "pg_basebackup", begun_s=0.5))
    assert readings(2, session(2, "pg_basebackup", begun_s=0.5)) == []
    (ended,) = readings(3)
    assert ended.seconds == 2.0


def test_a_trial_dump_of_a_sweep_is_not_a_run_of_the_dump_it_tries(readings: JobReadings) -> None:
    owner = ClientProgram("pg_dump", 4711)
    programs = {owner: ObservedJobProgram(frozenset({1}), 1.0, SECOND)}
    readings(0)
    trial = activity(1, "active", application=f"{TRIAL_APPLICATION}99", backend_start=NOW_US)
    assert readings(1, trial, programs=programs) == [] and readings.running == []
    assert readings(2, programs=NO_PROGRAMS) == []


def test_sessions_not_yet_matched_to_a_known_program_are_not_a_job_of_their_own(readings: JobReadings) -> None:
    owner = ClientProgram("pg_dump", 4711)
    leader, one, two = session(1), session(2, begun_s=1.0), session(3, begun_s=1.0)
    readings(0, leader, programs={owner: ObservedJobProgram(frozenset({1}), 0.0, 0)})
    assert readings(1, leader, one, two, programs={owner: ObservedJobProgram(frozenset({1}), 0.0, 0)}) == []
    assert len(readings.running) == 2
    found = {owner: ObservedJobProgram(frozenset({1, 2}), 2.0, 2 * SECOND)}
    assert readings(2, leader, one, two, programs=found) == []
    assert readings(3, leader, one, programs=found) == []  # one of them ended before it was seen whose it was
    assert len(readings.running) == 1
    (ended,) = readings(4, programs=NO_PROGRAMS)
    assert (ended.owner, ended.seconds) == (owner, 3.0)


def test_sessions_that_end_before_they_are_matched_belong_to_the_program_found_later(readings: JobReadings) -> None:
    readings(0)
    readings(1, session(1, begun_s=0.5))
    assert readings(2, programs={DUMP: live_program(1.5, 1.0, 1)}) == [], "its program is there, as far as was seen"
    (ended,) = readings(3)
    assert ended.owner == DUMP
