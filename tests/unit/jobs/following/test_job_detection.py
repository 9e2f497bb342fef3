"""When a job begins and ends is told from its sessions, and only from readings that follow each other."""

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
from dba_console.watch.frames.job_sessions import TRIAL_APPLICATION, ClientProgram
from dba_console.watch.samples.postgres import Activity
from tests.build import NOW_US
from tests.readings import activity, sessions

SECOND = 1_000_000


def session(pid: int = 1, kind: str = "pg_dump", *, begun_s: float | None = 0.0, **fields: object) -> Activity:
    start = None if begun_s is None else NOW_US + int(begun_s * SECOND)
    return activity(pid, "active", application=kind, backend_start=start, **fields)


class Seen:
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


def test_a_job_ends_with_its_session_and_lasted_since_its_connection() -> None:
    seen = Seen()
    assert seen(0) == []
    assert seen(1, session(begun_s=0.5)) == []
    assert seen.running == [("pg_dump", "appdb", "app")]
    assert seen(2, session(begun_s=0.5)) == []
    (ended,) = seen(3, activity(7))
    assert (ended.key, ended.seconds, ended.end_unobserved) == (("pg_dump", "appdb", "app"), 1.5, False)
    assert seen.running == []
    assert seen.holes == []


def test_a_dump_started_before_the_agent_has_its_start_time() -> None:
    seen = Seen()
    seen(0, session(begun_s=-3600))
    seen(1, session(begun_s=-3600))
    (ended,) = seen(2)
    assert ended.seconds == 3601.0


def test_the_clock_may_be_set_while_a_job_runs() -> None:
    seen = Seen()
    seen(0, session(begun_s=-10))
    seen(1, session(begun_s=-10), clock_s=-7200)
    seen(2, session(begun_s=-10), clock_s=86_400)
    (ended,) = seen(3)
    assert ended.seconds == 12.0


def test_short_lived_workers_are_not_jobs_of_their_own() -> None:
    seen = Seen()
    seen(0, session(1))
    seen(1, session(1), session(2, begun_s=0.5), session(3, begun_s=0.6))
    assert seen(2, session(1)) == []
    (ended,) = seen(3)
    assert ended.seconds == 2.0


def test_a_dump_that_immediately_follows_another_is_a_new_job() -> None:
    seen = Seen()
    seen(0, session(1))
    (ended,) = seen(1, session(2, begun_s=0.5))
    assert ended.seconds == 0.0
    assert seen.running == [("pg_dump", "appdb", "app")]


def test_two_overlapping_dumps_each_end_with_their_own_session() -> None:
    seen = Seen()
    seen(0, session(1))
    seen(1, session(1), session(2, begun_s=1))
    (first,) = seen(2, session(2, begun_s=1))
    (second,) = seen(3)
    assert (first.seconds, second.seconds) == (1.0, 1.0)


def test_a_restore_continues_while_its_sessions_alternate() -> None:
    seen = Seen()
    seen(0)
    seen(1, session(1, "pg_restore"))
    assert seen(2) == [], "between its first session and its workers there may be none for a moment"
    assert seen(3, session(2, "pg_restore", begun_s=2.5), session(3, "pg_restore", begun_s=2.6)) == []
    assert seen(4, session(4, "pg_restore", begun_s=3.5)) == []
    ends = [seen(at) for at in (5, 6, 7)]
    assert [len(one) for one in ends] == [0, 0, 1]
    assert ends[2][0].seconds == 4.0, "until its last session was seen"


def test_a_restore_started_before_the_agent_may_be_older_than_its_sessions() -> None:
    seen = Seen()
    seen(0, session(5, "pg_restore", begun_s=-60))
    seen(1, session(5, "pg_restore", begun_s=-60))
    (ended,) = [one for at in (2, 3, 4) for one in seen(at)]
    assert ended.seconds is None


@pytest.mark.parametrize("lost", [True, False])
def test_a_job_that_disappeared_during_an_outage_has_no_known_end(lost: bool) -> None:
    seen = Seen()
    seen(0)
    seen(1, session())
    if lost:
        seen.watch.connection_lost()
    after = 2 if lost else 2 + GAP_US // SECOND
    (ended,) = seen(after)
    assert ended.end_unobserved and ended.seconds is None
    assert seen.holes[-1] == (SECOND, after * SECOND)


def test_a_dump_still_running_after_an_outage_continues() -> None:
    seen = Seen()
    seen(0, session())
    seen.watch.connection_lost()
    assert seen(30, session()) == []
    (ended,) = seen(31)
    assert ended.seconds == 30.0


def test_the_next_dump_after_an_outage_is_a_new_job() -> None:
    seen = Seen()
    seen(0, session(1))
    seen.watch.connection_lost()
    (ended,) = seen(30, session(2, begun_s=20))
    assert ended.end_unobserved


def test_if_the_start_is_hidden_the_duration_is_unknown() -> None:
    seen = Seen()
    seen(0, session(1, begun_s=None))
    (ended,) = seen(5)
    assert ended.seconds is None and not ended.end_unobserved


def test_the_same_program_of_two_users_is_two_jobs() -> None:
    seen = Seen()
    seen(0, session(1), session(2, user="other"), session(3, database="second"))
    assert len(seen.running) == 3
    (ended,) = seen(1, session(2, user="other"), session(3, database="second"))
    assert ended.key == ("pg_dump", "appdb", "app")


