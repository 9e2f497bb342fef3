"""A refused login is reported with its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.cli.console import Console
from tests.clusters import FreshCluster
from tests.sql import query

LIMIT_S = 120.0


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)


def test_a_refused_user_gets_the_permission_exit_code(reused_cluster: FreshCluster, console: Console) -> None:
    cluster: Cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    query(cluster, "create role locked nologin")
    for dsn in (cluster.dsn(user="nobody_at_all"), cluster.dsn(user="locked"), cluster.dsn(dbname="nowhere")):
        done = console.run("show", "connections", dsn, timeout=LIMIT_S)
        assert done.code in (3, 4) and "error: not connected" in done.err and "BLIND" not in done.out, (dsn, done)
    wrong = f"host=/nowhere port={cluster.port} user=postgres dbname=postgres"
    assert console.run("show", wrong, timeout=LIMIT_S).code == 3
