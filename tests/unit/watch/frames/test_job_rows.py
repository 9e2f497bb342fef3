"""What the agent found out about a program stands in the row of its sessions, and in no other."""

from __future__ import annotations

import pytest
from msgspec import structs

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.progress.layout import part_text, remaining_label
from dba_console.watch.progress.panel import derive_progress
from dba_console.watch.progress.readings import Operations
from dba_console.watch.progress.rows import MAX_AGE_S, ProgressRow
from dba_console.watch.safety.readings import Horizon, HorizonHolder
from dba_console.watch.samples import postgres
from dba_console.watch.samples.jobs import JobNow, Jobs, JobsNow, JobStatistics, ObjectNow, PhaseNow
from dba_console.watch.samples.sample import Part, make_part
from tests.build import NOW_US, part, picture, sample
from tests.readings import activity, of, sessions

HOUR_US = 3_600_000_000
AT_S = 100.0
"""Of the sample, after boot."""
RUNNING = of(ObjectNow, name="public.orders", what="TABLE DATA", phase="data", state="running", grade="estimated",
             weight=8e9, elapsed_s=60.0, eta_s=30.0, pid=2)  # fmt: skip
DATA = of(PhaseNow, name="data", state="running", items=10, items_done=3, items_running=1, grade="estimated",
          eta_grade="estimated", done=3e9, total=9e9, unit="bytes", wall_s=300.0)  # fmt: skip
NOW = of(
    JobNow, kind="pg_dump", pid=812, backends=(1, 2), database="appdb", user="app", version="15.18", format="directory",
    jobs=4, started_us=NOW_US - HOUR_US, elapsed_s=3600.0, phase="data", phases=(DATA,), objects=(RUNNING,),
    counts=(1, 3, 6, 0), pct=30.0, grade="estimated", eta_s=840.0, eta_grade="estimated", critical=("orders",),
    sources=("toc.dat",), unknown=("its messages go to a terminal",), free_bytes=10, need_bytes=20.0, fits=False,
)  # fmt: skip
LEADER = activity(1, "active", application="pg_dump", backend_start=NOW_US - HOUR_US)
WORKER = activity(
    2, "active", application="pg_dump", backend_start=NOW_US - HOUR_US, query="COPY public.orders TO stdout;"
)


def rows(
    *jobs: JobNow, latest: list[postgres.Activity], age_s: float = 0.0, more: Part | None = None
) -> list[ProgressRow]:
    parts = [
        part("pg.activity", sessions(*latest), at_s=AT_S),
        part("pg.progress", Operations([]), at_s=AT_S),
        part("jobs.now", JobsNow(NOW_US, jobs), at_s=AT_S - age_s),
        *([] if more is None else [more]),
    ]
    return derive_progress(PictureFacts(picture(sample(*parts, at_s=AT_S)), ChartHistory())).operations


def test_a_job_is_one_row_with_the_data_of_its_program() -> None:
    (row,) = rows(NOW, latest=[LEADER, WORKER])
    assert (row.kind, row.pid, row.process, row.backends) == ("pg_dump", 1, 812, [1, 2])
    assert (row.pct, row.scope, row.grade, row.eta_s, row.phase) == (30.0, "whole", "estimated", 840.0, "data")
    assert (row.version, row.format, row.jobs, row.object) == ("15.18", "directory", 4, "public.orders")
    assert (row.fits, row.sources, row.unknown) == (False, ["toc.dat"], ["its messages go to a terminal"])
    assert row.counts is not None and (row.counts.running, row.counts.done, row.counts.waiting) == (1, 3, 6)
    assert [(one.name, one.items_done, one.rate_per_s) for one in row.phases] == [("data", 3, 1e7)]
    assert [(one.name, one.state, one.weight) for one in row.objects] == [("public.orders", "running", 8e9)]


def test_with_an_unknown_total_the_progress_of_the_data_is_shown() -> None:
    data = structs.replace(DATA, pct=38.0, grade="measured", eta_s=20.0)
    bare = structs.replace(NOW, pct=None, grade="unknown", eta_s=None, eta_grade="unknown", phases=(data,))
    (row,) = rows(bare, latest=[LEADER, WORKER])
    assert (row.scope, row.phase, row.pct, row.grade, row.eta_s) == ("phase", "data", 38.0, "measured", 20.0)
    assert part_text(row) == "data" and remaining_label(row) == "phase left"
    (row,) = rows(structs.replace(bare, phases=(DATA,)), latest=[LEADER, WORKER])
    assert (row.scope, row.pct, row.eta_s) == ("whole", None, None)


