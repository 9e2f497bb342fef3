"""One query by the simple protocol, as text: all that a pooler's admin console understands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dba_console.clock import Clock
from dba_console.errors import ConsoleError
from dba_console.probes.postgres.connecting import message_of, wait_for
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.failures import ConnectionLost, plain
from dba_console.redact import redact

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult


def simple_query(connection: PGconn, command: bytes, timeout_s: float, clock: Clock) -> list[dict[str, str]]:
    """Rows as column -> text, NULLs left out; none where the command failed. Raises ConnectionLost, also when late."""
    return [row for result in _results(connection, command, timeout_s, clock) for row in _rows(result)]


def last_value(connection: PGconn, command: bytes, timeout_s: float, clock: Clock) -> bytes:
    """The one value that the last statement of the command gives.

    Raises ConsoleError with the server's message where a statement fails, ConnectionLost as `simple_query`.
    """
    from psycopg.pq import ConnStatus, ExecStatus

    last = None
    for last in _results(connection, command, timeout_s, clock):
        if last.status == ExecStatus.FATAL_ERROR:
            said = plain(last.error_message.decode("utf-8", "backslashreplace"))
            if connection.status == ConnStatus.BAD:
                raise ConnectionLost(said)
            raise ConsoleError(redact(said))
    value = last.get_value(0, 0) if last is not None and last.ntuples == 1 else None
    if value is None:
        raise ConsoleError("the server gave no answer")
    return value


def _results(connection: PGconn, command: bytes, timeout_s: float, clock: Clock) -> list[PGresult]:
    deadline = clock.mono_us() + int(timeout_s * 1e6)
    results: list[PGresult] = []
    try:
        connection.send_query(command)
        while True:
            while connection.is_busy():
                if not wait_for(connection.socket, writing=False, until_us=deadline, clock=clock):
                    raise ConnectionLost(f"no answer within {timeout_s:g} s")
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                return results
            results.append(result)
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
