"""Every action of the registry in one table: when it must refuse, and that it works on a difficult server.

Difficult is: a role that is not superuser and has time limits of its own, a database, schema, table and role whose
names have to be quoted, partitions, another default tablespace; and a standby. What an act cannot meet there stands in
its row as a reason.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionResult, PlainControl
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.run_paths import LOCK
from tests.actions.connections import acting_connection
from tests.actions.difficult_server import DATABASE, ROLE, TABLE, DifficultServers, kernel_context, primary_and_standby
from tests.actions.quoting import quoted
from tests.actions.shrink_files import big_file, context_without_processes
from tests.background import session
from tests.sql import query, wait_for
from tests.unit.jobs.archives.made_archives import archive, entry


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with primary_and_standby() as made:
        yield made


@pytest.fixture
def servers(pair: tuple[Cluster, Cluster], tmp_path: Path) -> DifficultServers:
    return DifficultServers(*pair, tmp_path)


# -- what each act does ----------------------------------------------------------------------------------------------


def preview_of(name: str, context: ActionContext, **asked: Any) -> ActionPreview:
    return ACTIONS[name].preview(parse_settings(name, asked), context)


def perform(name: str, context: ActionContext, **asked: Any) -> ActionResult:
    """Preview and execute the action; it must not be refused."""
    action_preview = preview_of(name, context, **asked)
    assert action_preview.refusal is None and not action_preview.done, action_preview
    return ACTIONS[name].act(parse_settings(name, asked), action_preview, context, PlainControl())


def prepare_transaction(servers: DifficultServers) -> str:
    gid = 'it\'s 100 % "left"'
    with session(servers.primary, user=ROLE, dbname=DATABASE) as connection:
        connection.execute(f"begin; insert into {TABLE} values (1)".encode())
        connection.execute(f"prepare transaction '{gid.replace(chr(39), chr(39) * 2)}'".encode())
    return gid


def create_database(servers: DifficultServers) -> ActionResult:
    asked = {"database": 'A "copy"', "like": DATABASE}
    with servers.actions() as actions:
        result = perform("create-database", actions.context, **asked)
        spaces = "select count(distinct dattablespace) from pg_database where dattablespace <> 1663 and datallowconn"
        assert servers.psql(spaces) == "1", "both in the tablespace of the first"
        assert actions.undo("create-database", result, **asked).state == "ok"
        return result


def set_database_properties(servers: DifficultServers) -> ActionResult:
    """A comment that its dump has."""
    directory = servers.directory / "dump"
    directory.mkdir()
    comment = f"COMMENT ON DATABASE {quoted(DATABASE)} IS 'dumped';"
    made = archive(entry(1, "COMMENT", f"DATABASE {quoted(DATABASE)}", section=1, schema=None, statement=comment))
    (directory / "toc.dat").write_bytes(made.getvalue())
    asked = {"database": DATABASE, "archive": str(directory)}
    with servers.actions() as actions:
        return perform("set-database-properties", actions.context, **asked)


def drop_slot(servers: DifficultServers, cluster: Cluster | None = None) -> ActionResult:
    query(cluster or servers.primary, "select pg_create_physical_replication_slot('left_behind', true)")
    with servers.actions(cluster) as actions:
        return perform("drop-slot", actions.context, slot="left_behind")


def roll_back_prepared(servers: DifficultServers) -> ActionResult:
    gid = prepare_transaction(servers)
    with servers.actions() as actions:
        return perform("rollback-prepared", actions.context, gid=gid, min_age="0")


def commit_prepared(servers: DifficultServers) -> ActionResult:
    gid = prepare_transaction(servers)
    with servers.actions() as actions:
        rows = f"select count(*) from {TABLE}"
        before = int(servers.psql(rows))
        result = perform("commit-prepared", actions.context, gid=gid, min_age="0")
        assert int(servers.psql(rows)) == before + 1
        return result


def set_parameters(servers: DifficultServers) -> ActionResult:
    with servers.actions() as actions:
        place = {"scope": "role", "role": ROLE, "database": DATABASE}
        asked = {"parameter": "application_name", "value": 'it\'s "odd"', **place}
        result = perform("set-parameters", actions.context, **asked)
        stored = "select setconfig[1] from pg_db_role_setting where setdatabase <> 0"
        assert servers.psql(stored) == 'application_name=it\'s "odd"'
        assert actions.undo("set-parameters", result, **asked).state == "ok"
    return set_temporarily(servers)


def set_parameters_on_standby(servers: DifficultServers) -> ActionResult:
    """For the server; a role's parameters are set on the primary."""
    with servers.actions(servers.standby) as actions:
        action_preview = preview_of(
            "set-parameters", actions.context, parameter="work_mem", value="9MB", scope="role", role=ROLE
        )
        assert action_preview.refusal is not None and "standby" in action_preview.refusal, action_preview
    return set_temporarily(servers, servers.standby)


