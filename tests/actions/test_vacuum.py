"""vacuum: of a table, of databases, with progress, stopped, and distinguished from one that did nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.permission_gate import refuse_changed
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.actions.statement_results import StatementFailed, StatementMark
from dba_console.demo.incidents.wraparound import STOP_BEFORE_WRAP, WRAP_AGE, set_next_xid
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection, perform, preview_action, settle_action
from tests.background import idle_in_transaction, wait_until
from tests.clusters import FreshCluster
from tests.requirements import lacking
from tests.sql import query

VACUUM = ACTIONS["vacuum"]


@pytest.fixture
def connection(server: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(server) as connection:
        connection.execute_change('create table public."odd name" as select n from generate_series(1, 1000) as n')
        connection.execute_change('delete from public."odd name"')
        if server.major >= 15:
            connection.rows("select pg_stat_force_next_flush()")  # the counts of the delete, before those of VACUUM
        yield connection
        connection.execute_change('drop table public."odd name"')


@pytest.fixture
def one_connection(cluster: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(cluster) as connection:
        connection.execute_change("create table public.worn as select n from generate_series(1, 1000) as n")
        connection.execute_change("delete from public.worn")
        yield connection
        connection.execute_change("drop table public.worn")


def test_a_table_is_vacuumed_on_every_version(connection: ActingConnection, server: Cluster) -> None:
    asked: dict[str, Any] = {
        "table": 'public."odd name"',
        "index_cleanup": False,
        "truncate": False,
        "parallel": 0,
        "analyze": True,
    }
    action_preview, done = perform(VACUUM, connection, **asked)
    assert action_preview.exact.startswith("VACUUM (ANALYZE, INDEX_CLEANUP off, TRUNCATE off, PARALLEL 0)")
    assert done.state == "ok", done.text
    if server.major >= 15:  # before, statistics are sent by datagrams, and may come late or never
        assert (
            done.values["dead_rows"] == 0 and settle_action(VACUUM, connection, action_preview, **asked).state == "ok"
        )


def test_a_whole_database_and_several_are_vacuumed(one_connection: ActingConnection) -> None:
    action_preview, done = perform(
        VACUUM, one_connection, rows=[{"datname": "postgres", "xid_age": 3}, {"datname": "template1"}]
    )
    assert (action_preview.count, done.state) == (2, "ok"), done.text
    assert "VACUUM in database template1" in action_preview.exact
    assert (
        settle_action(
            VACUUM, one_connection, action_preview, rows=[{"datname": "postgres"}, {"datname": "template1"}]
        ).state
        == "ok"
    )


def test_a_table_that_fails_does_not_stop_the_others(one_connection: ActingConnection, cluster: Cluster) -> None:
    one_connection.execute_change("create table public.other as select n from generate_series(1, 10) as n")
    rows = [{"datname": "postgres", "table": name} for name in ("public.worn", "public.other", "public.gone")]
    try:
        with idle_in_transaction(cluster, "lock table public.worn"):
            action_preview, done = perform(VACUUM, one_connection, rows=rows, lock_timeout="200ms", truncate=False)
        assert action_preview.count == 2 and "No longer existing: public.gone" in action_preview.text
        assert action_preview.exact.count("VACUUM (TRUNCATE off)") == 2
        assert done.state == "failed" and done.text.startswith("public.worn in postgres: VACUUM failed")
        assert "lock timeout" in done.text and "public.other in postgres: vacuumed" in done.text
        one_connection.execute_change("drop table public.worn")
        assert preview_action(VACUUM, one_connection, rows=rows[:1]).done, (
            "a table that was dropped need not be vacuumed"
        )
        _, done = perform(VACUUM, one_connection, rows=rows)
        assert done.state == "ok"
    finally:
        one_connection.execute_change("drop table public.other")
        one_connection.execute_change("create table public.worn ()")


def test_many_tables_are_reported_in_one_sentence_and_every_statement_is_shown(
    one_connection: ActingConnection,
) -> None:
    names = ["pg_catalog.pg_class", "pg_catalog.pg_type", "pg_catalog.pg_proc", "public.worn"]
    action_preview = preview_action(
        VACUUM, one_connection, rows=[{"datname": "postgres", "table": name} for name in names]
    )
    assert action_preview.text.startswith("Vacuum 4 tables, one after the other, in database postgres: ")
    assert action_preview.text.endswith("The first is pg_catalog.pg_class in postgres.")
    assert len(action_preview.exact.splitlines()) == action_preview.count == 4


def test_a_table_dropped_after_it_was_confirmed_does_not_block_the_others(one_connection: ActingConnection) -> None:
    rows = [{"datname": "postgres", "table": name} for name in ("public.worn", "public.other")]
    one_connection.execute_change("create table public.other ()")
    shown = preview_action(VACUUM, one_connection, rows=rows)
    one_connection.execute_change("drop table public.other")
    now = preview_action(VACUUM, one_connection, rows=rows)
    refuse_changed(now, shown, may_shrink=VACUUM.may_shrink)
    done = VACUUM.act(
        parse_settings("vacuum", {"rows": rows}), shown, ActionContext(connection=one_connection), PlainControl()
    )
    assert done.state == "ok" and "dropped meanwhile" in done.text
    assert settle_action(VACUUM, one_connection, shown, rows=rows).state == "ok"


def test_each_row_says_whether_index_cleanup_is_skipped(one_connection: ActingConnection, cluster: Cluster) -> None:
    """Of a partition, in another tablespace, with names that need quotes, in another database."""
    one_connection.execute_change('create database "other Base"', transaction=False)
    place = cluster.data_directory.parent / "elsewhere"
    place.mkdir()
    cluster.account.chown(place)
    one_connection.execute_change(f"create tablespace elsewhere location '{place}'", transaction=False)
    try:
        with acting_connection(cluster, dbname="other Base") as inside:
            inside.execute_change('create table public."by %s day" (d int primary key) partition by range (d)')
            inside.execute_change(
                'create table public."day ""1""" partition of public."by %s day" for values from (0) to (9) '
                "tablespace elsewhere"
            )
        rows = [
            {"datname": "other Base", "table": 'public."day ""1"""', "index_cleanup": False},
            {"datname": "postgres", "table": "public.worn", "index_cleanup": None},
        ]
        action_preview, done = perform(VACUUM, one_connection, rows=rows)
        assert action_preview.exact == (
            'VACUUM (INDEX_CLEANUP off) "public"."day ""1""" in database other Base;\n'
            'VACUUM "public"."worn" in database postgres'
        )
        assert done.state == "ok", done.text
        assert settle_action(VACUUM, one_connection, action_preview, rows=rows).state == "ok"
        gone = "select count(*) from pg_stat_activity where datname = 'other Base' and backend_type = 'client backend'"
        wait_until(lambda: query(cluster, gone) == "0", what="the end of its connections to other databases")
    finally:
        one_connection.execute_change('drop database "other Base" with (force)', transaction=False)
        one_connection.execute_change("drop tablespace elsewhere", transaction=False)


