"""The persistent monitor connection: opening, session setup, identity of the server and of the backend.

A session-wide SET behind a pooler would reach the next client. So settings are made once only if the backend that
answers is the one we connected to; otherwise each query brings them for its own transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dba_console.core.clock import Clock
from dba_console.watch.probes.postgres.binary_results import ResultRows, Row, codec_of, decode, decode_name, wall_us
from dba_console.watch.probes.postgres.connect import (
    LOST,
    MonitorOptions,
    open_connection,
    parse_options,
    resolve_hosts,
    without_timeouts,
)
from dba_console.watch.probes.postgres.connect_errors import CANCELED, ConnectFailed, ConnectionLost
from dba_console.watch.probes.postgres.oid_names import OidNames
from dba_console.watch.probes.postgres.pipeline import (
    OLDEST,
    Command,
    Pipeline,
    Segment,
    SegmentAnswer,
    ServerError,
    rows_of,
    statement,
)
from dba_console.watch.probes.postgres.server_locality import (
    Locality,
    ServerEvidence,
    SocketRoute,
    prove_local,
    read_route,
)
from dba_console.watch.probes.postgres.simple_query import simple_query

# Detects a connection pooler. A pooler gives us a cancel key of its own, so the pid in it is not that of the backend
# that answers; true of PgBouncer, Odyssey and managed proxies alike. Only PgBouncer has a database `pgbouncer` that
# shows version and pool mode; it is queried once, and often not permitted.

UNKNOWN = "a connection pooler"
COST = (
    "counts are the server's, not the pooler's clients; no slot is held, so when slots run out the console waits "
    "like any other client: connect directly to the server to hold a slot"
)


def ask_pooler(given: Mapping[str, str], timeout_s: float, clock: Clock) -> str:
    """Return `PgBouncer 1.21.0 (transaction)`, as far as it is known. Never raises."""
    try:
        return _ask(given, timeout_s, clock)
    except (ConnectFailed, ConnectionLost) as error:
        return "PgBouncer" if _is_pgbouncer(str(error)) else UNKNOWN


def pooler_text(version: str | None, mode: str | None) -> str:
    """
    >>> pooler_text("PgBouncer 1.18.0", "transaction"), pooler_text(None, None)
    ('PgBouncer 1.18.0 (transaction)', 'PgBouncer')
    """
    match = re.search(r"(\d+(?:\.\d+)+)", version or "")
    name = f"PgBouncer {match[1]}" if match else "PgBouncer"
    return f"{name} ({mode})" if mode else name


def _is_pgbouncer(message: str) -> bool:
    """Check for PgBouncer's refusals at its admin console; PostgreSQL reports that the database does not exist."""
    return "not allowed" in message or ("pgbouncer" in message.lower() and "does not exist" not in message)


def _ask(given: Mapping[str, str], timeout_s: float, clock: Clock) -> str:
    connection = open_connection({**given, "dbname": "pgbouncer"}, timeout_s, clock)
    try:
        version, databases, config = (
            simple_query(connection, command, timeout_s, clock)
            for command in (b"SHOW VERSION", b"SHOW DATABASES", b"SHOW CONFIG")
        )
    finally:
        connection.finish()
    return pooler_text(next(iter(version[0].values()), None) if version else None, _mode(given, databases, config))


def _mode(given: Mapping[str, str], databases: list[dict[str, str]], config: list[dict[str, str]]) -> str | None:
    """Return the pool mode of our database, else the pooler's default."""
    wanted = given.get("dbname") or given.get("user")
    own = next((row.get("pool_mode") for row in databases if row.get("name") == wanted), None)
    return own or next((row.get("value") for row in config if row.get("key") == "pool_mode"), None)


# Which pool of connection slots our connection came from. PostgreSQL keeps superuser_reserved_connections free for
# superusers and, from 16 on, reserved_connections for members of pg_use_reserved_connections; libpq does not report
# that a reserved slot was used. It depends on the number of free slots when ours was taken (InitPostgres in
# postinit.c).

POOLED = "pooled"
"""Through a pooler: no slot is held, each query borrows one."""


