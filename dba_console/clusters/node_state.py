"""State of one server of a cluster, read over one short read-only connection.

A query that the role may not run loses only its own answer. Unknown values are None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.actions.identity import PRIMARY, ServerIdentity
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed
from dba_console.clusters.cutover_mark import MARK, parse_mark
from dba_console.clusters.cutover_plan import replication_address
from dba_console.clusters.server_certificate import Certificate, read_certificate
from dba_console.clusters.subject.readings import CutoverMark
from dba_console.core.clock import Clock
from dba_console.core.config import NodeConfig
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.target import parse_conninfo
from dba_console.watch.probes.host.data_directory import DamagedControl, required_settings
from dba_console.watch.probes.postgres.connect import refuse_host_override
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed

# Queries of a node's state.

NODE_STATE = """
SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
       extract(epoch FROM clock_timestamp())::float8 AS clock_s,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END::text AS lsn,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() END::text AS replayed_lsn,
       CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() END AS replay_paused,
       CASE WHEN pg_is_in_recovery()
            THEN extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 END AS replayed_ago_s,
       (SELECT count(*)::int4 FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '5 s') AS prepared,
       (SELECT count(*)::int4 FROM pg_replication_slots) AS slots_used,
       (SELECT count(*)::int4 FROM pg_stat_replication) AS walsenders_used,
       current_setting('data_checksums') = 'on' AS checksums,
       r.rolsuper OR pg_has_role(r.oid, 'pg_read_all_stats', 'USAGE') AS sees_all,
       current_setting('archive_mode') <> 'off' AND NOT pg_is_in_recovery()
         AND has_function_privilege('pg_ls_archive_statusdir()', 'EXECUTE') AS reads_archive,
       pg_is_in_recovery() AND has_function_privilege('pg_read_binary_file(text)', 'EXECUTE') AS reads_control,
       pg_is_in_recovery() AND has_function_privilege('pg_ls_waldir()', 'EXECUTE') AS reads_waldir,
       has_table_privilege('pg_hba_file_rules', 'SELECT')
         AND has_function_privilege('pg_hba_file_rules()', 'EXECUTE') AS reads_hba,
       (SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
         WHERE n.nspname = 'cron' AND c.relname = 'job' AND c.relkind = 'r' AND e.extname = 'pg_cron') AS reads_cron
  FROM pg_roles r WHERE r.rolname = current_user
"""
"""In the schema cron only the extension's own table is read: the owner of a database could create a view there whose
functions would run with our role's privileges."""
_RECEIVER = """
SELECT status, sender_host, sender_port, slot_name::text, received_tli, latest_end_lsn::text,
       extract(epoch FROM clock_timestamp() - last_msg_receipt_time)::float8 AS last_message_s,
       extract(epoch FROM last_msg_receipt_time)::float8 AS last_message_at
  FROM pg_stat_wal_receiver
"""
_STANDBYS = """
SELECT application_name, host(client_addr) AS client_addr, state, sync_state, sent_lsn::text, replay_lsn::text,
       CASE WHEN pg_is_in_recovery() THEN NULL
            ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::float8 END AS behind_bytes,
       extract(epoch FROM replay_lag)::float8 AS behind_s
  FROM pg_stat_replication WHERE application_name <> 'pg_basebackup' ORDER BY application_name, pid
"""
_SLOTS = """
SELECT slot_name::text AS name, slot_type AS kind, active, wal_status,
       coalesce((to_jsonb(s)->>'synced')::bool, false) AS synced, (to_jsonb(s)->>'failover')::bool AS failover,
       temporary, to_jsonb(s)->>'invalidation_reason' AS invalidated
  FROM pg_replication_slots s ORDER BY slot_name
"""
_SETTINGS = """
SELECT name, setting FROM pg_settings
 WHERE name = ANY (ARRAY['max_connections', 'max_prepared_transactions', 'max_locks_per_transaction', 'max_wal_senders',
   'max_worker_processes', 'max_replication_slots', 'wal_level', 'full_page_writes', 'wal_log_hints', 'archive_mode',
   'wal_keep_size', 'max_slot_wal_keep_size', 'hot_standby_feedback', 'recovery_min_apply_delay', 'cluster_name',
   'recovery_target_timeline', 'synchronous_commit', 'synchronous_standby_names', 'shared_preload_libraries',
   'superuser_reserved_connections', 'shared_buffers', 'port', 'primary_slot_name', 'synchronized_standby_slots',
   'wal_sender_shutdown_timeout', 'wal_receiver_timeout', 'wal_segment_size'])
"""
_ARCHIVE = """
SELECT a.failed_count, a.last_archived_wal, a.last_archived_time, a.last_failed_time, a.last_failed_wal,
       coalesce(a.last_failed_time > a.last_archived_time, a.last_failed_time IS NOT NULL) AS failing,
       {ready} AS ready, {seconds} AS seconds
  FROM pg_stat_archiver a
"""
_SECONDS = """(SELECT extract(epoch FROM a.last_archived_time - d.modification)::float8
          FROM pg_ls_archive_statusdir() d WHERE d.name = a.last_archived_wal || '.done')"""
