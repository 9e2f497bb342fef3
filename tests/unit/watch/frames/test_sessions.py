"""Sessions joined with their processes."""

from __future__ import annotations

from typing import Any

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.safety.readings import Xids
from dba_console.watch.samples import host
from dba_console.watch.samples.postgres import Locks, LockWaiter
from dba_console.watch.sessions.panel import SessionRow, derive_sessions
from dba_console.watch.sessions.readings import SessionIo, SessionIoStats
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import activity, of, server, sessions


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
    xids = of(Xids, next_xid=(1 << 32) + 100)
    row = first(series({"pg.activity": [sessions(activity(7, backend_xmin=(1 << 32) - 100))], "pg.xids": [xids]}))
    assert row.xmin_age_xids == 200


def test_the_blockers_of_a_session_are_shown_with_it() -> None:
    locks = Locks([LockWaiter(7, [3], "relation", "ShareLock", None, None)], [])
    rows = sessions(activity(7, "active", wait_event_type="Lock", wait_event="relation"))
    row = first(series({"pg.activity": [rows], "pg.locks": [locks]}))
    assert (row.blocked_by, row.wait) == ([3], "Lock:relation")


def counted(*rows: dict[str, Any]) -> SessionIoStats:
    return SessionIoStats([of(SessionIo, pid=7, **row) for row in rows])


def on_18(
    old: SessionIoStats, new: SessionIoStats, io_method: str = "worker", open_s: float | None = None
) -> SessionRow:
    """A working session on 18 that itself reads 1 kB/s and writes 2 kB/s by /proc."""
    before, after = ({"pid": 7, "read_bytes": 2048 * tick, "write_bytes": 4096 * tick} for tick in (0, 1))
    of_18 = server(version_num=180004, with_settings={"io_method": io_method})
    since_us = None if open_s is None else NOW_US - int(open_s * 1e6)
    return first(
        series(
            {
                "pg.server": [of_18],
                "pg.activity": [sessions(activity(7, "active", backend_start=None, xact_start=since_us))] * 2,
                "host.processes": [processes(before), processes(after)],
                "pg.session_io": [old, new],
            },
            step_s=2,
        )
    )


def test_on_18_reads_are_those_that_the_server_counts_for_the_session_and_writes_those_of_its_process() -> None:
    row = on_18(counted({"read_bytes": 0, "write_bytes": 0}), counted({"read_bytes": 200_000, "wal_bytes": None}))
    assert (row.read_bytes_per_s, row.read_source) == (100_000.0, "pg_stat_get_backend_io")
    assert (row.write_bytes_per_s, row.write_source) == (2048.0, "/proc")


def test_reads_of_an_open_transaction_are_unknown_until_the_session_reports_them() -> None:
    row = on_18(counted({"read_bytes": 5, "xact_age_s": 58.0}), counted({"read_bytes": 5, "xact_age_s": 60.0}))
    assert (row.read_bytes_per_s, row.read_source) == (None, "pg_stat_get_backend_io")


def test_reads_of_a_transaction_that_began_after_the_counters_were_read_are_unknown_too() -> None:
    row = on_18(counted({"read_bytes": 5}), counted({"read_bytes": 5}), open_s=1.5)
    assert (row.read_bytes_per_s, row.read_source) == (None, "pg_stat_get_backend_io")
    assert on_18(counted({"read_bytes": 5}), counted({"read_bytes": 5}), open_s=0.02).read_bytes_per_s == 1024.0


def test_what_a_transaction_reports_at_its_end_is_spread_over_its_whole_time() -> None:
    row = on_18(counted({"read_bytes": 0, "xact_age_s": 58.0}), counted({"read_bytes": 600_000}))
    assert row.read_bytes_per_s == 10_000.0


def test_a_working_session_that_is_not_among_the_counted_ones_does_not_read_what_its_process_reads() -> None:
    row = on_18(counted(), counted())
    assert (row.read_bytes_per_s, row.read_source) == (None, "pg_stat_get_backend_io")


def test_a_session_that_was_idle_for_long_reads_nothing_and_one_that_just_became_idle_may_have() -> None:
    def idle_for(seconds: float) -> SessionRow:
        row = activity(7, state_change=NOW_US - int(seconds * 1e6))
        at_rest = processes({"pid": 7, "read_bytes": 0})
        readings: dict[str, list[Any]] = {
            "pg.server": [server(version_num=180004)],
            "pg.activity": [sessions(row)],
            "host.processes": [at_rest, at_rest],
        }
        return first(series(readings, step_s=2))

    assert (idle_for(60).read_bytes_per_s, idle_for(60).read_source) == (0.0, "/proc")
    assert (idle_for(2).read_bytes_per_s, idle_for(2).read_source) == (None, "pg_stat_get_backend_io")


def test_without_asynchronous_io_a_process_reads_itself() -> None:
    row = on_18(counted({"read_bytes": 0}), counted({"read_bytes": 200_000}), io_method="sync")
    assert (row.read_bytes_per_s, row.read_source) == (1024.0, "/proc")


def test_temporary_files_that_only_its_process_counts_are_reads_too() -> None:
    row = on_18(counted({"read_bytes": 0}), counted({"read_bytes": 10}))
    assert (row.read_bytes_per_s, row.read_source) == (1024.0, "/proc")
