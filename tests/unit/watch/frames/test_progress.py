"""How far long work is, and how that is known."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.job_sessions import command
from dba_console.watch.progress.layout import kind_text, title_text
from dba_console.watch.progress.panel import ProgressPanel, derive_progress
from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.samples import postgres
from tests.build import NOW_US, part, picture, sample
from tests.readings import activity, sessions


def operation(kind: str, pid: int, done: int | None, total: int | None, **fields: Any) -> Operation:
    made = {"database": "appdb", "object": "public.orders", "phase": "loading", "unit": "blocks", "detail": {}}
    return Operation(kind=kind, pid=pid, done=done, total=total, **{**made, **fields})


def tick(second: int, rows: list[postgres.Activity], operations: list[Operation]) -> Picture:
    at_s = 1.0 + second
    return picture(
        sample(
            part("pg.activity", sessions(*rows, now_us=NOW_US + second * 1_000_000), at_s=at_s),
            part("pg.progress", Operations(operations), at_s=at_s),
            at_s=at_s,
            wall_us=NOW_US + second * 1_000_000,
        )
    )


def progress(*ticks: tuple[list[postgres.Activity], list[Operation]]) -> ProgressPanel:
    history = ChartHistory()
    seen = picture()
    for second, (rows, operations) in enumerate(ticks):
        seen = tick(second, rows, operations)
        history.add(seen.wall_us, point_of(seen))
    return derive_progress(PictureFacts(seen, history))


def only(panel: ProgressPanel) -> ProgressRow:
    assert len(panel.operations) == 1
    return panel.operations[0]


BUILDER = [activity(7, "active", query="create index i on orders (id)", query_start=NOW_US - 60_000_000)]


def test_progress_the_server_measures_is_marked_as_measured() -> None:
    row = only(progress((BUILDER, [operation("create_index", 7, 41, 100)])))
    assert (row.pct, row.grade, row.elapsed_s, row.user) == (41.0, "measured", 60.0, "app")


def test_without_a_total_there_is_no_progress_and_no_remaining_time() -> None:
    row = only(progress((BUILDER, [operation("create_index", 7, 41, 0)])))
    assert (row.pct, row.grade, row.total, row.eta_s) == (None, "unknown", None, None)


def test_more_done_than_the_total_is_100_percent() -> None:
    assert only(progress((BUILDER, [operation("create_index", 7, 130, 100)]))).pct == 100.0


def test_a_base_backup_is_an_estimate_and_not_complete_before_it_is_gone() -> None:
    row = only(progress(([], [operation("basebackup", 7, 100, 100)])))
    assert (row.pct, row.grade) == (99.0, "estimated")


def test_progress_does_not_go_back_within_a_phase() -> None:
    row = only(
        progress(
            (BUILDER, [operation("create_index", 7, 60, 100)]),
            (BUILDER, [operation("create_index", 7, 60, 200)]),
        )
    )
    assert row.pct == 60.0


def test_progress_restarts_with_the_next_phase() -> None:
    row = only(
        progress(
            (BUILDER, [operation("create_index", 7, 90, 100)]),
            (BUILDER, [operation("create_index", 7, 5, 100, phase="sorting")]),
        )
    )
    assert row.pct == 5.0


def test_progress_restarts_with_the_next_index_vacuum_cycle() -> None:
    def vacuum(done: int, rounds: int) -> list[Operation]:
        detail: dict[str, int | str | None] = {"index_vacuum_count": rounds}
        return [operation("vacuum", 7, done, 4, phase="vacuuming indexes", detail=detail)]

    assert only(progress(([], vacuum(4, 0)), ([], vacuum(1, 1)))).pct == 25.0


def test_the_remaining_time_follows_from_a_steady_rate() -> None:
    row = only(progress(*[(BUILDER, [operation("create_index", 7, 1000 + 20 * s, 2000)]) for s in range(30)]))
    assert row.rate_per_s == pytest.approx(20.0)
    assert row.eta_s == pytest.approx((2000 - 1580) / 20)


def test_a_table_copied_out_is_measured_by_its_estimated_rows() -> None:
    detail = {"command": "COPY TO", "tuples_processed": 300, "reltuples": 1000}
    row = only(progress((BUILDER, [operation("copy", 7, 5_000, None, unit="bytes", detail=detail)])))
    assert (row.pct, row.grade, row.total) == (30.0, "estimated", None)
    more = {**detail, "tuples_processed": 1200}
    row = only(progress((BUILDER, [operation("copy", 7, 5_000, None, unit="bytes", detail=more)])))
    assert row.pct == 99.0, "it has more rows than were estimated, and is not done"
    unknown = {"command": "COPY TO", "tuples_processed": 300}
    assert only(progress((BUILDER, [operation("copy", 7, 5_000, None, unit="bytes", detail=unknown)]))).pct is None


@pytest.mark.parametrize(
    ("kind", "command", "shown"),
    [
        ("cluster", "VACUUM FULL", "vacuum full"),
        ("cluster", "CLUSTER", "cluster"),
        ("create_index", "CREATE INDEX CONCURRENTLY", "create index concurrently"),
        ("create_index", "REINDEX CONCURRENTLY", "reindex concurrently"),
        ("create_index", None, "create index"),
    ],
)
def test_a_command_is_shown_as_it_was_executed(kind: str, command: str | None, shown: str) -> None:
    row = only(progress((BUILDER, [operation(kind, 7, 1, 2, detail={"command": command})])))
    assert kind_text(row) == shown


def test_an_unknown_command_is_shown_with_its_name_in_the_statement() -> None:
    def named(query: str, kind: str = "vacuum") -> str | None:
        rows = [activity(7, "active", query=query, query_start=NOW_US - 60_000_000)]
        return only(progress((rows, [operation(kind, 7, 1, 2, database="shop", object="shop/17420")]))).object

    assert named("create index concurrently orders_i on orders (i)", "create_index") == "orders_i"
    assert named("autovacuum: VACUUM ANALYZE public.lines") == "public.lines"
    assert named('vacuum (verbose) "Big"') == '"Big"'
    assert named("vacuum analyze") == named("vacuum ab, c") == named("") == "relation 17420 of shop"


def test_the_first_percents_give_no_remaining_time() -> None:
    row = only(progress(*[(BUILDER, [operation("create_index", 7, s, 10_000)]) for s in range(30)]))
    assert row.rate_per_s == pytest.approx(1.0)
    assert row.eta_s is None


def test_a_parallel_dump_is_one_job_with_the_tables_it_copies() -> None:
    leader = activity(1, "idle in transaction", application="pg_dump", backend_start=5, xact_start=NOW_US - 90_000_000)
    workers = [
        activity(pid, "active", application="pg_dump", backend_start=9, query="COPY public.t TO stdout;")
        for pid in (2, 3)
    ]
    copies = [operation("copy", pid, 500, None, object=f"public.t{pid}", unit="bytes") for pid in (2, 3)]
    row = only(progress(([leader, *workers], copies)))
    assert (row.kind, row.pid, row.phase, row.elapsed_s) == ("pg_dump", 1, "data", 90.0)
    assert (row.object, row.done, row.pct, row.grade) == ("public.t2, public.t3", 1000.0, None, "unknown")


def test_two_dumps_of_two_databases_are_two_jobs() -> None:
    rows = [activity(pid, "active", application="pg_dump", database=f"db{pid}") for pid in (1, 2)]
    assert len(progress((rows, [])).operations) == 2


def test_an_index_built_by_a_restore_keeps_its_own_measured_row() -> None:
    worker = activity(2, "active", application="pg_restore", query="CREATE INDEX i ON t (a)")
    panel = progress(([worker], [operation("create_index", 2, 1, 4)]))
    assert {(row.kind, row.pct) for row in panel.operations} == {("pg_restore", None), ("create_index", 25.0)}


def test_the_session_of_a_restore_is_listed_below_it() -> None:
    restore = activity(1, "active", application="pg_restore", backend_start=5, query="create index i on orders (id)",
                       query_start=NOW_US - 10_000_000)  # fmt: skip
    other = activity(9, "active", query="vacuum lines", query_start=NOW_US - 5_000_000_000)
    rows = progress(([restore, other], [operation("create_index", 1, 4, 10), operation("vacuum", 9, 4, 10)])).operations
    kinds = [(row.kind, row.part_of) for row in rows]
    at = kinds.index(("pg_restore", None))
    assert kinds[at + 1] == ("create_index", 1) and ("vacuum", None) in kinds
    assert title_text(rows[at + 1]).startswith("└ create index")


def test_a_manual_copy_is_shown_as_psql() -> None:
    rows = [activity(4, "active", application="psql", query="copy t from stdin")]
    assert only(progress((rows, [operation("copy", 4, 10, None)]))).kind == "psql"


def test_a_long_command_without_a_progress_view_is_shown_with_its_wait() -> None:
    rows = [
        activity(
            4, "active", query="alter table orders add x int", query_start=NOW_US - 42_000_000,
            wait_event_type="Lock", wait_event="relation",
        )
    ]  # fmt: skip
    row = only(progress((rows, [])))
    assert (row.kind, row.pct, row.grade, row.wait, row.elapsed_s) == (
        "alter_table", None, "unknown", "Lock:relation", 42.0,
    )  # fmt: skip


def test_a_short_command_is_not_long_work() -> None:
    rows = [activity(4, "active", query="alter table orders add x int", query_start=NOW_US - 500_000)]
    assert progress((rows, [])).operations == []


def test_an_ended_command_is_not_shown() -> None:
    rows = [activity(4, "idle", query="vacuum full orders", query_start=NOW_US - 42_000_000)]
    assert progress((rows, [])).operations == []


def test_waiters_behind_any_session_of_a_job_are_counted_once() -> None:
    rows = [activity(pid, "active", application="pg_dump") for pid in (1, 2)]
    rows += [activity(pid, "active", wait_event_type="Lock") for pid in (8, 9)]
    waits = [
        postgres.LockWaiter(8, [1, 2], "relation", "AccessExclusiveLock", "t", None),
        postgres.LockWaiter(9, [8], "relation", "AccessShareLock", "t", None),
    ]
    seen = picture(
        sample(
            part("pg.activity", sessions(*rows)),
            part("pg.locks", postgres.Locks(waits, [])),
            part("pg.progress", Operations([])),
        )
    )
    assert only(derive_progress(PictureFacts(seen, ChartHistory()))).blocks == 2


def test_sessions_that_wait_for_each_other_are_counted_once() -> None:
    waits = [
        postgres.LockWaiter(pid, blockers, "relation", "ShareLock", "t", None) for pid, blockers in ((1, [2]), (2, [1]))
    ]
    rows = [activity(pid, "active", wait_event_type="Lock") for pid in (1, 2)]
    seen = picture(sample(part("pg.activity", sessions(*rows)), part("pg.locks", postgres.Locks(waits, []))))
    assert PictureFacts(seen, ChartHistory()).count_blocked({1}) == 1


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("VACUUM FULL orders", "vacuum_full"),
        ("vacuum (verbose, full) orders", "vacuum_full"),
        ("vacuum fullname", "vacuum"),
        ("-- nightly\n/* job */ REINDEX TABLE orders", "reindex"),
        ("CREATE UNIQUE INDEX CONCURRENTLY i ON t (a)", "create_index"),
        ("create table x as select 1", "create_table_as"),
        ("create table x (a int)", None),
        ("select 'vacuum full'", None),
        ("", None),
    ],
)
def test_commands_are_recognised_by_their_first_words(query: str, kind: str | None) -> None:
    assert command(query) == kind
