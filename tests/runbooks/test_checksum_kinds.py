"""What `checksum-failure` finds out of a file by its path, and what it claims of the server, on real relations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.values import for_sql, statement
from tests.background import session, wait_until
from tests.clusters import FreshCluster, binaries_of
from tests.runbooks.damaged_pages import damage
from tests.sql import query
from tests.standbys import copied_standby

RUNBOOK = Path(__file__).parents[2] / "runbooks" / "checksum-failure.md"
PLAN = compile_text(RUNBOOK.read_text(encoding="utf-8"), RUNBOOK.name)
ODD = '"an ""odd"" schema"."the Table"'
MADE = f"""
create schema "an ""odd"" schema";
create table {ODD} (i int primary key, during int4range, note text, exclude using gist (during with &&));
create unlogged table public.scratch (i int primary key);
create sequence public.numbers;
create materialized view public.sums as select 1 as i;
create table public.parts (i int) partition by range (i);
create table public.parts_1 partition of public.parts for values from (0) to (9);
create table public.moved (i int) tablespace beside;
insert into {ODD} select i, int4range(i, i + 1), '' from generate_series(1, 2000) i
"""
PATH = "select pg_relation_filepath('{}')"
TOAST = f"select reltoastrelid::regclass from pg_class where oid = '{ODD}'::regclass"
TOAST_INDEX = f"select indexrelid::regclass from pg_index where indrelid = ({TOAST})"
EXCLUSION = f"select indexrelid::regclass from pg_index where indrelid = '{ODD}'::regclass and indisexclusion"
TABLE = "create table public.rows (i int, note text) with (autovacuum_enabled = off)"
FILLED = "insert into public.rows select i, repeat('x', 100) from generate_series(1, 2000) i"
INVALID = (
    "select string_agg(c.relname, ' ') from pg_index i join pg_class c on c.oid = i.indexrelid where not indisvalid"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(binaries_of(None), durable=False) as cluster:
        beside = cluster.base / "beside"
        beside.mkdir(mode=0o700)
        cluster.account.chown(beside)
        query(cluster, f"create tablespace beside location '{beside}'")
        for one in MADE.split(";"):
            query(cluster, one)
        query(cluster, f"vacuum {ODD}")
        yield cluster


def block_rows(cluster: Cluster, block_id: str, dbname: str = "postgres", **values: Any) -> list[dict[str, Any]]:
    """The rows a block of the document gives, names meaning what they mean in a run."""
    _, block = PLAN.block(block_id)
    text, params = statement(block.body, for_sql(values))
    with psycopg.connect(cluster.dsn(dbname=dbname), autocommit=True, row_factory=dict_row) as connection:
        connection.execute("set search_path = pg_catalog, pg_temp")
        return connection.execute(text.encode(), params).fetchall()


def relation_at(cluster: Cluster, path: str, dbname: str = "postgres") -> dict[str, Any]:
    [row] = block_rows(cluster, "which-relation/preview-2", dbname, path=path)
    return row


KINDS = {
    "index": (PATH.format('"an ""odd"" schema"."the Table_pkey"'), "", "btree index", "index"),
    "exclusion": (f"select pg_relation_filepath(({EXCLUSION}))", "", "gist index", "locked"),
    "catalog index": (PATH.format("pg_class_oid_index"), "", "system catalog, btree index", "locked"),
    "catalog": (PATH.format("pg_proc"), "", "system catalog, table", "catalog"),
    "shared catalog": (PATH.format("pg_database"), "", "system catalog, table", "catalog"),
    "table": (PATH.format(ODD), "", "table", "table"),
    "segment": (PATH.format(ODD), ".3", "table", "table"),
    "visibility map": (PATH.format(ODD), "_vm", "visibility map of a table", "map"),
    "free space map": (PATH.format(ODD), "_fsm.1", "free space map of a table", "map"),
    "TOAST": (f"select pg_relation_filepath(({TOAST}))", "", "TOAST", "table"),
    "TOAST index": (f"select pg_relation_filepath(({TOAST_INDEX}))", "", "btree index", "index"),
    "unlogged": (PATH.format("public.scratch"), "", "unlogged, table", "unlogged"),
    "unlogged index": (PATH.format("public.scratch_pkey"), "", "unlogged, btree index", "index"),
    "init": (PATH.format("public.scratch"), "_init", "unlogged, table", "unlogged"),
    "sequence": (PATH.format("public.numbers"), "", "sequence", "sequence"),
    "materialized view": (PATH.format("public.sums"), "", "materialized view", "view"),
    "partition": (PATH.format("public.parts_1"), "", "partition", "table"),
    "another tablespace": (PATH.format("public.moved"), "", "table", "table"),
    "as a base backup says it": (f"select './' || pg_relation_filepath('{ODD}')", ".1", "table", "table"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_content_of_a_file_and_its_fix_are_determined_by_its_path(kind: str, made: Cluster) -> None:
    asked, more, what, way = KINDS[kind]
    row = relation_at(made, query(made, asked) + more)
    assert (row["what"], row["way"]) == (what, way)
    assert Path(row["file"]).is_file()
    belongs = {"TOAST": ODD, "TOAST index": f"TOAST of {ODD}", "index": ODD, "partition": "public.parts"}
    if kind in belongs:
        assert row["belongs_to"] == belongs[kind]


def test_a_file_in_the_default_directory_is_found_if_the_database_has_another_tablespace(made: Cluster) -> None:
    query(made, "create database elsewhere tablespace beside")
    query(made, "create table public.plain (i int) tablespace pg_default", dbname="elsewhere")
    query(made, "create table public.usual (i int)", dbname="elsewhere")
    for table, begins in (("plain", "base/"), ("usual", "pg_tblspc/")):
        path = query(made, PATH.format(f"public.{table}"), dbname="elsewhere")
        assert path.startswith(begins)
        assert relation_at(made, path, "elsewhere")["relation"] == f"public.{table}"
        assert block_rows(made, "which-relation/preview-2", path=path) == [], "the file of another database"


def test_a_role_that_may_not_see_the_data_path_is_shown_everything_else(made: Cluster) -> None:
    query(made, "create role plain login")
    path = query(made, PATH.format(ODD))
    _, block = PLAN.block("which-relation/preview-2")
    text, params = statement(block.body, {"path": path})
    with psycopg.connect(made.dsn(user="plain"), row_factory=dict_row) as connection:
        row = connection.execute(text.encode(), params).fetchone()
    assert row is not None and (row["way"], row["file"]) == ("table", None)


@pytest.mark.parametrize(
    ("counts", "holds"),
    [({"postgres": 1}, True), ({"": 1}, True), ({"app": 1}, False), ({"app": 1, "": 1}, False), ({}, False)],
)
def test_it_starts_only_where_the_failures_are(counts: dict[str, int], holds: bool, made: Cluster) -> None:
    # The counters themselves take a damaged page of each database; what is decided by them stands in the query.
    _, block = PLAN.block("where-is-it/check-2")
    rows = ", ".join(
        f"({oid}, {name}, {counts.get(message, 0)})"
        for oid, name, message in ((0, "null", ""), (5, "current_database()", "postgres"), (6, "'app'", "app"))
    )
    text = block.body.replace("from pg_stat_database", f"from (values {rows}) as s (datid, datname, checksum_failures)")
    assert query(made, text).split("|")[0] == ("t" if holds else "f")


def test_on_a_standby_no_writing_step_is_offered(fresh_cluster: FreshCluster) -> None:
    primary = fresh_cluster()
    query(primary, "create table public.orders (i int primary key)")
    path = query(primary, PATH.format("public.orders_pkey"))
    with copied_standby(primary) as standby:
        assert relation_at(standby, path)["way"] == "standby"


# -- what it claims of the server ------------------------------------------------------------------------------------


@contextmanager
def open_write_transaction(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    """A session with an open transaction that has written to the table."""
    with psycopg.connect(cluster.dsn()) as connection:
        connection.execute("insert into public.rows values (0, '')")
        yield connection
        connection.rollback()


@pytest.mark.parametrize("major", [14, 18])
def test_a_rebuild_ended_by_lock_timeout_leaves_an_invalid_index_next_to_a_valid_one(
    major: int, reused_cluster: FreshCluster
) -> None:
    cluster = reused_cluster(major=major)
    for one in (TABLE, FILLED, "create index rows_i on public.rows (i)"):
        query(cluster, one)
    heap = int(query(cluster, "select 'public.rows'::regclass::oid::bigint"))
    with open_write_transaction(cluster), session(cluster) as other:
        other.execute("set lock_timeout = '500ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("reindex index concurrently public.rows_i")
    assert query(cluster, INVALID) == "rows_i_ccnew"
    assert query(cluster, "select indisvalid from pg_index where indexrelid = 'public.rows_i'::regclass") == "t"
    [left] = block_rows(cluster, "drop-leftovers-of-a-rebuild/preview", what={"heap": heap})
    assert left["leftover"] == "public.rows_i_ccnew"
    # What another rebuild is at work on is none.
    with open_write_transaction(cluster) as holds, session(cluster) as other:
        thread = Thread(target=other.execute, args=("reindex index concurrently public.rows_i",))
        thread.start()
        waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like 'reindex%'"
        wait_until(lambda: query(cluster, waits))
        found = [
            row["leftover"] for row in block_rows(cluster, "drop-leftovers-of-a-rebuild/preview", what={"heap": heap})
        ]
        holds.rollback()
        thread.join()
    assert found == ["public.rows_i_ccnew"] and query(cluster, INVALID) == "rows_i_ccnew"


@pytest.mark.parametrize("major", [14, 18])
def test_two_ranges_skip_a_page_and_a_filter_does_not(major: int, reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(major=major)
    for one in (TABLE, FILLED):
        query(cluster, one)
    path = query(cluster, PATH.format("public.rows"))
    cluster.restart()
    damage(cluster, path, 7)
    off = "set enable_seqscan = off; "
    page = "array(select format('(7,%s)', n)::tid from generate_series(1, 291) n)"
    for where in (f"ctid <> all ({page})", "ctid < '(7,0)' or ctid >= '(8,0)'"):
        with pytest.raises(ConsoleError, match="invalid page in block 7"):
            query(cluster, f"{off}select count(*) from public.rows where {where}")
    before = int(query(cluster, f"{off}select count(note) from public.rows where ctid < '(7,0)'"))
    after = int(query(cluster, f"{off}select count(note) from public.rows where ctid >= '(8,0)'"))
    one_by_one = "select format('(%s,%s)', b, n)::tid from generate_series(0, 6) b, generate_series(1, 291) n"
    assert (
        int(query(cluster, f"{off}select count(note) from public.rows where ctid = any (array({one_by_one}))"))
        == before
    )
    assert 0 < 2000 - before - after < 100


def test_a_damaged_map_is_read_as_empty_and_vacuum_rewrites_it(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    failures = "select sum(checksum_failures) from pg_stat_database"
    vacuum = "vacuum (disable_page_skipping) public.rows"
    for one in (TABLE, FILLED, "delete from public.rows where i % 3 = 0", "vacuum public.rows"):
        query(cluster, one)
    path = query(cluster, PATH.format("public.rows"))
    for fork, block in (("_vm", 0), ("_fsm", 0), ("_fsm", 2)):
        cluster.restart()
        damage(cluster, path + fork, block)
        cluster.restart()
        before = int(query(cluster, failures))
        query(cluster, vacuum)
        wait_until(lambda before=before: int(query(cluster, failures)) == before + 1, what=f"{fork} {block}")  # type: ignore[misc]
        cluster.restart()
        query(cluster, vacuum)
        assert int(query(cluster, failures)) == before + 1, f"{fork} {block} was still damaged"
    assert query(cluster, "select count(*) from public.rows") == "1334"