"""From the completion of a WAL file to its archiving: the status file keeps its time when it is renamed to .done
(xlogarchive.c)."""
_READY = "(SELECT count(*)::int4 FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready')"
_WORK = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start))
         FILTER (WHERE backend_type = 'client backend'), 0)::float8 AS oldest_xact_s,
       count(*) FILTER (WHERE backend_type = 'client backend'
         AND xact_start < clock_timestamp() - interval '1 min')::int4 AS long_xacts,
       count(*) FILTER (WHERE application_name ~ '^(pg_dump|pg_restore|pg_dumpall|pgcopydb)')::int4 AS dumps,
       count(*) FILTER (WHERE backend_type = 'client backend' AND (application_name LIKE 'pgBackRest [backup%'
         OR state = 'idle' AND query ~* 'pg_(backup_start|start_backup) *[(]'))::int4 AS backups,
       count(*) FILTER (WHERE backend_type = 'client backend')::int4 AS clients,
       (SELECT count(*)::int4 FROM pg_stat_progress_basebackup) AS base_backups,
       (SELECT count(*)::int4 FROM pg_stat_progress_create_index) AS index_builds,
       (SELECT count(*)::int4 FROM pg_stat_progress_cluster) AS rewrites,
       bool_or(application_name LIKE 'Patroni%') AS patroni, bool_or(application_name LIKE 'repmgr%') AS repmgr,
       bool_or(application_name LIKE 'pg_auto_failover%' OR application_name LIKE 'pgautofailover%') AS autofailover
  FROM pg_stat_activity WHERE pid <> pg_backend_pid()
"""
_EXTENSIONS = "SELECT DISTINCT name::text FROM pg_available_extensions ORDER BY name"
_PRIMARY_CONNINFO = "SELECT setting AS conninfo FROM pg_settings WHERE name = 'primary_conninfo'"
_USED = "SELECT extname::text AS name FROM pg_extension ORDER BY extname"
_RECOVERY = """
SELECT nullif(greatest(min_recovery_end_timeline, {received}), 0) AS timeline FROM pg_control_recovery()
"""
_RECEIVED_TIMELINE = """(SELECT max(('x' || left(name, 8))::bit(32)::int4) FROM pg_ls_waldir()
                          WHERE name ~ '^[0-9A-F]{24}$')"""
"""pg_control of a standby may have an older timeline for minutes after a promotion; its WAL files have the newest."""
_CONTROL = "SELECT encode(pg_read_binary_file('global/pg_control'), 'hex') AS content"
_QUERIES = {
    "receiver": _RECEIVER, "standbys": _STANDBYS, "slots": _SLOTS, "settings": _SETTINGS,
    "work": _WORK, "available": _EXTENSIONS, "used": _USED, "upstream": _PRIMARY_CONNINFO,
    "mark": MARK,
}  # fmt: skip


def node_queries(*, archive: bool, waldir: bool = False) -> dict[str, str]:
    """Return answer name -> query. None needs more than `pg_monitor`; values a role may not see are null or missing.

    PostgreSQL checks EXECUTE on a function also in a branch that is not taken: so `archive` tells whether the role may
    count the waiting WAL files, and `waldir` whether it may list all of them.
    """
    return _QUERIES | {
        "archive": _ARCHIVE.format(
            ready=_READY if archive else "NULL::int4", seconds=_SECONDS if archive else "NULL::float8"
        ),
        "recovery": _RECOVERY.format(received=_RECEIVED_TIMELINE if waldir else "NULL::int4"),
    }


_CONFIGURED = """
SELECT name, current_setting(name) AS setting FROM pg_settings
 WHERE context <> 'internal' AND source NOT IN ('session', 'client', 'interactive') AND name <> 'primary_conninfo'
