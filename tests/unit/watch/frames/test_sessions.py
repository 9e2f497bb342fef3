"""Sessions joined with their processes."""

from __future__ import annotations

from typing import Any

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.frames.rows import SessionRow
from dba_console.watch.frames.sessions import derive_sessions
from dba_console.watch.samples import host, postgres
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import activity, of, sessions


def first(latest: Picture) -> SessionRow:
    return derive_sessions(PictureFacts(latest, ChartHistory())).rows[0]


def processes(*rows: dict[str, Any], postmaster: int = 900) -> host.Processes:
    return host.Processes(postmaster, [of(host.Process, **row) for row in rows], {}, len(rows))


def with_processes(old: host.Processes, new: host.Processes) -> SessionRow:
    return first(series({"pg.activity": [sessions(activity(7))], "host.processes": [old, new]}, step_s=2))


def test_cpu_is_ticks_of_the_interval_in_percent_of_one_core() -> None:
    row = with_processes(
        processes({"pid": 7, "user_ticks": 100, "read_bytes": 0}),
        processes({"pid": 7, "user_ticks": 180, "system_ticks": 20, "read_bytes": 4096, "rss": 5, "state": "R"}),
    )
    assert (row.cpu_pct, row.read_bytes_per_s, row.write_bytes_per_s) == (50.0, 2048.0, None)
    assert (row.rss_bytes, row.process_state) == (5, "R")


def test_another_process_with_the_same_pid_is_not_subtracted() -> None:
    row = with_processes(processes({"pid": 7, "start_ticks": 1}), processes({"pid": 7, "start_ticks": 2, "rss": 5}))
    assert (row.cpu_pct, row.rss_bytes) == (None, 5)


def test_a_process_not_read_this_time_has_no_cpu_and_keeps_its_memory() -> None:
    row = with_processes(processes({"pid": 7, "rss": 5}), processes({"pid": 8}))
    assert (row.cpu_pct, row.rss_bytes) == (None, 5)


def test_a_session_without_a_known_process_has_no_process_values() -> None:
    row = first(series({"pg.activity": [sessions(activity(7))]}))
    assert (row.cpu_pct, row.rss_bytes, row.process_state) == (None, None, None)


def test_ages_are_by_the_server_clock() -> None:
    rows = sessions(activity(7, "active", xact_start=NOW_US - 5_000_000, query_start=NOW_US - 2_000_000))
    row = first(picture(sample(part("pg.activity", rows), wall_us=NOW_US + 3_600_000_000)))
    assert (row.xact_age_s, row.query_age_s) == (5.0, 2.0)


def test_a_start_just_after_the_reading_is_not_a_negative_age() -> None:
    assert first(series({"pg.activity": [sessions(activity(7, xact_start=NOW_US + 50))]})).xact_age_s == 0.0


def test_a_session_without_a_transaction_has_no_transaction_age() -> None:
    assert first(series({"pg.activity": [sessions(activity(7))]})).xact_age_s is None


def test_the_age_of_a_snapshot_is_in_transactions_across_the_epoch() -> None:
    xids = of(postgres.Xids, next_xid=(1 << 32) + 100)
    row = first(series({"pg.activity": [sessions(activity(7, backend_xmin=(1 << 32) - 100))], "pg.xids": [xids]}))
    assert row.xmin_age_xids == 200


def test_the_blockers_of_a_session_are_shown_with_it() -> None:
    locks = postgres.Locks([postgres.LockWaiter(7, [3], "relation", "ShareLock", None, None)], [])
    rows = sessions(activity(7, "active", wait_event_type="Lock", wait_event="relation"))
    row = first(series({"pg.activity": [rows], "pg.locks": [locks]}))
    assert (row.blocked_by, row.wait) == ([3], "Lock:relation")
