"""What the catalogs say is wrong: each fault made on a real server of every version, and the sound things beside it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.safety.readings import CatalogFaults, DeadRows
from tests.background import idle_in_transaction, session, wait_until
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import query

DATABASE = 'the "shop"'
QUOTED = '"the ""shop"""'


@pytest.fixture
def shop(server: Cluster) -> Iterator[Cluster]:
    """A database of its own on each version, whose name has to be quoted."""
    query(server, f"create database {QUOTED}")
    try:
        yield server
    finally:
        query(server, f"drop database {QUOTED} with (force)")


def execute(cluster: Cluster, *statements: str) -> None:
    with session(cluster, dbname=DATABASE) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def faults(cluster: Cluster, *, user: str = "postgres") -> CatalogFaults:
    with connected_probe(cluster, dbname=DATABASE, user=user) as probe:
        found = reading(probe, "pg.catalog")
    assert isinstance(found, CatalogFaults)
    return found


def test_a_new_database_has_no_problems(shop: Cluster) -> None:
    with connected_probe(shop, dbname=DATABASE) as probe:
        assert reading(probe, "pg.catalog") == CatalogFaults(DATABASE, [], [], [])
        assert reading(probe, "pg.subscriptions").rows == []
        assert reading(probe, "pg.dead_rows").rows == []


def test_an_index_whose_build_failed_is_listed_and_a_valid_one_is_not(shop: Cluster) -> None:
    execute(shop, 'create table "odd table" as select 1 as "n" from generate_series(1, 2)')
    with pytest.raises(psycopg.errors.UniqueViolation):
        execute(shop, 'create unique index concurrently "odd index" on "odd table" ("n")')
    [row] = faults(shop).indexes or []
    assert (row.name, row.table) == ("public.odd index", "odd table")
    execute(shop, 'drop index "odd index"')
    with session(shop, dbname=DATABASE) as holder, session(shop, dbname=DATABASE) as builder:
        holder.execute('begin; insert into "odd table" values (3)')
        # It gives up its wait for the transaction when asked; until then its index is there, and invalid.
        builder.execute("set lock_timeout = '2s'")
        builder.pgconn.send_query(b'create index concurrently growing on "odd table" ("n")')
        invalid = "select 1 from pg_index where not indisvalid"
        wait_until(lambda: query(shop, invalid, dbname=DATABASE), what="the index begun")
        assert faults(shop).indexes == [], "somebody builds it"
        holder.execute("rollback")
        while builder.pgconn.get_result() is not None:
            continue


def test_a_partitioned_index_that_waits_for_its_partitions_is_not_a_problem(shop: Cluster) -> None:
    execute(
        shop,
        "create table parted (n int) partition by range (n)",
        "create table part partition of parted for values from (0) to (9)",
        "create index parted_n on only parted (n)",
    )
    assert query(shop, "select 1 from pg_index where not indisvalid", dbname=DATABASE) == "1"
    assert faults(shop).indexes == []


def test_sequences_are_measured_by_the_range_of_their_column(shop: Cluster) -> None:
    execute(
        shop,
        'create table "Orders" ("Id" int generated always as identity, small smallserial, big bigserial)',
        "create sequence wide; alter sequence wide owned by none",
        "create table legacy (id int default nextval('wide')); alter sequence wide owned by legacy.id",
        "create sequence round maxvalue 10 cycle",
        "create sequence down increment -1 minvalue -1000",
        "create sequence young maxvalue 1000",
        """select setval('"Orders_Id_seq"', 2000000000), setval('"Orders_small_seq"', 30000),
                  setval('"Orders_big_seq"', 2000000000), setval('wide', 2147483000), setval('round', 10),
                  setval('down', -999), setval('young', 100)""",
    )
    found = {row.name: row for row in faults(shop).sequences or []}
    assert set(found) == {"public.Orders_Id_seq", "public.Orders_small_seq", "public.wide", "public.down"}
    assert found["public.Orders_Id_seq"].column == "Orders.Id"
    assert (found["public.wide"].column, found["public.wide"].stop) == ("legacy.id", 2_147_483_647)
    assert (found["public.Orders_small_seq"].stop, found["public.down"].stop) == (32_767, -1000)


def test_a_sequence_of_a_partitioned_table_is_read(shop: Cluster) -> None:
    execute(
        shop,
        "create table parted (id int generated always as identity, at int) partition by range (at)",
        "create table part partition of parted for values from (0) to (9)",
        "select setval('parted_id_seq', 2000000000)",
    )
    assert [row.column for row in faults(shop).sequences or []] == ["parted.id"]