"""
_REPLICATES = "SELECT rolname::text AS name FROM pg_roles WHERE rolcanlogin AND (rolreplication OR rolsuper)"
_TLS = """
SELECT count(*) FILTER (WHERE s.ssl)::int4 AS clients, current_setting('ssl') = 'on' AS server
  FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.backend_type = 'client backend'
"""
_REWIND = """
SELECT has_function_privilege('pg_ls_dir(text, boolean, boolean)', 'EXECUTE')
       AND has_function_privilege('pg_stat_file(text, boolean)', 'EXECUTE')
       AND has_function_privilege('pg_read_binary_file(text)', 'EXECUTE')
       AND has_function_privilege('pg_read_binary_file(text, bigint, bigint, boolean)', 'EXECUTE') AS may,
       current_user::text AS role
"""
_COLLATIONS = """
SELECT 'database ' || quote_ident(d.datname) AS name, {recorded} AS recorded, {actual} AS actual
  FROM pg_database d WHERE d.datname = current_database()
 UNION ALL
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname), c.collversion, pg_collation_actual_version(c.oid)
  FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
 WHERE c.collprovider <> 'd' AND c.oid IN (SELECT unnest(indcollation::oid[]) FROM pg_index)
"""
_LIBC = """
(SELECT max(pg_collation_actual_version(c.oid)) FROM pg_collation c
  WHERE c.collprovider = 'c' AND c.collcollate = d.datcollate)
"""
"""Up to 14 a database has no collation version: use that of a collation of the same locale."""
_HBA = """
SELECT line_number AS line, type, database, user_name AS users, address, netmask, auth_method AS method, error,
       to_jsonb(h)->>'file_name' AS file
  FROM pg_hba_file_rules h ORDER BY (to_jsonb(h)->>'rule_number')::int4 NULLS LAST, line_number
"""
_CRON = """
SELECT count(*)::int4 AS active, count(*) FILTER (WHERE nodename NOT IN ('localhost', '127.0.0.1', '::1', '')
         AND nodename NOT LIKE '/%')::int4 AS elsewhere, array_agg(DISTINCT nodeport) AS ports
  FROM cron.job WHERE active
"""


_MANAGERS = """
SELECT (SELECT count(*) = 4 FROM pg_settings WHERE source = 'command line' AND name IN
          ('cluster_name', 'max_prepared_transactions', 'track_commit_timestamp', 'wal_log_hints')) AS patroni,
       EXISTS (SELECT FROM pg_roles WHERE rolname = 'pgautofailover_replicator') AS autofailover,
       CASE WHEN EXISTS (SELECT FROM pg_extension WHERE extname = 'repmgr') THEN current_database()::text
            ELSE (SELECT datname::text FROM pg_database WHERE datname = 'repmgr' AND datallowconn) END AS repmgr
