"""A look into several databases: their rows together, each with its database, and no connection left to any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.agent.runs.server_connections import RunServer
from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection
from tests.background import wait_until
from tests.sql import query

CURRENT_DATABASE = "select current_database() as here"


@pytest.fixture
def run_server(cluster: Cluster) -> Iterator[RunServer]:
    with acting_connection(cluster) as link:
        yield RunServer(link, link.planned, lambda text, identity, name: False)


def test_rows_of_several_databases_show_the_database_first(run_server: RunServer, cluster: Cluster) -> None:
    found = run_server.query_databases(["template1", "postgres", "template1"], CURRENT_DATABASE, None, timeout_s=10)
    assert found.columns == ("datname", "here") and not found.cut
    assert [tuple(row.values()) for row in found.rows] == [("template1", "template1"), ("postgres", "postgres")]
    left = (
        "select count(*) from pg_stat_activity where datname = 'template1' and application_name ~ '^dba-console:test'"
    )
    wait_until(lambda: query(cluster, left) == "0", what="the end of the connection to template1")


def test_a_database_that_rejects_connections_is_named(run_server: RunServer) -> None:
    with pytest.raises(ConsoleError, match=r"in database template0: .*not currently accepting connections"):
        run_server.query_databases(["postgres", "template0"], CURRENT_DATABASE, None, timeout_s=10)
    with pytest.raises(ConsoleError, match=r"in database template1: .*no_such_column"):
        run_server.query_databases(["template1"], "select no_such_column", None, timeout_s=10)
