"""One server of a cluster, as it says of itself over one short connection that only reads.

A question the role may not ask costs its answer and no other. What is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.connection_api import StatementFailed
from dba_console.actions.identity import PRIMARY, ServerIdentity
from dba_console.clock import Clock
from dba_console.clusters.host_override import refuse_host_override
from dba_console.clusters.node_queries import (
    NODE_STATE,
    REPMGR_NODES,
    REPMGRD,
    combined_query,
    cutover_queries,
    node_queries,
)
from dba_console.clusters.server_certificate import Certificate, read_certificate
from dba_console.config import NodeConfig
from dba_console.errors import ConsoleError
from dba_console.probes.postgres.connect_errors import ConnectFailed
from dba_console.redact import redact
from dba_console.sanitize import clean
from dba_console.target import parse_conninfo

CONNECT_S = 3.0
APPLICATION = "dba-console"
ANSWER_S = 3.0
"""For each statement; the server's own limits are the same."""
LOCK_S = 0.1
_UPSTREAM = (
    "host", "hostaddr", "port", "user", "application_name", "sslmode", "sslcert", "sslkey", "sslrootcert", "gssencmode",
    "channel_binding", "passfile",
)  # fmt: skip
"""What is kept of primary_conninfo: never the rest, which may hold a password."""


class Details(Struct, frozen=True, kw_only=True):
    """What only a check of a cutover asks. None: not known."""

    configured: dict[str, str] | None = None
    """Every setting that is not of our own session."""
    replicates: tuple[str, ...] | None = None
    """Roles that may connect for replication."""
    tls: dict[str, Any] | None = None
    rewind: dict[str, Any] | None = None
    """Whether the role may read the files of the server, as pg_rewind does."""
    collations: tuple[dict[str, Any], ...] | None = None
    """Versions of the collations of the database and of its indexes: recorded, and of the library on this host."""
    hba: tuple[dict[str, Any], ...] | None = None
    cron: dict[str, Any] | None = None
    """Jobs of pg_cron; None where the database has no such table, or the role may not read it: `reads_cron`."""
    reads_cron: bool | None = None
    managers: dict[str, Any] | None = None
    """Traces of cluster managers."""
    repmgr: dict[str, Any] | None = None
    """Its nodes, and whether repmgrd runs and is paused; `error` where they may not be read."""


class NodeState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one node was when it was asked. Where `error` is set nobody answered, and nothing else is known."""

    name: str
    error: str = ""
    asked_us: int = 0
    """Our wall clock when it was asked: the age of every number here."""
    failure: str = ""
    """Where nobody answered: the kind, as `connect_errors` has it: refused, timeout, auth, starting …"""
    replication: dict[str, str] = {}
    """Host and port at which other nodes connect to it for replication."""
    address: str | None = None
    """At which the server was reached; None by a unix socket."""
    certificate: Certificate | None = None
    """What it shows to clients that use TLS; None where it was not asked."""
    places: tuple[tuple[str, str], ...] = ()
    """Hosts and ports it is known by: of its conninfos, and the address the server has."""
    role: str | None = None
    """primary or standby."""
    version: str = ""
    version_num: int | None = None
    system_identifier: str | None = None
    timeline: int | None = None
    lsn: str | None = None
    """Of a primary what it has written, of a standby what it has received."""
    replayed_lsn: str | None = None
    replay_paused: bool | None = None
    replayed_ago_s: float | None = None
    """Since the commit that was replayed last, by the server's clock: idle primaries make it grow."""
    clock_apart_s: float | None = None
    """Its clock less ours; includes half the way there and back."""
    prepared: int | None = None
    """Transactions prepared at least 5 s ago: the manager of one that is at work ends it in milliseconds."""
    slots_used: int | None = None
    walsenders_used: int | None = None
    checksums: bool | None = None
    sees_all: bool | None = None
    """Whether the role sees other users' sessions: without it long transactions are not known."""
    receiver: dict[str, Any] | None = None
    upstream: dict[str, str] | None = None
    """Where its primary_conninfo leads and as whom; None where the role may not read it."""
    standbys: tuple[dict[str, Any], ...] | None = None
    slots: tuple[dict[str, Any], ...] | None = None
    settings: dict[str, str] = {}
    archive: dict[str, Any] | None = None
    work: dict[str, Any] | None = None
    available: tuple[str, ...] | None = None
    """Extensions whose files are there."""
    used: tuple[str, ...] | None = None
    """Extensions of the database that was asked."""
    server_start_us: int = 0
    data_directory: str | None = None
    details: Details | None = None
    unknown: dict[str, str] = {}
    """What could not be asked, and why."""

    @property
    def reached(self) -> bool:
        return not self.error