def slot_pool(*, used: int, max_connections: int, superuser_reserved: int, reserved: int) -> str:
    """Return `regular`, `reserved_role` or `superuser`; `used` counts client backends including ours.

    >>> [slot_pool(used=n, max_connections=10, superuser_reserved=3, reserved=2) for n in (5, 6, 7, 8)]
    ['regular', 'reserved_role', 'reserved_role', 'superuser']
    """
    free = max_connections - used
    if free >= superuser_reserved + reserved:
        return "regular"
    return "reserved_role" if free >= superuser_reserved else "superuser"


@dataclass(frozen=True, slots=True)
class BackendIdentity:
    """The answer to the first query (sql/hello.sql)."""

    backend_pid: int
    version_num: int
    user: str
    superuser: bool
    all_stats: bool
    """May see other roles' sessions completely (pg_read_all_stats, which pg_monitor includes)."""
    evidence: ServerEvidence
    seat: str
    reset_role: str | None = None
    """The role that a setting of the database or the role had switched to; the login role is used."""


@dataclass(frozen=True, slots=True)
class MonitorConnection:
    """An open connection with its server's identity."""

    pipeline: Pipeline
    hello: BackendIdentity
    names: OidNames
    locality: Locality
    through: str | None
    progress_sql: bytes | None
    """One query over all progress views of this server; None if the catalog could not be read."""
    session_setup: Command | None
    """Prepended to each transaction behind a pooler."""

    def segment(self, key: str, *commands: Command) -> Segment:
        """Return a segment with the session setup prepended; `strip` removes its rows from the answer."""
        return Segment(key, (self.session_setup, *commands) if self.session_setup else commands)

    def strip(self, rows: list[ResultRows]) -> list[ResultRows]:
        return rows[1:] if self.session_setup else rows


def connect(conninfo: str, options: MonitorOptions, clock: Clock) -> MonitorConnection:
    """Open the connection, identify the server, set up the session. Raises ConnectFailed; nothing is left open then."""
    given = resolve_hosts(parse_options(conninfo))
    return without_timeouts(given, lambda given: _connect(given, options, clock))


def _connect(given: Mapping[str, str], options: MonitorOptions, clock: Clock) -> MonitorConnection:
    deadline = clock.mono_us() + int(options.connect_timeout_s * 1e6)
    opened = open_connection(given, options.connect_timeout_s, clock)
    try:
        route, promised_pid = read_route(opened.socket), opened.backend_pid
        wire = Pipeline(opened, clock)
        # No statement is prepared on the server until it is known that no pooler is in between.
        wire.prepared = False
        opening = _Opening(wire, route, options, deadline)
        hello, names = opening.identify_server()
        if hello.backend_pid == promised_pid:
            return opening.connect_directly(hello, names)
        return opening.connect_through_pooler(hello, names, ask_pooler(given, options.connect_timeout_s, clock))
    except ConnectionLost as error:
        opened.finish()
        raise ConnectFailed("other", error.message, sqlstate=error.sqlstate or LOST) from None
    except BaseException:
        opened.finish()
        raise


