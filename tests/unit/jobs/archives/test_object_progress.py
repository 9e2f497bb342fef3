"""What became of each object, from messages, from observation, or both; with lines that are lost, cut or repeated."""

from __future__ import annotations

import pytest

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.toc import DumpEntry
from tests.unit.jobs.archives.made_archives import MB, at, plan_of_sizes

PLAN = plan_of_sizes([4 * MB, 2 * MB])
ODD = DumpPlan(
    entries=(
        DumpEntry(dump_id=1, desc="TABLE DATA", phase="data", schema="public", tag='odd "one"\nof two lines', table=1),
        DumpEntry(dump_id=2, desc="BLOBS", phase="data", tag="16454..16455"),
        DumpEntry(dump_id=3, desc="SEQUENCE SET", phase="rest", schema="public", tag="s1"),
    )
)

ONE = (
    ('pg_restore: processing data for table "public.t1"', 'pg_restore: creating CONSTRAINT "public.t0 pk0"'),
    'pg_restore: creating INDEX "public.ix0_0"',
)
MANY = (
    ("pg_restore: launching item 1001 TABLE DATA t1", "pg_restore: launching item 20000 CONSTRAINT t0 pk0"),
    "pg_restore: finished item 20000 CONSTRAINT t0 pk0",
)
"""Two objects begun and the end of the second, as one worker and as two tell it."""


def add_lines(progress: ObjectProgress, *lines: str) -> ObjectProgress:
    """A line each second."""
    for seconds, line in enumerate(lines):
        progress.add_line(at(seconds), line)
    return progress


def states(progress: ObjectProgress) -> dict[int, str]:
    return {dump_id: item.state for dump_id, item in progress.objects().items() if item.state != "waiting"}


def test_with_jobs_every_object_has_its_exact_time() -> None:
    progress = add_lines(
        ObjectProgress(PLAN, "pg_restore", 2),
        "pg_restore: entering main parallel loop",
        "pg_restore: launching item 1000 TABLE DATA t0",
        "pg_restore: launching item 1001 TABLE DATA t1",
        'pg_restore: processing data for table "public.t1"',
        "pg_restore: finished item 1001 TABLE DATA t1",
    )
    item = progress.objects()[1001]
    assert (item.state, item.exact, item.seconds) == ("done", True, 2.0)
    assert progress.counts() == (1, 1, 7, 0)
    data = progress.phases(at(5))[1]
    assert (data.name, data.state, data.running, data.done, data.wall_s, data.busy_s) == (
        "data",
        "running",
        1,
        1,
        4.0,
        6.0,
    )


def test_one_worker_logs_no_end_so_the_next_start_is_the_end() -> None:
    progress = add_lines(
        ObjectProgress(PLAN, "pg_restore", 1),
        'pg_restore: processing data for table "public.t0"',
        'pg_restore: processing data for table "public.t1"',
        'pg_restore: creating CONSTRAINT "public.t0 pk0"',
    )
    assert states(progress) == {1000: "done", 1001: "done", 20_000: "running"}
    assert not progress.objects()[1000].exact
    progress.program_ended(at(9), 0)
    assert progress.objects()[20_000].seconds == 7.0


def test_a_dump_with_unknown_jobs_is_parallel_once_it_logs_finished() -> None:
    progress = add_lines(
        ObjectProgress(PLAN, "pg_dump"),
        "pg_dump: reading schemas",
        'pg_dump: dumping contents of table "public.t0"',
        'pg_dump: dumping contents of table "public.t1"',
    )
    assert states(progress) == {1000: "done", 1001: "running"}
    progress.add_line(at(4), "pg_dump: finished item 1001 TABLE DATA t1")
    assert states(progress) == {1000: "running", 1001: "done"}
    assert set(progress.objects()) == {1000, 1001}
    assert progress.phases(at(5))[0].state == "done"


def test_lines_read_twice_change_nothing() -> None:
    lines = (
        "pg_restore: launching item 1000 TABLE DATA t0",
        "pg_restore: finished item 1000 TABLE DATA t0",
        "pg_restore: launching item 20000 CONSTRAINT t0 pk0",
    )
    progress = add_lines(ObjectProgress(PLAN, "pg_restore", 2), *lines)
    before = (states(progress), progress.objects()[1000].seconds, progress.phases(at(9)))
    for line in lines:
        progress.add_line(at(5), line)
    assert (states(progress), progress.objects()[1000].seconds, progress.phases(at(9))) == before


def test_a_job_found_midway_counts_what_is_still_logged() -> None:
    progress = ObjectProgress(PLAN, "pg_restore", 2)
    progress.observe_finished(1000)
    progress.observe_finished(("CONSTRAINT", "public", "t0 pk0"))
    progress.observe_running(
        ("public", "t1"), at(60), done=1 * MB, total=2 * MB, unit="bytes", pid=812, since_us=at(50)
    )
    add_lines(
        progress, "pg_restore: finished item 40000 INDEX ix0_0", "pg_restore: finished item 99 INDEX nobody_planned"
    )
    assert states(progress) == {1000: "done", 20_000: "done", 1001: "running", 40_000: "done", 99: "done"}
    assert progress.objects()[1000].seconds is None
    item = progress.objects()[1001]
    assert (item.share, item.pid, item.started_us, item.exact) == (0.5, 812, at(50), False)


def test_an_object_gone_at_an_observation_ended_between_it_and_the_previous_one() -> None:
    progress = ObjectProgress(PLAN, "pg_restore", 2)
    progress.observe_running(1000, at(10), since_us=at(9))
    progress.observe_finished(1000, at(12))
    assert progress.objects()[1000].seconds == 2.0


