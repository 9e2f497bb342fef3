"""The acting connection: one statement at a time, bounded, on the server that is meant, its end known or unknown."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator

import psycopg
import pytest
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection, ServerRestarted
from dba_console.actions.identity import ServerIdentity
from dba_console.actions.outcome_evidence import settle_mark
from dba_console.actions.statement_results import StatementFailed, StatementLost, StatementMark, StatementStopped
from dba_console.core.errors import ConnectError, Refused
from dba_console.demo.cluster import Cluster
from tests.actions.connections import acting
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.postgres.pgbouncer import bouncer
from tests.postgres.proxy import Proxy
from tests.sql import query
from tests.standbys import copied_standby, hand_over


@pytest.fixture
def link(cluster: Cluster) -> Iterator[ActingConnection]:
    with acting(cluster) as link:
        yield link
        link.execute_change("drop table if exists public.acted")


def test_a_query_is_one_statement_and_cannot_leave_its_read_only_transaction(
    link: ActingConnection, cluster: Cluster
) -> None:
    for sneaking in (
        "select 1; commit; create table public.acted ()",
        "show work_mem; commit; create table public.acted ()",
        "with x as (select 1) select * from x; create table public.acted ()",
        "create table public.acted ()",
        "commit",
    ):
        with pytest.raises(StatementFailed):
            link.query(sneaking)
    assert query(cluster, "select to_regclass('acted')") == ""


def test_a_query_names_its_columns_without_rows_and_returns_no_more_rows_than_requested(link: ActingConnection) -> None:
    assert link.query("select 1 as one, 2 as two where false").columns == ("one", "two")
    some = link.query("select * from generate_series(1, 50) as n", limit=3)
    assert (some.count, some.cut) == (3, True)
    assert not link.query("select * from generate_series(1, 3) as n", limit=3).cut
    assert len(link.rows("select * from generate_series(1, 10001)", limit=None)) == 10_001
    assert link.query("show server_version_num").count == 1


def test_values_are_bound_and_a_percent_sign_is_written_twice(link: ActingConnection) -> None:
    [row] = link.rows("select %(a)s || '%%' as a", {"a": "'; drop"})
    assert row["a"] == "'; drop%"


def test_a_statement_in_another_databases_encoding_is_shown_and_stops_nothing(
    link: ActingConnection, cluster: Cluster
) -> None:
    query(cluster, "create database latin encoding 'LATIN1' template template0")
    try:
        with psycopg.connect(cluster.dsn(dbname="latin", client_encoding="LATIN1"), autocommit=True) as session:
            session.execute("select 'caf\u00e9'")
            [row] = link.rows(
                "select query from pg_stat_activity where pid = %(pid)s", {"pid": session.info.backend_pid}
            )
        assert row["query"] == "select 'caf\ufffd'"
    finally:
        query(cluster, "drop database latin")


def test_the_transaction_id_is_recorded_before_the_commit(cluster: Cluster) -> None:
    marks: list[StatementMark] = []
    seen: list[str] = []
    with acting(cluster) as link:

        def write(mark: StatementMark) -> None:
            marks.append(mark)
            seen.append(query(cluster, "select to_regclass('acted')"))

        link.on_mark = write
        link.execute_change("create table public.acted ()")
        [mark] = marks
        assert mark.xid is not None and seen == [""], "the table was there before its transaction was written down"
        assert settle_mark(link, mark).state == "ok"
        link.execute_change("drop table public.acted")


def test_nothing_is_committed_if_the_transaction_id_cannot_be_recorded(cluster: Cluster) -> None:
    def full(mark: StatementMark) -> None:
        raise OSError(28, "no space left on device")

    with acting(cluster) as link:
        link.on_mark = full
        with pytest.raises(OSError, match="no space"):
            link.execute_change("create table public.acted ()")
        with pytest.raises(OSError, match="no space"):
            link.execute_change("vacuum pg_class", transaction=False)
    assert query(cluster, "select to_regclass('acted')") == ""


def test_a_statement_the_server_rejects_changes_nothing_and_the_connection_stays_usable(link: ActingConnection) -> None:
    with pytest.raises(StatementFailed, match="division by zero") as failed:
        link.execute_change("select 1 / 0")
    assert failed.value.sqlstate == "22012"
    assert link.rows("select 1 as one") == [{"one": 1}]


def test_a_statement_that_commits_implicitly_is_reported(link: ActingConnection) -> None:
    with pytest.raises(StatementFailed, match="ended its transaction itself"):
        link.execute_change("commit")


def test_a_statement_that_exceeds_its_timeout_is_cancelled_and_a_stopped_one_says_so(link: ActingConnection) -> None:
    with pytest.raises(StatementFailed, match="statement timeout"):
        link.execute_change("select pg_sleep(3600)", timeout_s=0.2)
    with pytest.raises(StatementStopped):
        link.execute_change("select pg_sleep(3600)", watch=lambda pid: True)
    assert link.rows("select 1 as one") == [{"one": 1}]


def test_a_lock_wait_is_limited(link: ActingConnection, cluster: Cluster) -> None:
    link.execute_change("create table public.acted ()")
    with acting(cluster) as other:
        other.application = "dba-console:test:other"
        blocker = threading.Event()

        def hold(mark: StatementMark) -> None:
            with pytest.raises(StatementFailed, match="lock timeout"):
                link.execute_change("alter table public.acted add a int", lock_timeout_s=0.2)
            blocker.set()

        other.on_mark = hold
        other.execute_change("alter table public.acted add b int")
    assert blocker.is_set()


def test_the_server_shows_which_step_is_running(link: ActingConnection, cluster: Cluster) -> None:
    link.application = "dba-console:20261122T050100Z-cache-drop-1f3a:before"
    [row] = link.rows("select application_name as name from pg_stat_activity where pid = pg_backend_pid()")
    assert row["name"] == link.application
    assert link.mark.application == link.application


def test_a_lost_connection_is_reopened(link: ActingConnection, cluster: Cluster) -> None:
    first = link.read_identity() and link.mark.pid
    query(cluster, f"select pg_terminate_backend({first}, 60000)" if cluster.major >= 14 else "select 1")
    assert link.rows("select 1 as one") == [{"one": 1}]
    query(cluster, f"select pg_terminate_backend({link.mark.pid}, 60000)")
    link.execute_change("create table public.acted ()")
    assert link.mark.pid != first


def test_a_session_parameter_set_for_the_run_outlives_its_connection(link: ActingConnection, cluster: Cluster) -> None:
    link.set_parameter("work_mem", "17MB")
    query(cluster, f"select pg_terminate_backend({link.mark.pid}, 60000)")
    assert link.rows("show work_mem") == [{"work_mem": "17MB"}]
    link.reset_parameter("work_mem")
    assert link.rows("show work_mem") != [{"work_mem": "17MB"}]


def test_another_database_of_the_server_is_connected_by_the_same_rules(link: ActingConnection) -> None:
    other = link.for_database("template1")
    assert other.rows("select current_database()::text as name") == [{"name": "template1"}]
    assert link.for_database("postgres") is link and link.for_database("template1") is other


def test_a_missing_server_is_an_error_without_a_traceback(cluster: Cluster) -> None:
    link = ActingConnection(cluster.dsn(dbname="nowhere"))
    with pytest.raises(ConnectError, match="nowhere"):
        link.execute_change("select 1")
    assert "nowhere" not in repr(link)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_behind_a_pooler_only_settings_in_a_transaction_take_effect(cluster: Cluster, mode: str) -> None:
    marks: list[StatementMark] = []
    with bouncer(cluster, mode, admin=False) as dsn, acting(cluster) as straight:
        link = ActingConnection(dsn, planned=straight.planned, on_mark=marks.append, connect_timeout_s=60)
        try:
            link.execute_change("create table public.acted ()")
            assert settle_mark(straight, marks[0]).state == "ok"
            with pytest.raises(Refused, match="the connection goes through a pooler"):
                link.execute_change("vacuum public.acted", transaction=False)
            with pytest.raises(Refused, match="the connection goes through a pooler"):
                link.set_parameter("work_mem", "17MB")
            link.execute_change("drop table public.acted")
        finally:
            link.close()


# -- the end of a commit that nobody saw ---------------------------------------------------------------------------


def test_a_commit_that_never_arrived_is_resolved_as_rolled_back(reused_cluster: FreshCluster) -> None:
    """The cable is pulled after the transaction id was written down, before COMMIT leaves."""
    cluster = reused_cluster()
    with Proxy(cluster) as proxy, acting(cluster) as straight:
        link, marks = ActingConnection(proxy.dsn(), connect_timeout_s=60), list[StatementMark]()
        link.commit_timeout_s = 0.5

        def cut(mark: StatementMark) -> None:
            still = settle_mark(straight, mark, patience_s=0)
            assert still.state == "unknown" and "in progress" in still.text
            marks.append(mark)
            proxy.cut()

        link.on_mark = cut
        with pytest.raises(StatementLost) as lost:
            link.execute_change("create table public.acted ()")
        assert [lost.value.mark] == marks
        assert settle_mark(straight, marks[0], patience_s=60).state == "failed"
        assert query(cluster, "select to_regclass('acted')") == ""
        link.close()


def test_a_commit_whose_answer_was_lost_is_resolved_as_committed(reused_cluster: FreshCluster) -> None:
    """The server waits for a standby that is not there; its COMMIT is done, and the answer never comes."""
    cluster = reused_cluster({"synchronous_standby_names": "nobody", "synchronous_commit": "on"})
    marks: list[StatementMark] = []
    with acting(cluster, marks=marks) as link, acting(cluster) as straight:
        link.commit_timeout_s = None
        ended = threading.Event()

        def end() -> None:
            waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
            pid = wait_until(lambda: query(cluster, waiting), 60)
            query(cluster, f"select pg_terminate_backend({pid})")
            ended.set()

        thread = threading.Thread(target=end)
        thread.start()
        with pytest.raises(StatementLost) as lost:
            link.execute_change("create table public.acted ()")
        thread.join(60)
        assert ended.is_set() and lost.value.mark == marks[0]
        assert settle_mark(straight, marks[0], patience_s=60).state == "ok"
        assert query(cluster, "select to_regclass('acted')") == "acted"


def test_a_connection_lost_before_the_commit_has_changed_nothing(link: ActingConnection, cluster: Cluster) -> None:
    with pytest.raises(StatementLost) as lost:
        link.execute_change("select pg_terminate_backend(pg_backend_pid())")
    assert lost.value.mark is None


def test_a_transaction_of_another_timeline_or_of_the_future_is_unknown(cluster: Cluster) -> None:
    marks: list[StatementMark] = []
    with acting(cluster, marks=marks) as link:
        link.execute_change("create table public.acted ()")
        link.execute_change("drop table public.acted")
        mark = marks[0]
        later = replace(mark, xid=(mark.xid or 0) + 10_000_000)
        assert settle_mark(link, later).state == "unknown"
        told = settle_mark(link, replace(mark, timeline=7))
        assert told.state == "unknown" and "timeline" in told.text


def test_the_outcome_outside_a_transaction_is_resolved_by_its_backend(cluster: Cluster) -> None:
    marks: list[StatementMark] = []
    with acting(cluster) as straight:
        with acting(cluster, marks=marks) as link:
            link.execute_change("vacuum pg_class", transaction=False)
            [mark] = marks
            assert mark.xid is None
            assert "still running" in settle_mark(straight, mark).text
        gone = f"select 1 from pg_stat_activity where pid = {mark.pid}"
        wait_until(lambda: query(cluster, gone) == "", 60)
        told = settle_mark(straight, mark)
        assert told.state == "unknown" and "has ended" in told.text


# -- the wrong server ----------------------------------------------------------------------------------------------


def planned_on(cluster: Cluster) -> ServerIdentity:
    with acting(cluster) as link:
        return link.read_identity()


def test_a_copy_of_the_cluster_is_refused_though_it_has_the_same_system_identifier(fresh_cluster: FreshCluster) -> None:
    original = fresh_cluster()
    planned = planned_on(original)
    original.stop()
    copy = Cluster(original.binaries, durable=False)
    try:
        shutil.copytree(original.data_directory, copy.data_directory)
        hand_over(copy)
        copy.start()
        with acting(copy) as link:
            assert link.read_identity().system_identifier == planned.system_identifier
            link.planned = planned
            with pytest.raises(Refused, match=r"data directory .* answers, not the one with"):
                link.execute_change("create table public.acted ()")
        assert query(copy, "select to_regclass('acted')") == ""
    finally:
        copy.close()


def test_a_standby_promoted_during_a_run_is_refused(fresh_cluster: FreshCluster) -> None:
    with copied_standby(fresh_cluster()) as standby, acting(standby) as link:
        link.execute_change("select pg_cancel_backend(0)")  # a standby can be acted on
        query(standby, "select pg_promote(true, 60)")
        with pytest.raises(Refused, match="is a primary now; the run was started on a standby"):
            link.execute_change("create table public.acted ()")


def test_a_server_restarted_during_a_run_is_refused_until_the_restart_is_confirmed(
    reused_cluster: FreshCluster,
) -> None:
    cluster = reused_cluster()
    with acting(cluster) as link:
        cluster.restart()
        with pytest.raises(ServerRestarted, match="was started at"):
            link.execute_change("create table public.acted ()")
        link.planned = link.read_identity()
        link.execute_change("create table public.acted ()")
    assert query(cluster, "select to_regclass('acted')") == "acted"