def set_temporarily(servers: DifficultServers, cluster: Cluster | None = None) -> ActionResult:
    with servers.actions(cluster) as actions:
        return perform("set-parameters", actions.context, settings={"work_mem": "7MB"}, temporary=True)


def put_back(servers: DifficultServers, cluster: Cluster | None = None) -> ActionResult:
    set_temporarily(servers, cluster)
    with servers.actions(cluster) as actions:
        result = perform("put-back", actions.as_later_run.context)
        assert actions.pending == {}
    wait_for(cluster or servers.primary, "select current_setting('work_mem') <> '7MB'", what="it put back")
    return result


def signal_backend(servers: DifficultServers, cluster: Cluster | None = None) -> ActionResult:
    where = cluster or servers.primary
    with session(where, user=ROLE, dbname=DATABASE, name='the "victim"') as one, servers.actions(cluster) as actions:
        sql = "select pid, backend_start::text as backend_start from pg_stat_activity where pid = %(pid)s"
        rows = actions.connection.rows(sql, {"pid": one.info.backend_pid})
        return perform("signal-backend", actions.context, verb="terminate", rows=rows, wait="60s")


def vacuum_table(servers: DifficultServers) -> ActionResult:
    with servers.actions() as actions:
        result = perform(
            "vacuum", actions.context, rows=[{"datname": DATABASE, "table": TABLE}], truncate=False, analyze=True
        )
    rows = servers.psql("select count(*) from pg_stat_all_tables where vacuum_count > 0 and relname like 'part %'")
    assert rows == "2", "each partition, in whichever tablespace"
    return result


def shrink_file(servers: DifficultServers) -> ActionResult:
    path = big_file(servers.directory, 2, name='it\'s "the" oldest.dump')
    result = perform("shrink-file", context_without_processes(servers.directory), path=str(path))
    assert not path.exists()
    return result


def drop_caches(servers: DifficultServers) -> ActionResult:
    return perform("drop-caches", kernel_context(servers))


def write_sysctl(servers: DifficultServers) -> ActionResult:
    return perform("sysctl", kernel_context(servers), key="vm.zone_reclaim_mode", value=0)


# -- what each act refuses -------------------------------------------------------------------------------------------


def exists_in_other_tablespace(servers: DifficultServers) -> ActionPreview:
    """One of the name is there, and lies in another tablespace."""
    with servers.actions() as actions:
        return preview_of("create-database", actions.context, database="postgres", like=DATABASE)


def no_archive(servers: DifficultServers) -> ActionPreview:
    with servers.actions() as actions:
        return preview_of("set-database-properties", actions.context, database=DATABASE, archive="/nowhere")


def slot_in_use(servers: DifficultServers) -> ActionPreview:
    """The slot of a standby that streams."""
    name = (
        "select pg_create_physical_replication_slot('mine', true) where not exists (select from pg_replication_slots)"
    )
    servers.psql(name)
    before = query(servers.standby, "show primary_slot_name")
    servers.standby.reload({"primary_slot_name": "mine"})
    try:
        wait_for(servers.primary, "select active from pg_replication_slots where slot_name = 'mine'", what="a reader")
        with servers.actions() as actions:
            return preview_of("drop-slot", actions.context, slot="mine")
    finally:
        servers.standby.reload({"primary_slot_name": before})
        wait_for(servers.primary, "select not active from pg_replication_slots where slot_name = 'mine'")
        servers.psql("select pg_drop_replication_slot('mine')")