@dataclass(frozen=True, slots=True)
class _Opening:
    """The steps from an open socket to a usable connection."""

    wire: Pipeline
    route: SocketRoute
    options: MonitorOptions
    deadline: int

    def identify_server(self) -> tuple[BackendIdentity, OidNames]:
        """Identify the server. Raises ConnectFailed if the peer is not a PostgreSQL database."""
        [answer] = self._ask([Segment("hello", (_path(), Command("hello", _sql("hello", OLDEST))))])
        if answer.error is not None and answer.error.sqlstate == CANCELED:
            message = f"connected, but the first query failed: {answer.error.message}"
            raise ConnectFailed("other", message, sqlstate=CANCELED)
        if answer.error is not None or not rows_of(answer, 1):
            raise ConnectFailed("other", "the peer is not a PostgreSQL database: " + (answer.error or _NOTHING).message)
        row = rows_of(answer, 1)[0]
        [(role, login, _, _, _)] = rows_of(answer, 0)
        if row[1] < OLDEST:
            raise ConnectFailed("other", f"PostgreSQL {row[1] // 10000} is not supported: 13 or later is required")
        hello = _hello(row)
        if role != login:
            hello = replace(hello, reset_role=decode_name(role, codec_of(row[7].decode())))
        return hello, OidNames(row[5], row[6], row[7].decode())

    def connect_directly(self, hello: BackendIdentity, names: OidNames) -> MonitorConnection:
        self.wire.prepared = True
        pid = str(hello.backend_pid).encode()
        setup = Command("session", _sql("session", hello.version_num), (pid, *_limits(self.options)))
        _, views = self._ask([Segment("session", (_path(), setup)), Segment("views", (_path(), _views(hello)))])
        locality = prove_local(hello.evidence, self.route, configured=self.options.host_panels)
        return MonitorConnection(self.wire, hello, names, locality, None, _progress_sql(views), None)

    def connect_through_pooler(self, hello: BackendIdentity, names: OidNames, through: str) -> MonitorConnection:
        self.wire.serial = True
        setup = Command("transaction", _sql("transaction", hello.version_num), _limits(self.options))
        [views] = self._ask([Segment("views", (_path(), _views(hello)))])
        locality = prove_local(hello.evidence, self.route, through=through, configured=self.options.host_panels)
        noted = replace(locality, note=f"{locality.note}; through {through}: {COST}")
        return MonitorConnection(
            self.wire, replace(hello, seat=POOLED), names, noted, through, _progress_sql(views), setup
        )

    def _ask(self, segments: list[Segment]) -> list[SegmentAnswer]:
        self.wire.send(segments)
        answers = self.wire.collect(self.deadline)
        if len(answers) < len(segments):
            limit = self.options.connect_timeout_s
            raise ConnectFailed("timeout", f"connected, but no answer to the first query within {limit:g} s")
        return answers


_NOTHING = ServerError("", "it returned no row")


def _hello(row: Row) -> BackendIdentity:
    (pid, version, user, superuser, all_stats, _, _, encoding, postmaster_start, backend_start,
     max_connections, superuser_reserved, reserved, used, data_directory, client_port) = row  # fmt: skip
    codec = codec_of(encoding.decode())
    evidence = ServerEvidence(
        pid,
        wall_us(backend_start),
        wall_us(postmaster_start),
        None if data_directory is None else decode(data_directory),
        client_port,
    )
    seat = slot_pool(
        used=used, max_connections=max_connections, superuser_reserved=superuser_reserved, reserved=reserved
    )
    return BackendIdentity(pid, version, decode_name(user, codec), superuser, all_stats, evidence, seat)


def _path() -> Command:
    return Command("path", _sql("path", OLDEST))


def _views(hello: BackendIdentity) -> Command:
    return Command("views", _sql("views", hello.version_num))


def _progress_sql(views: SegmentAnswer) -> bytes | None:
    """Return one query over all progress views; the query restricts their names to letters and underscores."""
    found = [name.decode() for (name,) in rows_of(views, 1)]
    template = _sql("progress", OLDEST).decode()
    return "UNION ALL\n".join(template.replace("{view}", view) for view in chosen_views(found)).encode() or None


def chosen_views(found: Sequence[str]) -> list[str]:
    """Return the views to read. From 19 on pg_stat_progress_cluster repeats pg_stat_progress_repack.

    >>> chosen_views(["pg_stat_progress_cluster", "pg_stat_progress_repack"])
    ['pg_stat_progress_repack']
    """
    repeated = {"pg_stat_progress_cluster"} if "pg_stat_progress_repack" in found else set()
    return [view for view in found if view not in repeated]


def _limits(options: MonitorOptions) -> tuple[bytes, bytes]:
    return (
        str(int(options.statement_timeout_s * 1000)).encode(),
        str(int(options.lock_timeout_s * 1000)).encode(),
    )


def _sql(name: str, version_num: int) -> bytes:
    text = statement(name, max(version_num, OLDEST))
    assert text is not None, name
    return text
