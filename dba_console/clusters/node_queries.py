"""What one server of a cluster is asked: statements that only read."""

from __future__ import annotations

from collections.abc import Mapping

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
       has_table_privilege('pg_hba_file_rules', 'SELECT')
         AND has_function_privilege('pg_hba_file_rules()', 'EXECUTE') AS reads_hba,
       (SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
         WHERE n.nspname = 'cron' AND c.relname = 'job' AND c.relkind = 'r' AND e.extname = 'pg_cron') AS reads_cron
  FROM pg_roles r WHERE r.rolname = current_user
"""
"""Of a schema named cron only the table that belongs to the extension is read: the owner of a database could put a view
there whose functions would run with the rights of our role."""
_RECEIVER = """
SELECT status, sender_host, sender_port, slot_name::text, received_tli, latest_end_lsn::text,
       extract(epoch FROM clock_timestamp() - last_msg_receipt_time)::float8 AS last_message_s
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
   'wal_sender_shutdown_timeout', 'wal_receiver_timeout'])
"""
_ARCHIVE = """
SELECT a.failed_count, a.last_archived_time, a.last_failed_time, a.last_failed_wal,
       coalesce(a.last_failed_time > a.last_archived_time, a.last_failed_time IS NOT NULL) AS failing,
       {ready} AS ready
  FROM pg_stat_archiver a
"""
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
SELECT nullif(min_recovery_end_timeline, 0) AS timeline FROM pg_control_recovery()
"""
_QUERIES = {
    "receiver": _RECEIVER, "standbys": _STANDBYS, "slots": _SLOTS, "settings": _SETTINGS,
    "work": _WORK, "available": _EXTENSIONS, "used": _USED, "upstream": _PRIMARY_CONNINFO,
    "recovery": _RECOVERY,
}  # fmt: skip


def node_queries(*, archive: bool) -> dict[str, str]:
    """Each by the name of its answer. None needs more than `pg_monitor`; what a role may not see is null or left out.

    Whether a role may execute a function is tested where it is called at all, also in a branch that is not taken: so
    `archive` says whether it may count the WAL files that wait.
    """
    return _QUERIES | {"archive": _ARCHIVE.format(ready=_READY if archive else "NULL::int4")}


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
"""Up to 14 a database has no version of its own: that of a collation of the same locale."""
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
    """What only a check of a cutover asks."""
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
    """One statement that answers all of them, as one object of arrays: a distant server costs one round trip."""
    parts = (
        f"'{name}', (SELECT coalesce(jsonb_agg(to_jsonb(q)), '[]') FROM ({question}) q)"
        for name, question in questions.items()
    )
    return f"SELECT jsonb_build_object({', '.join(parts)}) AS answers"
