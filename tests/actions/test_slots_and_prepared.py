"""drop-slot and rollback-prepared: the preview shows the cost, and only what was shown is removed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection, perform, preview_action, settle_action
from tests.attacks.hostile_database import VICTIM, calls, make_hostile
from tests.clusters import FreshCluster, binaries_of
from tests.sql import query
from tests.standbys import SYNCS, copied_standby, synchronized

DROP = ACTIONS["drop-slot"]
ROLL_BACK = ACTIONS["rollback-prepared"]


@pytest.fixture(scope="module")
def prepared_cluster() -> Iterator[Cluster]:
    """A cluster that has slots and prepared transactions; nothing of the hostile owner of its database is called."""
    settings: dict[str, str | int] = {"wal_level": "logical", "max_prepared_transactions": 10}
    with Cluster(binaries_of(None), settings=settings, durable=False) as cluster:
        make_hostile(cluster)
        yield cluster
        assert calls(cluster) == []


@pytest.fixture
def connection(prepared_cluster: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(prepared_cluster, user=VICTIM) as connection:
        yield connection


@contextmanager
def slot_reader(cluster: Cluster, slot: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Something that uses a physical slot, as a standby does."""
    with psycopg.connect(cluster.dsn(replication="true"), autocommit=True) as reader:
        at = query(cluster, "select pg_current_wal_flush_lsn()")
        begun = reader.pgconn.exec_(f"START_REPLICATION SLOT {slot} PHYSICAL {at}".encode())
        assert begun.status == psycopg.pq.ExecStatus.COPY_BOTH
        yield reader
        reader.pgconn.finish()  # in the middle of a copy: there is nothing to be said to the server any more


@pytest.fixture
def slot(connection: ActingConnection) -> Iterator[str]:
    """A physical slot that holds WAL back."""
    name = f"slot_{uuid.uuid4().hex[:8]}"
    connection.execute_change("select pg_create_physical_replication_slot(%(name)s, true)", {"name": name})
    yield name
    connection.execute_change("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")


def test_a_slot_is_shown_with_what_it_retains_and_dropped(connection: ActingConnection, slot: str) -> None:
    action_preview, done = perform(DROP, connection, slot=slot)
    assert f"{slot}, physical, not in use, retains" in action_preview.text and action_preview.values["slots"] == 1
    assert action_preview.exact == f"SELECT pg_drop_replication_slot('{slot}')"
    assert action_preview.name == slot, "what is typed to confirm it"
    assert done.state == "ok" and done.values["slots"] == 0, done.text
    assert settle_action(DROP, connection, action_preview, slot=slot).state == "ok"
    assert preview_action(DROP, connection, slot=slot).done


def test_several_slots_are_dropped_as_the_preview_named_them(connection: ActingConnection, slot: str) -> None:
    connection.execute_change("select pg_create_logical_replication_slot('changes', 'test_decoding')")
    rows = [{"slot_name": slot, "retained": "1 GB"}, {"slot_name": "changes"}, {"slot_name": "gone_already"}]
    action_preview, done = perform(DROP, connection, rows=rows)
    assert (
        action_preview.count == 2 and not action_preview.name and "Slot not found: gone_already" in action_preview.text
    )
    assert "changes, logical (test_decoding, postgres)" in action_preview.text
    assert done.state == "ok" and done.values["slots"] == 0, done.text


def test_a_slot_in_use_is_left_alone_unless_requested(
    connection: ActingConnection, prepared_cluster: Cluster, slot: str
) -> None:
    with slot_reader(prepared_cluster, slot) as reader:
        action_preview = preview_action(DROP, connection, slot=slot)
        assert (
            action_preview.refusal is not None
            and f"is in use by process {reader.info.backend_pid}" in action_preview.refusal
        )
        _, done = perform(DROP, connection, slot=slot, active=True)
        assert done.state == "ok", done.text


def test_a_slot_that_became_active_after_the_preview_is_not_dropped(
    connection: ActingConnection, prepared_cluster: Cluster, slot: str
) -> None:
    asked = parse_settings("drop-slot", {"slot": slot})
    action_preview = DROP.preview(asked, ActionContext(connection=connection))
    with slot_reader(prepared_cluster, slot):
        done = DROP.act(asked, action_preview, ActionContext(connection=connection), PlainControl())
        assert done.state == "failed" and "in use" in done.text
        assert settle_action(DROP, connection, action_preview, slot=slot).state == "failed"


def test_a_role_without_the_right_gets_that_error_and_nothing_is_dropped(
    connection: ActingConnection, prepared_cluster: Cluster, slot: str
) -> None:
    connection.execute_change("create role watcher login in role pg_monitor")
    try:
        with acting_connection(prepared_cluster, user="watcher") as granted:
            _, done = perform(DROP, granted, slot=slot)
            assert done.state == "failed" and "the server refused" in done.text and "replication" in done.text
        assert preview_action(DROP, connection, slot=slot).count == 1
    finally:
        connection.execute_change("drop role watcher")