def test_past_the_stop_only_options_that_keep_the_empty_end_are_allowed(fresh_cluster: FreshCluster) -> None:
    """Cutting it off needs a transaction id (LogAccessExclusiveLockPrepare), and none is given out any more."""
    cluster = fresh_cluster({"wal_level": "logical", "autovacuum": "off", "log_min_messages": "error"})
    if not cluster.binaries.has("pg_resetwal"):
        lacking("there is no pg_resetwal")
    # It holds the catalogs back: a forced autovacuum frees a few ids more, and no longer all of them.
    query(cluster, "select pg_create_logical_replication_slot('held', 'pgoutput')")
    oldest = int(query(cluster, "select datfrozenxid from pg_database order by age(datfrozenxid) desc limit 1"))
    cluster.stop()
    set_next_xid(cluster, oldest + WRAP_AGE - STOP_BEFORE_WRAP - 500)
    cluster.start()
    emptied = [f"public.emptied_{number}" for number in range(50)]
    for name in emptied:
        query(
            cluster, f"create table {name} with (autovacuum_enabled = off) as select n from generate_series(1, 500) n"
        )
        query(cluster, f"delete from {name}")
    with acting_connection(cluster) as connection:
        left = iter(emptied)

        def failed() -> tuple[str, str] | None:
            name = next(left)
            with pytest.raises(StatementFailed, match="not accepting commands"):
                connection.execute_change(
                    "do $$ begin loop perform txid_current(); commit; end loop; end $$", transaction=False
                )
            _, done = perform(VACUUM, connection, table=name)
            return (name, done.text) if done.state == "failed" else None

        name, text = wait_until(failed, what="a VACUUM that gets no id")
        assert "not accepting commands" in text
        _, done = perform(VACUUM, connection, rows=[{"datname": "postgres", "table": name}], truncate=False)
        assert done.state == "ok", done.text