def read_node(name: str, config: NodeConfig, clock: Clock, *, detailed: bool = False) -> NodeState:
    """Ask one node everything. Never raises: who does not answer is a state with an `error`."""
    asked_us = clock.wall_us()
    connection = ActingConnection(
        config.dsn, application=APPLICATION, connect_timeout_s=CONNECT_S, lock_timeout_s=LOCK_S, clock=clock
    )
    with closing(connection):
        try:
            refuse_host_override(name, config.dsn)
            state = _read(name, config, connection, asked_us, clock, detailed)
        except ConsoleError as error:
            return NodeState(
                name=name, error=clean(redact(error.message)), asked_us=asked_us,
                failure=error.kind if isinstance(error, ConnectFailed) else "other", places=_known_addresses(config),
            )  # fmt: skip
    if state.details is not None and (state.details.tls or {}).get("server"):
        return msgspec.structs.replace(state, certificate=read_certificate(state.places))
    return state


def _read(
    name: str, config: NodeConfig, connection: ActingConnection, asked_us: int, clock: Clock, detailed: bool
) -> NodeState:
    identity = connection.read_identity()
    [values] = connection.rows(NODE_STATE, timeout_s=ANSWER_S)
    clock_apart_s = values.pop("clock_s") - clock.wall_us() / 1e6
    hba, cron = values.pop("reads_hba"), values.pop("reads_cron")
    more = cutover_queries(identity.version_num, hba=hba, cron=bool(cron)) if detailed else {}
    answers, unknown = _run_queries(connection, node_queries(archive=values.pop("reads_archive")) | more)
    [recovery] = answers.get("recovery") or [{}]
    return NodeState(
        name=name,
        asked_us=asked_us,
        places=_known_addresses(config, identity),
        replication=_replication_address(config),
        address=identity.address,
        role=identity.role,
        version_num=identity.version_num,
        system_identifier=identity.system_identifier,
        timeline=_timeline(identity, recovery.get("timeline")),
        clock_apart_s=clock_apart_s,
        receiver=next(iter(answers.get("receiver", [])), None),
        upstream=_upstream(answers.get("upstream")),
        standbys=_rows(answers, "standbys"),
        slots=_rows(answers, "slots"),
        settings={row["name"]: row["setting"] for row in answers.get("settings", [])},
        archive=next(iter(answers.get("archive", [])), None),
        work=next(iter(answers.get("work", [])), None),
        available=_names(answers, "available"),
        used=_names(answers, "used"),
        server_start_us=identity.server_start_us,
        data_directory=config.data_directory or identity.data_directory,
        details=_details(answers, cron, connection) if detailed else None,
        unknown=unknown,
        **values,
    )


