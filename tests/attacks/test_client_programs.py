"""What a dump's script, a database's name and a schema's owner can make PostgreSQL's client programs do."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import dba_console
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.libpq_environment import server_environment
from tests.clusters import binaries_of
from tests.requirements import lacking
from tests.runbooks.dumps import DumpServer, running_dump_server, values_of
from tests.sql import query

SHIPPED = Path(dba_console.__file__).parent / "runbooks" / "documents"
CONNINFO_NAME = "host=/nowhere dbname='x\\y'"
"""The name of a database that a program would read as a connection string."""
COMMANDS = r"""
create table public.before (n int);
\! touch PLACE/shell
/*
\! touch PLACE/comment
*/
-- COPY public.t FROM stdin;
\! touch PLACE/copied
\.
select 1 \g |touch PLACE/pipe
select 'touch PLACE/gexec' \gexec
\copy public.before to program 'touch PLACE/program'
 \o PLACE/output
\setenv X y
\unrestrict a
\! touch PLACE/unrestricted
;
create table public.after as select 1 as n;
-- PostgreSQL database dump complete
"""


@pytest.fixture(scope="module")
def dump_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DumpServer]:
    with running_dump_server(tmp_path_factory.mktemp("programs")) as made:
        yield made


@pytest.mark.parametrize("head", ["", "\\restrict a\n"])
def test_no_command_of_psql_in_a_script_is_executed(head: str, dump_server: DumpServer, tmp_path: Path) -> None:
    script, database = tmp_path / "hostile.sql", f"of {len(head)}"
    script.write_text(head + COMMANDS.replace("PLACE", str(tmp_path)))
    walk = dump_server.run_headless(
        "restore", database=database, archive=str(script), speed="none", statistics="none", on_error="go-on"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.sql"], walk.text
    assert dump_server.cluster.psql("select n from after", dbname=database) == "1"
    assert values_of(walk, "restore-it/sql")["errors"] > 0


def test_a_database_whose_name_is_a_connection_string_is_the_one_dumped_restored_and_analyzed(
    dump_server: DumpServer, tmp_path: Path
) -> None:
    with psycopg.connect(dump_server.cluster.dsn(), autocommit=True) as owner:
        name = psycopg.sql.Identifier(CONNINFO_NAME)
        owner.execute(
            psycopg.sql.SQL("create database {} template {}").format(name, psycopg.sql.Identifier("template1"))
        )
        dsn = psycopg.conninfo.make_conninfo(dump_server.cluster.dsn(), dbname=CONNINFO_NAME)
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute("create table t as select g from generate_series(1, 1000) g")
    dumped = dump_server.run_headless(
        "dump", database=CONNINFO_NAME, to=str(tmp_path / "dump"), globals="yes", same_disk="yes"
    )
    assert dumped.code == 0 and "create role" in (tmp_path / "dump.globals.sql").read_text().lower(), dumped.text
    with psycopg.connect(dump_server.cluster.dsn(), autocommit=True) as owner:
        owner.execute(psycopg.sql.SQL("drop database {}").format(name))
    restored = dump_server.run_headless("restore", database=CONNINFO_NAME, archive=str(tmp_path / "dump"), speed="none")
    assert restored.code == 0, restored.text
    with psycopg.connect(dsn, autocommit=True) as other:
        assert other.execute("select reltuples from pg_class where relname = 't'").fetchone() == (1000,)


def amcheck_command() -> str:
    """The command of the runbook checksum-failure that runs pg_amcheck."""
    text = (SHIPPED / "checksum-failure.md").read_text()
    [command] = re.findall(r"^```sh \{run[^\n]*pg_amcheck[^\n]*\n(.*?)^```", text, re.M | re.S)
    return str(command)


@pytest.mark.parametrize("name", ["shop", CONNINFO_NAME])
def test_pg_amcheck_calls_no_function_that_others_put_beside_the_extension(name: str) -> None:
    with Cluster(binaries_of(None), settings={"autovacuum": "off"}, durable=False) as cluster:
        if not cluster.binaries.has("pg_amcheck"):
            lacking("no pg_amcheck")
        query(cluster, "create role owner login")
        with psycopg.connect(cluster.dsn(), autocommit=True) as own:
            own.execute(psycopg.sql.SQL("create database {} owner owner").format(psycopg.sql.Identifier(name)))
        dsn = psycopg.conninfo.make_conninfo(cluster.dsn(), dbname=name)
        environment = {**os.environ, **server_environment(dsn, {}, read_only=True)}
        environment["PATH"] = f"{cluster.binaries.directory}:{environment['PATH']}"

        def read() -> subprocess.CompletedProcess[str]:
            command = ["/bin/bash", "-euo", "pipefail", "-c", amcheck_command()]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        with psycopg.connect(dsn, autocommit=True) as own:
            own.execute("create extension amcheck")
            own.execute("grant create on schema public to owner")
            own.execute("set role owner")
            own.execute("create table t as select 1 as n")
            own.execute(
                "create function public.bt_index_check(index oid, heapallindexed boolean) returns void language plpgsql"
                " as $$ begin raise log 'EVIL %', current_user; end $$"
            )
            refused = read()
            own.execute("reset role")
            own.execute("create schema amcheck")
            own.execute("alter extension amcheck set schema amcheck")
        done = read()
        assert refused.returncode == 1 and 'functions in the schema "public" of amcheck' in refused.stderr, refused
        assert "alter extension amcheck set schema amcheck" in refused.stderr
        assert done.returncode == 0, done
        assert "EVIL" not in cluster.log_text()
