"""`dba-console dumps keys` on a real server: what pg_restore would have made, made apart from it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.tools.create_foreign_keys import APPLICATION
from tests.background import session, wait_until
from tests.cli.console import CompletedCommand, Console
from tests.clusters import binaries_of

LONG_S = 240.0
"""For whatever is waited for: the machine may have other things to do."""
_SOURCE = r"""
create table "odd ""p;1" (id int primary key, other int references "odd ""p;1");
create table a (id int primary key, p int references "odd ""p;1", q int references "odd ""p;1" deferrable);
create table "b
-- 2;" (id int primary key, p int references "odd ""p;1" on delete cascade, a int references a initially deferred);
create table part (id int, p int references "odd ""p;1") partition by range (id);
create table part_1 partition of part for values from (0) to (1000);
insert into "odd ""p;1" select i, i from generate_series(1, 500) i;
insert into a select i, i, i from generate_series(1, 500) i;
insert into "b
-- 2;" select i, i, i from generate_series(1, 500) i;
insert into part select i, i from generate_series(1, 500) i;
alter table a add constraint unchecked foreign key (id) references "odd ""p;1" not valid;
comment on constraint unchecked on a is 'it''s known; leave it';
analyze;
"""
_KEYS = """select conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated, obj_description(oid)
from pg_constraint where contype = 'f' order by conrelid::regclass::text, 2, 3"""
_VALID = "select count(*) filter (where convalidated), count(*) from pg_constraint where contype = 'f'"
_SESSIONS = f"select count(*) from pg_stat_activity where application_name = '{APPLICATION}'"


class RestoreSetup:
    """A server, a dump on it, and a console that has nothing of this user."""

    def __init__(self, cluster: Cluster, archive: Path, console: Console) -> None:
        self.cluster, self.archive, self.console = cluster, archive, console

    def create_keys(self, database: str, *more: str) -> CompletedCommand:
        return self.console.run(*self.command(database, *more), timeout=LONG_S)

    def command(self, database: str, *more: str) -> list[str]:
        return ["dumps", "keys", str(self.archive), "--dsn", self.cluster.dsn(dbname=database), *more]

    def wait_for_row(self, question: str, answer: int, what: str) -> None:
        with closing(session(self.cluster)) as asking:
            wait_until(lambda: [(answer,)] == asking.execute(question).fetchall(), LONG_S, what=what)

    def restored_without_keys(self, database: str) -> str:
        """A new database with everything but the keys."""
        chosen = self.archive.with_name("list")
        if not chosen.exists():
            listed = self.console.run("dumps", "keys", str(self.archive), "--list", timeout=LONG_S)
            assert listed.code == 0, listed.err
            chosen.write_text(listed.out)
        self.restore(database, "-j", "2", "-L", str(chosen))
        return database

    def restore(self, database: str, *more: str) -> None:
        self.cluster.psql(f"create database {database}")
        program = str(self.cluster.binaries.program("pg_restore"))
        done = subprocess.run(
            [program, "-d", self.cluster.dsn(dbname=database), *more, str(self.archive)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def dumped_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    archive = tmp_path_factory.mktemp("dumped") / "archive"
    with Cluster(binaries_of(None), durable=False) as cluster:
        cluster.psql("create database source")
        cluster.psql(_SOURCE, dbname="source")
        program = str(cluster.binaries.program("pg_dump"))
        where = cluster.dsn(dbname="source")
        subprocess.run([program, "-Fd", "-f", str(archive), "-d", where], check=True, capture_output=True)
        yield cluster, archive


@pytest.fixture
def restore_setup(dumped_cluster: tuple[Cluster, Path], console: Console) -> RestoreSetup:
    console.environment["DBA_CONSOLE_PG_BINDIR"] = str(dumped_cluster[0].binaries.directory)
    return RestoreSetup(*dumped_cluster, console)


def test_the_created_keys_are_those_of_pg_restore_and_a_second_time_nothing_is_left(
    restore_setup: RestoreSetup,
) -> None:
    restore_setup.restore("whole")
    made = restore_setup.restored_without_keys("apart")
    assert restore_setup.cluster.psql(_VALID, dbname=made) == "0|0"
    done = restore_setup.create_keys(made, "-j", "3")
    assert done.code == 0, done.err
    assert restore_setup.cluster.psql(_KEYS, dbname=made) == restore_setup.cluster.psql(_KEYS, dbname="whole")
    assert "pg_restore: launching item" in done.err and "pg_restore: finished item" in done.err
    again = restore_setup.create_keys(made)
    assert again.code == 0, again.err
    assert "0 errors" in again.out
    assert "launching" not in again.err
    assert restore_setup.cluster.psql(_KEYS, dbname=made) == restore_setup.cluster.psql(_KEYS, dbname="whole")


def test_a_key_that_is_violated_is_reported_with_its_object_and_the_others_are_created(
    restore_setup: RestoreSetup,
) -> None:
    made = restore_setup.restored_without_keys("broken")
    restore_setup.cluster.psql("insert into a values (1000, 1, 1001)", dbname=made)
    done = restore_setup.create_keys(made)
    assert done.code == 7
    assert "1 errors" in done.out
    assert "FK CONSTRAINT a a_q_fkey" in done.err
    assert "a_q_fkey stays NOT VALID" in done.err
    valid, there = restore_setup.cluster.psql(_VALID, dbname=made).split("|")
    whole = restore_setup.cluster.psql(_VALID, dbname="source").split("|")
    assert (int(valid), there) == (int(whole[0]) - 1, whole[1])


def test_interrupted_it_leaves_no_session_and_can_be_restarted(restore_setup: RestoreSetup) -> None:
    made = restore_setup.restored_without_keys("ended")
    assert restore_setup.create_keys(made).code == 0
    unchecked = "update pg_constraint set convalidated = false where contype = 'f' and conrelid = 'a'::regclass"
    restore_setup.cluster.psql(unchecked, dbname=made)
    with psycopg.connect(restore_setup.cluster.dsn(dbname=made)) as holder:
        holder.execute("lock table a in share update exclusive mode")
        with restore_setup.console.running(*restore_setup.command(made)) as process:
            waits = f"{_SESSIONS} and wait_event_type = 'Lock' and query like '%VALIDATE%'"
            restore_setup.wait_for_row(waits, 1, "a key that waits to be validated")
            process.send_signal(signal.SIGTERM)
            process.wait(LONG_S)
            restore_setup.wait_for_row(_SESSIONS, 0, "the end of its sessions")
        holder.rollback()
    again = restore_setup.create_keys(made)
    assert again.code == 0, again.err
    assert restore_setup.cluster.psql(_VALID, dbname=made) == restore_setup.cluster.psql(_VALID, dbname="source")


def test_sql_is_refused(restore_setup: RestoreSetup, tmp_path: Path) -> None:
    plain = tmp_path / "dump.sql"
    program = str(restore_setup.cluster.binaries.program("pg_dump"))
    subprocess.run([program, "-f", str(plain), "-d", restore_setup.cluster.dsn(dbname="source")], check=True)
    done = restore_setup.console.run("dumps", "keys", str(plain), "--list", timeout=LONG_S)
    assert done.code == 2
    assert "is a plain SQL script" in done.err
