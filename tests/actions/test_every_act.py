"""Every act of the registry in one table: where it must refuse, and that it does its work where a server is difficult.

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
from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, PlainControl
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.demo.cluster import Cluster
from dba_console.recording.run_paths import LOCK
from tests.actions.connections import acting
from tests.actions.difficult_server import DATABASE, ROLE, TABLE, Scene, kernel, servers
from tests.actions.shrink_files import alone, big_file
from tests.background import session
from tests.sql import query, wait_for


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with servers() as made:
        yield made


@pytest.fixture
def scene(pair: tuple[Cluster, Cluster], tmp_path: Path) -> Scene:
    return Scene(*pair, tmp_path)


# -- what each act does ----------------------------------------------------------------------------------------------


def seen(name: str, world: ActionContext, **asked: Any) -> ActionPreview:
    return ACTIONS[name].preview(parse_settings(name, asked), world)


def done(name: str, world: ActionContext, **asked: Any) -> ActionResult:
    """Looked at and done; it must be allowed."""
    action_preview = seen(name, world, **asked)
    assert action_preview.refusal is None and not action_preview.done, action_preview
    return ACTIONS[name].act(parse_settings(name, asked), action_preview, world, PlainControl())


def prepared(scene: Scene) -> str:
    gid = 'it\'s 100 % "left"'
    with session(scene.primary, user=ROLE, dbname=DATABASE) as connection:
        connection.execute(f"begin; insert into {TABLE} values (1)".encode())
        connection.execute(f"prepare transaction '{gid.replace(chr(39), chr(39) * 2)}'".encode())
    return gid


def makes_a_database(scene: Scene) -> ActionResult:
    asked = {"database": 'A "copy"', "like": DATABASE}
    with scene.books() as books:
        came = done("create-database", books.world, **asked)
        spaces = "select count(distinct dattablespace) from pg_database where dattablespace <> 1663 and datallowconn"
        assert scene.psql(spaces) == "1", "both in the tablespace of the first"
        assert books.undo("create-database", came, **asked).state == "ok"
        return came


def drops_a_slot(scene: Scene, cluster: Cluster | None = None) -> ActionResult:
    query(cluster or scene.primary, "select pg_create_physical_replication_slot('left_behind', true)")
    with scene.books(cluster) as books:
        return done("drop-slot", books.world, slot="left_behind")


def rolls_back(scene: Scene) -> ActionResult:
    gid = prepared(scene)
    with scene.books() as books:
        return done("rollback-prepared", books.world, gid=gid, min_age="0")


def sets(scene: Scene) -> ActionResult:
    with scene.books() as books:
        place = {"scope": "role", "role": ROLE, "database": DATABASE}
        asked = {"parameter": "application_name", "value": 'it\'s "odd"', **place}
        came = done("set-parameters", books.world, **asked)
        stored = "select setconfig[1] from pg_db_role_setting where setdatabase <> 0"
        assert scene.psql(stored) == 'application_name=it\'s "odd"'
        assert books.undo("set-parameters", came, **asked).state == "ok"
    return sets_for_a_time(scene)


def sets_on_the_standby(scene: Scene) -> ActionResult:
    """For the server; a role's parameters are set on the primary."""
    with scene.books(scene.standby) as books:
        action_preview = seen("set-parameters", books.world, parameter="work_mem", value="9MB", scope="role", role=ROLE)
        assert action_preview.refusal is not None and "standby" in action_preview.refusal, action_preview
    return sets_for_a_time(scene, scene.standby)


def sets_for_a_time(scene: Scene, cluster: Cluster | None = None) -> ActionResult:
    with scene.books(cluster) as books:
        return done("set-parameters", books.world, settings={"work_mem": "7MB"}, temporary=True)


def puts_back(scene: Scene, cluster: Cluster | None = None) -> ActionResult:
    sets_for_a_time(scene, cluster)
    with scene.books(cluster) as books:
        came = done("put-back", books.later.world)
        assert books.owed == {}
    wait_for(cluster or scene.primary, "select current_setting('work_mem') <> '7MB'", what="it put back")
    return came


def signals(scene: Scene, cluster: Cluster | None = None) -> ActionResult:
    where = cluster or scene.primary
    with session(where, user=ROLE, dbname=DATABASE, name='the "victim"') as one, scene.books(cluster) as books:
        sql = "select pid, backend_start::text as backend_start from pg_stat_activity where pid = %(pid)s"
        rows = books.link.rows(sql, {"pid": one.info.backend_pid})
        return done("signal-backend", books.world, verb="terminate", rows=rows, wait="60s")


