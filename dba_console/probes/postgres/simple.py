"""One query by the simple protocol, as text: all that a pooler's admin console understands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dba_console.clock import Clock
from dba_console.probes.postgres.connecting import message_of, wait_for
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.failures import ConnectionLost

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult


def simple_query(connection: PGconn, command: bytes, timeout_s: float, clock: Clock) -> list[dict[str, str]]:
    """Rows as column -> text, NULLs left out; none where the command failed. Raises ConnectionLost, also when late."""
    deadline = clock.mono_us() + int(timeout_s * 1e6)
    rows: list[dict[str, str]] = []
    try:
        connection.send_query(command)
        while True:
            while connection.is_busy():
                if not wait_for(connection.socket, writing=False, until_us=deadline, clock=clock):
                    raise ConnectionLost(f"no answer within {timeout_s:g} s")
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                return rows
            rows.extend(_rows(result))
    except ConnectionLost:
        raise
    except Exception:
        raise ConnectionLost(message_of(connection)) from None


def _rows(result: PGresult) -> list[dict[str, str]]:
    columns = [decode(result.fname(index) or b"") for index in range(result.nfields)]
    return [
        {
            name: decode(value)
            for column, name in enumerate(columns)
            if (value := result.get_value(row, column)) is not None
        }
        for row in range(result.ntuples)
    ]