def recently_prepared(servers: DifficultServers) -> ActionPreview:
    gid = prepare_transaction(servers)
    try:
        with servers.actions() as actions:
            return preview_of("rollback-prepared", actions.context, gid=gid)
    finally:
        servers.psql(f"rollback prepared '{gid.replace(chr(39), chr(39) * 2)}'")


def set_by_active_run(servers: DifficultServers) -> ActionPreview:
    """The run that has set it is under way: its journal is open."""
    with servers.actions() as actions:
        lock = Path(actions.context.run_directory) / LOCK
        lock.parent.mkdir(parents=True)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            perform("set-parameters", actions.context, settings={"work_mem": "7MB"}, temporary=True)
            action_preview = preview_of("put-back", actions.as_later_run.context)
        perform("put-back", actions.as_later_run.context)
        return action_preview


@contextmanager
def without_alter_system(servers: DifficultServers) -> Iterator[None]:
    """No ALTER SYSTEM is taken, as where an operator or Patroni keeps the configuration."""
    servers.primary.reload({"allow_alter_system": "off"})
    wait_for(servers.primary, "select current_setting('allow_alter_system') = 'off'")
    try:
        yield
    finally:
        servers.primary.reload({"allow_alter_system": "on"})
        wait_for(servers.primary, "select current_setting('allow_alter_system') = 'on'")


def alter_system_refused(servers: DifficultServers) -> ActionPreview:
    with without_alter_system(servers), servers.actions() as actions:
        return preview_of("set-parameters", actions.context, settings={"work_mem": "9MB"})


def in_a_tablespace(servers: DifficultServers) -> ActionPreview:
    oid = servers.psql("select oid from pg_tablespace where spcname = 'Fast Disk'")
    path = big_file(servers.primary.data_directory / "pg_tblspc" / oid, 1)
    try:
        return preview_of("shrink-file", ActionContext(), path=str(path))
    finally:
        path.unlink()


def own_session(servers: DifficultServers) -> ActionPreview:
    with servers.actions() as actions:
        sql = "select pid, backend_start::text as backend_start from pg_stat_activity where pid = pg_backend_pid()"
        return preview_of("signal-backend", actions.context, verb="terminate", rows=actions.connection.rows(sql))


def a_view(servers: DifficultServers) -> ActionPreview:
    with servers.actions() as actions:
        return preview_of("vacuum", actions.context, table="pg_catalog.pg_stat_activity")


def server_on_other_host(servers: DifficultServers) -> ActionPreview:
    """The server runs on another host, so it is another cache."""
    return preview_of("drop-caches", replace(kernel_context(servers), server_is_local=False))


def unlisted_parameter(servers: DifficultServers) -> ActionPreview:
    return preview_of("sysctl", kernel_context(servers), key="kernel.core_pattern", value="core")


# -- standbys --------------------------------------------------------------------------------------------------------


def refused_on_standby(name: str, **asked: Any) -> Callable[[DifficultServers], ActionPreview]:
    def refused(servers: DifficultServers) -> ActionPreview:
        with servers.actions(servers.standby) as actions:
            return preview_of(name, actions.context, **asked)

    return refused


def file_of_standby(servers: DifficultServers) -> ActionPreview:
    path = big_file(servers.standby.data_directory / "pg_wal", 1)
    try:
        return preview_of("shrink-file", ActionContext(), path=str(path))
    finally:
        path.unlink()


def on_the_standby(
    act: Callable[[DifficultServers, Cluster], ActionResult],
) -> Callable[[DifficultServers], ActionResult]:
    return lambda servers: act(servers, servers.standby)


HOST = "acts on the host, whatever server runs there"


@dataclass(frozen=True)
class ActionCase:
    """An act: where its precondition is false, what it does on a difficult server, and on a standby."""

    action: str
    refused: Callable[[DifficultServers], ActionPreview]
    says: str
    perform: Callable[[DifficultServers], ActionResult]
    on_a_standby: Callable[[DifficultServers], ActionResult | ActionPreview] | str
    """Text: why it cannot matter."""
    standby_says: str = ""


