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
from dba_console.actions.lost_answer import settle_mark
from dba_console.actions.statement_results import StatementFailed, StatementLost, StatementMark, StatementStopped
from dba_console.core.errors import ConnectError, Refused
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.postgres.pgbouncer import running_pgbouncer
from tests.postgres.proxy import Proxy
from tests.sql import query
from tests.standbys import copied_standby, hand_over


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(cluster) as connection:
        yield connection
        connection.execute_change("drop table if exists public.acted")


def test_a_query_is_one_statement_and_cannot_leave_its_read_only_transaction(
    connection: ActingConnection, cluster: Cluster
) -> None:
    for sneaking in (
        "select 1; commit; create table public.acted ()",
        "show work_mem; commit; create table public.acted ()",
        "with x as (select 1) select * from x; create table public.acted ()",
        "create table public.acted ()",
        "commit",
    ):
        with pytest.raises(StatementFailed):
            connection.query(sneaking)
    assert query(cluster, "select to_regclass('acted')") == ""


def test_a_query_names_its_columns_without_rows_and_returns_no_more_rows_than_requested(
    connection: ActingConnection,
) -> None:
    assert connection.query("select 1 as one, 2 as two where false").columns == ("one", "two")
    some = connection.query("select * from generate_series(1, 50) as n", limit=3)
    assert (some.count, some.cut) == (3, True)
    assert not connection.query("select * from generate_series(1, 3) as n", limit=3).cut
    assert len(connection.rows("select * from generate_series(1, 10001)", limit=None)) == 10_001
    assert connection.query("show server_version_num").count == 1


def test_values_are_bound_and_a_percent_sign_is_written_twice(connection: ActingConnection) -> None:
    [row] = connection.rows("select %(a)s || '%%' as a", {"a": "'; drop"})
    assert row["a"] == "'; drop%"


def test_a_statement_in_another_databases_encoding_is_shown_and_stops_nothing(
    connection: ActingConnection, cluster: Cluster
) -> None:
    query(cluster, "create database latin encoding 'LATIN1' template template0")
    try:
        with psycopg.connect(cluster.dsn(dbname="latin", client_encoding="LATIN1"), autocommit=True) as session:
            session.execute("select 'caf\u00e9'")
            [row] = connection.rows(
                "select query from pg_stat_activity where pid = %(pid)s", {"pid": session.info.backend_pid}
            )
        assert row["query"] == "select 'caf\ufffd'"
    finally:
        query(cluster, "drop database latin")


def test_the_transaction_id_is_recorded_before_the_commit(cluster: Cluster) -> None:
    marks: list[StatementMark] = []
    seen: list[str] = []
    with acting_connection(cluster) as connection:

        def write(mark: StatementMark) -> None:
            marks.append(mark)
            seen.append(query(cluster, "select to_regclass('acted')"))

        connection.on_mark = write
        connection.execute_change("create table public.acted ()")
        [mark] = marks
        assert mark.xid is not None and seen == [""], "the table was there before its transaction was written down"
        assert settle_mark(connection, mark).state == "ok"
        connection.execute_change("drop table public.acted")


def test_nothing_is_committed_if_the_transaction_id_cannot_be_recorded(cluster: Cluster) -> None:
    def full(mark: StatementMark) -> None:
        raise OSError(28, "no space left on device")

    with acting_connection(cluster) as connection:
        connection.on_mark = full
        with pytest.raises(OSError, match="no space"):
            connection.execute_change("create table public.acted ()")
        with pytest.raises(OSError, match="no space"):
            connection.execute_change("vacuum pg_class", transaction=False)
    assert query(cluster, "select to_regclass('acted')") == ""


def test_a_statement_the_server_rejects_changes_nothing_and_the_connection_stays_usable(
    connection: ActingConnection,
) -> None:
    with pytest.raises(StatementFailed, match="division by zero") as failed:
        connection.execute_change("select 1 / 0")
    assert failed.value.sqlstate == "22012"
    assert connection.rows("select 1 as one") == [{"one": 1}]


def test_a_statement_that_commits_implicitly_is_reported(connection: ActingConnection) -> None:
    with pytest.raises(StatementFailed, match="ended its transaction itself"):
        connection.execute_change("commit")


def test_a_statement_that_exceeds_its_timeout_is_cancelled_and_a_stopped_one_says_so(
    connection: ActingConnection,
) -> None:
    with pytest.raises(StatementFailed, match="statement timeout"):
        connection.execute_change("select pg_sleep(3600)", timeout_s=0.2)
    with pytest.raises(StatementStopped):
        connection.execute_change("select pg_sleep(3600)", watch=lambda pid: True)
    assert connection.rows("select 1 as one") == [{"one": 1}]