def test_a_sequence_under_alter_is_skipped_and_not_waited_for(shop: Cluster) -> None:
    execute(shop, "create sequence a maxvalue 10; select setval('a', 10)", "create sequence b maxvalue 10")
    execute(shop, "select setval('b', 10)")
    with session(shop, dbname=DATABASE) as altering:
        altering.execute("begin; alter sequence a maxvalue 20")
        found = faults(shop)
        assert [row.name for row in found.sequences or []] == ["public.b"]
        altering.execute("rollback")
    with idle_in_transaction(shop), connected_probe(shop, dbname=DATABASE) as probe:
        read(probe, "pg.catalog")
        held = "select count(*) from pg_locks where granted and mode = 'RowExclusiveLock' and relation > 16384"
        assert query(shop, held, dbname=DATABASE) == "0", "nothing is held after the statement"


def test_a_role_that_may_not_read_a_sequence_gets_no_report_of_it(shop: Cluster) -> None:
    execute(shop, "create role bare login; grant pg_monitor to bare", "create sequence a maxvalue 10")
    execute(shop, "select setval('a', 10)")
    try:
        assert faults(shop, user="bare") == CatalogFaults(DATABASE, [], [], [])
        execute(shop, "grant select on sequence a to bare")
        assert [row.name for row in faults(shop, user="bare").sequences or []] == ["public.a"]
    finally:
        execute(shop, "drop owned by bare; drop role bare")


def test_a_collation_with_a_changed_sort_order_is_listed_if_something_uses_it(shop: Cluster) -> None:
    execute(shop, "create collation \"Old\" (provider = icu, locale = 'de')")
    execute(shop, "update pg_collation set collversion = '0.1' where collname = 'Old'")
    assert faults(shop).collations == [], "nothing uses it"
    execute(shop, 'create table names (name text collate "Old")')
    [row] = faults(shop).collations or []
    assert (row.database, row.name, row.recorded) == (None, "public.Old", "0.1")


@pytest.mark.pg(15, 16, 17, 18)
def test_a_database_with_a_changed_sort_order_is_listed_from_any_other(server: Cluster) -> None:
    query(server, "create database sorted template template0 encoding 'UTF8' locale_provider icu icu_locale 'und'")
    try:
        query(server, "update pg_database set datcollversion = '0.1' where datname = 'sorted'")
        with connected_probe(server) as probe:
            [row] = reading(probe, "pg.catalog").collations
        assert (row.database, row.name, row.provider, row.recorded) == ("sorted", None, "icu", "0.1")
    finally:
        query(server, "drop database sorted")


def test_dead_rows_are_compared_with_the_autovacuum_threshold(shop: Cluster) -> None:
    execute(
        shop,
        'create table "Worn" with (autovacuum_enabled = off) as select n from generate_series(1, 30000) n',
        "create table meant with (autovacuum_vacuum_threshold = 90000) as select n from generate_series(1, 30000) n",
        "create table sound as select n from generate_series(1, 30000) n",
        "analyze",
        'delete from "Worn"; delete from meant; delete from sound where n < 1000',
    )
    with session(shop, dbname=DATABASE) as connection:
        if shop.major >= 15:
            connection.execute("select pg_stat_force_next_flush()")
    with connected_probe(shop, dbname=DATABASE) as probe:

        def rows() -> list[DeadRows]:
            return list(reading(probe, "pg.dead_rows").rows)

        [row] = wait_until(rows, what="the statistics")  # before 15 the collector counts them, half a second later
    assert (row.name, row.dead, row.trigger, row.enabled) == ("public.Worn", 30_000, 6_050, False)


def test_a_subscription_is_listed_from_any_database_with_its_state(shop: Cluster) -> None:
    execute(
        shop,
        "create subscription \"Shop\" connection 'host=/nowhere' publication p with (connect = false, slot_name = 's')",
    )
    try:
        with connected_probe(shop, user="postgres") as probe:
            [row] = reading(probe, "pg.subscriptions").rows
        assert (row.name, row.database, row.enabled, row.has_slot, row.worker_pid) == (
            "Shop",
            DATABASE,
            False,
            True,
            None,
        )
        assert row.apply_errors == (0 if shop.major >= 15 else None)
        query(shop, "create role bare login")
        with connected_probe(shop, user="bare") as probe:
            assert reading(probe, "pg.subscriptions").rows == [row]
    finally:
        query(shop, "drop role if exists bare")
        execute(shop, 'alter subscription "Shop" set (slot_name = none)', 'drop subscription "Shop"')


def test_a_lock_on_a_table_is_not_waited_for(shop: Cluster) -> None:
    execute(shop, "create table held (id serial)", "select setval('held_id_seq', 2147483000)")
    with (
        session(shop, dbname=DATABASE) as holder,
        connected_probe(shop, dbname=DATABASE) as probe,
    ):
        holder.execute("begin; lock table held in access exclusive mode")
        parts = read(probe, "pg.catalog", "pg.dead_rows")
        assert [part.note for part in parts.values()] == [None, None]
