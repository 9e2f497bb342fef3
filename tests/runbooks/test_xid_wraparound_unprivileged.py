"""`xid-wraparound` and `idle-in-transaction` on PostgreSQL 18, walked by a role that is no superuser.

`pg_resetwal` is not at hand for 18: so autovacuum is forced at the lowest age there is, and comes once a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from dba_console.demo.temporary_server import Cluster, Settings
from tests.background import Session, session, wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import AS_ASKED, WatchedServer, watched_server
from tests.sql import query

XIDS, IDLE = "xid-wraparound", "idle-in-transaction"
VACUUM, TEMPORARY, END = "vacuum-the-oldest-tables", "temporary-tables-of-other-sessions", "end-them"
KEEPER = 'shift "1"'
SHOP = "the Shop"
SETTINGS: Settings = {
    "autovacuum_freeze_max_age": 100_000, "autovacuum_naptime": "1d", "synchronous_commit": "off",
    "max_prepared_transactions": 4,
}  # fmt: skip
USE_UP = "do $$ begin for i in 1..130000 loop perform txid_current(); commit; end loop; end $$"
"""A quarter beyond the age at which autovacuum is forced, and a little more."""
OLDEST = "select max(age(datfrozenxid)) from pg_database"


@pytest.fixture(scope="module")
def old_cluster() -> Iterator[Cluster]:
    """A cluster whose ids are old, with a table in a partition of another tablespace that only its owner may vacuum."""
    with Cluster(binaries_of(18), settings=SETTINGS, durable=False) as cluster:
        quoted = KEEPER.replace('"', '""')
        query(cluster, f'create role "{quoted}" login in role pg_maintain, pg_signal_backend, pg_read_all_stats')
        for name in ("statement_timeout", "lock_timeout", "transaction_timeout"):
            query(cluster, f"alter role \"{quoted}\" set {name} = '2s'")
        query(cluster, "create role app login")
        query(cluster, f'create database "{SHOP}"')
        query(cluster, "alter database template0 allow_connections true")
        place = cluster.data_directory.parent / "elsewhere"
        place.mkdir()
        cluster.account.chown(place)
        query(cluster, f"create tablespace elsewhere location '{place}'")
        query(cluster, 'create table public."by Day" (d int) partition by range (d)', dbname=SHOP)
        query(
            cluster,
            'create table public."1 Day" partition of public."by Day" for values from (0) to (9) tablespace elsewhere',
            dbname=SHOP,
        )
        query(cluster, "grant create, temporary on database postgres to app")
        yield cluster


@pytest.fixture(scope="module")
def watched(old_cluster: Cluster) -> Iterator[WatchedServer]:
    with watched_server(old_cluster.dsn(user=KEEPER)) as made:
        yield made


def test_a_maintenance_role_vacuums_the_oldest_tables_and_ends_sessions_only_they_can_fix(
    old_cluster: Cluster, watched: WatchedServer
) -> None:
    with ExitStack() as stack:

        def app(name: str) -> Session:
            return stack.enter_context(closing(session(old_cluster, user="app", dbname=SHOP, name=name)))

        cart, young = app("cart"), app("young")
        cart.execute("create temporary table cart (n int)")
        cart.execute("insert into cart values (1)")
        query(old_cluster, USE_UP)
        young.execute("create temporary table cart (n int)")
        assert int(query(old_cluster, OLDEST)) > 125_000
        walk = watched.run_headless(
            XIDS, f"{TEMPORARY}=1", f"{VACUUM}/action=yes", f"{VACUUM}/repeat=on", "prevent-a-recurrence=a ticket"
        )
        assert walk.code == 0, walk.text
        assert walk.done() == [TEMPORARY, VACUUM]
        vacuumed = walk.records("block.intent", VACUUM)[0].fields["action_preview"]
        assert f'VACUUM (TRUNCATE off) "public"."1 Day" in database {SHOP}' in vacuumed["exact"]
        assert {row["database"] for row in vacuumed["rows"]} == {"template0", "template1", "postgres", SHOP}
        assert int(query(old_cluster, OLDEST)) < 100_000
        assert young.execute("select count(*) from cart").fetchone() == (0,)
        assert (
            cart.closed
            or query(old_cluster, "select count(*) from pg_stat_activity where application_name = 'cart'") == "0"
        )
    again = watched.run_headless(XIDS, f"{VACUUM}/action=yes")
    assert again.code == 7 and again.unmet() == ["how-bad-is-it/check-2"], again.text


def test_the_leader_of_a_dump_is_not_terminated_with_idle_transactions(
    old_cluster: Cluster, watched: WatchedServer
) -> None:
    with ExitStack() as stack:
        idle = {
            name: stack.enter_context(closing(session(old_cluster, user="app", name=name)))
            for name in ("editor", "pg_dump")
        }
        for one in idle.values():
            one.execute("begin")
            one.execute("select txid_current()")
        since = "state_change < clock_timestamp() - interval '1.1 s'"
        left = f"select count(*) from pg_stat_activity where state = 'idle in transaction' and {since}"
        wait_until(lambda: query(old_cluster, left) == "2", what="two idle transactions")
        walk = watched.run_interactively(
            IDLE,
            {"start": "yes", "ask-its-owner/manual": "nobody", "ask-its-owner/choose": "end", f"{END}/action": AS_ASKED,
             "manual": "a ticket"},
            age="1s",
        )  # fmt: skip
        assert walk.code == 0, walk.text
        shown = walk.records("block.seen", END)[0].fields["rows"]
        assert {row["application_name"]: row["proposed"] for row in shown} == {"editor": True, "pg_dump": False}
        assert idle["pg_dump"].execute("select 1").fetchone() == (1,)
        assert query(old_cluster, "select count(*) from pg_stat_activity where application_name = 'editor'") == "0"
        alone = watched.run_headless(IDLE, "ask-its-owner=nobody", "ask-its-owner=end", f"{END}=1", age="1s")
        assert alone.code == 7 and alone.done() == [], "a dump at work is nothing left open"