def _run_queries(
    connection: ActingConnection, queries: Mapping[str, str]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """The rows of each question, and why some have none: asked one by one only where they cannot be asked together."""
    try:
        [row] = connection.rows(combined_query(queries), timeout_s=ANSWER_S)
        return row["answers"], {}
    except StatementFailed:
        pass
    answers: dict[str, list[dict[str, Any]]] = {}
    unknown: dict[str, str] = {}
    for what, question in queries.items():
        try:
            answers[what] = connection.rows(question, timeout_s=ANSWER_S)
        except StatementFailed as error:
            unknown[what] = error.message
    return answers, unknown


def _details(
    answers: Mapping[str, list[dict[str, Any]]], reads_cron: bool | None, connection: ActingConnection
) -> Details:
    def first(what: str) -> dict[str, Any] | None:
        return next(iter(answers.get(what, [])), None)

    configured = answers.get("configured")
    return Details(
        configured=None if configured is None else {row["name"]: row["setting"] for row in configured},
        replicates=_names(answers, "replicates"),
        tls=first("tls"),
        rewind=first("rewind"),
        collations=_rows(answers, "collations"),
        hba=_rows(answers, "hba"),
        cron=first("cron"),
        reads_cron=reads_cron,
        managers=first("managers"),
        repmgr=_repmgr(connection, (first("managers") or {}).get("repmgr")),
    )


def _repmgr(connection: ActingConnection, database: str | None) -> dict[str, Any] | None:
    """What the extension knows; None where it is not installed."""
    if database is None:
        return None
    repmgr_connection = connection.for_database(database)
    try:
        if not repmgr_connection.rows("SELECT 1 FROM pg_extension WHERE extname = 'repmgr'", timeout_s=ANSWER_S):
            return None
        nodes = [_repmgr_node(row) for row in repmgr_connection.rows(REPMGR_NODES, timeout_s=ANSWER_S)]
        [state] = repmgr_connection.rows(REPMGRD, timeout_s=ANSWER_S)
    except ConsoleError as error:  # also a conninfo in its table that cannot be read
        return {"error": error.message}
    return {"nodes": nodes, **state}


def _repmgr_node(row: dict[str, Any]) -> dict[str, str]:
    options = parse_conninfo(row["conninfo"])
    address = {"host": options.get("host") or options.get("hostaddr", ""), "port": options.get("port", "5432")}
    return {"name": row["node_name"], "config": row["config_file"] or "", **address}


def _known_addresses(config: NodeConfig, identity: ServerIdentity | None = None) -> tuple[tuple[str, str], ...]:
    addresses: dict[tuple[str, str], None] = {}
    for conninfo in (config.dsn, config.replication_dsn or ""):
        try:
            options = parse_conninfo(conninfo)
        except ConsoleError:
            continue
        hosts = [host for key in ("host", "hostaddr") for host in options.get(key, "").split(",")]
        ports = options.get("port", "5432").split(",")
        addresses |= dict.fromkeys((host, port) for host in hosts if host for port in ports)
    if identity is not None and identity.address is not None:
        addresses[(identity.address, str(identity.port))] = None
    return tuple(addresses)


def _replication_address(config: NodeConfig) -> dict[str, str]:
    try:
        options = parse_conninfo(config.replication_dsn or config.dsn)
    except ConsoleError:
        return {}
    return {name: options[name] for name in ("host", "hostaddr", "port") if name in options}


def _timeline(identity: ServerIdentity, replayed: int | None) -> int | None:
    """Of a standby without a WAL receiver the newest it has replayed: its last restartpoint may be on an older one."""
    if identity.timeline is None or identity.role == PRIMARY or replayed is None:
        return identity.timeline
    return max(identity.timeline, replayed)


def _upstream(rows: list[dict[str, Any]] | None) -> dict[str, str] | None:
    if not rows:
        return None
    try:
        options = parse_conninfo(rows[0]["conninfo"])
    except ConsoleError:
        return {}
    return {name: options[name] for name in _UPSTREAM if name in options}


def _rows(answers: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[dict[str, Any], ...] | None:
    return tuple(answers[what]) if what in answers else None


def _names(answers: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[str, ...] | None:
    return tuple(row["name"] for row in answers[what]) if what in answers else None