"""
"""Patroni starts a server with these options on its command line (its documentation, "Patroni configuration").
repmgr: the database that may hold its extension."""
REPMGR_NODES = "SELECT node_name, conninfo, config_file FROM repmgr.nodes ORDER BY node_id"
REPMGRD = "SELECT repmgr.repmgrd_is_running() AS running, repmgr.repmgrd_is_paused() AS paused"


def cutover_queries(version_num: int, *, hba: bool, cron: bool) -> dict[str, str]:
    """Return the additional queries of a cutover check."""
    named = version_num >= 150000
    questions = {
        "configured": _CONFIGURED,
        "replicates": _REPLICATES,
        "tls": _TLS,
        "rewind": _REWIND,
        "managers": _MANAGERS,
        "collations": _COLLATIONS.format(
            recorded="d.datcollversion" if named else "NULL::text",
            actual="pg_database_collation_actual_version(d.oid)" if named else _LIBC,
        ),
    }
    return questions | ({"hba": _HBA} if hba else {}) | ({"cron": _CRON} if cron else {})


def combined_query(questions: Mapping[str, str]) -> str:
    """Return one statement for all queries, with one JSON object of arrays as answer, to save round trips."""
    parts = (
        f"'{name}', (SELECT coalesce(jsonb_agg(to_jsonb(q)), '[]') FROM ({question}) q)"
        for name, question in questions.items()
    )
    return f"SELECT jsonb_build_object({', '.join(parts)}) AS answers"


# The state, from their answers.

APPLICATION = "dba-console"
CONNECT_S = 3.0
ANSWER_S = 3.0
"""Timeout of each statement, also set on the server."""
LOCK_S = 0.1
_UPSTREAM = (
    "host", "hostaddr", "port", "user", "application_name", "sslmode", "sslcert", "sslkey", "sslrootcert", "gssencmode",
    "channel_binding", "passfile",
)  # fmt: skip
"""Options of primary_conninfo that are kept; the others may contain a password."""


class Details(Struct, frozen=True, kw_only=True):
    """Values that only a cutover check reads. None: unknown."""

    configured: dict[str, str] | None = None
    """All settings, except those of our own session."""
    replicates: tuple[str, ...] | None = None
    """Roles that may connect for replication."""
    tls: dict[str, Any] | None = None
    rewind: dict[str, Any] | None = None
    """Whether the role may read the files of the server, as pg_rewind needs."""
    collations: tuple[dict[str, Any], ...] | None = None
    """Collation versions of the database and its indexes: recorded, and of the installed library."""
    hba: tuple[dict[str, Any], ...] | None = None
    cron: dict[str, Any] | None = None
    """Jobs of pg_cron; None: the database has no such table, or the role may not read it (`reads_cron`)."""
    reads_cron: bool | None = None
    managers: dict[str, Any] | None = None
    """Traces of cluster managers."""
    repmgr: dict[str, Any] | None = None
    """Nodes of repmgr, and whether repmgrd runs and is paused; `error`: why they cannot be read."""


class NodeState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one node. With `error` it did not answer, and nothing else is known."""

    name: str
    error: str = ""
    asked_us: int = 0
    """Our wall clock at the time of the query."""
    failure: str = ""
    """Kind of the connection failure, as in `connect_errors`: refused, timeout, auth, starting …"""
    replication: dict[str, str] = {}
    """Host and port at which other nodes connect to it for replication."""
    address: str | None = None
    """Address at which the server was reached; None: a Unix socket."""
    certificate: Certificate | None = None
    """Its TLS certificate; None: not read."""
    places: tuple[tuple[str, str], ...] = ()
    """Its known hosts and ports: from its connection strings, and the server's own address."""
    role: str | None = None
    """primary or standby."""
    version: str = ""
    version_num: int | None = None
    system_identifier: str | None = None
    timeline: int | None = None
    lsn: str | None = None
    """Of a primary the end of written WAL, of a standby the end of received WAL."""
    replayed_lsn: str | None = None
    replay_paused: bool | None = None
    replayed_ago_s: float | None = None
    """Time since the last replayed commit, by the server's clock: it grows while the primary is idle."""
    clock_apart_s: float | None = None
    """Its clock minus ours; includes half the round trip."""
    prepared: int | None = None
    """Transactions prepared at least 5 s ago: a working transaction manager ends them in milliseconds."""
    slots_used: int | None = None
    walsenders_used: int | None = None
    checksums: bool | None = None
    sees_all: bool | None = None
    """Whether the role sees other users' sessions: otherwise long transactions are unknown."""
    receiver: dict[str, Any] | None = None
    upstream: dict[str, str] | None = None
    """Address and user of its primary_conninfo; None: the role may not read it."""
    standbys: tuple[dict[str, Any], ...] | None = None
    slots: tuple[dict[str, Any], ...] | None = None
    settings: dict[str, str] = {}
    required: dict[str, str] = {}
    """Of a standby: values of its primary's settings, which its own must not be below; empty: unknown."""
    archive: dict[str, Any] | None = None
    work: dict[str, Any] | None = None
    available: tuple[str, ...] | None = None
    """Extensions whose files are installed."""
    used: tuple[str, ...] | None = None
    """Extensions of the checked database."""
    server_start_us: int = 0
    data_directory: str | None = None
    details: Details = Details()
    unknown: dict[str, str] = {}
    """Failed query -> reason."""
    cutover: CutoverMark | None = None
    """The cutover in progress, as this node has it."""

    @property
    def reached(self) -> bool:
        return not self.error


