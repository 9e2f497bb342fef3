"""A temporary setting is saved as a pending revert before it is set, and always reverted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dba_console.actions.action import PlainControl
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.actions.temporary_settings import RevertNotSaved
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection
from tests.actions.run_actions import RUN, RunActions, reset_settings
from tests.sql import query, wait_for

TUNED: dict[str, Any] = {
    "settings": {"maintenance_work_mem": "77MB", "max_wal_size": "2GB", "autovacuum": False, "work_mem": ""},
    "temporary": True,
}
AUTO = """
select coalesce(string_agg(name || '=' || setting, ' ' order by name), '') from pg_file_settings
where sourcefile like '%auto.conf'
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from dba_console.actions.acting_connection import ActingConnection
from tests.actions.run_actions import RunActions
from tests.sql import query

class Doomed(ActingConnection):
    changes = 0
    def execute_change(self, sql, params=None, **more):
        result = super().execute_change(sql, params, **more)
        Doomed.changes += 1
        if Doomed.changes == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

link = Doomed(sys.argv[1], connect_timeout_s=60)
link.planned = link.read_identity()
RunActions(link, Path(sys.argv[2])).perform(
    "set-parameters", settings={"maintenance_work_mem": "77MB", "max_wal_size": "2GB"}, temporary=True)
