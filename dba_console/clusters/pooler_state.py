"""State of a PgBouncer from its admin console: servers of its databases, waiting clients, paused databases.

Columns of SHOW differ between its versions; a missing one gives None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Struct, structs

from dba_console.core.clock import Clock
from dba_console.core.config import PoolerConfig
from dba_console.core.errors import ConnectError, ConsoleError, PermissionDenied
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.target import address_of, parse_conninfo
from dba_console.watch.probes.postgres.connect import open_connection
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost, plain_message
from dba_console.watch.probes.postgres.simple_query import SimpleResult, receive_answer, send_command, simple_query

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

# Connection to PgBouncer's admin console: commands, rows and errors.

ADMIN = "pgbouncer"
"""Name of the admin database and its pool."""
ANSWER_S = 3.0
"""Timeout of the connection and of each query of the state."""
COMMAND_S = 10.0
"""Timeout of commands that clients depend on: longer, because RESUME must succeed on a busy host."""


def open_admin(config: PoolerConfig, clock: Clock, timeout_s: float = ANSWER_S) -> PGconn:
    """Open a connection to the admin console. Raises ConnectFailed."""
    return open_connection({"dbname": ADMIN, **parse_conninfo(config.dsn)}, timeout_s, clock)


class AdminConsole:
    """One connection to the admin console of a PgBouncer. Not thread-safe; close it, or use it in `with`."""

    def __init__(self, name: str, config: PoolerConfig, clock: Clock) -> None:
        """Raises ConnectError."""
        self._name = name
        self._clock = clock
        try:
            self._connection = open_admin(config, clock, COMMAND_S)
        except ConnectError as error:
            raise ConnectError(f'pooler "{name}": {clean(redact(error.message))}', hint=error.hint) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.finish()

    def execute(self, command: str) -> list[dict[str, str]]:
        """Execute a command; return its rows. Raises ConnectError, PermissionDenied, or ConsoleError of PgBouncer."""
        self.send(command)
        answer = self.read_answer(COMMAND_S)
        if answer is None:
            raise ConnectError(f'pooler "{self._name}": no answer to {clean(command)} within {COMMAND_S:g} s')
        return self.result_rows(command, answer)

    def send(self, command: str) -> None:
        """Send a command that may wait for clients. Raises ConnectError."""
        try:
            send_command(self._connection, command.encode())
        except ConnectionLost as error:
            raise self._lost(error) from None

    def read_answer(self, timeout_s: float) -> SimpleResult | None:
        """Return the answer to the command that was sent; None: not yet. Raises ConnectError."""
        try:
            return receive_answer(self._connection, timeout_s, self._clock)
        except ConnectionLost as error:
            raise self._lost(error) from None

    def result_rows(self, command: str, answer: SimpleResult) -> list[dict[str, str]]:
        """Return the rows of an answer. Raises PermissionDenied, or ConsoleError with PgBouncer's message."""
        if not answer.error:
            return answer.rows
        message = f'pooler "{self._name}" refused {clean(command)}: {clean(redact(plain_message(answer.error)))}'
        if "admin access needed" in answer.error:  # the role is only one of stats_users (PgBouncer: src/admin.c)
            raise PermissionDenied(message, hint="add the role of the pooler's dsn to admin_users in pgbouncer.ini")
        raise ConsoleError(message)

    def _lost(self, error: ConnectionLost) -> ConnectError:
        return ConnectError(f'pooler "{self._name}": connection lost: {clean(error.message)}')


def quote_name(name: str) -> str:
    """Return a name quoted for the admin console, or for a statement or rule that an operator copies.

    >>> quote_name('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


class PooledDatabase(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A database of the pooler, with the sums of its pools."""

    name: str
    host: str | None = None
    port: str | None = None
    database: str | None = None
    mode: str | None = None
    """session, transaction or statement: in session mode a pause waits until clients disconnect."""
    paused: bool | None = None
    disabled: bool | None = None
    clients_active: int = 0
    clients_waiting: int = 0
    servers_active: int = 0
    servers_idle: int = 0
    longest_wait_s: float | None = None