def read_node(name: str, config: NodeConfig, clock: Clock, *, detailed: bool = False) -> NodeState:
    """Read the state of one node. Never raises: without an answer the state has an `error`."""
    asked_us = clock.wall_us()
    connection = QueryConnection(
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
    if (state.details.tls or {}).get("server"):
        return msgspec.structs.replace(state, certificate=read_certificate(state.places))
    return state


def _read(
    name: str, config: NodeConfig, connection: QueryConnection, asked_us: int, clock: Clock, detailed: bool
) -> NodeState:
    identity = connection.read_identity()
    [values] = connection.rows(NODE_STATE, timeout_s=ANSWER_S)
    clock_apart_s = values.pop("clock_s") - clock.wall_us() / 1e6
    hba = values.pop("reads_hba")
    cron = values.pop("reads_cron")
    control = values.pop("reads_control")
    more = cutover_queries(identity.version_num, hba=hba, cron=bool(cron)) if detailed else {}
    more |= {"control": _CONTROL} if detailed and control else {}
    answers, unknown = _run_queries(connection, _node_queries(values) | more)
    return NodeState(
        name=name,
        asked_us=asked_us,
        places=_known_addresses(config, identity),
        replication=_replication_address(config),
        address=identity.address,
        role=identity.role,
        version_num=identity.version_num,
        system_identifier=identity.system_identifier,
        timeline=_timeline(identity, (_first(answers, "recovery") or {}).get("timeline")),
        clock_apart_s=clock_apart_s,
        receiver=_first(answers, "receiver"),
        upstream=_upstream(answers.get("upstream")),
        standbys=_rows(answers, "standbys"),
        slots=_rows(answers, "slots"),
        settings={row["name"]: row["setting"] for row in answers.get("settings", [])},
        required=_required(_first(answers, "control")),
        archive=_first(answers, "archive"),
        work=_first(answers, "work"),
        available=_names(answers, "available"),
        used=_names(answers, "used"),
        server_start_us=identity.server_start_us,
        data_directory=config.data_directory or identity.data_directory,
        details=_details(answers, cron, connection) if detailed else Details(),
        cutover=next((mark for row in answers.get("mark", []) if (mark := parse_mark(row["mark"])) is not None), None),
        unknown=unknown,
        **values,
    )


def _node_queries(values: dict[str, Any]) -> dict[str, str]:
    """Return the queries that the role may run; removes its privileges from the values."""
    return node_queries(archive=values.pop("reads_archive"), waldir=values.pop("reads_waldir"))


def _run_queries(
    connection: QueryConnection, queries: Mapping[str, str]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Return the rows of each query, and why some failed: run one by one only if the combined query fails."""
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
    answers: Mapping[str, list[dict[str, Any]]], reads_cron: bool | None, connection: QueryConnection
) -> Details:
    configured = answers.get("configured")
    return Details(
        configured=None if configured is None else {row["name"]: row["setting"] for row in configured},
        replicates=_names(answers, "replicates"),
        tls=_first(answers, "tls"),
        rewind=_first(answers, "rewind"),
        collations=_rows(answers, "collations"),
        hba=_rows(answers, "hba"),
        cron=_first(answers, "cron"),
        reads_cron=reads_cron,
        managers=_first(answers, "managers"),
        repmgr=_repmgr(connection, (_first(answers, "managers") or {}).get("repmgr")),
    )


def _repmgr(connection: QueryConnection, database: str | None) -> dict[str, Any] | None:
    """Read the tables of the extension; None: not installed."""
    if database is None:
        return None
    repmgr_connection = connection.for_database(database)
    try:
        if not repmgr_connection.rows("SELECT 1 FROM pg_extension WHERE extname = 'repmgr'", timeout_s=ANSWER_S):
            return None
        nodes = [_repmgr_node(row) for row in repmgr_connection.rows(REPMGR_NODES, timeout_s=ANSWER_S)]
        [state] = repmgr_connection.rows(REPMGRD, timeout_s=ANSWER_S)
    except ConsoleError as error:  # also an invalid conninfo in its table
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
        return replication_address(config)
    except ConsoleError:
        return {}


def _timeline(identity: ServerIdentity, replayed: int | None) -> int | None:
    """Return the timeline; of a standby the newest replayed one, as its last restartpoint may be on an older one."""
    if identity.timeline is None or identity.role == PRIMARY or replayed is None:
        return identity.timeline
    return max(identity.timeline, replayed)


def _required(row: dict[str, Any] | None) -> dict[str, str]:
    """Return the values of its primary that a standby replayed last, from its pg_control."""
    try:
        return {} if row is None else required_settings(bytes.fromhex(row["content"]))
    except (DamagedControl, ValueError):
        return {}


def _upstream(rows: list[dict[str, Any]] | None) -> dict[str, str] | None:
    if not rows:
        return None
    try:
        options = parse_conninfo(rows[0]["conninfo"])
    except ConsoleError:
        return {}
    return {name: options[name] for name in _UPSTREAM if name in options}


def _first(answers: Mapping[str, list[dict[str, Any]]], what: str) -> dict[str, Any] | None:
    return next(iter(answers.get(what, [])), None)


def _rows(answers: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[dict[str, Any], ...] | None:
    return tuple(answers[what]) if what in answers else None


def _names(answers: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[str, ...] | None:
    return tuple(row["name"] for row in answers[what]) if what in answers else None
