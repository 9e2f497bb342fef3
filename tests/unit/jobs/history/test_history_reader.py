"""Read-only access to the history: nothing is changed, and nothing is known before it happened."""

from __future__ import annotations

from msgspec import structs

from dba_console.jobs.history.history_reader import job_history_view, only_ended_before
from dba_console.jobs.history.kept_history import KeptHistory, KeptJob
from dba_console.jobs.history.run_statistics import JobRun
from tests.jobs import DAY_US, NOW_US

NIGHTS = [JobRun(NOW_US - day * DAY_US, 3600.0, True, exit=0) for day in range(9, 0, -1)]


def test_the_most_recent_job_is_listed_first_and_a_cancelled_run_does_not_count() -> None:
    short = JobRun(NOW_US - DAY_US // 2, 3.0, True)
    kept = KeptHistory(NOW_US, [
        KeptJob("pg_restore", "copy", None, 1, [JobRun(NOW_US - 5 * DAY_US, 60.0, True)]),
        KeptJob("pg_dump", "app", "alice", 1, [*NIGHTS, short]),
        KeptJob("pg_dump", "never", None, 1, []),
    ])  # fmt: skip
    dump, restore = job_history_view(kept).jobs
    assert dump.name == "pg_dump of app" and restore.name == "pg_restore of copy"
    assert dump.usual_s == 3600.0 and restore.usual_s is None
    assert [run.counts for run in dump.runs] == [True] * 9 + [False]


def test_a_past_time_knows_only_runs_ended_by_then() -> None:
    past = job_history_view(KeptHistory(NOW_US, [KeptJob("pg_dump", "app", "alice", 1, NIGHTS)]))
    (job,) = only_ended_before(past, NIGHTS[4].started_us + 1).jobs
    assert len(job.runs) == 4 and job.runs[-1].started_us == NIGHTS[3].started_us
    nothing = only_ended_before(past, NIGHTS[0].started_us)
    assert nothing.jobs == () and nothing.note == "no dump or restore had ended by then"


def test_an_exit_status_of_psql_does_not_prove_success_and_an_interrupted_run_has_none() -> None:
    run = JobRun(NOW_US - DAY_US, 60.0, True, exit=0)
    kept = KeptHistory(NOW_US, [
        KeptJob("psql", "a", None, 1, [run]), KeptJob("pg_dump", "b", None, 1, [run]),
        KeptJob("pg_dump", "c", None, 1, [structs.replace(run, exit=None, whole=False)]),
    ])  # fmt: skip
    endings = {job.name: job.runs[0].ending for job in job_history_view(kept).jobs}
    assert endings == {"psql of a": "unknown", "pg_dump of b": "good", "pg_dump of c": "failed"}


def test_dumps_in_several_formats_are_listed_apart_and_keep_their_name_in_the_configuration() -> None:
    plain = [
        structs.replace(run, started_us=run.started_us + 1, seconds=60.0, whole=True, format="plain") for run in NIGHTS
    ]
    custom = [structs.replace(run, format="custom") for run in NIGHTS]
    view = job_history_view(KeptHistory(NOW_US, [KeptJob("pg_dump", "app", "alice", 1, [*custom, *plain])]))
    assert {job.title: (job.usual_s, len(job.runs)) for job in view.jobs} == {
        "pg_dump of app (custom)": (3600.0, 9), "pg_dump of app (plain)": (60.0, 9)
    }  # fmt: skip
    assert {job.name for job in view.jobs} == {"pg_dump of app"}
    (alone,) = job_history_view(KeptHistory(NOW_US, [KeptJob("pg_dump", "app", "alice", 1, custom)])).jobs
    assert alone.title == "pg_dump of app"
