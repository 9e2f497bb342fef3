"""Opening a connection without ever blocking: libpq's asynchronous connect, with a deadline of our own.

libpq's connect_timeout does not hold for an asynchronous connect, and a server that accepts and then says nothing would
keep us for ever. Only the resolution of a host name blocks inside libpq; the lane this runs in bounds that.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from dba_console.core.clock import Clock
from dba_console.core.errors import Refused
from dba_console.core.sanitize import clean
from dba_console.core.target import parse_conninfo
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, connect_failed

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


# The connection string as the monitor uses it: what the operator wrote, and the manners of a monitor added.
#
# What decides who and where is never changed; what belongs to this connection alone (its name, its encoding) always
# is.

APPLICATION = "dba-console"

_ALWAYS = {"application_name": APPLICATION, "client_encoding": "SQL_ASCII"}
_UNLESS_SET = {
    # A peer that vanished is noticed after about 25 s, also while we wait for its answer.
    "keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}  # fmt: skip


def monitor_conninfo(given: Mapping[str, str], **overrides: str) -> str:
    """Keyword/value string for libpq from the options in `given`.

    >>> monitor_conninfo({"host": "db1", "keepalives_idle": "3", "password": "it's"}).split(" keepalives=")[0]
    "host='db1' keepalives_idle='3' password='it\\\\'s' application_name='dba-console' client_encoding='SQL_ASCII'"
    """
    missing = {key: value for key, value in _UNLESS_SET.items() if key not in given}
    merged = {**given, **_ALWAYS, **missing, **overrides}
    return " ".join(f"{key}={_quoted(value)}" for key, value in merged.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# Host names made addresses before libpq sees them.
#
# libpq resolves names while it holds the interpreter: a name server that does not answer would stop every tick of the
# agent for as long as the resolver waits. Here only the lane waits. libpq keeps the name for certificates and
# passfile.

Resolve = Callable[[str], list[str]]


def addresses_of(name: str) -> list[str]:
    """Addresses of a host name in the resolver's order, which is libpq's. Raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve_hosts(given: Mapping[str, str], resolve: Resolve = addresses_of) -> dict[str, str]:
    """The options with an address for each host name, also for one of the environment or of a service.

    Raises ConnectFailed where not one host is left. Of several hosts one that does not resolve is passed over.

    >>> resolve_hosts({"host": "db1,/tmp", "port": "5433", "user": "u"}, lambda name: ["::1", "10.0.0.1"])["hostaddr"]
    '::1,10.0.0.1,'
    """
    places = {**libpq_defaults(given.get("service")), **given}
    host, port = places.get("host", ""), places.get("port", "")
    if places.get("hostaddr") or not any(_is_name(one) for one in host.split(",")):
        return dict(given)
    rows = list(_rows(host.split(","), port.split(","), resolve))
    if not rows:
        raise ConnectFailed("unknown_host", f'could not translate host name "{host}" to an address')
    hosts, addresses, ports = (",".join(column) for column in zip(*rows, strict=True))
    # libpq takes one port for all hosts; with a list there must be as many as hosts.
    return {**given, "host": hosts, "hostaddr": addresses, "port": ports if "," in port else port}


def _rows(hosts: list[str], ports: list[str], resolve: Resolve) -> Iterator[tuple[str, str, str]]:
    """Host, address and port of each way to go; the address of a path or of an address is empty."""
    for host, port in zip(hosts, ports if len(ports) > 1 else repeat(ports[0]), strict=False):
        try:
            found = resolve(host) if _is_name(host) else [""]
        except OSError:
            continue
        yield from ((host, address, port) for address in found)


def _is_name(host: str) -> bool:
    """False for a directory, an abstract socket, an address, and for nothing at all."""
    return bool(host) and host[0] not in "/@" and ":" not in host and not host.replace(".", "").isdigit()


def libpq_defaults(service: str | None) -> dict[str, str]:
    """What libpq takes where the connection string says nothing: environment and service file."""
    from psycopg import pq

    before = os.environ.get("PGSERVICE")
    try:
        if service:
            # Services are known by this variable alone; libpq has no other way to ask for one without connecting.
            os.environ["PGSERVICE"] = service
        options = pq.Conninfo.get_defaults()
    finally:
        if service:
            _restore("PGSERVICE", before)
    return {option.keyword.decode(): option.val.decode() for option in options if option.val}


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


# How the monitor connection behaves: deadlines and limits, with their reasons.


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """Times in seconds. The first three come from the configuration's `[agent]`."""

    statement_timeout_s: float = 2.0
    """The server ends a query of ours after this."""
    lock_timeout_s: float = 0.1
    """The server ends our wait for a lock after this; the fast queries wait for none."""
    connect_timeout_s: float = 3.0
    answer_timeout_s: float = 2.5
    """One `read` waits for answers no longer than this, whatever the server does. What is still due then is awaited by
    the next `read`: the connection, and with it the slot, is kept."""
    max_silence_s: float = 30.0
    """A server that owes an answer for longer than this is given up and the connection closed. Long, because each new
    connection to a server that hangs takes one more slot from it."""
    expensive_s: float = 0.5
    """A query that took longer than this is asked more rarely, so that it costs a tenth of the time at most, or a
    third where it is asked each second."""
    retry_refused_s: float = 300.0
    """A query refused for a privilege or an object that is not there is asked again after this: each refusal is a line
    in the server's log."""
    host_panels: bool | None = None
    """True: the server runs on this host although it cannot be proven; False: it does not; None: find out."""
    query_texts: str = "full"
    """full (with secrets masked), normalised (no literals, numbers and comments), none: the configuration's
    `agent.query_texts`."""


def refuse_host_override(name: str, dsn: str) -> None:
    """Raise Refused where PGHOSTADDR or a service would take the place of the host that the dsn of a node names.

    libpq connects to hostaddr, and takes it from there where the dsn has none: all nodes would be one server.
    """
    options = parse_conninfo(dsn)
    if "host" not in options or options.keys() & {"hostaddr", "service"}:
        return
    if other_address := libpq_defaults(None).get("hostaddr"):
        raise Refused(
            f"the environment (PGHOSTADDR, or a service) leads to {clean(other_address)} instead of the host of {name}",
            hint="unset it, and end an agent that was started with it",
        )
