"""Queries by the simple protocol, with text results: all that a pooler's admin console supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dba_console.core.clock import Clock
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.watch.probes.postgres.binary_results import decode
from dba_console.watch.probes.postgres.connect import AnswerSize, message_of, wait_for
from dba_console.watch.probes.postgres.connect_errors import ConnectionLost, plain_message

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult


MOST_BYTES = 16 << 20
"""Maximum size of one answer; a pooler with thousands of clients returns a tenth of it."""
_ROW_BYTES = 500
"""Approximate overhead of a row besides its values."""


def simple_query(connection: PGconn, command: bytes, timeout_s: float, clock: Clock) -> list[dict[str, str]]:
    """Return rows as column -> text, without NULLs; empty if the command failed. Raises ConnectionLost."""
    send_command(connection, command)
    answer = receive_answer(connection, timeout_s, clock)
    if answer is None:
        raise ConnectionLost(f"no answer within {timeout_s:g} s")
    return answer.rows


def last_value(connection: PGconn, command: bytes, timeout_s: float, clock: Clock) -> bytes:
    """Return the single value of the last statement of the command.

    Raises ConsoleError with the server's message if a statement fails, ConnectionLost as `simple_query`.
    """
    from psycopg.pq import ConnStatus

    send_command(connection, command)
    answer = receive_answer(connection, timeout_s, clock)
    if answer is None:
        raise ConnectionLost(f"no answer within {timeout_s:g} s")
    if answer.error and connection.status == ConnStatus.BAD:
        raise ConnectionLost(plain_message(answer.error))
    if answer.error:
        raise ConsoleError(redact(plain_message(answer.error)))
    if not answer.rows or not answer.rows[-1]:
        raise ConsoleError("the server returned no value")
    return next(iter(answer.rows[-1].values())).encode()


@dataclass(frozen=True, slots=True)
class SimpleResult:
    """The result of one command."""

    rows: list[dict[str, str]]
    error: str
    """The server's message if the command failed, else empty."""


def send_command(connection: PGconn, command: bytes) -> None:
    """Send one command without waiting for its answer. Raises ConnectionLost."""
    try:
        connection.send_query(command)
        connection.set_single_row_mode()  # else libpq buffers the whole answer before the first row
    except Exception:
        raise ConnectionLost(message_of(connection)) from None


def receive_answer(connection: PGconn, timeout_s: float, clock: Clock) -> SimpleResult | None:
    """Return the answer to the command that was sent, None if it did not arrive within `timeout_s`: call again. Raises
    ConnectionLost, also if the answer exceeds MOST_BYTES."""
    from psycopg.pq import ExecStatus

    deadline = clock.mono_us() + int(timeout_s * 1e6)
    rows: list[dict[str, str]] = []
    error, size, arriving = "", 0, AnswerSize()
    try:
        while True:
            while connection.is_busy():
                if not wait_for(connection.socket, writing=False, until_us=deadline, clock=clock):
                    return None
                arriving.arrived(connection.socket)
                connection.consume_input()
                arriving.taken(connection.socket)
            while connection.notifies() is not None:
                pass
            arriving.complete()
            result = connection.get_result()
            if result is None:
                return SimpleResult(rows, error)
            if result.status == ExecStatus.FATAL_ERROR:
                error = decode(result.error_message).strip()
            for row in _rows(result):
                size += sum(map(len, row.values())) + _ROW_BYTES
                rows.append(row)
            if size > MOST_BYTES:
                raise ConnectionLost(f"its answer is longer than {MOST_BYTES >> 20} MB")
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