def vacuums(scene: Scene) -> ActionResult:
    with scene.books() as books:
        came = done("vacuum", books.world, rows=[{"datname": DATABASE, "table": TABLE}], truncate=False, analyze=True)
    rows = scene.psql("select count(*) from pg_stat_all_tables where vacuum_count > 0 and relname like 'part %'")
    assert rows == "2", "each partition, in whichever tablespace"
    return came


def shrinks(scene: Scene) -> ActionResult:
    path = big_file(scene.place, 2, name='it\'s "the" oldest.dump')
    came = done("shrink-file", alone(scene.place), path=str(path))
    assert not path.exists()
    return came


def drops_caches(scene: Scene) -> ActionResult:
    return done("drop-caches", kernel(scene))


def writes(scene: Scene) -> ActionResult:
    return done("sysctl", kernel(scene), key="vm.zone_reclaim_mode", value=0)


# -- what each act refuses -------------------------------------------------------------------------------------------


def made_otherwise(scene: Scene) -> ActionPreview:
    """One of the name is there, and lies in another tablespace."""
    with scene.books() as books:
        return seen("create-database", books.world, database="postgres", like=DATABASE)


def in_use(scene: Scene) -> ActionPreview:
    """The slot of a standby that streams."""
    name = (
        "select pg_create_physical_replication_slot('mine', true) where not exists (select from pg_replication_slots)"
    )
    scene.psql(name)
    before = query(scene.standby, "show primary_slot_name")
    scene.standby.reload({"primary_slot_name": "mine"})
    try:
        wait_for(scene.primary, "select active from pg_replication_slots where slot_name = 'mine'", what="a reader")
        with scene.books() as books:
            return seen("drop-slot", books.world, slot="mine")
    finally:
        scene.standby.reload({"primary_slot_name": before})
        wait_for(scene.primary, "select not active from pg_replication_slots where slot_name = 'mine'")
        scene.psql("select pg_drop_replication_slot('mine')")


def young(scene: Scene) -> ActionPreview:
    gid = prepared(scene)
    try:
        with scene.books() as books:
            return seen("rollback-prepared", books.world, gid=gid)
    finally:
        scene.psql(f"rollback prepared '{gid.replace(chr(39), chr(39) * 2)}'")


def lent(scene: Scene) -> ActionPreview:
    """The run that has set it is under way: its journal is open."""
    with scene.books() as books:
        lock = Path(books.world.run_directory) / LOCK
        lock.parent.mkdir(parents=True)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done("set-parameters", books.world, settings={"work_mem": "7MB"}, temporary=True)
            action_preview = seen("put-back", books.later.world)
        done("put-back", books.later.world)
        return action_preview


@contextmanager
def closed(scene: Scene) -> Iterator[None]:
    """No ALTER SYSTEM is taken, as where an operator or Patroni keeps the configuration."""
    scene.primary.reload({"allow_alter_system": "off"})
    wait_for(scene.primary, "select current_setting('allow_alter_system') = 'off'")
    try:
        yield
    finally:
        scene.primary.reload({"allow_alter_system": "on"})
        wait_for(scene.primary, "select current_setting('allow_alter_system') = 'on'")


def none_to_be_set(scene: Scene) -> ActionPreview:
    with closed(scene), scene.books() as books:
        return seen("set-parameters", books.world, settings={"work_mem": "9MB"})


def in_a_tablespace(scene: Scene) -> ActionPreview:
    oid = scene.psql("select oid from pg_tablespace where spcname = 'Fast Disk'")
    path = big_file(scene.primary.data_directory / "pg_tblspc" / oid, 1)
    try:
        return seen("shrink-file", ActionContext(), path=str(path))
    finally:
        path.unlink()


def itself(scene: Scene) -> ActionPreview:
    with scene.books() as books:
        sql = "select pid, backend_start::text as backend_start from pg_stat_activity where pid = pg_backend_pid()"
        return seen("signal-backend", books.world, verb="terminate", rows=books.link.rows(sql))


def a_view(scene: Scene) -> ActionPreview:
    with scene.books() as books:
        return seen("vacuum", books.world, table="pg_catalog.pg_stat_activity")


def elsewhere(scene: Scene) -> ActionPreview:
    """The server runs on another host, so it is another cache."""
    return seen("drop-caches", replace(kernel(scene), server_is_local=False))


def not_in_the_list(scene: Scene) -> ActionPreview:
    return seen("sysctl", kernel(scene), key="kernel.core_pattern", value="core")


