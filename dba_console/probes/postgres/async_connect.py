"""Opening a connection without ever blocking: libpq's asynchronous connect, with a deadline of our own.

libpq's connect_timeout does not hold for an asynchronous connect, and a server that accepts and then says nothing would
keep us for ever. Only the resolution of a host name blocks inside libpq; the lane this runs in bounds that.
"""

from __future__ import annotations

import ctypes
import importlib
import select
from typing import TYPE_CHECKING

from dba_console.clock import Clock
from dba_console.probes.postgres.connect_errors import ConnectFailed, connect_failed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_VERBOSE = 2
"""PQERRORS_VERBOSE of libpq-fe.h."""


def open_connection(conninfo: str, timeout_s: float, clock: Clock) -> PGconn:
    """A connection that has passed authentication. Raises ConnectFailed; nothing is left open then."""
    from psycopg import pq

    deadline = clock.mono_us() + int(timeout_s * 1e6)
    try:
        connection = pq.PGconn.connect_start(conninfo.encode())
    except Exception as error:
        # Out of memory, or a connection string libpq cannot read.
        raise ConnectFailed("other", f"cannot connect: {error}") from None
    try:
        _set_verbose_errors(connection)
        _poll_until_open(connection, deadline, timeout_s, clock)
    except BaseException:
        connection.finish()
        raise
    return connection


def _poll_until_open(connection: PGconn, deadline: int, timeout_s: float, clock: Clock) -> None:
    from psycopg.pq import PollingStatus

    if _failed(connection):
        raise connect_failed(message_of(connection))
    status: int = PollingStatus.WRITING
    while status != PollingStatus.OK:
        if not wait_for(connection.socket, writing=status == PollingStatus.WRITING, until_us=deadline, clock=clock):
            raise ConnectFailed("timeout", f"no connection within {timeout_s:g} s: the server does not answer")
        status = connection.connect_poll()
        if status == PollingStatus.FAILED:
            raise connect_failed(message_of(connection))


def _failed(connection: PGconn) -> bool:
    from psycopg.pq import ConnStatus

    return connection.status == ConnStatus.BAD


def message_of(connection: PGconn) -> str:
    """libpq's last message, whatever bytes are in it."""
    return connection.error_message.decode("utf-8", "backslashreplace").strip()


def wait_for(descriptor: int, *, writing: bool, until_us: int, clock: Clock, reading: bool = True) -> bool:
    """True when the socket can be used, False at the deadline. poll(2), since descriptors may go beyond 1024."""
    poller = select.poll()
    poller.register(descriptor, (select.POLLOUT if writing else 0) | (select.POLLIN if reading else 0))
    remaining_us = until_us - clock.mono_us()
    return remaining_us > 0 and bool(poller.poll(max(1, remaining_us // 1000)))


def _set_verbose_errors(connection: PGconn) -> None:
    """Have libpq put the SQLSTATE into its messages; psycopg has no name for it, so the loaded library is asked."""
    from psycopg import pq

    module = {"binary": "psycopg_binary.pq", "c": "psycopg_c.pq"}.get(pq.__impl__)
    if module is None:
        return
    try:
        # A handle of the extension module also finds the symbols of the libpq it was linked with.
        library = ctypes.CDLL(importlib.import_module(module).__file__)
        library.PQsetErrorVerbosity.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.PQsetErrorVerbosity(getattr(connection, "pgconn_ptr", None), _VERBOSE)
    except (OSError, AttributeError, ImportError):
        # Without it the kind of a refusal is `other`; the message is the same.
        return
