"""A cluster a few million transaction ids before the stop: named at once, and walked by `xid-wraparound`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar

import pytest

from dba_console.core.errors import Unsupported
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.wraparound import LEFT, SLOT, STOP_BEFORE_WRAP, WRAP_AGE, Wraparound
from dba_console.demo.temporary_server import Cluster, Settings, make_standby
from tests.background import Session, session
from tests.requirements import lacking
from tests.runbooks.runs import AS_ASKED, WatchedServer, assert_detected, incident, open_rules, watched_server
from tests.sql import query

RUNBOOK = "xid-wraparound"
LEAST_AGE = WRAP_AGE - STOP_BEFORE_WRAP - LEFT - 100_000
"""Up to the slot's own horizon VACUUM does freeze: a few hundred ids less than where the cluster was put."""
OLD = "5000"
"""More ids than the load takes while this is walked, fewer than are used up between what is old and what is young."""
SMALL = LoadPlan(clients=1, rate_per_s=5, idle=2, forgotten=False, scale=1)
SHOP = "the Shop"
"""A database beside the one that is watched, with a name that needs quotes."""
VACUUM = "vacuum-the-oldest-tables"
HOLDERS = """
select string_agg(name, ' ' order by name) from (
  select gid as name from pg_prepared_xacts union all select slot_name from pg_replication_slots
  union all select application_name from pg_stat_activity
   where application_name in ('old', 'reader', 'young', 'cart')) as names
"""
AGE = "select max(age(datfrozenxid)) from pg_database"
SET_OLDEST_AGE = "update pg_class set relfrozenxid = datfrozenxid from pg_database where datname = current_database()"
USE_UP = "do $$ begin for i in 1..7000 loop perform txid_current(); commit; end loop; end $$"


class PreparedWraparound(Wraparound):
    """The incident on a server that knows prepared transactions, looks after its databases often, and logs little."""

    settings: ClassVar[Settings] = {
        **Wraparound.settings, "max_prepared_transactions": 4, "autovacuum_naptime": "1s", "log_min_messages": "error",
        "synchronous_commit": "off",
    }  # fmt: skip


def prepare_transaction(cluster: Cluster, gid: str) -> None:
    cluster.psql(f"begin; create table \"{gid}\" (); prepare transaction '{gid}'", dbname=DATABASE)


def create_old_tables(cluster: Cluster) -> Session:
    """A table of another database that is as old as that is, and a temporary one, of the session that is returned."""
    query(cluster, f'create database "{SHOP}"')
    cart = session(cluster, dbname=SHOP, name="cart")
    cart.execute('create table public."by Day" (d int) partition by range (d)')
    cart.execute('create table public."1 Day" partition of public."by Day" for values from (0) to (9)')
    cart.execute("create temporary table cart (note text)")
    cart.execute(f"{SET_OLDEST_AGE} and relname in ('1 Day', 'cart')".encode())
    # Before 16 the number of a session shows while it is in a transaction.
    cart.execute("begin")
    cart.execute("select 1")
    return cart


@pytest.fixture
def watched() -> Iterator[WatchedServer]:
    try:
        with incident(PreparedWraparound(), SMALL) as made:
            yield made
    except Unsupported as error:
        lacking(error.message)


def assert_detected_in_first_samples(watched: WatchedServer) -> None:
    assert_detected(watched.cause_and_judge())
    frame = watched.frame(lambda frame: frame.safety.xid_age, "the age")
    assert LEAST_AGE < (frame.safety.xid_age or 0) < WRAP_AGE - STOP_BEFORE_WRAP
    assert {row.database for row in frame.safety.databases} >= {"template0", DATABASE}
    assert frame.safety.horizon[0].who == SLOT
    watched.sql("vacuum")
    age = watched.cluster.psql(f"select age(datfrozenxid) from pg_database where datname = '{DATABASE}'")
    assert int(age) > LEAST_AGE, "VACUUM works in vain as long as the slot holds the catalogs back"