@pytest.mark.pg(14, 18)
def test_timeouts_of_the_role_do_not_end_it(server: Cluster) -> None:
    query(server, "create role hasty superuser login; create table public.hurried as select 1 as n")
    names = ["statement_timeout", "lock_timeout", *(["transaction_timeout"] if server.major >= 17 else [])]
    for name in names:
        query(server, f"alter role hasty set {name} = '300ms'")
    try:
        with (
            acting_connection(server, user="hasty") as connection,
            idle_in_transaction(server, "lock table public.hurried"),
        ):
            begun = server_time(server)
            longer = f"select clock_timestamp() > timestamptz '{begun}' + interval '1 s'"
            control = PlainControl(stop=lambda: query(server, longer) == "t")
            _, done = perform(VACUUM, connection, control, table="public.hurried")
            assert done.state == "stopped", done.text
        with acting_connection(server, user="hasty") as connection:
            _, done = perform(VACUUM, connection, table="public.hurried")
            assert done.state == "ok", done.text
    finally:
        query(server, "drop table public.hurried; drop role hasty")


def server_time(cluster: Cluster) -> str:
    return query(cluster, "select clock_timestamp()")


def test_a_vacuum_that_never_ran_is_not_reported_as_done(one_connection: ActingConnection) -> None:
    action_preview = preview_action(VACUUM, one_connection, table="public.worn")
    assert settle_action(VACUUM, one_connection, action_preview, table="public.worn").state == "failed"


def test_it_says_which_session_it_waits_for_and_can_be_stopped(
    one_connection: ActingConnection, cluster: Cluster
) -> None:
    reported: list[str] = []
    with idle_in_transaction(cluster, "lock table public.worn") as holder:
        waits = f"waiting for a lock held by process {holder}"
        control = PlainControl(stop=lambda: waits in reported, on_progress=reported.append)
        _, done = perform(VACUUM, one_connection, control, table="public.worn")
    assert done.state == "stopped", done.text


def test_a_running_vacuum_is_unknown_to_a_run_that_did_not_start_it(
    one_connection: ActingConnection, cluster: Cluster
) -> None:
    """The agent was killed; its backend goes on, and the next agent finds it."""
    action_preview = preview_action(VACUUM, one_connection, table="public.worn")
    ended: list[str] = []
    with acting_connection(cluster) as other, idle_in_transaction(cluster, "lock table public.worn"):

        def ask(pid: int) -> bool:
            done = settle_action(VACUUM, one_connection, action_preview, table="public.worn")
            ended.append(done.state)
            return "still running" in done.text

        with pytest.raises(Exception, match="user request"):
            other.execute_change("vacuum public.worn", transaction=False, lock_timeout_s=0.0, watch=ask)
    assert ended[-1] == "unknown"


def test_its_backend_is_recorded_before_it_starts(cluster: Cluster, one_connection: ActingConnection) -> None:
    marks: list[StatementMark] = []
    one_connection.on_mark = marks.append
    perform(VACUUM, one_connection, table="public.worn")
    assert [mark.xid for mark in marks] == [None] and marks[0].pid == one_connection.mark.pid


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"table": "nowhere"}, "table nowhere does not exist"),
        ({"table": "pg_stat_activity"}, "is not a table"),
        ({"database": "nowhere"}, "does not exist"),
        ({"database": "template0"}, "allows no connections"),
        ({"database": "postgres", "rows": [{"datname": "postgres"}]}, "either rows"),
    ],
)
def test_what_cannot_be_vacuumed_is_refused(
    one_connection: ActingConnection, settings: dict[str, object], expected: str
) -> None:
    refusal = preview_action(VACUUM, one_connection, **settings).refusal
    assert refusal is not None and expected in refusal


def test_a_role_whose_vacuum_would_do_nothing_is_refused(one_connection: ActingConnection, cluster: Cluster) -> None:
    """The server only warns, and ends well."""
    one_connection.execute_change("create role modest login")
    try:
        with acting_connection(cluster, user="modest") as modest:
            for settings in ({"table": "public.worn"}, {}):
                refusal = preview_action(VACUUM, modest, **settings).refusal
                assert refusal is not None and "own" in refusal
    finally:
        one_connection.execute_change("drop role modest")
