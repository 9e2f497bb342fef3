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
from dba_console.clusters.certificate import Certificate, read_certificate
from dba_console.clusters.questions import REPMGR_NODES, REPMGRD, SELF, for_cutover, questions, together
from dba_console.clusters.redirected import refuse_redirected
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
    link = ActingConnection(
        config.dsn, application=APPLICATION, connect_timeout_s=CONNECT_S, lock_timeout_s=LOCK_S, clock=clock
    )
    with closing(link):
        try:
            refuse_redirected(name, config.dsn)
            state = _read(name, config, link, asked_us, clock, detailed)
        except ConsoleError as error:
            return NodeState(
                name=name, error=clean(redact(error.message)), asked_us=asked_us,
                failure=error.kind if isinstance(error, ConnectFailed) else "other", places=_places(config),
            )  # fmt: skip
    if state.details is not None and (state.details.tls or {}).get("server"):
        return msgspec.structs.replace(state, certificate=read_certificate(state.places))
    return state


def _read(
    name: str, config: NodeConfig, link: ActingConnection, asked_us: int, clock: Clock, detailed: bool
) -> NodeState:
    who = link.read_identity()
    [own] = link.rows(SELF, timeout_s=ANSWER_S)
    clock_apart_s = own.pop("clock_s") - clock.wall_us() / 1e6
    hba, cron = own.pop("reads_hba"), own.pop("reads_cron")
    more = for_cutover(who.version_num, hba=hba, cron=bool(cron)) if detailed else {}
    known, unknown = _answers(link, questions(archive=own.pop("reads_archive")) | more)
    [recovery] = known.get("recovery") or [{}]
    return NodeState(
        name=name,
        asked_us=asked_us,
        places=_places(config, who),
        replication=_replication(config),
        address=who.address,
        role=who.role,
        version_num=who.version_num,
        system_identifier=who.system_identifier,
        timeline=_timeline(who, recovery.get("timeline")),
        clock_apart_s=clock_apart_s,
        receiver=next(iter(known.get("receiver", [])), None),
        upstream=_upstream(known.get("upstream")),
        standbys=_rows(known, "standbys"),
        slots=_rows(known, "slots"),
        settings={row["name"]: row["setting"] for row in known.get("settings", [])},
        archive=next(iter(known.get("archive", [])), None),
        work=next(iter(known.get("work", [])), None),
        available=_names(known, "available"),
        used=_names(known, "used"),
        server_start_us=who.server_start_us,
        data_directory=config.data_directory or who.data_directory,
        details=_details(known, cron, link) if detailed else None,
        unknown=unknown,
        **own,
    )


def _answers(
    link: ActingConnection, asked: Mapping[str, str]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """The rows of each question, and why some have none: asked one by one only where they cannot be asked together."""
    try:
        [row] = link.rows(together(asked), timeout_s=ANSWER_S)
        return row["answers"], {}
    except StatementFailed:
        pass
    known: dict[str, list[dict[str, Any]]] = {}
    unknown: dict[str, str] = {}
    for what, question in asked.items():
        try:
            known[what] = link.rows(question, timeout_s=ANSWER_S)
        except StatementFailed as error:
            unknown[what] = error.message
    return known, unknown


def _details(known: Mapping[str, list[dict[str, Any]]], reads_cron: bool | None, link: ActingConnection) -> Details:
    def first(what: str) -> dict[str, Any] | None:
        return next(iter(known.get(what, [])), None)

    configured = known.get("configured")
    return Details(
        configured=None if configured is None else {row["name"]: row["setting"] for row in configured},
        replicates=_names(known, "replicates"),
        tls=first("tls"),
        rewind=first("rewind"),
        collations=_rows(known, "collations"),
        hba=_rows(known, "hba"),
        cron=first("cron"),
        reads_cron=reads_cron,
        managers=first("managers"),
        repmgr=_repmgr(link, (first("managers") or {}).get("repmgr")),
    )


def _repmgr(link: ActingConnection, database: str | None) -> dict[str, Any] | None:
    """What the extension knows; None where it is not installed."""
    if database is None:
        return None
    inside = link.for_database(database)
    try:
        if not inside.rows("SELECT 1 FROM pg_extension WHERE extname = 'repmgr'", timeout_s=ANSWER_S):
            return None
        nodes = [_member(row) for row in inside.rows(REPMGR_NODES, timeout_s=ANSWER_S)]
        [state] = inside.rows(REPMGRD, timeout_s=ANSWER_S)
    except ConsoleError as error:  # also a conninfo in its table that cannot be read
        return {"error": error.message}
    return {"nodes": nodes, **state}


def _member(row: dict[str, Any]) -> dict[str, str]:
    given = parse_conninfo(row["conninfo"])
    place = {"host": given.get("host") or given.get("hostaddr", ""), "port": given.get("port", "5432")}
    return {"name": row["node_name"], "config": row["config_file"] or "", **place}


def _places(config: NodeConfig, who: ServerIdentity | None = None) -> tuple[tuple[str, str], ...]:
    found: dict[tuple[str, str], None] = {}
    for conninfo in (config.dsn, config.replication_dsn or ""):
        try:
            given = parse_conninfo(conninfo)
        except ConsoleError:
            continue
        hosts = [host for key in ("host", "hostaddr") for host in given.get(key, "").split(",")]
        ports = given.get("port", "5432").split(",")
        found |= dict.fromkeys((host, port) for host in hosts if host for port in ports)
    if who is not None and who.address is not None:
        found[(who.address, str(who.port))] = None
    return tuple(found)


def _replication(config: NodeConfig) -> dict[str, str]:
    try:
        given = parse_conninfo(config.replication_dsn or config.dsn)
    except ConsoleError:
        return {}
    return {name: given[name] for name in ("host", "hostaddr", "port") if name in given}


def _timeline(who: ServerIdentity, replayed: int | None) -> int | None:
    """Of a standby without a WAL receiver the newest it has replayed: its last restartpoint may be on an older one."""
    if who.timeline is None or who.role == PRIMARY or replayed is None:
        return who.timeline
    return max(who.timeline, replayed)


def _upstream(rows: list[dict[str, Any]] | None) -> dict[str, str] | None:
    if not rows:
        return None
    try:
        given = parse_conninfo(rows[0]["conninfo"])
    except ConsoleError:
        return {}
    return {name: given[name] for name in _UPSTREAM if name in given}


def _rows(known: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[dict[str, Any], ...] | None:
    return tuple(known[what]) if what in known else None


def _names(known: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[str, ...] | None:
    return tuple(row["name"] for row in known[what]) if what in known else None
