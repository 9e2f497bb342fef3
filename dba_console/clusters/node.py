"""One server of a cluster, as it says of itself over one short connection that only reads.

A question the role may not ask costs its answer and no other. What is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from msgspec import Struct

from dba_console.actions.link import StatementFailed
from dba_console.actions.operator import Operator
from dba_console.clock import Clock
from dba_console.config import NodeConfig
from dba_console.errors import ConsoleError
from dba_console.harmless import clean
from dba_console.redact import redact

CONNECT_S = 3.0
APPLICATION = "dba-console"
ANSWER_S = 3.0
"""For each question; the server's own limits are the same."""
LOCK_S = 0.1
_SELF = """
SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
       extract(epoch FROM clock_timestamp())::float8 AS clock_s,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END::text AS lsn,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() END::text AS replayed_lsn,
       CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() END AS replay_paused,
       CASE WHEN pg_is_in_recovery()
            THEN extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 END AS replayed_ago_s,
       (SELECT count(*)::int4 FROM pg_prepared_xacts) AS prepared,
       (SELECT count(*)::int4 FROM pg_replication_slots) AS slots_used,
       (SELECT count(*)::int4 FROM pg_stat_replication) AS walsenders_used,
       current_setting('data_checksums') = 'on' AS checksums,
       r.rolsuper OR pg_has_role(r.oid, 'pg_read_all_stats', 'USAGE') AS sees_all
  FROM pg_roles r WHERE r.rolname = current_user
"""
_RECEIVER = """
SELECT status, sender_host, sender_port, slot_name::text, received_tli, latest_end_lsn::text
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
   'wal_sender_shutdown_timeout'])
"""
_ARCHIVE = """
SELECT a.failed_count, a.last_archived_time, a.last_failed_time, a.last_failed_wal,
       coalesce(a.last_failed_time > a.last_archived_time, a.last_failed_time IS NOT NULL) AS failing,
       CASE WHEN current_setting('archive_mode') <> 'off' AND NOT pg_is_in_recovery()
                 AND has_function_privilege('pg_ls_archive_statusdir()', 'EXECUTE')
            THEN query_to_xml($$SELECT count(*) AS n FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'$$,
                              true, true, '')::text END AS ready_xml
  FROM pg_stat_archiver a
"""
_WORK = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start))
         FILTER (WHERE backend_type = 'client backend'), 0)::float8 AS oldest_xact_s,
       count(*) FILTER (WHERE backend_type = 'client backend'
         AND xact_start < clock_timestamp() - interval '1 min')::int4 AS long_xacts,
       count(*) FILTER (WHERE application_name ~ '^(pg_dump|pg_restore|pg_dumpall|pgcopydb)')::int4 AS dumps,
       count(*) FILTER (WHERE backend_type = 'client backend')::int4 AS clients,
       (SELECT count(*)::int4 FROM pg_stat_progress_basebackup) AS base_backups,
       (SELECT count(*)::int4 FROM pg_stat_progress_create_index) AS index_builds,
       (SELECT count(*)::int4 FROM pg_stat_progress_cluster) AS rewrites,
       bool_or(application_name LIKE 'Patroni%') AS patroni, bool_or(application_name LIKE 'repmgr%') AS repmgr,
       bool_or(application_name LIKE 'pg_auto_failover%' OR application_name LIKE 'pgautofailover%') AS autofailover
  FROM pg_stat_activity WHERE pid <> pg_backend_pid()
"""
_EXTENSIONS = "SELECT DISTINCT name::text FROM pg_available_extensions ORDER BY name"
_USED = "SELECT extname::text AS name FROM pg_extension ORDER BY extname"
_QUESTIONS = {
    "receiver": _RECEIVER, "standbys": _STANDBYS, "slots": _SLOTS, "settings": _SETTINGS, "archive": _ARCHIVE,
    "work": _WORK, "available": _EXTENSIONS, "used": _USED,
}  # fmt: skip


class NodeState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one node was when it was asked. Where `error` is set nobody answered, and nothing else is known."""

    name: str
    error: str = ""
    asked_us: int = 0
    """Our wall clock when it was asked: the age of every number here."""
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
    slots_used: int | None = None
    walsenders_used: int | None = None
    checksums: bool | None = None
    sees_all: bool | None = None
    """Whether the role sees other users' sessions: without it long transactions are not known."""
    receiver: dict[str, Any] | None = None
    standbys: tuple[dict[str, Any], ...] | None = None
    slots: tuple[dict[str, Any], ...] | None = None
    settings: dict[str, str] = {}
    archive: dict[str, Any] | None = None
    work: dict[str, Any] | None = None
    available: tuple[str, ...] | None = None
    """Extensions whose files are there."""
    used: tuple[str, ...] | None = None
    """Extensions of the database that was asked."""
    unknown: dict[str, str] = {}
    """What could not be asked, and why."""

    @property
    def reached(self) -> bool:
        return not self.error


def read_node(name: str, config: NodeConfig, clock: Clock) -> NodeState:
    """Ask one node everything. Never raises: who does not answer is a state with an `error`."""
    asked_us = clock.wall_us()
    link = Operator(
        config.dsn, application=APPLICATION, connect_timeout_s=CONNECT_S, lock_timeout_s=LOCK_S, clock=clock
    )
    with closing(link):
        try:
            return _read(name, link, asked_us, clock)
        except ConsoleError as error:
            return NodeState(name=name, error=clean(redact(error.message)), asked_us=asked_us)


def _read(name: str, link: Operator, asked_us: int, clock: Clock) -> NodeState:
    who = link.identity()
    [own] = link.rows(_SELF, timeout_s=ANSWER_S)
    clock_apart_s = own.pop("clock_s") - clock.wall_us() / 1e6
    known: dict[str, list[dict[str, Any]]] = {}
    unknown: dict[str, str] = {}
    for what, question in _QUESTIONS.items():
        try:
            known[what] = link.rows(question, timeout_s=ANSWER_S)
        except StatementFailed as error:
            unknown[what] = error.message
    archive = next(iter(known.get("archive", [])), None)
    return NodeState(
        name=name,
        asked_us=asked_us,
        role=who.role,
        version_num=who.version_num,
        system_identifier=who.system_identifier,
        timeline=who.timeline,
        clock_apart_s=clock_apart_s,
        receiver=next(iter(known.get("receiver", [])), None),
        standbys=_rows(known, "standbys"),
        slots=_rows(known, "slots"),
        settings={row["name"]: row["setting"] for row in known.get("settings", [])},
        archive=None if archive is None else {**archive, "ready": _count(archive.pop("ready_xml"))},
        work=next(iter(known.get("work", [])), None),
        available=_names(known, "available"),
        used=_names(known, "used"),
        unknown=unknown,
        **own,
    )


def _rows(known: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[dict[str, Any], ...] | None:
    return tuple(known[what]) if what in known else None


def _names(known: Mapping[str, list[dict[str, Any]]], what: str) -> tuple[str, ...] | None:
    return tuple(row["name"] for row in known[what]) if what in known else None


def _count(xml: str | None) -> int | None:
    """The number in what `query_to_xml` gives for one count."""
    _, found, rest = (xml or "").partition("<n>")
    return int(rest.partition("<")[0]) if found else None
