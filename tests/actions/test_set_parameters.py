"""set-parameters: set at the given scope, awaited, and reverted exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection, perform, preview_action, settle_action, undo_action
from tests.sql import query

SET = ACTIONS["set-parameters"]


@pytest.fixture
def connection(server: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(server) as connection:
        yield connection
        connection.execute_change("alter system reset all", transaction=False)
        connection.execute_change("select pg_reload_conf()")


@pytest.fixture
def one_connection(cluster: Cluster) -> Iterator[ActingConnection]:
    """On one version only: what is the same on all."""
    with acting_connection(cluster) as connection:
        yield connection
        connection.execute_change("alter system reset all", transaction=False)
        connection.execute_change("select pg_reload_conf()")


def in_file(connection: ActingConnection, name: str) -> list[str]:
    sql = "select setting from pg_file_settings where sourcefile like '%%auto.conf' and name = %(name)s"
    return [row["setting"] for row in connection.rows(sql, {"name": name})]


def test_a_value_not_set_before_is_removed_by_the_undo(connection: ActingConnection) -> None:
    wanted: dict[str, Any] = {"parameter": "work_mem", "value": "17MB"}
    action_preview, done = perform(SET, connection, **wanted)
    assert action_preview.exact == "ALTER SYSTEM SET \"work_mem\" = '17MB'; SELECT pg_reload_conf()"
    assert done.state == "ok" and done.values == {"work_mem": "17MB"}, done.text
    assert connection.rows("show work_mem") == [{"work_mem": "17MB"}]
    assert settle_action(SET, connection, action_preview, **wanted).state == "ok"
    assert preview_action(SET, connection, **wanted).done, "already as wanted"
    assert undo_action(SET, connection, done, **wanted).state == "ok"
    assert in_file(connection, "work_mem") == [] and connection.rows("show work_mem") != [{"work_mem": "17MB"}]


def test_an_old_value_is_restored_as_it_was_written(one_connection: ActingConnection) -> None:
    perform(SET, one_connection, parameter="log_line_prefix", value="%m it's \\ '%p' ")
    assert in_file(one_connection, "log_line_prefix") == ["%m it's \\ '%p' "]
    action_preview, done = perform(SET, one_connection, parameter="log_line_prefix", value="%t ")
    assert action_preview.rows[0]["set"] == "%m it's \\ '%p' "
    assert undo_action(SET, one_connection, done, parameter="log_line_prefix", value="%t ").state == "ok"
    assert in_file(one_connection, "log_line_prefix") == ["%m it's \\ '%p' "]


def test_a_reset_removes_it_and_its_undo_restores_it(one_connection: ActingConnection) -> None:
    perform(SET, one_connection, parameter="work_mem", value="17MB")
    _, done = perform(SET, one_connection, parameter="work_mem", reset=True)
    assert done.state == "ok" and in_file(one_connection, "work_mem") == []
    undo_action(SET, one_connection, done, parameter="work_mem", reset=True)
    assert in_file(one_connection, "work_mem") == ["17MB"]


def test_a_list_of_names_stays_a_list(one_connection: ActingConnection) -> None:
    """As one literal, `a, b` would be a single name: the server would not start with such a list of libraries."""
    _, done = perform(SET, one_connection, parameter="search_path", value='"$user", public, "odd, name"')
    assert done.state == "ok", done.text
    assert in_file(one_connection, "search_path") == ['"$user", public, "odd, name"']
    refused = preview_action(SET, one_connection, parameter="search_path", value="")
    assert refused.refusal is not None and "empty" in refused.refusal


def test_a_parameter_that_needs_a_restart_is_refused_unless_requested(one_connection: ActingConnection) -> None:
    refused = preview_action(SET, one_connection, parameter="max_connections", value=42)
    assert refused.refusal is not None and "after a restart" in refused.refusal
    _, done = perform(SET, one_connection, parameter="max_connections", value=42, restart=True)
    assert done.state == "ok" and "takes effect at the next restart" in done.text
    assert undo_action(SET, one_connection, done, parameter="max_connections", value=42, restart=True).state == "ok"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"parameter": "server_version", "value": "18"}, "fixed when the server"),
        ({"parameter": "work_men", "value": "1MB"}, "has no parameter work_men"),
        (
            {"parameter": "port", "value": 1, "scope": "database", "database": "postgres"},
            "for the whole server",
        ),
        ({"parameter": "work_mem", "value": "1MB", "scope": "role"}, "needs the name of the role"),
        ({"parameter": "work_mem", "value": "1MB", "scope": "role", "role": "nobody"}, "no role nobody"),
        ({"parameter": "work_mem", "value": "1MB", "role": "postgres"}, "no meaning with scope"),
        ({"parameter": "work_mem"}, "set either value or reset"),
        ({"parameter": "work_mem", "value": "1MB", "reset": True}, "set either value or reset"),
        ({"parameter": "primary_conninfo", "value": "host=db1 password=s3cret"}, "contains a secret"),
        ({"parameter": "ssl_passphrase_command", "value": "echo s3cret"}, "contains a secret"),
    ],
)
def test_an_invalid_or_irreversible_setting_is_refused(
    one_connection: ActingConnection, settings: dict[str, object], expected: str
) -> None:
    refusal = preview_action(SET, one_connection, **settings).refusal
    assert refusal is not None and expected in refusal


def test_a_value_the_server_does_not_accept_changes_nothing(one_connection: ActingConnection) -> None:
    asked = parse_settings("set-parameters", {"parameter": "work_mem", "value": "much"})
    action_preview = SET.preview(asked, ActionContext(connection=one_connection))
    done = SET.act(asked, action_preview, ActionContext(connection=one_connection), PlainControl())
    assert done.state == "failed" and in_file(one_connection, "work_mem") == []
    assert SET.settle(asked, action_preview, ActionContext(connection=one_connection)).state == "failed"


def test_an_undo_leaves_a_value_another_user_has_changed_since(one_connection: ActingConnection) -> None:
    _, done = perform(SET, one_connection, parameter="work_mem", value="17MB")
    one_connection.execute_change("alter system set work_mem = '19MB'", transaction=False)
    undo = undo_action(SET, one_connection, done, parameter="work_mem", value="17MB")
    assert undo.state == "failed" and "changed by others since" in undo.text
    assert in_file(one_connection, "work_mem") == ["19MB"]


def test_a_value_written_and_not_reloaded_is_not_reported_as_done(one_connection: ActingConnection) -> None:
    asked: dict[str, Any] = {"parameter": "log_min_duration_statement", "value": "1h"}
    action_preview = preview_action(SET, one_connection, **asked)
    assert settle_action(SET, one_connection, action_preview, **asked).state == "failed", "nothing was written"


@pytest.mark.parametrize(
    "place",
    [{"scope": "database", "database": "postgres"}, {"scope": "role", "role": "clerk"},
     {"scope": "role", "role": "clerk", "database": "postgres"}],
)  # fmt: skip
def test_databases_and_roles_have_their_own_settings(
    one_connection: ActingConnection, cluster: Cluster, place: dict[str, str]
) -> None:
    one_connection.execute_change("create role clerk login")
    try:
        asked: dict[str, Any] = {"parameter": "statement_timeout", "value": "61s", **place}
        action_preview, done = perform(SET, one_connection, **asked)
        assert done.state == "ok", done.text
        assert query(cluster, "show statement_timeout", user="clerk") == "61s"
        assert settle_action(SET, one_connection, action_preview, **asked).state == "ok"
        _, again = perform(SET, one_connection, **{**asked, "value": 0})
        undo_action(SET, one_connection, again, **{**asked, "value": 0})
        assert query(cluster, "show statement_timeout", user="clerk") == "61s"
        undo_action(SET, one_connection, done, **asked)
        assert query(cluster, "select count(*) from pg_db_role_setting") == "0"
    finally:
        one_connection.execute_change("drop role clerk")


def test_the_statements_of_a_run_have_their_own_settings(one_connection: ActingConnection, cluster: Cluster) -> None:
    asked: dict[str, Any] = {"parameter": "maintenance_work_mem", "value": "77MB", "scope": "session"}
    _, done = perform(SET, one_connection, **asked)
    assert done.state == "ok" and one_connection.rows("show maintenance_work_mem") == [{"maintenance_work_mem": "77MB"}]
    assert query(cluster, "show maintenance_work_mem") != "77MB"
    assert undo_action(SET, one_connection, done, **asked).state == "ok"
    assert one_connection.rows("show maintenance_work_mem") != [{"maintenance_work_mem": "77MB"}]


def test_a_role_that_could_not_revert_it_is_refused(one_connection: ActingConnection, cluster: Cluster) -> None:
    one_connection.execute_change("create role modest login")
    try:
        with acting_connection(cluster, user="modest") as modest:
            refusal = preview_action(SET, modest, parameter="work_mem", value="17MB").refusal
            assert refusal is not None and "may not ALTER SYSTEM" in refusal
    finally:
        one_connection.execute_change("drop role modest")
