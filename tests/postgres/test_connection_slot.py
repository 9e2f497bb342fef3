"""Which connection slot the connection took, and the message when none is free."""

from __future__ import annotations

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from tests.background import idle_sessions
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, reading
from tests.sql import query

FEW = {"max_connections": 12, "superuser_reserved_connections": 3, "max_wal_senders": 0}
ROLES = "create role app login; create role reserve login"


def test_with_free_slots_the_connection_slot_is_regular(cluster: Cluster) -> None:
    with connected_probe(cluster) as probe:
        assert reading(probe, "pg.server").seat == "regular"


@pytest.mark.parametrize("major", [14, 18])
def test_an_ordinary_role_is_refused_by_the_server_limit(major: int, reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(FEW, major=major)
    query(cluster, ROLES)
    with idle_sessions(cluster, 9, user="app"):
        with pytest.raises(ConnectFailed) as failure:
            PostgresProbe(cluster.dsn(user="app")).connect()
        assert (failure.value.kind, failure.value.sqlstate, failure.value.limit) == ("no_slots", "53300", "server")
        with connected_probe(cluster) as probe:
            assert reading(probe, "pg.server").seat == "superuser"


@pytest.mark.parametrize("major", [16, 18])
def test_a_member_of_the_reserve_role_uses_its_slots_and_a_superuser_those_beyond(
    major: int, reused_cluster: FreshCluster
) -> None:
    cluster = reused_cluster({**FEW, "reserved_connections": 2}, major=major)
    query(cluster, ROLES)
    query(cluster, "grant pg_use_reserved_connections to reserve")
    with idle_sessions(cluster, 7, user="app"), connected_probe(cluster, user="reserve") as member:
        reserved = reading(member, "pg.server")
        assert (reserved.seat, reserved.reserved_member) == ("reserved_role", True)
        assert "reserve" in {role.name for role in reserved.roles if role.reserved}
        with connected_probe(cluster, user="reserve"), connected_probe(cluster) as superuser:
            assert reading(superuser, "pg.server").seat == "superuser"
        with pytest.raises(ConnectFailed) as failure:
            PostgresProbe(cluster.dsn(user="app")).connect()
        assert failure.value.limit == "server"


def test_limits_of_a_role_and_of_a_database_are_distinguished(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "create role app login connection limit 1; create role other login")
    query(cluster, "create database small connection limit 1")
    with idle_sessions(cluster, 1, user="app"), idle_sessions(cluster, 1, user="other", dbname="small"):
        assert _limit_of(cluster.dsn(user="app")) == "role"
        assert _limit_of(cluster.dsn(user="other", dbname="small")) == "database"


def _limit_of(conninfo: str) -> str | None:
    with pytest.raises(ConnectFailed) as failure:
        PostgresProbe(conninfo).connect()
    assert failure.value.kind == "no_slots"
    return failure.value.limit
