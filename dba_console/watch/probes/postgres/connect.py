"""Opens a connection without blocking: libpq's asynchronous connect with its own deadline.

libpq's connect_timeout does not apply to an asynchronous connect, so a server that accepts and then stays silent would
block forever. Only host name resolution blocks inside libpq; the lane this runs in limits it.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import os
import select
import socket
import struct
import termios
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from dba_console.core.clock import Clock
from dba_console.core.errors import Refused
from dba_console.core.sanitize import clean
from dba_console.core.target import conninfo, parse_conninfo
from dba_console.watch.probes.postgres.connect_errors import (
    WEAK_METHOD,
    ConnectFailed,
    ConnectionLost,
    connect_failed,
)
from dba_console.watch.probes.postgres.server_trust import check_peer, remember, requirements

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

T = TypeVar("T")

_VERBOSE = 2
"""PQERRORS_VERBOSE of libpq-fe.h."""


def open_connection(given: Mapping[str, str], timeout_s: float, clock: Clock, **overrides: str) -> PGconn:
    """Return an authenticated connection, opened with the options in `given` and ours: every connection of this program
    is opened here. The caller sets search_path before anything else. Raises ConnectFailed; nothing is left open then.
    """
    deadline = clock.mono_us() + int(timeout_s * 1e6)
    resolved, defaults = resolve_hosts(given), libpq_defaults(given.get("service"))
    refused: ConnectFailed | None = None
    for method, required in requirements(given, defaults):
        try:
            connection = _open({**resolved, **required}, overrides, {**defaults, **given}, deadline, timeout_s, clock)
        except ConnectFailed as error:
            if error.kind == "ssl" and "sslmode" in required:
                error.hint = "the last connection used TLS: restart the agent if the server has none any more"
            if WEAK_METHOD not in error.message:
                raise
            refused = error
        else:
            remember(given, connection, method)
            return connection
    assert refused is not None
    raise refused


LOST = "08006"
"""connection_failure: closed at once, without a message that arrived."""
_TIMEOUTS = {
    "57P05": "idle_session_timeout", "25P03": "idle_in_transaction_session_timeout", "25P04": "transaction_timeout",
    "57014": "statement_timeout", LOST: "idle_session_timeout",
}  # fmt: skip
"""SQLSTATE -> the parameter that ends a session, or its first query (errcodes-appendix)."""
_disabled: dict[str, tuple[str, ...]] = {}
"""Connection string -> the timeouts that a database or a role sets too short to be changed by a first statement."""


def without_timeouts(given: Mapping[str, str], open_: Callable[[Mapping[str, str]], T]) -> T:
    """Return what `open_` returns for the options of a connection. If a timeout of the database or the role ends it
    before its settings are made, it is opened again with that timeout off from the start.

    Not always from the start: a pooler refuses such options, and an older server the names that it does not know.
    """
    key = conninfo(given)
    off, first = list(_disabled.get(key, ())), None
    while True:
        chosen = {**libpq_defaults(given.get("service")), **given}.get("options", "")
        ours = {"options": " ".join([*filter(None, [chosen]), *(f"-c {name}=0" for name in off)])} if off else {}
        try:
            opened = open_({**given, **ours})
        except ConnectFailed as error:
            timeout, first = _TIMEOUTS.get(error.sqlstate or ""), first or error
            if timeout is None or timeout in off:
                raise first from None
            off.append(timeout)
        else:
            if off:
                _disabled[key] = tuple(off)
            return opened


def _open(
    options: Mapping[str, str],
    overrides: Mapping[str, str],
    trusted: Mapping[str, str],
    deadline: int,
    timeout_s: float,
    clock: Clock,
) -> PGconn:
    from psycopg import pq

    try:
        connection = pq.PGconn.connect_start(monitor_conninfo(options, **overrides).encode())
    except Exception as error:
        # Out of memory, or a connection string libpq cannot read.
        raise ConnectFailed("other", f"cannot connect: {error}") from None
    try:
        _set_verbose_errors(connection)
        if _failed(connection):
            raise connect_failed(message_of(connection))
        for _ in _poll_until_open(connection, deadline, timeout_s, clock):
            if "requirepeer" not in trusted:
                check_peer(trusted, connection.socket)
    except BaseException:
        connection.finish()
        raise
    return connection


def _poll_until_open(connection: PGconn, deadline: int, timeout_s: float, clock: Clock) -> Iterator[None]:
    """Drive libpq until the connection is open; yield before each step. Raises ConnectFailed."""
    from psycopg.pq import PollingStatus

    status: int = PollingStatus.WRITING
    received = 0
    while status != PollingStatus.OK:
        if not wait_for(connection.socket, writing=status == PollingStatus.WRITING, until_us=deadline, clock=clock):
            raise ConnectFailed("timeout", f"no connection within {timeout_s:g} s: the server does not answer")
        received += pending_bytes(connection.socket)
        if received > _MOST_BEFORE_READY:
            raise ConnectFailed("other", f"the server sent more than {_MOST_BEFORE_READY >> 20} MB before it was ready")
        yield
        status = connection.connect_poll()
        if status == PollingStatus.FAILED:
            raise connect_failed(message_of(connection))


_MOST_BEFORE_READY = 4 << 20
"""A login takes some kilobytes, also with certificates."""
MOST_UNFINISHED = 64 << 20
"""Bytes of one answer: ten thousand sessions with the longest statement that is read have less."""


class AnswerSize:
    """Counts what a server sends before its answer is complete, because libpq keeps all of it."""

    def __init__(self) -> None:
        self._unfinished = self._left = 0
        self._total: int | None = None

    def arrived(self, descriptor: int) -> int:
        """Return the number of new bytes, before they are read. Raises ConnectionLost if the answer has too many."""
        total, waiting = _bytes_received(descriptor), pending_bytes(descriptor)
        if total is not None:
            new = counted = waiting if self._total is None else total - self._total
        else:
            # A unix socket counts nothing. What is read at once is unknown, but libpq reads at least 8 kB of it.
            new = max(0, waiting - self._left)
            counted = max(new, min(waiting, 8192))
        self._total = total
        self._unfinished += counted
        if self._unfinished > MOST_UNFINISHED:
            raise ConnectionLost(f"closed: the server sent more than {MOST_UNFINISHED >> 20} MB in one answer")
        return new

    def taken(self, descriptor: int) -> None:
        """Note what was left in the socket."""
        self._left = pending_bytes(descriptor)

    def complete(self) -> None:
        """Start again: an answer is complete."""
        self._unfinished = 0


def _bytes_received(descriptor: int) -> int | None:
    """Return what a TCP connection has received in total (tcpi_bytes_received, Linux 4.1); None for another socket."""
    connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return None
    finally:
        connected.detach()
    return int(_TCP_INFO.unpack(info)[0]) if len(info) == _TCP_INFO.size else None


_TCP_INFO = struct.Struct("=128xQ")


def pending_bytes(descriptor: int) -> int:
    """Return the number of bytes that can be read from a socket."""
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))
    return int(count)


def _failed(connection: PGconn) -> bool:
    from psycopg.pq import ConnStatus

    return connection.status == ConnStatus.BAD


def message_of(connection: PGconn) -> str:
    """Return libpq's last message, whatever bytes it contains."""
    return connection.error_message.decode("utf-8", "backslashreplace").strip()