def test_an_object_observed_just_after_its_start_has_no_long_duration() -> None:
    progress = ObjectProgress(PLAN, "pg_restore", 2)
    progress.observe_running(1000, at(10), since_us=at(10) - 200_000)
    progress.observe_finished(1000, at(13))
    progress.observe_running(1001, at(10))
    progress.observe_finished(1001, at(12))
    assert progress.objects()[1000].seconds == 0.4
    assert progress.objects()[1001].seconds == 1.0, "nobody knows when it began: half way"


def test_messages_override_observation() -> None:
    progress = add_lines(
        ObjectProgress(PLAN, "pg_restore", 2),
        "pg_restore: launching item 1000 TABLE DATA t0",
        "pg_restore: finished item 1000 TABLE DATA t0",
    )
    progress.observe_running(1000, at(5), done=1.0, total=2.0)
    progress.observe_finished(1000, at(6))
    assert progress.objects()[1000].ended_us == at(1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_belongs_to_the_object_named_before_it(jobs: int) -> None:
    begins, ends = MANY if jobs > 1 else ONE
    progress = add_lines(
        ObjectProgress(PLAN, "pg_restore", jobs),
        *begins,
        "pg_restore: while PROCESSING TOC:",
        "pg_restore: from TOC entry 20000; 2606 16401 CONSTRAINT t0 pk0 postgres",
        "pg_restore: error: could not execute query: ERROR:  could not create unique index",
        "DETAIL:  Key (id)=(7) is duplicated.",
        "Command was: ALTER TABLE ONLY public.t0",
        ends,
        "pg_restore: warning: errors ignored on restore: 1",
    )
    assert states(progress)[20_000] == "failed"
    error = progress.errors[0]
    assert (progress.error_count, progress.ignored, error.dump_id, error.schema, error.tag) == (
        1,
        1,
        20_000,
        "public",
        "t0 pk0",
    )
    assert "Key (id)=(7) is duplicated." in error.text
    progress.program_ended(at(20), 1)
    assert "failed" not in {item.state for item in progress.objects().values() if item.entry.dump_id != 20_000}


def test_multi_line_names_and_names_without_a_schema_find_their_objects() -> None:
    progress = add_lines(
        ObjectProgress(ODD, "pg_restore", 1),
        'pg_restore: processing data for table "public.odd "one"',
        'of two lines"',
        "pg_restore: processing BLOBS",
        "pg_restore: executing SEQUENCE SET s1",
    )
    assert states(progress) == {1: "done", 2: "done", 3: "running"}


def test_excluded_objects_are_not_counted() -> None:
    progress = add_lines(ObjectProgress(PLAN, "pg_restore", 2), "pg_restore: skipping item 60001 FK CONSTRAINT t1 fk1")
    assert progress.phases(at(1))[3].objects == 0
    assert progress.counts() == (0, 0, 8, 0)


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (1, "failed"), (-9, "failed"), (None, "unknown")])
def test_objects_active_when_the_program_ended_are_not_guessed(code: int | None, state: str) -> None:
    progress = add_lines(ObjectProgress(PLAN, "pg_restore", 2), "pg_restore: launching item 1000 TABLE DATA t0")
    progress.program_ended(at(5), code)
    assert progress.objects()[1000].state == state


def test_without_a_plan_the_objects_are_those_named() -> None:
    progress = add_lines(
        ObjectProgress(None, "pg_restore", 2),
        "pg_restore: entering main parallel loop",
        "pg_restore: launching item 7 INDEX i",
        'pg_restore: creating INDEX "public.i"',
        "pg_restore: finished item 7 INDEX i",
    )
    assert states(progress) == {7: "done"}


def test_psql_logs_the_end_of_each_statement_and_echoes_its_text() -> None:
    progress = add_lines(
        ObjectProgress(None, "psql"),
        "SET",
        "COPY public.orders (id, note) FROM stdin;",
        "COPY 1000",
        "ALTER TABLE ONLY public.orders",
        "    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);",
        "ALTER TABLE",
        'psql:<stdin>:812: ERROR:  relation "x" already exists',
    )
    made = [(item.entry.desc, item.entry.tag, item.entry.phase, item.seconds) for item in progress.objects().values()]
    assert made == [
        ("TABLE DATA", "orders", "data", 1.0),
        ("CONSTRAINT", "orders orders_pkey", "indexes", 2.0),
    ]
    assert progress.error_count == 1


def test_a_command_tag_ends_the_only_observed_object_of_its_kind() -> None:
    progress = ObjectProgress(None, "psql")
    progress.observe_running(("TABLE DATA", "public", "orders"), at(10))
    progress.add_line(at(70), "COPY 1000")
    assert [(item.entry.tag, item.seconds) for item in progress.objects().values()] == [("orders", 60.0)]


def test_changes_are_reported_once() -> None:
    progress = add_lines(ObjectProgress(PLAN, "pg_restore", 2), "pg_restore: launching item 1000 TABLE DATA t0")
    assert [item.entry.dump_id for item in progress.take_changed()] == [1000]
    assert progress.take_changed() == ()


def test_hostile_output_stays_within_limits() -> None:
    progress = ObjectProgress(None, "pg_restore", 1)
    for n in range(1500):
        progress.add_line(at(n), "pg_restore: error: " + "x" * 100_000)
    assert progress.error_count == 1500
    assert len(progress.errors) == 1000
    assert max(len(one.text) for one in progress.errors) <= 500
