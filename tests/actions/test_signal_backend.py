"""signal-backend: the sessions that were named and no others, and whether they obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import psycopg
import pytest
from msgspec.structs import replace

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.core.errors import UsageError
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection, perform, preview_action, settle_action
from tests.background import idle_in_transaction, session, waiting_for_lock

SIGNAL = ACTIONS["signal-backend"]


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(cluster) as connection:
        yield connection


def session_names(connection: ActingConnection, *pids: int) -> list[dict[str, object]]:
    """As a preview gives them."""
    sql = "select pid, backend_start::text as backend_start, usename from pg_stat_activity where pid = any (%(pids)s)"
    rows = connection.rows(sql, {"pids": list(pids)})
    assert len(rows) == len(pids)
    return rows


def is_connected(connection: ActingConnection, pid: int) -> bool:
    return bool(connection.rows("select 1 as one from pg_stat_activity where pid = %(pid)s", {"pid": pid}))


def test_sessions_are_terminated_and_verified_to_be_gone_on_every_version(server: Cluster) -> None:
    with (
        acting_connection(server) as connection,
        session(server, name="one") as one,
        session(server, name="two") as two,
        session(server) as bystander,
    ):
        rows = session_names(connection, one.info.backend_pid, two.info.backend_pid)
        action_preview, done = perform(SIGNAL, connection, verb="terminate", rows=rows, wait="60s")
        assert (action_preview.count, done.state) == (2, "ok"), done.text
        assert not is_connected(connection, one.info.backend_pid) and is_connected(
            connection, bystander.info.backend_pid
        )
        assert settle_action(SIGNAL, connection, action_preview, verb="terminate", rows=rows).state == "ok"


def test_a_query_is_cancelled_and_its_session_stays(connection: ActingConnection, cluster: Cluster) -> None:
    hold, wait = "select pg_advisory_xact_lock(4711)", "select pg_advisory_lock(4711)"
    with idle_in_transaction(cluster, hold), waiting_for_lock(cluster, wait) as pid:
        _, done = perform(SIGNAL, connection, verb="cancel", rows=session_names(connection, pid), wait="60s")
        assert done.state == "ok" and "1 of 1 cancelled" in done.text
        assert is_connected(connection, pid)


def test_the_whole_statement_of_a_session_is_shown_before_the_signal(
    connection: ActingConnection, cluster: Cluster
) -> None:
    statement = f"select 1\n  as {'long_' * 12}, '{'x' * 500}' as last"
    with session(cluster) as one:
        one.execute(statement)
        [row] = preview_action(
            SIGNAL, connection, verb="terminate", rows=session_names(connection, one.info.backend_pid)
        ).rows
    assert row["query"] == statement


def test_literals_of_a_partly_shown_statement_are_masked(connection: ActingConnection, cluster: Cluster) -> None:
    """What makes one of them a secret stands behind the part that is shown where many sessions are named."""
    statement = f"select 's3cret' as a, '{'x' * 200}' as password"
    with session(cluster) as one:
        one.execute(statement)
        rows = session_names(connection, one.info.backend_pid)
        many = [*rows, *({**rows[0], "pid": 1_000_000 + number} for number in range(20))]
        shown = [
            preview_action(SIGNAL, connection, verb="terminate", rows=each).rows[0]["query"] for each in (rows, many)
        ]
    assert shown[0].startswith("select '********' as a, '********' as password")
    assert shown[1].startswith("select '********' as a, ") and "s3cret" not in shown[1]


def test_a_reused_pid_hits_no_other_process(connection: ActingConnection, cluster: Cluster) -> None:
    with session(cluster) as later:
        pid = later.info.backend_pid
        rows = [{"pid": pid, "backend_start": "2026-11-20 14:53:07.123456+00"}]
        assert preview_action(SIGNAL, connection, verb="terminate", rows=rows).done, "nobody with this start is there"
        # Also where the number was given out again after the look.
        current = preview_action(SIGNAL, connection, verb="terminate", rows=session_names(connection, pid))
        stale = type(current)(text="", exact="", rows=({"pid": pid, "backend_start": 1},), count=1)
        asked = parse_settings("signal-backend", {"verb": "terminate", "rows": rows, "wait": "60s"})
        done = SIGNAL.act(asked, stale, ActionContext(connection=connection), PlainControl())
        assert done.state == "ok" and "0 of 1" in done.text
        assert is_connected(connection, pid)


def test_a_start_time_is_accepted_as_text_and_as_microseconds(connection: ActingConnection, cluster: Cluster) -> None:
    with session(cluster) as one:
        [row] = session_names(connection, one.info.backend_pid)
        start = datetime.fromisoformat(str(row["backend_start"]))
        microseconds = round(start.timestamp() * 1_000_000)
        for written in (row["backend_start"], start.isoformat(), microseconds):
            action_preview = preview_action(
                SIGNAL, connection, verb="terminate", rows=[{"pid": row["pid"], "backend_start": written}]
            )
            [seen] = action_preview.rows
            assert (seen["pid"], seen["backend_start"]) == (row["pid"], microseconds)
            assert (seen["user"], seen["application"], seen["state"]) == ("postgres", "test", "idle")
    with pytest.raises(UsageError, match="not a time of pg_stat_activity"):
        preview_action(SIGNAL, connection, verb="terminate", rows=[{"pid": 1, "backend_start": "yesterday"}])


def test_the_console_itself_and_background_processes_are_refused(
    connection: ActingConnection, cluster: Cluster
) -> None:
    own = preview_action(SIGNAL, connection, verb="terminate", rows=session_names(connection, connection.mark.pid))
    assert own.refusal is not None and "a session of this console" in own.refusal
    with session(cluster, name="dba-console") as watching:
        own = preview_action(
            SIGNAL, connection, verb="terminate", rows=session_names(connection, watching.info.backend_pid)
        )
        assert own.refusal is not None and "a session of this console" in own.refusal
    [checkpointer] = connection.rows("select pid from pg_stat_activity where backend_type = 'checkpointer'")
    background = preview_action(
        SIGNAL, connection, verb="terminate", rows=session_names(connection, checkpointer["pid"])
    )
    assert background.refusal is not None and "not a client session" in background.refusal


def test_one_session_that_must_not_be_signalled_refuses_the_whole_set(
    connection: ActingConnection, cluster: Cluster
) -> None:
    with session(cluster) as one:
        action_preview = preview_action(
            SIGNAL,
            connection,
            verb="terminate",
            rows=session_names(connection, one.info.backend_pid, connection.mark.pid),
        )
        assert action_preview.refusal is not None and action_preview.count == 1


def test_a_walsender_is_refused(connection: ActingConnection, cluster: Cluster) -> None:
    with psycopg.connect(cluster.dsn(replication="true"), autocommit=True) as sender:
        action_preview = preview_action(
            SIGNAL, connection, verb="terminate", rows=session_names(connection, sender.info.backend_pid)
        )
        assert action_preview.refusal is not None and "walsender" in action_preview.refusal


def test_a_missing_right_is_reported_before_the_attempt(connection: ActingConnection, cluster: Cluster) -> None:
    connection.execute_change("create role modest login")
    connection.execute_change("create role other login")
    try:
        with (
            session(cluster) as superuser,
            session(cluster, user="other") as another,
            acting_connection(cluster, user="modest") as modest,
        ):
            pids = (superuser.info.backend_pid, another.info.backend_pid)
            hidden = preview_action(SIGNAL, modest, verb="terminate", rows=session_names(connection, pids[1]))
            assert hidden.refusal is not None and "hidden from this role" in hidden.refusal
            connection.execute_change("grant pg_read_all_stats to modest")
            foreign = preview_action(SIGNAL, modest, verb="terminate", rows=session_names(connection, pids[1]))
            assert foreign.refusal is not None and "GRANT pg_signal_backend" in foreign.refusal
            connection.execute_change("grant pg_signal_backend to modest")
            above = preview_action(
                SIGNAL, modest, verb="terminate", rows=session_names(connection, pids[0]), superusers=True
            )
            assert above.refusal is not None, "no role below may signal a superuser"
            _, done = perform(SIGNAL, modest, verb="terminate", rows=session_names(connection, pids[1]), wait="60s")
            assert done.state == "ok", done.text
    finally:
        connection.execute_change("drop role modest")
        connection.execute_change("drop role other")


def test_another_superusers_session_is_refused_unless_requested(connection: ActingConnection, cluster: Cluster) -> None:
    connection.execute_change("create role second superuser login")
    try:
        with session(cluster, user="second") as other:
            rows = session_names(connection, other.info.backend_pid)
            refused = preview_action(SIGNAL, connection, verb="terminate", rows=rows)
            assert refused.refusal is not None and "superusers = true" in refused.refusal
            _, done = perform(SIGNAL, connection, verb="terminate", rows=rows, superusers=True, wait="60s")
            assert done.state == "ok", done.text
    finally:
        connection.execute_change("drop role second")


def test_cancelling_an_idle_session_is_refused(connection: ActingConnection, cluster: Cluster) -> None:
    with idle_in_transaction(cluster) as pid:
        action_preview = preview_action(SIGNAL, connection, verb="cancel", rows=session_names(connection, pid))
        assert action_preview.refusal is not None and "terminate the session instead" in action_preview.refusal


def test_a_session_that_has_moved_on_is_left_alone(connection: ActingConnection, cluster: Cluster) -> None:
    """The list was of sessions idle in their transaction; one of them has done something meanwhile."""
    with closing(session(cluster)) as one, closing(session(cluster)) as other:
        for each in (one, other):
            each.execute("begin")
        sql = "select pid, backend_start, xact_start, state_change from pg_stat_activity where pid = any (%(pids)s)"
        previewed = connection.rows(sql, {"pids": [one.info.backend_pid, other.info.backend_pid]})
        rows = [
            {name: value if name == "pid" else value.isoformat() for name, value in row.items()} for row in previewed
        ]
        other.execute("commit")
        other.execute("begin")
        action_preview, done = perform(SIGNAL, connection, verb="terminate", rows=rows, wait="60s")
        assert (action_preview.count, done.state) == (1, "ok") and "their state has changed" in action_preview.text
        assert is_connected(connection, other.info.backend_pid) and not is_connected(connection, one.info.backend_pid)


def test_a_later_query_of_the_same_session_is_not_cancelled(connection: ActingConnection, cluster: Cluster) -> None:
    hold, wait = "select pg_advisory_xact_lock(4712)", "select pg_advisory_lock(4712)"
    with idle_in_transaction(cluster, hold), waiting_for_lock(cluster, wait) as pid:
        asked = parse_settings(
            "signal-backend", {"verb": "cancel", "rows": session_names(connection, pid), "wait": "60s"}
        )
        action_preview = SIGNAL.preview(asked, ActionContext(connection=connection))
        [row] = action_preview.rows
        earlier = replace(action_preview, rows=({**row, "query_start": row["query_start"] - 1},))
        done = SIGNAL.act(asked, earlier, ActionContext(connection=connection), PlainControl())
        assert done.state == "ok" and "0 of 1" in done.text
        assert SIGNAL.settle(asked, action_preview, ActionContext(connection=connection)).state == "failed", (
            "it is at its query still"
        )


def test_a_session_that_does_not_end_is_reported_as_still_there(connection: ActingConnection, cluster: Cluster) -> None:
    """Nobody is signalled: what is looked for afterwards is there, as one that hangs in the kernel would be."""
    with session(cluster) as one:
        rows = session_names(connection, one.info.backend_pid)
        action_preview = preview_action(SIGNAL, connection, verb="terminate", rows=rows)
        assert settle_action(SIGNAL, connection, action_preview, verb="terminate", rows=rows).state == "failed"