"""


def auto_conf_text(cluster: Cluster) -> str:
    return query(cluster, AUTO)


@pytest.fixture
def actions_of_version(server: Cluster, tmp_path: Path) -> Iterator[RunActions]:
    with acting_connection(server) as connection:
        yield RunActions(connection, tmp_path / "reverts")
    reset_settings(server)


@pytest.fixture
def actions(cluster: Cluster, tmp_path: Path) -> Iterator[RunActions]:
    """On one version only: what is the same on all."""
    with acting_connection(cluster) as connection:
        yield RunActions(connection, tmp_path / "reverts")
    reset_settings(cluster)


@pytest.mark.pg(14, 16, 18)
def test_several_are_set_with_one_reload_saved_as_pending_and_reverted(
    actions_of_version: RunActions, server: Cluster
) -> None:
    query(server, "alter system set max_wal_size = '1500MB'")
    done = actions_of_version.perform("set-parameters", **TUNED)
    assert done.state == "ok", done.text
    assert done.values == {"maintenance_work_mem": "77MB", "max_wal_size": "2GB", "autovacuum": "off"}
    assert actions_of_version.pending == {"maintenance_work_mem": None, "max_wal_size": "1500MB", "autovacuum": None}
    assert {(revert.run, revert.who) for revert in actions_of_version.reverts} == {(RUN, "ann")}
    assert actions_of_version.preview("set-parameters", **TUNED).done, "already as wanted"
    action_preview = actions_of_version.as_later_run.preview("put-back")
    assert action_preview.count == 3
    assert "it was not set" in action_preview.text and "it was '1500MB'" in action_preview.text
    done = actions_of_version.as_later_run.perform("put-back")
    assert done.state == "ok", done.text
    assert auto_conf_text(server) == "max_wal_size=1500MB" and actions_of_version.reverts == []
    assert query(server, "show autovacuum") == "on"
    assert actions_of_version.as_later_run.preview("put-back").done, "nothing is left to do"


def test_without_a_saved_pending_revert_nothing_is_set(actions: RunActions, cluster: Cluster) -> None:
    asked = parse_settings("set-parameters", {"settings": {"work_mem": "77MB"}, "temporary": True})
    action_preview = ACTIONS["set-parameters"].preview(asked, actions.context)
    actions.directory.write_text("in the way")
    with pytest.raises(RevertNotSaved, match="nothing was set"):
        ACTIONS["set-parameters"].act(asked, action_preview, actions.context, PlainControl())
    assert auto_conf_text(cluster) == ""


@pytest.mark.parametrize("after", [1, 2, 3])
def test_killed_at_any_point_the_pending_reverts_are_reverted(
    actions: RunActions, cluster: Cluster, after: int
) -> None:
    """After the first ALTER SYSTEM, the second, the reload; before its result was recorded."""
    command = [sys.executable, "-c", KILLED, cluster.dsn(), str(actions.directory), str(after)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert set(actions.pending) == {"maintenance_work_mem", "max_wal_size"}
    assert auto_conf_text(cluster) != ""
    done_back = actions.as_later_run.perform("put-back")
    assert done_back.state == "ok", done_back.text
    assert auto_conf_text(cluster) == "" and actions.reverts == []
    assert query(cluster, "show maintenance_work_mem") == "64MB"


def test_a_value_reverted_in_the_file_but_not_reloaded_is_reloaded(actions: RunActions, cluster: Cluster) -> None:
    """Killed between ALTER SYSTEM RESET and the reload."""
    actions.perform("set-parameters", settings={"maintenance_work_mem": "77MB"}, temporary=True)
    query(cluster, "alter system reset maintenance_work_mem")
    assert [row["state"] for row in actions.as_later_run.preview("put-back").rows] == ["unread"]
    assert actions.as_later_run.perform("put-back").state == "ok"
    assert query(cluster, "show maintenance_work_mem") == "64MB" and actions.reverts == []


def test_another_run_does_not_overwrite_a_pending_revert(actions: RunActions) -> None:
    actions.perform("set-parameters", parameter="work_mem", value="9MB", temporary=True)
    refusal = actions.as_later_run.preview("set-parameters", parameter="work_mem", value="10MB", temporary=True).refusal
    assert refusal is not None and RUN in refusal
    done = actions.perform("set-parameters", parameter="work_mem", value="10MB", temporary=True)
    assert done.state == "ok" and actions.pending == {"work_mem": None}
    assert actions.reverts[0].new_values == ("9MB", "10MB")
    assert actions.undo("set-parameters", done, parameter="work_mem", value="10MB", temporary=True).state == "ok"
    assert actions.pending == {"work_mem": None}, "the undo of the second leaves the first"
    assert actions.perform("put-back", of="run").state == "ok"
    assert actions.reverts == []


def test_an_undo_removes_the_pending_reverts_it_reverted(actions: RunActions, cluster: Cluster) -> None:
    done = actions.perform("set-parameters", **TUNED)
    assert actions.undo("set-parameters", done, **TUNED).state == "ok"
    assert actions.reverts == [] and auto_conf_text(cluster) == ""


def test_a_value_the_server_rejects_skips_later_ones_and_only_set_values_are_pending(
    actions: RunActions, cluster: Cluster
) -> None:
    asked = {"settings": {"maintenance_work_mem": "77MB", "work_mem": "much", "max_wal_size": "2GB"}, "temporary": True}
    action_preview = actions.preview("set-parameters", **asked)
    done = actions.perform("set-parameters", **asked)
    assert done.state == "failed" and "the server refused" in done.text and "max_wal_size was not changed" in done.text
    assert set(actions.pending) == {"maintenance_work_mem"}
    assert auto_conf_text(cluster) == "maintenance_work_mem=77MB"
    assert actions.settle("set-parameters", action_preview, **asked).state == "failed"
    assert actions.perform("put-back", of="run").state == "ok" and auto_conf_text(cluster) == ""


@pytest.mark.parametrize(
    "place",
    [{"scope": "database", "database": "briefly"}, {"scope": "role", "role": "briefly"}],
)  # fmt: skip
def test_dropped_databases_and_roles_have_no_pending_reverts(
    actions: RunActions, cluster: Cluster, place: dict[str, str]
) -> None:
    kind = place["scope"]
    asked: dict[str, Any] = {"settings": {"synchronous_commit": False}, "temporary": True, **place}
    query(cluster, f"create {kind} briefly")
    try:
        for _ in range(2):
            done = actions.perform("set-parameters", **asked)
            assert done.state == "ok", done.text
            assert actions.perform("put-back", of="run").state == "ok" and actions.reverts == []
            assert query(cluster, "select count(*) from pg_db_role_setting") == "0"
        actions.perform("set-parameters", **asked)
    finally:
        query(cluster, f"drop {kind} briefly")
    done = actions.as_later_run.perform("put-back")
    assert done.state == "ok" and "no longer exists" in done.text and actions.reverts == []


def test_what_takes_effect_after_a_restart_stays_pending_until_then(actions: RunActions, cluster: Cluster) -> None:
    settings = {"max_connections": 42, "work_mem": "9MB"}
    done = actions.perform("set-parameters", settings=settings, temporary=True, restart=True)
    assert done.state == "ok" and "takes effect at the next restart" in done.text
    done = actions.perform("put-back", of="run")
    assert done.state == "ok" and actions.reverts == [], "it was never restarted, so nothing is pending"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"settings": {"work_men": "1MB"}}, "has no parameter work_men"),
        ({"settings": {"port": 1}}, "only after a restart"),
        ({"settings": {"work_mem": "1MB"}, "scope": "session", "temporary": True}, "these settings end with the run"),
        ({"settings": {"wal_level": "minimal"}, "restart": True}, "only if max_wal_senders is 0"),
        ({"settings": {"wal_level": "minimal", "max_wal_senders": 0, "archive_mode": "on"}, "restart": True},
         "only if archive_mode is off"),
        ({"settings": {"fsync": False}}, "only be set temporarily"),
        ({"settings": {"full_page_writes": "off", "work_mem": "1MB"}}, "only be set temporarily"),
    ],
)  # fmt: skip
def test_an_invalid_or_irreversible_setting_is_refused(
    actions: RunActions, settings: dict[str, Any], expected: str
) -> None:
    refusal = actions.preview("set-parameters", **settings).refusal
    assert refusal is not None and expected in refusal


GONE = """
select not exists (select from pg_stat_activity where datname = 'theirs' and application_name = 'test-query')
"""


def test_durability_of_other_databases_is_not_disabled(actions: RunActions, cluster: Cluster) -> None:
    asked = {"settings": {"full_page_writes": False}, "temporary": True, "for_database": "mine"}
    assert actions.preview("set-parameters", **asked).destructive
    query(cluster, "create database theirs")
    try:
        assert actions.preview("set-parameters", **asked).refusal is None, (
            "an empty one that nobody is in loses nothing"
        )
        query(cluster, "create table of_theirs (n int)", dbname="theirs")
        wait_for(cluster, GONE)
        refusal = actions.preview("set-parameters", **asked).refusal
        assert refusal is not None and "database theirs (1 objects)" in refusal
        assert actions.preview("set-parameters", **{**asked, "for_database": "theirs"}).refusal is None
    finally:
        actions.connection.close()
        query(cluster, "drop database theirs")


def test_wal_level_is_set_last_and_reverted_first(actions: RunActions) -> None:
    asked = {"settings": {"wal_level": "minimal", "max_wal_senders": 0}, "restart": True, "temporary": True}
    action_preview = actions.preview("set-parameters", **asked)
    assert action_preview.refusal is None and "take a new one afterwards" in action_preview.text, action_preview.refusal
    done = actions.perform("set-parameters", **asked)
    assert done.state == "ok" and done.text.index("max_wal_senders") < done.text.index("wal_level"), done.text
    exact = actions.as_later_run.preview("put-back").exact
    assert exact.index('"wal_level"') < exact.index('"max_wal_senders"')
    assert actions.as_later_run.perform("put-back").state == "ok" and actions.reverts == []