def test_a_pgcopydb_is_one_job_whatever_its_process_name() -> None:
    seen = Seen()
    seen(0)
    seen(1, session(1, "pgcopydb[7] copy"))
    assert seen.running == [("pgcopydb", "appdb", "app")]


DUMP, OTHER = ClientProgram("pg_dump", 812), ClientProgram("pg_dump", 900)


def live(at_s: float, elapsed_s: float, *backends: int) -> ObservedJobProgram:
    return ObservedJobProgram(frozenset(backends), elapsed_s, int(at_s * SECOND))


def test_a_job_continues_while_its_program_does() -> None:
    seen = Seen()
    seen(0)
    seen(1, session(1, begun_s=0.5))
    seen(2, session(1, begun_s=0.5), programs={DUMP: live(2, 2.0, 1)})
    assert seen(3, programs={DUMP: live(2, 2.0)}) == []
    assert seen(9, programs={DUMP: live(8, 8.0)}) == [], "it syncs what it wrote"
    assert seen.running == [("pg_dump", "appdb", "app")]
    (ended,) = seen(10)
    assert (ended.seconds, ended.last_us, ended.owner) == (8.0, 8 * SECOND, DUMP)


@pytest.mark.parametrize("first_row", [1, 2])
def test_two_dumps_of_one_name_are_distinguished_once_their_programs_are_known(first_row: int) -> None:
    seen = Seen()
    seen(0)
    both = [session(1, begun_s=0.5), session(2, begun_s=1)]
    seen(1, *(both if first_row == 1 else reversed(both)))
    assert len(seen.running) == 1
    programs = {DUMP: live(2, 1.5, 1), OTHER: live(2, 1.0, 2)}
    assert seen(2, *(both if first_row == 1 else reversed(both)), programs=programs) == []
    assert len(seen.running) == 2
    (second,) = seen(3, both[0], programs={DUMP: live(3, 2.5, 1)})
    assert (second.owner, second.seconds) == (OTHER, 1.0)
    (first,) = seen(4)
    assert (first.owner, first.seconds) == (DUMP, 2.5)


def test_a_restore_started_before_the_agent_is_as_old_as_its_program() -> None:
    seen = Seen()
    restore = ClientProgram("pg_restore", 77)
    seen(0, session(5, "pg_restore", begun_s=-60))
    seen(1, session(5, "pg_restore", begun_s=-60), programs={restore: live(1, 301.0, 5)})
    (ended,) = seen(2)
    assert ended.seconds == 301.0


def test_a_restore_with_a_known_program_ends_at_once() -> None:
    seen = Seen()
    restore = ClientProgram("pg_restore", 77)
    seen(0)
    seen(1, session(5, "pg_restore"), programs={restore: live(1, 1.0, 5)})
    assert len(seen(2)) == 1


def test_a_program_that_outlives_the_server_has_not_ended() -> None:
    seen = Seen()
    seen(0)
    seen(1, session(1), programs={DUMP: live(1, 1.0, 1)})
    seen.watch.connection_lost()
    assert seen(20, programs={DUMP: live(20, 20.0)}) == []
    (ended,) = seen(21)
    assert ended.seconds == 20.0


def test_a_base_backup_continues_while_its_wal_is_streamed() -> None:
    seen = Seen()
    seen(0)
    seen(1, session(1, "pg_basebackup"), session(2, "pg_basebackup", begun_s=0.5))
    assert seen(2, session(2, "pg_basebackup", begun_s=0.5)) == []
    (ended,) = seen(3)
    assert ended.seconds == 2.0


def test_a_trial_dump_of_a_sweep_is_not_a_run_of_the_dump_it_tries() -> None:
    seen = Seen()
    owner = ClientProgram("pg_dump", 4711)
    programs = {owner: ObservedJobProgram(frozenset({1}), 1.0, SECOND)}
    seen(0)
    trial = activity(1, "active", application=f"{TRIAL_APPLICATION}99", backend_start=NOW_US)
    assert seen(1, trial, programs=programs) == [] and seen.running == []
    assert seen(2, programs=NO_PROGRAMS) == []


def test_sessions_not_yet_matched_to_a_known_program_are_not_a_job_of_their_own() -> None:
    seen = Seen()
    owner = ClientProgram("pg_dump", 4711)
    leader, one, two = session(1), session(2, begun_s=1.0), session(3, begun_s=1.0)
    seen(0, leader, programs={owner: ObservedJobProgram(frozenset({1}), 0.0, 0)})
    assert seen(1, leader, one, two, programs={owner: ObservedJobProgram(frozenset({1}), 0.0, 0)}) == []
    assert len(seen.running) == 2
    found = {owner: ObservedJobProgram(frozenset({1, 2}), 2.0, 2 * SECOND)}
    assert seen(2, leader, one, two, programs=found) == []
    assert seen(3, leader, one, programs=found) == []  # one of them ended before it was seen whose it was
    assert len(seen.running) == 1
    (ended,) = seen(4, programs=NO_PROGRAMS)
    assert (ended.owner, ended.seconds) == (owner, 3.0)


def test_sessions_that_end_before_they_are_matched_belong_to_the_program_found_later() -> None:
    seen = Seen()
    seen(0)
    seen(1, session(1, begun_s=0.5))
    assert seen(2, programs={DUMP: live(1.5, 1.0, 1)}) == [], "its program is there, as far as was seen"
    (ended,) = seen(3)
    assert ended.owner == DUMP
