"""The statements of vacuum: what is to be vacuumed, how far it is, and what it left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql

# No function that takes a lock on the table: whoever looks must not wait behind who holds it.
TABLE = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       CASE WHEN c.relkind <> 'p'
            THEN greatest(pg_catalog.age(c.relfrozenxid), pg_catalog.age(t.relfrozenxid)) END AS xid_age,
       CASE WHEN c.relkind <> 'p'
            THEN greatest(pg_catalog.mxid_age(c.relminmxid), pg_catalog.mxid_age(t.relminmxid)) END AS mxid_age,
       (c.relpages::int8 + coalesce(t.relpages, 0)) * pg_catalog.current_setting('block_size')::int8 AS bytes,
       s.n_dead_tup::int8 AS dead_rows, coalesce(s.vacuum_count, 0)::int8 AS vacuums,
       me.rolsuper OR pg_catalog.pg_has_role(c.relowner, 'USAGE') OR (d.datdba = me.oid AND NOT c.relisshared)
         OR EXISTS (SELECT FROM pg_catalog.pg_roles m
                     WHERE m.rolname = 'pg_maintain' AND pg_catalog.pg_has_role(m.oid, 'USAGE')) AS owned
  FROM pg_catalog.pg_class c
  LEFT JOIN pg_catalog.pg_class t ON t.oid = c.reltoastrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
  JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
  LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
 WHERE c.oid = pg_catalog.to_regclass(%(table)s)
"""
MAINTAIN = "SELECT pg_catalog.has_table_privilege(%(oid)s::oid, 'MAINTAIN') AS may"
"""From 17 on."""
DATABASE = """
SELECT d.datname::text AS name, pg_catalog.age(d.datfrozenxid) AS xid_age,
       pg_catalog.mxid_age(d.datminmxid) AS mxid_age, d.datallowconn AS connects
  FROM pg_catalog.pg_database d WHERE d.datname = coalesce(%(database)s, pg_catalog.current_database())
"""
BYTES = "SELECT pg_catalog.pg_database_size(%(database)s::name) AS bytes"
"""Looks at every file of it: asked only where all of it is meant."""
SERVER = """
SELECT pg_catalog.pg_is_in_recovery() AS in_recovery,
       pg_catalog.current_setting('server_version_num')::int4 AS version_num,
       (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8 AS now_us,
       me.rolsuper OR d.datdba = me.oid
         OR EXISTS (SELECT FROM pg_catalog.pg_roles m
                     WHERE m.rolname = 'pg_maintain' AND pg_catalog.pg_has_role(m.oid, 'USAGE')) AS whole
  FROM pg_catalog.pg_roles me, pg_catalog.pg_database d
 WHERE me.rolname = current_user AND d.datname = coalesce(%(database)s, pg_catalog.current_database())
"""
DONE_SINCE = """
SELECT pg_catalog.count(*) AS tables,
       pg_catalog.count(*) FILTER (
         WHERE s.last_vacuum >= timestamptz 'epoch' + %(since)s::int8 * interval '1 microsecond') AS vacuumed,
       pg_catalog.pg_postmaster_start_time()
         >= timestamptz 'epoch' + %(since)s::int8 * interval '1 microsecond' AS restarted
  FROM pg_catalog.pg_stat_all_tables s
  JOIN pg_catalog.pg_class c ON c.oid = s.relid
 WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't' AND (%(oid)s::int8 IS NULL OR s.relid = %(oid)s::int8)
"""
"""Of a partitioned table only its partitions count, and they are not asked here: it has no statistics of its own."""
UNDER_WAY = """
SELECT a.pid, a.query_start, a.wait_event_type, pg_catalog.pg_blocking_pids(a.pid) AS blockers, p.phase,
       pg_catalog.to_jsonb(p) AS progress,
       (SELECT c.relname::text FROM pg_catalog.pg_class c
         WHERE c.oid = p.relid AND p.datname = pg_catalog.current_database()) AS relation
  FROM pg_catalog.pg_stat_activity a
  LEFT JOIN pg_catalog.pg_stat_progress_vacuum p ON p.pid = a.pid
 WHERE a.pid = %(pid)s
"""
OWN_VACUUMS = """
SELECT a.pid FROM pg_catalog.pg_stat_activity a
 WHERE a.usename = current_user AND a.application_name LIKE 'dba-console:%%' AND a.state = 'active'
   AND a.query ILIKE 'vacuum%%' AND a.pid <> pg_catalog.pg_backend_pid()
   AND a.datname = coalesce(%(database)s, pg_catalog.current_database())
"""


def statement(options: Mapping[str, str | int | bool | None], table: tuple[str, str] | None) -> str:
    """VACUUM with the options that are not None.

    >>> statement({"FREEZE": True, "PARALLEL": 2, "TRUNCATE": None, "INDEX_CLEANUP": "off"}, ("public", "a b"))
    'VACUUM (FREEZE, PARALLEL 2, INDEX_CLEANUP off) "public"."a b"'
    """
    given = [f"{name}{_value(value)}" for name, value in options.items() if value is not None]
    parts = ["VACUUM", *([f"({', '.join(given)})"] if given else [])]
    return " ".join(parts) + ("" if table is None else " " + sql.Identifier(*table).as_string(None))


def _value(value: str | int | bool | None) -> str:
    """Words and numbers of this module's own making only."""
    if value is True:
        return ""
    return f" {'off' if value is False else value}"


def phase_text(row: Mapping[str, Any] | None) -> str:
    """What a VACUUM under way does, in a few words."""
    if row is None:
        return "waiting for its backend"
    if row["wait_event_type"] == "Lock" and row["blockers"]:
        return f"waiting for a lock that process {', '.join(str(pid) for pid in row['blockers'])} holds"
    where = f" of {row['relation']}" if row["relation"] else ""
    return f"{row['phase']}{where}" if row["phase"] else "between tables"