# -- standbys --------------------------------------------------------------------------------------------------------


def not_there(name: str, **asked: Any) -> Callable[[Scene], ActionPreview]:
    def refused(scene: Scene) -> ActionPreview:
        with scene.books(scene.standby) as books:
            return seen(name, books.world, **asked)

    return refused


def beside_the_standby(scene: Scene) -> ActionPreview:
    path = big_file(scene.standby.data_directory / "pg_wal", 1)
    try:
        return seen("shrink-file", ActionContext(), path=str(path))
    finally:
        path.unlink()


def on_the_standby(act: Callable[[Scene, Cluster], ActionResult]) -> Callable[[Scene], ActionResult]:
    return lambda scene: act(scene, scene.standby)


HOST = "acts on the host, whatever server runs there"


@dataclass(frozen=True)
class Row:
    """An act: where its precondition is false, what it does on a difficult server, and on a standby."""

    act: str
    refused: Callable[[Scene], ActionPreview]
    says: str
    does: Callable[[Scene], ActionResult]
    on_a_standby: Callable[[Scene], ActionResult | ActionPreview] | str
    """Text: why it cannot matter."""
    standby_says: str = ""


TABLE_OF_ACTS = (
    Row("create-database", made_otherwise, "its tablespace cannot be changed", makes_a_database,
        not_there("create-database", database="copied", like=DATABASE), "this is a standby"),
    Row("drop-caches", elsewhere, "host", drops_caches, HOST),
    Row("drop-slot", in_use, "is in use by process", drops_a_slot, on_the_standby(drops_a_slot)),
    Row("put-back", lent, "which is active", puts_back, on_the_standby(puts_back)),
    Row("rollback-prepared", young, "may be about to commit it", rolls_back, not_there("rollback-prepared", gid="x"),
        "this is a standby"),
    Row("set-parameters", none_to_be_set, "allow_alter_system is off", sets, sets_on_the_standby),
    Row("shrink-file", in_a_tablespace, "is in", shrinks, beside_the_standby, "is in pg_wal"),
    Row("signal-backend", itself, "a session of this console", signals, on_the_standby(signals)),
    Row("sysctl", not_in_the_list, "kernel.core_pattern", writes, HOST),
    Row("vacuum", a_view, "is not a table", vacuums, not_there("vacuum", table=TABLE), "this is a standby"),
)  # fmt: skip


def test_every_action_has_its_row() -> None:
    of_one_server = [name for name in ACTIONS if not ACTIONS[name].acts_on_cluster]  # the others: tests/cluster
    assert [row.act for row in TABLE_OF_ACTS] == sorted(of_one_server)


@pytest.mark.parametrize("row", TABLE_OF_ACTS, ids=lambda row: row.act)
def test_it_refuses_when_its_precondition_is_false(row: Row, scene: Scene) -> None:
    action_preview = row.refused(scene)
    assert action_preview.refusal is not None and row.says in action_preview.refusal, action_preview


@pytest.mark.parametrize("row", TABLE_OF_ACTS, ids=lambda row: row.act)
def test_it_works_for_a_role_with_few_rights_and_odd_names(row: Row, scene: Scene) -> None:
    came = row.does(scene)
    assert came.state == "ok", came.text


@pytest.mark.parametrize("row", TABLE_OF_ACTS, ids=lambda row: row.act)
def test_on_a_standby_it_works_or_refuses(row: Row, scene: Scene) -> None:
    if isinstance(row.on_a_standby, str):
        assert not ACTIONS[row.act].needs_server, row.on_a_standby
        return
    came = row.on_a_standby(scene)
    if isinstance(came, ActionResult):
        assert came.state == "ok", came.text
    else:
        assert came.refusal is not None and row.standby_says in came.refusal, came


def test_timeouts_are_those_of_the_action_and_not_those_of_the_role(scene: Scene) -> None:
    limits = "select current_setting('statement_timeout') as statement, current_setting('lock_timeout') as lock"
    with acting(scene.primary, user=ROLE, dbname=DATABASE) as link:
        assert isinstance(link, ActingConnection)
        assert link.rows(limits, timeout_s=77.0) == [{"statement": "77s", "lock": "2s"}]
        assert link.execute_change(limits).rows == ({"statement": "0", "lock": "2s"},)
        asked = link.execute_change(limits, timeout_s=600.0, lock_timeout_s=300.0, transaction=False)
        assert asked.rows == ({"statement": "10min", "lock": "5min"},)
