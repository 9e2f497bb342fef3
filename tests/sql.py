"""SQL on a test's cluster over a connection of this process: a `psql` process takes ten times as long."""

from __future__ import annotations

import psycopg
from psycopg.pq import ExecStatus

from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from tests.background import session, wait_until

_GOOD = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)
LIMIT_S = 120.0
"""Timeout for what must happen, on a busy machine."""


def query(cluster: Cluster, sql: str, *, user: str = "postgres", dbname: str = "postgres") -> str:
    """Return what `cluster.psql` returns, for the last statement. The connection is closed again.

    Raises ConsoleError with the server's message.
    """
    try:
        connection = session(cluster, user=user, dbname=dbname, name="test-query")
    except psycopg.Error as error:
        raise ConsoleError(str(error)) from error
    with connection:
        return _result(connection, sql)


def wait_for(cluster: Cluster, sql: str, limit_s: float = LIMIT_S, *, what: str = "") -> str:
    """Run a query every 20 ms until it returns something other than nothing or false; return that."""
    with session(cluster, name="test-query") as connection:

        def found() -> str:
            result = _result(connection, sql)
            return "" if result == "f" else result

        return wait_until(found, limit_s, what=what or sql)


def _result(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> str:
    result = connection.pgconn.exec_(sql.encode())
    if result.status not in _GOOD:
        raise ConsoleError(result.error_message.decode(errors="replace").strip())
    rows = ((result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples))
    return "\n".join("|".join((value or b"").decode(errors="replace") for value in row) for row in rows)
