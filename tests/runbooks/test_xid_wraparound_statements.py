"""The statements of `xid-wraparound` on every server version, and the owners of temporary tables.

Ages are those of a young cluster here: the limits in the statements are put down to what a new table already has.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.registry import ACTIONS
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.plan import Block
from dba_console.runbooks.library import find
from dba_console.runbooks.values import for_sql, statement
from tests.actions.connections import acting_connection
from tests.background import Session, session, wait_until
from tests.clusters import FreshCluster
from tests.sql import query

RUNBOOK, IDLE = "xid-wraparound", "idle-in-transaction"
VALUES: dict[str, Any] = {
    "old": None, "forgotten": "10m", "limits": {"ids": 1000, "open_s": 3600},
    "rate": {"databases": ["postgres"], "commits_per_s": [1.5], "rollbacks_per_s": [None]},
    "databases": [{"datname": "postgres", "xid_age": 7, "mxid_age": 0}],
}  # fmt: skip
LIMIT = re.compile(r"current_setting\('autovacuum_(multixact_)?freeze_max_age'\)::int8")


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block]:
    plan = find(RUNBOOK).plan(ACTIONS)
    return {block.name or block.id: block for _, block in plan.blocks() if block.language == "sql"}


@pytest.fixture(scope="module")
def idle() -> list[str]:
    plan = find(IDLE).plan(ACTIONS)
    until = [block.settings["until"]["text"] for _, block in plan.blocks() if block.kind == "wait" and block.body == ""]
    return [block.body for _, block in plan.blocks() if block.language == "sql"] + [
        one for one in until if "from" in one
    ]


@pytest.fixture
def connection(server: Cluster) -> Iterator[ActingConnection]:
    with acting_connection(server) as connection:
        yield connection


def block_rows(connection: ActingConnection, block: Block, *, young: bool = False) -> list[dict[str, Any]]:
    """The rows of a block; `young`: as if autovacuum were forced at an age of one."""
    body = LIMIT.sub("(-1)::int8", block.body) if young else block.body
    sql, params = statement(body, for_sql(VALUES))
    return connection.rows(sql, params)


def test_every_version_accepts_every_statement(connection: ActingConnection, blocks: dict[str, Block]) -> None:
    is_reachable = {name: block_rows(connection, block) for name, block in blocks.items()}
    [limits] = is_reachable["limits"]
    assert (limits["ids"], limits["open_s"]) == (1_000_000, None)
    assert limits["xids_below"] == 250_000_000 and limits["mxids_below"] == 500_000_000 and limits["members"] == 52_352
    assert [row["datname"] for row in is_reachable["since"]] == ["postgres"]
    assert is_reachable["homes"] == is_reachable["oldest"] == is_reachable["temporary"] == is_reachable["orphans"] == []


def test_every_version_accepts_the_queries_of_idle_in_transaction(
    connection: ActingConnection, idle: list[str]
) -> None:
    assert len(idle) == 4
    for text in idle:
        sql, params = statement(text, {"age": 60.0})
        assert not connection.rows(sql, params) or "select count(*)" in text


def test_a_role_that_is_not_a_superuser_is_shown_what_it_can_see(server: Cluster, blocks: dict[str, Block]) -> None:
    query(server, "create role watcher login; grant pg_read_all_stats to watcher; create table public.not_mine ()")
    try:
        with acting_connection(server, user="watcher") as connection:
            for name, block in blocks.items():
                rows = block_rows(connection, block)
                assert name != "limits" or rows[0]["members"] is None, "members are a superuser's to count"
            tables = {row["table"]: row["proposed"] for row in block_rows(connection, blocks["oldest"], young=True)}
            assert tables["public.not_mine"] is False and tables["pg_catalog.pg_class"] is False
    finally:
        query(server, "drop table public.not_mine; drop owned by watcher; drop role watcher")


def test_tables_come_oldest_first_with_quoted_names(
    server: Cluster, connection: ActingConnection, blocks: dict[str, Block]
) -> None:
    query(server, 'create table public."by Day" (d int) partition by range (d)')
    query(server, 'create table public."it\'s ""1""" partition of public."by Day" for values from (0) to (9)')
    try:
        rows = block_rows(connection, blocks["oldest"], young=True)
        ages = [max(row["xid_age"], row["mxid_age"]) for row in rows]
        assert ages == sorted(ages, reverse=True) and all(row["proposed"] for row in rows)
        names = [row["table"] for row in rows]
        assert 'public."it\'s ""1"""' in names and 'public."by Day"' not in names
        assert all(row["index_cleanup"] is None for row in rows)
    finally:
        query(server, 'drop table public."by Day"')


def owners(connection: ActingConnection, blocks: dict[str, Block]) -> dict[str, bool]:
    """The sessions that may own an old temporary table, and whether that is certain."""
    return {row["application_name"]: row["proposed"] for row in block_rows(connection, blocks["temporary"], young=True)}


def test_the_session_of_a_temporary_table_is_named_and_proposed_only_if_certain(
    server: Cluster, blocks: dict[str, Block]
) -> None:
    with ExitStack() as stack:

        def connected(name: str) -> Session:
            return stack.enter_context(closing(session(server, name=name)))

        gone, _, owner = connected("gone"), connected("idle"), connected("owner")
        connection = stack.enter_context(acting_connection(server))
        owner.execute("create temporary table cart (note text)")
        assert owners(connection, blocks) == {"owner": True}, "each number up to that of the one who asks is taken"
        pid = gone.info.backend_pid
        gone.close()
        there = f"select 1 from pg_stat_activity where pid = {pid}"
        wait_until(lambda: not connection.rows(there), what="the end of a session")
        if server.major < 16:
            assert owners(connection, blocks) == {"owner": False}, "it may be, or nobody is"
            owner.execute("begin")
            owner.execute("select 1")
        assert owners(connection, blocks) == {"owner": True}, "at work, a session shows its number"
        assert block_rows(connection, blocks["orphans"], young=True) == []


@pytest.mark.parametrize("major", [None, 18], ids=["installed", "pg18"])
def test_orphaned_temporary_tables_are_named_and_autovacuum_drops_them(
    fresh_cluster: FreshCluster, blocks: dict[str, Block], major: int | None
) -> None:
    cluster = fresh_cluster({"autovacuum": "off", "autovacuum_naptime": "1s"}, major=major)
    with closing(session(cluster, name="killed")) as killed:
        killed.execute("set synchronous_commit = local")  # what is not written when it crashes would never have been
        killed.execute("create temporary table cart (note text)")
        os.kill(killed.info.backend_pid, signal.SIGKILL)
        wait_until(lambda: is_reachable(cluster), what="the server after its crash")
    with closing(session(cluster, name="newcomer")), acting_connection(cluster) as connection:
        [orphan] = block_rows(connection, blocks["orphans"], young=True)
        assert orphan["schema"].startswith("pg_temp_") and orphan["tables"] == 1
        assert True not in owners(connection, blocks).values(), "who has taken the number since is not the owner"
        query(cluster, "alter system set autovacuum = on")
        query(cluster, "select pg_reload_conf()")
        wait_until(
            lambda: not block_rows(connection, blocks["orphans"], young=True), what="autovacuum among tables of nobody"
        )


def is_reachable(cluster: Cluster) -> bool:
    try:
        started = "select count(*) from pg_stat_activity where application_name = 'killed'"
        return query(cluster, started) == "0"
    except ConsoleError:
        return False