class PoolerState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one pooler. With `error` it did not answer, and nothing else is known."""

    name: str
    error: str = ""
    asked_us: int = 0
    version: str | None = None
    databases: tuple[PooledDatabase, ...] = ()
    admin: bool | None = None
    """Whether the role is one of admin_users, which may PAUSE; None: not checked, or unclear."""
    config: str | None = None
    """Its configuration file, from our configuration."""
    config_error: str = ""
    """Why that file cannot be changed; empty: it can, or was not checked."""
    missing: tuple[str, ...] = ()
    """Databases in our configuration that the pooler does not have."""

    @property
    def reached(self) -> bool:
        return not self.error


def read_pooler(name: str, config: PoolerConfig, clock: Clock, *, detailed: bool = False) -> PoolerState:
    """Read the state of one pooler over its own connection. Never raises.

    `detailed` also reads what only a cutover check needs: whether the role may PAUSE.
    """
    asked_us = clock.wall_us()
    try:
        connection = open_admin(config, clock)
        try:
            version = simple_query(connection, b"SHOW VERSION", ANSWER_S, clock)
            found = read_pools(connection, name, config, clock)
            settings = simple_query(connection, b"SHOW CONFIG", ANSWER_S, clock) if detailed else []
        finally:
            connection.finish()
    except (ConnectFailed, ConnectionLost) as error:
        return PoolerState(name=name, error=clean(redact(error.message)), asked_us=asked_us)
    found = structs.replace(found, version=next(iter(version[0].values()), None) if version else None)
    if not detailed:
        return found
    return structs.replace(found, config=config.config, admin=_is_admin(config, settings))


def _is_admin(config: PoolerConfig, settings: Sequence[Mapping[str, str]]) -> bool | None:
    """Check admin_users of SHOW CONFIG. On a Unix socket the user `pgbouncer` is one too, from the same account."""
    address = address_of(config.dsn)
    users = next((row.get("value") or "" for row in settings if row.get("key") == "admin_users"), None)
    if users is None:
        return None
    names = {one.strip() for one in users.split(",")}
    return address.user in names or (address.user == ADMIN and address.host.startswith("/"))


def read_pools(connection: PGconn, name: str, config: PoolerConfig, clock: Clock) -> PoolerState:
    """Read its databases and their pools. Raises ConnectionLost."""
    asked_us = clock.wall_us()
    databases, pools = (
        simple_query(connection, command, ANSWER_S, clock) for command in (b"SHOW DATABASES", b"SHOW POOLS")
    )
    if not databases:
        return PoolerState(
            name=name, asked_us=asked_us, error="it answers but shows no databases: the dsn must lead to the admin "
            "console of PgBouncer, as a role of admin_users or stats_users",
        )  # fmt: skip
    databases_known = [_database(row, pools) for row in databases if row.get("name") != ADMIN]
    configured = config.databases or [one.name for one in databases_known]
    return PoolerState(
        name=name,
        asked_us=asked_us,
        databases=tuple(one for one in databases_known if one.name in configured),
        missing=tuple(one for one in configured if one not in {each.name for each in databases_known}),
    )


def _database(row: Mapping[str, str], pools: Sequence[Mapping[str, str]]) -> PooledDatabase:
    own = [pool for pool in pools if pool.get("database") == row.get("name")]
    return PooledDatabase(
        name=clean(row.get("name", "?")),
        host=row.get("host"),
        port=row.get("port"),
        database=row.get("database"),
        mode=row.get("pool_mode") or next((pool.get("pool_mode") for pool in own), None),
        paused=is_set(row.get("paused")),
        disabled=is_set(row.get("disabled")),
        clients_active=_sum(own, "cl_active"),
        clients_waiting=_sum(own, "cl_waiting"),
        servers_active=_sum(own, "sv_active"),
        servers_idle=_sum(own, "sv_idle"),
        longest_wait_s=max((_wait(pool) for pool in own), default=None),
    )


def is_set(text: str | None) -> bool | None:
    """Return a flag of SHOW; None: this version has no such column."""
    return None if text is None else text not in ("0", "f", "no")


def _sum(pools: Sequence[Mapping[str, str]], column: str) -> int:
    return sum(int(pool.get(column) or 0) for pool in pools)


def _wait(pool: Mapping[str, str]) -> float:
    return float(pool.get("maxwait") or 0) + float(pool.get("maxwait_us") or 0) / 1e6