ACTION_CASES = (
    ActionCase(
        "commit-prepared",
        recently_prepared,
        "may be about to commit it",
        commit_prepared,
        refused_on_standby("commit-prepared", gid="x"),
        "this is a standby",
    ),
    ActionCase(
        "create-database",
        exists_in_other_tablespace,
        "its tablespace cannot be changed",
        create_database,
        refused_on_standby("create-database", database="copied", like=DATABASE),
        "this is a standby",
    ),
    ActionCase("drop-caches", server_on_other_host, "host", drop_caches, HOST),
    ActionCase("drop-slot", slot_in_use, "is in use by process", drop_slot, on_the_standby(drop_slot)),
    ActionCase("put-back", set_by_active_run, "which is active", put_back, on_the_standby(put_back)),
    ActionCase(
        "rollback-prepared",
        recently_prepared,
        "may be about to commit it",
        roll_back_prepared,
        refused_on_standby("rollback-prepared", gid="x"),
        "this is a standby",
    ),
    ActionCase(
        "set-database-properties",
        no_archive,
        "cannot be read",
        set_database_properties,
        refused_on_standby("set-database-properties", database=DATABASE, archive="/nowhere"),
        "this is a standby",
    ),
    ActionCase(
        "set-parameters", alter_system_refused, "allow_alter_system is off", set_parameters, set_parameters_on_standby
    ),
    ActionCase("shrink-file", in_a_tablespace, "is in", shrink_file, file_of_standby, "is in pg_wal"),
    ActionCase(
        "signal-backend", own_session, "a session of this console", signal_backend, on_the_standby(signal_backend)
    ),
    ActionCase("sysctl", unlisted_parameter, "kernel.core_pattern", write_sysctl, HOST),
    ActionCase(
        "vacuum", a_view, "is not a table", vacuum_table, refused_on_standby("vacuum", table=TABLE), "this is a standby"
    ),
)


def test_every_action_has_its_row() -> None:
    of_one_server = [name for name in ACTIONS if not ACTIONS[name].acts_on_cluster]  # the others: tests/cluster
    assert [row.action for row in ACTION_CASES] == sorted(of_one_server)


@pytest.mark.parametrize("row", ACTION_CASES, ids=lambda row: row.action)
def test_it_refuses_when_its_precondition_is_false(row: ActionCase, servers: DifficultServers) -> None:
    action_preview = row.refused(servers)
    assert action_preview.refusal is not None and row.says in action_preview.refusal, action_preview


@pytest.mark.parametrize("row", ACTION_CASES, ids=lambda row: row.action)
def test_it_works_for_a_role_with_few_rights_and_odd_names(row: ActionCase, servers: DifficultServers) -> None:
    result = row.perform(servers)
    assert result.state == "ok", result.text


@pytest.mark.parametrize("row", ACTION_CASES, ids=lambda row: row.action)
def test_on_a_standby_it_works_or_refuses(row: ActionCase, servers: DifficultServers) -> None:
    if isinstance(row.on_a_standby, str):
        assert not ACTIONS[row.action].needs_server, row.on_a_standby
        return
    result = row.on_a_standby(servers)
    if isinstance(result, ActionResult):
        assert result.state == "ok", result.text
    else:
        assert result.refusal is not None and row.standby_says in result.refusal, result


def test_timeouts_are_those_of_the_action_and_not_those_of_the_role(servers: DifficultServers) -> None:
    limits = "select current_setting('statement_timeout') as statement, current_setting('lock_timeout') as lock"
    with acting_connection(servers.primary, user=ROLE, dbname=DATABASE) as connection:
        assert isinstance(connection, ActingConnection)
        assert connection.rows(limits, timeout_s=77.0) == [{"statement": "77s", "lock": "2s"}]
        assert connection.execute_change(limits).rows == ({"statement": "0", "lock": "2s"},)
        asked = connection.execute_change(limits, timeout_s=600.0, lock_timeout_s=300.0, transaction=False)
        assert asked.rows == ({"statement": "10min", "lock": "5min"},)