def test_a_lock_wait_is_limited(connection: ActingConnection, cluster: Cluster) -> None:
    connection.execute_change("create table public.acted ()")
    with acting_connection(cluster) as other:
        other.application = "dba-console:test:other"
        blocker = threading.Event()

        def hold(mark: StatementMark) -> None:
            with pytest.raises(StatementFailed, match="lock timeout"):
                connection.execute_change("alter table public.acted add a int", lock_timeout_s=0.2)
            blocker.set()

        other.on_mark = hold
        other.execute_change("alter table public.acted add b int")
    assert blocker.is_set()


def test_the_server_shows_which_step_is_running(connection: ActingConnection, cluster: Cluster) -> None:
    connection.application = "dba-console:20261122T050100Z-cache-drop-1f3a:before"
    [row] = connection.rows("select application_name as name from pg_stat_activity where pid = pg_backend_pid()")
    assert row["name"] == connection.application
    assert connection.mark.application == connection.application


def test_a_lost_connection_is_reopened(connection: ActingConnection, cluster: Cluster) -> None:
    first = connection.read_identity() and connection.mark.pid
    query(cluster, f"select pg_terminate_backend({first}, 60000)" if cluster.major >= 14 else "select 1")
    assert connection.rows("select 1 as one") == [{"one": 1}]
    query(cluster, f"select pg_terminate_backend({connection.mark.pid}, 60000)")
    connection.execute_change("create table public.acted ()")
    assert connection.mark.pid != first


def test_a_session_parameter_set_for_the_run_outlives_its_connection(
    connection: ActingConnection, cluster: Cluster
) -> None:
    connection.set_parameter("work_mem", "17MB")
    query(cluster, f"select pg_terminate_backend({connection.mark.pid}, 60000)")
    assert connection.rows("show work_mem") == [{"work_mem": "17MB"}]
    connection.reset_parameter("work_mem")
    assert connection.rows("show work_mem") != [{"work_mem": "17MB"}]


def test_another_database_of_the_server_is_connected_by_the_same_rules(connection: ActingConnection) -> None:
    other = connection.for_database("template1")
    assert other.rows("select current_database()::text as name") == [{"name": "template1"}]
    assert connection.for_database("postgres") is connection and connection.for_database("template1") is other


def test_a_missing_server_is_an_error_without_a_traceback(cluster: Cluster) -> None:
    connection = ActingConnection(cluster.dsn(dbname="nowhere"))
    with pytest.raises(ConnectError, match="nowhere"):
        connection.execute_change("select 1")
    assert "nowhere" not in repr(connection)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_behind_a_pooler_only_settings_in_a_transaction_take_effect(cluster: Cluster, mode: str) -> None:
    marks: list[StatementMark] = []
    with running_pgbouncer(cluster, mode, admin=False) as dsn, acting_connection(cluster) as straight:
        connection = ActingConnection(dsn, planned=straight.planned, on_mark=marks.append, connect_timeout_s=60)
        try:
            connection.execute_change("create table public.acted ()")
            assert settle_mark(straight, marks[0]).state == "ok"
            with pytest.raises(Refused, match="the connection goes through a pooler"):
                connection.execute_change("vacuum public.acted", transaction=False)
            with pytest.raises(Refused, match="the connection goes through a pooler"):
                connection.set_parameter("work_mem", "17MB")
            connection.execute_change("drop table public.acted")
        finally:
            connection.close()


# -- the end of a commit that nobody saw ---------------------------------------------------------------------------


def test_a_commit_that_never_arrived_is_resolved_as_rolled_back(reused_cluster: FreshCluster) -> None:
    """The cable is pulled after the transaction id was written down, before COMMIT leaves."""
    cluster = reused_cluster()
    with Proxy(cluster) as proxy, acting_connection(cluster) as straight:
        connection, marks = ActingConnection(proxy.dsn(), connect_timeout_s=60), list[StatementMark]()
        connection.commit_timeout_s = 0.5

        def cut(mark: StatementMark) -> None:
            still = settle_mark(straight, mark, patience_s=0)
            assert still.state == "unknown" and "in progress" in still.text
            marks.append(mark)
            proxy.cut()

        connection.on_mark = cut
        with pytest.raises(StatementLost) as lost:
            connection.execute_change("create table public.acted ()")
        assert [lost.value.mark] == marks
        assert settle_mark(straight, marks[0], patience_s=60).state == "failed"
        assert query(cluster, "select to_regclass('acted')") == ""
        connection.close()