def test_the_table_is_named_old_horizon_holders_end_before_the_vacuum_and_young_ones_stay(
    watched: WatchedServer,
) -> None:
    cluster = watched.cluster
    assert_detected_in_first_samples(watched)
    with (
        closing(session(cluster, dbname=DATABASE, name="old")) as old,
        closing(session(cluster, dbname=DATABASE, name="reader")) as reader,
        closing(session(cluster, dbname=DATABASE, name="young")) as young,
        closing(create_old_tables(cluster)),
        closing(session(cluster, dbname=SHOP, name="keeps autovacuum out")) as keeper,
    ):
        keeper.execute("begin")
        keeper.execute('lock table public."1 Day" in share update exclusive mode')
        reader.execute("begin isolation level repeatable read")
        reader.execute("select 1")
        old.execute("begin")
        old.execute("select txid_current()")
        prepare_transaction(cluster, "old prepared")
        cluster.psql(USE_UP)
        young.execute("begin")
        young.execute("select txid_current()")
        prepare_transaction(cluster, "young prepared")
        cluster.psql("select pg_create_physical_replication_slot('young_slot')")
        watched.wait_until_raised(RUNBOOK)

        everything = cluster.psql(HOLDERS)
        declined = watched.run_interactively(
            RUNBOOK,
            {"start": "yes", "type": "no", "inactive-slots": "none", "manual": "nobody answers",
             "prepared-transactions/action": "none", "prepared-transactions/action-2": "none",
             "failed": iter(["skip it may be wanted", "abort"]).__next__, "undo": "none"},
            old=OLD,
        )  # fmt: skip
        assert declined.code == 7, declined.text
        red = declined.records("block.seen", "is-the-horizon-free")[-1].text
        assert all(held in red for held in (f"slot {SLOT}", "prepared old prepared", f"session {old.info.backend_pid}"))
        assert "young" not in red
        assert cluster.psql(HOLDERS) == everything
        assert int(cluster.psql(AGE)) > WRAP_AGE // 2

        def end_holders() -> str:
            keeper.rollback()
            return AS_ASKED

        walk = watched.run_interactively(
            RUNBOOK,
            # Before 17 no server says for how long a slot was not read: who walks this has to choose it.
            {"start": "yes", "type": AS_ASKED, "inactive-slots": iter(["/x 1", AS_ASKED]).__next__,
             "prepared-transactions/action": "none",
             "prepared-transactions/action-2": iter(["/x 1", AS_ASKED]).__next__,
             f"{VACUUM}/action": end_holders, f"{VACUUM}/repeat": "again",
             "manual": "the subscriber was switched off in May, ticket 4711"},
            old=OLD, forgotten="0s",
        )  # fmt: skip
        assert walk.code == 0, walk.text
        assert list(dict.fromkeys(walk.done())) == [
            "prepared-transactions", "transactions-left-open", "snapshots-left-open", "inactive-slots",
            "temporary-tables-of-other-sessions", VACUUM,
        ]  # fmt: skip
        vacuumed = walk.records("block.intent", VACUUM)[0].fields["action_preview"]["exact"]
        assert f'VACUUM (INDEX_CLEANUP off, TRUNCATE off) "public"."1 Day" in database {SHOP}' in vacuumed
        assert cluster.psql(HOLDERS) == "young young prepared young_slot"
        assert int(cluster.psql(AGE)) < WRAP_AGE // 2
        assert "xid-wraparound" not in open_rules(watched.frame(lambda frame: frame.judged, "a frame"))
        young.execute("commit")
    cluster.psql("rollback prepared 'young prepared'", dbname=DATABASE)
    watched.sql(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
    watched.end()
    assert cluster.psql(HOLDERS) == "young_slot", "the end of the incident drops its slot too"


def test_a_cluster_with_enough_ids_is_left_alone(cluster: Cluster) -> None:
    with watched_server(cluster.dsn()) as watched:
        walk = watched.run_headless(RUNBOOK, f"{VACUUM}=yes")
        assert walk.code == 7, walk.text
        assert walk.unmet() == ["how-bad-is-it/check-2"] and walk.done() == []


def test_on_a_standby_nothing_is_attempted(cluster: Cluster) -> None:
    with make_standby(cluster) as standby, watched_server(standby.dsn()) as watched:
        walk = watched.run_headless(RUNBOOK, f"{VACUUM}=yes")
        assert walk.code == 7, walk.text
        assert "how-bad-is-it/check" in walk.unmet() and walk.done() == []
