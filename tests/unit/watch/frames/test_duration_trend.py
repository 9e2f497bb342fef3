"""What the agent knows of earlier runs stands beside the job that runs, live and in replay alike."""

from __future__ import annotations

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.progress.panel import derive_progress
from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.samples import postgres
from dba_console.watch.samples.jobs import Jobs, JobStatistics, RunningJob
from tests.build import NOW_US, part, picture, sample
from tests.readings import activity, of, sessions


def shown(jobs: Jobs | None, *rows: postgres.Activity, operations: list[Operation] | None = None) -> ProgressRow:
    parts = [
        part("pg.activity", sessions(*rows)),
        part("pg.progress", Operations(operations or [])),
        *([] if jobs is None else [part("jobs", jobs)]),
    ]
    (row,) = derive_progress(PictureFacts(picture(sample(*parts)), ChartHistory())).operations
    return row


def past(kind: str, database: str | None = "appdb", user: str = "app") -> JobStatistics:
    return of(JobStatistics, kind=kind, database=database, user=user, runs=5, usual_s=3720.0)


DUMP = activity(1, "active", application="pg_dump", xact_start=NOW_US - 90_000_000)
RESTORE = activity(2, "active", application="pg_restore", xact_start=NOW_US, backend_start=NOW_US - 60_000_000)


def test_a_job_is_shown_with_its_typical_values() -> None:
    assert shown(Jobs(NOW_US, [past("pg_dump")], []), DUMP).usual_s == 3720.0


def test_typical_values_of_another_database_user_or_program_are_not_used() -> None:
    others = [past("pg_dump", database="other"), past("pg_dump", user="other"), past("pg_restore")]
    assert shown(Jobs(NOW_US, others, []), DUMP).usual_s is None


def test_a_recording_without_a_history_has_no_typical_values() -> None:
    row = shown(None, DUMP)
    assert (row.usual_s, row.elapsed_s) == (None, 90.0)


def test_a_base_backup_is_shown_with_its_typical_values() -> None:
    sender = activity(3, "active", application="pg_basebackup", database=None, backend_type="walsender")
    streaming = Operation("basebackup", 3, None, None, "streaming", 4, 10, "bytes", {})
    row = shown(Jobs(NOW_US, [past("pg_basebackup", None)], []), sender, operations=[streaming])
    assert (row.kind, row.usual_s) == ("basebackup", 3720.0)


def test_a_restore_runs_since_its_first_session_and_not_since_its_last_transaction() -> None:
    assert shown(None, RESTORE).elapsed_s == 60.0
    seen = RunningJob("pg_restore", "appdb", "app", 1, NOW_US - 600_000_000, 600.0)
    assert shown(Jobs(NOW_US, [], [seen]), RESTORE).elapsed_s == 600.0