def test_a_commit_whose_answer_was_lost_is_resolved_as_committed(reused_cluster: FreshCluster) -> None:
    """The server waits for a standby that is not there; its COMMIT is done, and the answer never comes."""
    cluster = reused_cluster({"synchronous_standby_names": "nobody", "synchronous_commit": "on"})
    marks: list[StatementMark] = []
    with acting_connection(cluster, marks=marks) as connection, acting_connection(cluster) as straight:
        connection.commit_timeout_s = None
        ended = threading.Event()

        def end() -> None:
            waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
            pid = wait_until(lambda: query(cluster, waiting), 60)
            query(cluster, f"select pg_terminate_backend({pid})")
            ended.set()

        thread = threading.Thread(target=end)
        thread.start()
        with pytest.raises(StatementLost) as lost:
            connection.execute_change("create table public.acted ()")
        thread.join(60)
        assert ended.is_set() and lost.value.mark == marks[0]
        assert settle_mark(straight, marks[0], patience_s=60).state == "ok"
        assert query(cluster, "select to_regclass('acted')") == "acted"


def test_a_connection_lost_before_the_commit_has_changed_nothing(
    connection: ActingConnection, cluster: Cluster
) -> None:
    with pytest.raises(StatementLost) as lost:
        connection.execute_change("select pg_terminate_backend(pg_backend_pid())")
    assert lost.value.mark is None


def test_a_transaction_of_another_timeline_or_of_the_future_is_unknown(cluster: Cluster) -> None:
    marks: list[StatementMark] = []
    with acting_connection(cluster, marks=marks) as connection:
        connection.execute_change("create table public.acted ()")
        connection.execute_change("drop table public.acted")
        mark = marks[0]
        later = replace(mark, xid=(mark.xid or 0) + 10_000_000)
        assert settle_mark(connection, later).state == "unknown"
        reported = settle_mark(connection, replace(mark, timeline=7))
        assert reported.state == "unknown" and "timeline" in reported.text


def test_the_outcome_outside_a_transaction_is_resolved_by_its_backend(cluster: Cluster) -> None:
    marks: list[StatementMark] = []
    with acting_connection(cluster) as straight:
        with acting_connection(cluster, marks=marks) as connection:
            connection.execute_change("vacuum pg_class", transaction=False)
            [mark] = marks
            assert mark.xid is None
            assert "still running" in settle_mark(straight, mark).text
        gone = f"select 1 from pg_stat_activity where pid = {mark.pid}"
        wait_until(lambda: query(cluster, gone) == "", 60)
        reported = settle_mark(straight, mark)
        assert reported.state == "unknown" and "has ended" in reported.text


# -- the wrong server ----------------------------------------------------------------------------------------------


def planned_on(cluster: Cluster) -> ServerIdentity:
    with acting_connection(cluster) as connection:
        return connection.read_identity()


def test_a_copy_of_the_cluster_is_refused_though_it_has_the_same_system_identifier(fresh_cluster: FreshCluster) -> None:
    original = fresh_cluster()
    planned = planned_on(original)
    original.stop()
    copy = Cluster(original.binaries, durable=False)
    try:
        shutil.copytree(original.data_directory, copy.data_directory)
        hand_over(copy)
        copy.start()
        with acting_connection(copy) as connection:
            assert connection.read_identity().system_identifier == planned.system_identifier
            connection.planned = planned
            with pytest.raises(Refused, match=r"data directory .* answers, not the one with"):
                connection.execute_change("create table public.acted ()")
        assert query(copy, "select to_regclass('acted')") == ""
    finally:
        copy.close()


def test_a_standby_promoted_during_a_run_is_refused(fresh_cluster: FreshCluster) -> None:
    with copied_standby(fresh_cluster()) as standby, acting_connection(standby) as connection:
        connection.execute_change("select pg_cancel_backend(0)")  # a standby can be acted on
        query(standby, "select pg_promote(true, 60)")
        with pytest.raises(Refused, match="is a primary now; the run was started on a standby"):
            connection.execute_change("create table public.acted ()")


def test_a_server_restarted_during_a_run_is_refused_until_the_restart_is_confirmed(
    reused_cluster: FreshCluster,
) -> None:
    cluster = reused_cluster()
    with acting_connection(cluster) as connection:
        cluster.restart()
        with pytest.raises(ServerRestarted, match="was started at"):
            connection.execute_change("create table public.acted ()")
        connection.planned = connection.read_identity()
        connection.execute_change("create table public.acted ()")
    assert query(cluster, "select to_regclass('acted')") == "acted"
