"""What names a user's relation calls no code of its owner, whatever the owner has made of it since."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.registry import ACTIONS
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.tools.verify_archive import verify_archive
from tests.actions.connections import acting_connection, perform
from tests.clusters import binaries_of
from tests.sql import query

VACUUM = ACTIONS["vacuum"]
DATABASE, OWNER, READER = "shop", "owner", "reader"
EVIL = """
create schema app;
grant usage on schema app to public;
create function app.called(what text) returns int language plpgsql as $$
begin
  if current_user <> 'owner' then
    begin
      reset role;
      raise log 'EVIL % as %', what, current_user;
    exception when others then raise log 'EVIL % confined as %', what, current_user;
    end;
  end if;
  return 1;
end $$;
create function app.constant(what text) returns int language plpgsql immutable as
  $$ begin return app.called(what); end $$;
create table app.kept (n int, note text);
insert into app.kept select g, 'x' from generate_series(1, 10) g;
"""
TRAPS = {
    "view": "create view app.{name} as select n, app.called('view') as c from app.kept",
    "rule": "create table app.{name} (n int); create rule \"_RETURN\" as on select to app.{name} do instead"
    " select app.called('rule') as n",
    "matview": "create materialized view app.{name} as select app.constant('matview') as n",
    "index": "create table app.{name} (n int); insert into app.{name} values (1);"
    " create index on app.{name} ((n + app.constant('index')))",
    "partial": "create table app.{name} (n int); insert into app.{name} values (1);"
    " create index on app.{name} (n) where n > app.constant('predicate')",
    "statistics": "create table app.{name} (n int, m int); insert into app.{name} values (1, 1);"
    " create statistics app.s on (n + app.constant('statistics')), m from app.{name}",
    "check": "create table app.{name} (n int check (n > app.constant('check') - 5)); insert into app.{name} values (1)",
    "policy": "create table app.{name} (n int); insert into app.{name} values (1);"
    " alter table app.{name} enable row level security;"
    " create policy p on app.{name} to public using (app.called('policy') > 0)",
    "generated": "create table app.{name} (n int, g int generated always as (n + app.constant('generated')) stored);"
    " insert into app.{name} values (1)",
    "partitioned": "create table app.{name} (n int) partition by list ((n + app.constant('key')))",
    "child": "create table app.{name} (n int); insert into app.{name} values (1);"
    " create table app.{name}_child () inherits (app.{name});"
    " create index on app.{name}_child ((n + app.constant('c')));",
    "domain": "create domain app.{name}_type as int check (value > app.constant('domain') - 5);"
    " create table app.{name} (n app.{name}_type); insert into app.{name} values (1)",
}  # fmt: skip
COUNTED = {"index": 1, "partial": 1, "statistics": 1, "check": 1, "policy": 1, "generated": 1, "child": 1, "domain": 1}


@pytest.fixture(scope="module")
def trapped() -> Iterator[Cluster]:
    with Cluster(binaries_of(None), settings={"autovacuum": "off"}, durable=False) as cluster:
        query(cluster, f"create role {OWNER} login; create role {READER} login in role pg_read_all_data")
        query(cluster, f"create database {DATABASE} owner {OWNER}")
        with psycopg.connect(cluster.dsn(dbname=DATABASE, user=OWNER), autocommit=True) as owner:
            owner.execute(EVIL)
            for name, statement in TRAPS.items():
                if name != "rule" or owner.info.server_version < 160000:  # later a table cannot become a view
                    owner.execute(statement.format(name=f"t_{name}"))
        yield cluster


def calls(cluster: Cluster) -> list[str]:
    return [line.partition("EVIL ")[2] for line in cluster.log_text().splitlines() if "LOG:  EVIL " in line]


def test_the_trap_works_against_a_plain_count(trapped: Cluster) -> None:
    """Also for a plain table, also with the role of its owner, which the function resets."""
    with psycopg.connect(trapped.dsn(dbname=DATABASE), autocommit=True) as careless:
        careless.execute("select count(*) from only app.t_index")
        careless.execute("set role owner")
        careless.execute("select count(*) from app.t_view")
    assert calls(trapped) and all("as postgres" in one for one in calls(trapped))


@pytest.mark.parametrize("user", ["postgres", READER])
@pytest.mark.parametrize("name", TRAPS)
def test_counting_the_rows_of_a_relation_calls_nothing(name: str, user: str, trapped: Cluster) -> None:
    before, connection = len(calls(trapped)), QueryConnection(trapped.dsn(dbname=DATABASE, user=user), application="t")
    try:
        counted = connection.count_rows("app", f"t_{name}", timeout_s=30.0)
    except ConsoleError as error:
        assert name == "policy" and "row-level security" in error.message
        counted = None
    finally:
        connection.close()
    assert calls(trapped)[before:] == []
    assert counted == (None if (name, user) == ("policy", READER) else COUNTED.get(name))


def test_vacuum_with_analyze_calls_it_as_the_owner_only(trapped: Cluster) -> None:
    """PostgreSQL itself switches to the owner, in an operation that cannot reset the role (vacuum.c, analyze.c)."""
    before = len(calls(trapped))
    with acting_connection(trapped, dbname=DATABASE) as connection:
        for name in ("index", "partial", "statistics", "generated", "child"):
            _, done = perform(VACUUM, connection, table=f"app.t_{name}", analyze=True)
            assert done.state == "ok", done
    assert calls(trapped)[before:] == []


def test_a_table_that_became_a_view_after_the_dump_is_not_read(trapped: Cluster, tmp_path: Path) -> None:
    with psycopg.connect(trapped.dsn(dbname=DATABASE, user=OWNER), autocommit=True) as owner:
        owner.execute("create table app.accounts as select g as n from generate_series(1, 100) g")
        archive, bindir = tmp_path / "dump", trapped.binaries.directory
        dsn = trapped.dsn(dbname=DATABASE)
        command = [str(bindir / "pg_dump"), "-Fd", "-t", "app.accounts", "-f", str(archive), "-d", dsn]
        subprocess.run(command, check=True)
        connection = QueryConnection(trapped.dsn(dbname=DATABASE), application="t")
        same = verify_archive(archive, connection, 5, 1, bindir=str(bindir), report=lambda line: None)
        owner.execute("alter table app.accounts rename to old")
        owner.execute("create view app.accounts as select app.called('accounts') as n")
    before = len(calls(trapped))
    swapped = verify_archive(archive, connection, 5, 1, bindir=str(bindir), report=lambda line: None)
    connection.close()
    assert [row.now for row in same.rows] == [100]
    assert [row.now for row in swapped.rows] == [None] and "replaced" in swapped.rows[0].sentence
    assert calls(trapped)[before:] == []
