"""Faults of catalogs, tables and subscriptions: caused on real servers, read as by an agent, and fixed again."""

from __future__ import annotations

import psycopg
import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.safety.autovacuum_rules import AutovacuumLimits
from dba_console.watch.safety.catalog_rules import CatalogLimits
from dba_console.watch.safety.horizon_rules import HorizonLimits
from dba_console.watch.safety.rules import FAMILY
from dba_console.watch.samples.findings import FindingNow
from tests.background import idle_in_transaction, session
from tests.clusters import FreshCluster
from tests.findings.collector import local_agent
from tests.sql import query, wait_for

AT_ONCE = Limits(CatalogLimits(invalid_index_s=0.0), AutovacuumLimits(autovacuum_behind_s=150.0))
CATALOG = ("collation-version", "invalid-index", "sequence-full")


def findings_of(cluster: Cluster) -> list[FindingNow]:
    """What an agent that begins now finds: the catalogs are read once in five minutes."""
    with local_agent(cluster.dsn(), *CATALOG, limits=AT_ONCE, calm_s=2) as agent:
        return agent.rows


@pytest.mark.parametrize("major", [14, 18])
def test_an_invalid_index_is_reported_until_it_is_dropped(major: int, reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(major=major)
    query(cluster, 'create table "Worn Out" as select 1 as n from generate_series(1, 2)')
    with pytest.raises(ConsoleError, match="could not create unique index"):
        query(cluster, 'create unique index concurrently "Only One" on "Worn Out" (n)')
    [found] = findings_of(cluster)
    assert (found.id, found.severity) == ("invalid-index", "warning")
    assert found.text.startswith("No query uses index public.Only One of table Worn Out in database postgres")
    query(cluster, 'drop index "Only One"')
    assert findings_of(cluster) == []


def test_a_sequence_near_its_end_is_reported_until_its_column_is_widened(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "create table young (id serial); select nextval('young_id_seq')")
    query(cluster, "create table orders (id serial); select setval('orders_id_seq', 2060000000)")
    [found] = findings_of(cluster)
    assert (found.id, found.severity) == ("sequence-full:postgres.public.orders_id_seq", "critical")
    assert "87,483,647 are left" in found.text
    query(cluster, "alter table orders alter id type bigint; alter sequence orders_id_seq as bigint")
    assert findings_of(cluster) == []


@pytest.mark.parametrize("major", [15, 18])
def test_a_database_with_another_collation_version_is_reported_until_it_is_refreshed(
    major: int, reused_cluster: FreshCluster
) -> None:
    cluster = reused_cluster(major=major)
    query(cluster, "create database sorted template template0 encoding 'UTF8' locale_provider icu icu_locale 'und'")
    assert findings_of(cluster) == []
    query(cluster, "update pg_database set datcollversion = '2.28' where datname = 'sorted'")
    [found] = findings_of(cluster)
    assert found.text.startswith("Collation of database sorted was created with version 2.28, and icu now has ")
    query(cluster, "alter database sorted refresh collation version")
    assert findings_of(cluster) == []


# -- autovacuum ------------------------------------------------------------------------------------------------------

AUTOVACUUM = ("autovacuum-behind", "autovacuum-off", "horizon-held")
assert set(AUTOVACUUM) <= {rule.name for rule in FAMILY.rules}


def create_dead_rows(cluster: Cluster) -> None:
    """A table whose rows are all dead, and counted as such."""
    with session(cluster) as connection:
        connection.execute("create table orders as select n from generate_series(1, 30000) n")
        connection.execute("analyze orders")
        connection.execute("delete from orders")
    wait_for(cluster, "select n_dead_tup >= 30000 from pg_stat_user_tables", what="the statistics")


def test_a_table_autovacuum_never_reaches_is_reported_until_it_was_vacuumed(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"autovacuum_naptime": "1d"})
    create_dead_rows(cluster)
    with local_agent(cluster.dsn(), *AUTOVACUUM, limits=AT_ONCE) as agent:
        agent.tick(60)
        assert agent.rows == [], "its turn may come yet"
        found = agent.until("autovacuum-behind", within_s=200)
        assert "not vacuumed since" in found.text
        query(cluster, "vacuum orders")
        agent.tick(70, every_s=2)
        agent.until_gone("autovacuum-behind", within_s=150)


def test_a_table_vacuumed_without_effect_is_reported_with_the_horizon_holder(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"autovacuum_naptime": "1d"})
    few = Limits(AutovacuumLimits(autovacuum_behind_s=150.0), HorizonLimits(horizon_warn_xids=1))
    with idle_in_transaction(cluster, "select txid_current()", name="report") as pid:
        create_dead_rows(cluster)
        with local_agent(cluster.dsn(), *AUTOVACUUM, limits=few) as agent:
            for _ in range(4):
                query(cluster, "vacuum orders")
                agent.tick(60)
            found = agent.until("autovacuum-behind", within_s=60)
    assert found.chain == ["autovacuum-behind", "horizon-held"] or found.id == "horizon-held", found
    assert found.evidence["pid"] == pid and "dead rows are not removed from public.orders" in found.text


# -- subscriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("major", [15, 18])
def test_a_subscription_with_a_conflict_is_reported_until_the_row_is_fixed(
    major: int, reused_cluster: FreshCluster
) -> None:
    publisher, subscriber = reused_cluster({"wal_level": "logical"}, major=major), reused_cluster(major=major)
    for cluster in (publisher, subscriber):
        query(cluster, "create table orders (id int primary key)")
    query(publisher, "create publication all_orders for table orders")
    query(
        subscriber,
        f"create subscription \"Feed\" connection '{publisher.dsn()}' publication all_orders with (slot_name = 'feed')",
    )
    wait_for(subscriber, "select srsubstate = 'r' from pg_subscription_rel", what="the first copy")
    with local_agent(subscriber.dsn(dbname="template1"), "subscription-failing", calm_s=40) as agent:
        assert agent.rows == []
        query(subscriber, "insert into orders values (1)")
        query(publisher, "insert into orders values (1)")
        wait_for(subscriber, "select apply_error_count > 0 from pg_stat_subscription_stats", what="an error")
        found = agent.until("subscription-failing", within_s=60)
        query(subscriber, "delete from orders")
        wait_for(subscriber, "select 1 from orders", what="the row applied")
        wait_for(subscriber, "select pid is not null from pg_stat_subscription", what="the worker")
        agent.until_gone("subscription-failing", within_s=250)
        query(subscriber, 'alter subscription "Feed" disable')
        assert agent.until("subscription-failing", within_s=60).severity == "info"
    assert found.severity == "warning"
    assert found.text.startswith("Subscription Feed in database postgres fails: ")
    with psycopg.connect(subscriber.dsn(), autocommit=True) as connection:
        connection.execute('drop subscription "Feed"')