def test_on_a_standby_its_own_slot_is_dropped_and_the_synchronized_copy_is_not(fresh_cluster: FreshCluster) -> None:
    primary = fresh_cluster({"wal_level": "logical"}, major=SYNCS)
    with copied_standby(primary) as standby:
        synchronized(primary, standby, "copied")
        query(standby, "select pg_create_physical_replication_slot('downstream', true)")
        with acting_connection(standby) as there:
            assert there.planned is not None and there.planned.role == "standby"
            refusal = preview_action(DROP, there, slot="copied").refusal
            assert refusal is not None and "copy of a slot of the primary" in refusal
            _, done = perform(DROP, there, slot="downstream")
            assert done.state == "ok", done.text
        with acting_connection(primary) as here:
            action_preview, done = perform(DROP, here, slot="copied")
            assert "Its copies on standbys are dropped with it" in action_preview.text and done.state == "ok", done.text


# -- prepared transactions -----------------------------------------------------------------------------------------


def prepare(cluster: Cluster, gid: str, dbname: str = "postgres") -> None:
    with psycopg.connect(cluster.dsn(dbname=dbname), autocommit=True) as session:
        session.execute("begin")
        session.execute("create table left_behind ()")
        session.execute(f"prepare transaction '{gid.replace(chr(39), chr(39) * 2)}'".encode())


@pytest.fixture
def old_prepared_transaction(prepared_cluster: Cluster) -> Iterator[str]:
    gid = "it's 100% forgotten"
    prepare(prepared_cluster, gid, "template1")
    yield gid
    for line in query(prepared_cluster, "select database, quote_literal(gid) from pg_prepared_xacts").splitlines():
        database, _, quoted = line.partition("|")
        query(prepared_cluster, f"rollback prepared {quoted}", dbname=database)


def test_a_prepared_transaction_is_rolled_back_in_its_own_database(
    connection: ActingConnection, old_prepared_transaction: str
) -> None:
    action_preview, done = perform(ROLL_BACK, connection, gid=old_prepared_transaction, min_age="0")
    assert "of postgres in database template1" in action_preview.text and action_preview.values["prepared"] == 1
    assert (
        action_preview.values["locks"] > 0
        and f"holds {action_preview.values['locks']} relation locks" in action_preview.text
    )
    assert "ROLLBACK PREPARED 'it''s 100% forgotten' in database template1" in action_preview.exact
    assert done.state == "ok" and done.values["prepared"] == 0, done.text
    assert settle_action(ROLL_BACK, connection, action_preview, gid=old_prepared_transaction).state == "ok"
    assert preview_action(ROLL_BACK, connection, gid=old_prepared_transaction).done


def test_a_role_that_is_only_a_member_of_the_owner_may_not_end_it(
    connection: ActingConnection, prepared_cluster: Cluster
) -> None:
    """The server wants the owner itself, or a superuser: membership is not enough."""
    query(prepared_cluster, "create role app_owner login; create role deputy login in role app_owner")
    with psycopg.connect(prepared_cluster.dsn(user="app_owner"), autocommit=True) as session:
        for statement in ("begin", "select 1", "prepare transaction 'of the app'"):
            session.execute(statement)
    try:
        with acting_connection(prepared_cluster, user="deputy") as deputy:
            refusal = preview_action(ROLL_BACK, deputy, gid="of the app", min_age="0").refusal
            assert refusal is not None and "only that role or a superuser" in refusal
        with acting_connection(prepared_cluster, user="app_owner") as owner:
            _, done = perform(ROLL_BACK, owner, gid="of the app", min_age="0")
            assert done.state == "ok", done.text
    finally:
        query(prepared_cluster, "drop role deputy; drop role app_owner")


def test_one_committed_by_another_session_is_not_reported_as_rolled_back(
    connection: ActingConnection, prepared_cluster: Cluster, old_prepared_transaction: str
) -> None:
    action_preview = preview_action(ROLL_BACK, connection, gid=old_prepared_transaction, min_age="0")
    assert settle_action(ROLL_BACK, connection, action_preview, gid=old_prepared_transaction).state == "failed"
    query(prepared_cluster, "commit prepared 'it''s 100% forgotten'", dbname="template1")
    reported = settle_action(ROLL_BACK, connection, action_preview, gid=old_prepared_transaction)
    assert reported.state == "failed" and "committed" in reported.text
    query(prepared_cluster, "drop table left_behind", dbname="template1")


def test_another_transaction_of_the_same_name_is_not_the_one_shown(
    connection: ActingConnection, prepared_cluster: Cluster, old_prepared_transaction: str
) -> None:
    asked = parse_settings("rollback-prepared", {"gid": old_prepared_transaction, "min_age": "0"})
    action_preview = ROLL_BACK.preview(asked, ActionContext(connection=connection))
    query(prepared_cluster, "rollback prepared 'it''s 100% forgotten'", dbname="template1")
    prepare(prepared_cluster, old_prepared_transaction)
    done = ROLL_BACK.act(asked, action_preview, ActionContext(connection=connection), PlainControl())
    assert done.state == "failed" and "no longer the transaction" in done.text


def test_all_transactions_of_a_preview_are_rolled_back(
    connection: ActingConnection, prepared_cluster: Cluster, old_prepared_transaction: str
) -> None:
    prepare(prepared_cluster, "second")
    rows: list[dict[str, object]] = [{"gid": old_prepared_transaction, "owner": "postgres"}, {"gid": "second"}]
    action_preview, done = perform(ROLL_BACK, connection, rows=rows, min_age="0")
    assert isinstance(action_preview, ActionPreview) and action_preview.count == 2
    assert done.state == "ok" and done.values["prepared"] == 0, done.text
