"""Why a trial's pg_dump failed, from what it and its workers wrote."""

from __future__ import annotations

from pathlib import Path

from dba_console.jobs.tools.trial_dump import pg_dump_error

LOST = (
    b'could not obtain lock on relation "public.t1"\nThis usually means that someone requested an ACCESS EXCLUSIVE lock'
)


def failure_text(errors: bytes, code: int = 1) -> str:
    return pg_dump_error(errors, code, jobs=2, directory=Path("/scratch")).message


def test_a_requested_lock_is_named_even_if_a_line_of_another_worker_came_between() -> None:
    torn = b'pg_dump: pg_dump: error: dumping contents of table "public.t0"\n' + LOST
    for errors in (b"pg_dump: error: " + LOST, torn):
        assert "waits for an exclusive lock on public.t1" in failure_text(errors)


def test_any_other_failure_is_reported_with_the_pg_dump_message_or_exit_code() -> None:
    assert failure_text(b"pg_dump: error: connection lost\n") == "pg_dump -j 2 failed: connection lost"
    assert failure_text(b"", 1) == "pg_dump -j 2 failed: exit code 1"
    assert failure_text(b"", -9) == "pg_dump -j 2 failed: terminated by signal 9"