def wait_for(descriptor: int, *, writing: bool, until_us: int, clock: Clock, reading: bool = True) -> bool:
    """Wait until the socket is usable; False at the deadline. Uses poll(2), since descriptors may exceed 1024."""
    poller = select.poll()
    poller.register(descriptor, (select.POLLOUT if writing else 0) | (select.POLLIN if reading else 0))
    remaining_us = until_us - clock.mono_us()
    return remaining_us > 0 and bool(poller.poll(max(1, remaining_us // 1000)))


def _set_verbose_errors(connection: PGconn) -> None:
    """Make libpq include the SQLSTATE in its messages; psycopg has no call for it, so the loaded libpq is called."""
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
        # Without it the kind of an error is `other`; the message is the same.
        return


# The connection string of the monitor: what the operator gave, with the monitor's options added. Host and user are
# never changed; application_name and client_encoding always are.

APPLICATION = "dba-console"

_ALWAYS = {"application_name": APPLICATION, "client_encoding": "SQL_ASCII"}
_UNLESS_SET = {
    # A peer that vanished is detected after about 25 s, also while an answer is awaited.
    "keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}  # fmt: skip


def parse_options(conninfo: str) -> dict[str, str]:
    """Parse a connection string as libpq does. Raises ConnectFailed, which does not quote it."""
    from psycopg import pq

    try:
        options = pq.Conninfo.parse(os.fsencode(conninfo))
    except Exception:
        raise ConnectFailed("other", "not a connection string that libpq can read") from None
    return {option.keyword.decode(): os.fsdecode(option.val) for option in options if option.val is not None}


def monitor_conninfo(given: Mapping[str, str], **overrides: str) -> str:
    """Return the keyword/value string for libpq from the options in `given`.

    >>> monitor_conninfo({"host": "db1", "keepalives_idle": "3", "password": "it's"}).split(" keepalives=")[0]
    "host=db1 keepalives_idle=3 password='it\\\\'s' application_name=dba-console client_encoding=SQL_ASCII"
    """
    missing = {key: value for key, value in _UNLESS_SET.items() if key not in given}
    return conninfo({**given, **_ALWAYS, **missing, **overrides})


# Resolves host names before libpq: libpq resolves while it holds the interpreter lock, so a name server that does not
# answer would stop every tick of the agent. Here only the lane waits. libpq keeps the name for certificates and
# passfile.

Resolve = Callable[[str], list[str]]


def addresses_of(name: str) -> list[str]:
    """Return the addresses of a host name in the resolver's order, which is also libpq's. Raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve_hosts(given: Mapping[str, str], resolve: Resolve = addresses_of) -> dict[str, str]:
    """Return the options with an address for each host name, also for a host from the environment or a service.

    With several hosts, one that does not resolve is skipped. Raises ConnectFailed if none is left.

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
    # libpq accepts one port for all hosts; a list must have as many entries as there are hosts.
    return {**given, "host": hosts, "hostaddr": addresses, "port": ports if "," in port else port}


def _rows(hosts: list[str], ports: list[str], resolve: Resolve) -> Iterator[tuple[str, str, str]]:
    """Yield host, address and port of each candidate; the address is empty for a path or an address."""
    for host, port in zip(hosts, ports if len(ports) > 1 else repeat(ports[0]), strict=False):
        try:
            found = resolve(host) if _is_name(host) else [""]
        except OSError:
            continue
        yield from ((host, address, port) for address in found)


def _is_name(host: str) -> bool:
    """Return False for a directory, an abstract socket, an address, and an empty string."""
    return bool(host) and host[0] not in "/@" and ":" not in host and not host.replace(".", "").isdigit()


def libpq_defaults(service: str | None) -> dict[str, str]:
    """Return libpq's defaults for options that the connection string leaves out: environment and service file."""
    from psycopg import pq

    before = os.environ.get("PGSERVICE")
    try:
        if service:
            # libpq reads a service without connecting only through this variable.
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


# Deadlines and limits of the monitor connection.


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """Times in seconds. The first three come from `[agent]` in the configuration."""

    statement_timeout_s: float = 2.0
    """statement_timeout of the monitor's session."""
    lock_timeout_s: float = 0.1
    """lock_timeout of the monitor's session; the fast queries wait for no lock."""
    connect_timeout_s: float = 3.0
    answer_timeout_s: float = 2.5
    """Time one `read` waits for answers. Answers still missing then are awaited by the next `read`, so that the
    connection, and with it the slot, is kept."""
    max_silence_s: float = 30.0
    """A server silent for longer than this with an answer pending is given up and the connection closed. Long, because
    each new connection to a hanging server takes one more of its slots."""
    expensive_s: float = 0.5
    """A query that took longer than this is sent less often, so that it takes at most a tenth of the time, or a third
    if it is sent every second."""
    retry_refused_s: float = 300.0
    """Interval of retrying a query refused for a missing privilege or object: each refusal is a line in the server
    log."""
    host_panels: bool | None = None
    """True: the server runs on this host although it cannot be proven; False: it does not; None: detect it."""
    query_texts: str = "full"
    """`agent.query_texts`: full (secrets masked), normalised (without literals, numbers and comments) or none."""


def refuse_host_override(name: str, dsn: str) -> None:
    """Raise Refused if PGHOSTADDR or a service would replace the host in the dsn of a node.

    libpq connects to hostaddr, and takes it from there if the dsn has none: all nodes would be one server.
    """
    options = parse_conninfo(dsn)
    if "host" not in options or options.keys() & {"hostaddr", "service"}:
        return
    if other_address := libpq_defaults(None).get("hostaddr"):
        raise Refused(
            f"the environment (PGHOSTADDR, or a service) leads to {clean(other_address)} instead of the host of {name}",
            hint="unset it, and end an agent that was started with it",
        )