def test_ages_continue_between_two_observations() -> None:
    (row,) = rows(NOW, latest=[LEADER, WORKER], age_s=2.0)
    assert (row.elapsed_s, row.eta_s, row.objects[0].elapsed_s, row.objects[0].eta_s) == (3602.0, 838.0, 62.0, 28.0)


def test_an_old_observation_is_not_shown() -> None:
    (row,) = rows(NOW, latest=[LEADER, WORKER], age_s=MAX_AGE_S + 1)
    assert (row.pct, row.grade, row.process, row.scope) == (None, "unknown", None, "phase")


def test_two_dumps_of_one_database_at_once_are_two_jobs() -> None:
    other = structs.replace(NOW, pid=900, backends=(2,), pct=3.0)
    found = rows(structs.replace(NOW, backends=(1,)), other, latest=[LEADER, WORKER])
    assert sorted((row.pid, row.process, row.pct) for row in found) == [(1, 812, 30.0), (2, 900, 3.0)]


def test_a_later_session_belongs_to_the_program_of_its_name() -> None:
    young = structs.replace(WORKER, pid=3, backend_start=NOW_US - 1_000_000)
    (row,) = rows(NOW, latest=[LEADER, WORKER, young])
    assert row.backends == [1, 2, 3]


def test_an_older_session_of_the_same_name_is_another_job() -> None:
    other = structs.replace(WORKER, pid=3, backend_start=NOW_US - HOUR_US)
    found = rows(NOW, latest=[LEADER, WORKER, other])
    assert sorted((row.pid, row.process) for row in found) == [(1, 812), (3, None)]


def test_a_program_without_a_session_is_still_running() -> None:
    (row,) = rows(structs.replace(NOW, backends=()), latest=[])
    assert (row.kind, row.pid, row.process, row.elapsed_s, row.database) == ("pg_dump", None, 812, 3600.0, "appdb")


def test_a_program_whose_sessions_have_ended_is_not_shown_as_running() -> None:
    assert rows(NOW, latest=[activity(7)]) == []


def test_psql_that_reads_a_dump_is_a_job_and_any_other_psql_is_not() -> None:
    psql = structs.replace(NOW, kind="psql", backends=(5,))
    reading = activity(5, "active", application="psql", query="COPY public.t FROM stdin;", backend_start=5)
    (row,) = rows(psql, latest=[reading, activity(6, "idle", application="psql")])
    assert (row.kind, row.pid, row.pct) == ("psql", 5, 30.0)


@pytest.mark.parametrize(("elapsed_s", "late_s"), [(3600.0, None), (4800.0, 1200.0)])
def test_the_delay_is_the_time_beyond_its_typical_duration(elapsed_s: float, late_s: float | None) -> None:
    past = of(JobStatistics, kind="pg_dump", database="appdb", user="app", runs=5, usual_s=3600.0)
    jobs = part("jobs", Jobs(NOW_US, [past], []))
    (row,) = rows(structs.replace(NOW, elapsed_s=elapsed_s), latest=[LEADER, WORKER], more=jobs)
    assert (row.usual_s, row.usual_runs, row.late_s) == (3600.0, 5, late_s)


def test_the_horizon_a_dump_holds_back_is_reported() -> None:
    holder = of(HorizonHolder, kind="backend", who="app", pid=1, xid_age=81_000_000)
    (row,) = rows(NOW, latest=[LEADER, WORKER], more=part("pg.horizon", Horizon([holder])))
    assert row.xid_age == 81_000_000


def test_the_reason_for_unknown_program_data_is_shown() -> None:
    why = "the observation of dump and restore programs does not end: a file system hangs"
    trouble = make_part("jobs.now", None, at_us=int(AT_S * 1e6), status="error", note=why)
    (row,) = rows(NOW, latest=[LEADER, WORKER], age_s=MAX_AGE_S + 1, more=trouble)
    assert (row.pct, row.unknown) == (None, [why])
    (row,) = rows(NOW, latest=[LEADER, WORKER], age_s=1.0, more=trouble)
    assert row.pct == 30.0, "what was seen a second ago still holds"
