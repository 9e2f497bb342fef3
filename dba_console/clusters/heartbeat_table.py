"""Where the heartbeat writes: a table of its own, or, where none may be made, a message in the WAL.

Pure: statements, and the decision from what the server answered. All statements are sent by the simple protocol and
are one transaction each, so they need nothing of the session and work behind a transaction pooler.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

SCHEMA = "dba_console"
TABLE = f"{SCHEMA}.heartbeat"
MARK = "made by dba-console for a cutover; it removes this at the end"
"""The comment on what the heartbeat made itself, and may therefore drop."""
STALE = "1 day"
"""Age of rows left by a heartbeat that was killed; more than a heartbeat may live."""
_SEARCH_PATH = "SET LOCAL search_path TO pg_catalog, pg_temp; "
_SERVER_COLUMNS = (
    "pg_catalog.host(pg_catalog.inet_server_addr()) AS address, pg_catalog.current_setting('port') AS port,"
    " pg_catalog.pg_is_in_recovery()::text AS in_recovery, CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE"
    " pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) END AS timeline"
)
"""Timeline from the name of the WAL file: pg_control has the old one until the first checkpoint after a promotion."""
_IF_CONNECTIONS_ALLOWED = (
    " FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()"
    " AND d.datconnlimit OPERATOR(pg_catalog.<>) 0"
)
"""A cutover keeps clients out by CONNECTION LIMIT 0, which binds neither superusers nor sessions that are there
already: the heartbeat does what a client would have to do."""
READ_BEAT = _SEARCH_PATH + "SELECT " + _SERVER_COLUMNS + _IF_CONNECTIONS_ALLOWED
WAL_MESSAGE_BEAT = (
    _SEARCH_PATH
    + "SELECT "
    + _SERVER_COLUMNS
    + ", pg_catalog.pg_logical_emit_message(true, 'dba-console', '')::text AS position"
    + _IF_CONNECTIONS_ALLOWED
)
"""An empty transactional message: it is written to the WAL and its commit waits for disk and synchronous standbys as
any other does. A standby refuses it, for it needs a transaction id."""
TARGET_FACTS = (
    _SEARCH_PATH
    + f"""
SELECT pg_is_in_recovery()::text AS in_recovery, current_database()::text AS database, current_user::text AS role,
       has_database_privilege(current_database(), 'CREATE')::text AS may_create,
       (SELECT string_agg(p.pubname, ', ' ORDER BY p.pubname) FROM pg_publication p WHERE p.puballtables) AS publishes,
       (SELECT r.rolname::text FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
         WHERE n.nspname = '{SCHEMA}') AS schema_owner,
       (SELECT (r.rolsuper OR r.rolname = current_user)::text FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
         WHERE n.nspname = '{SCHEMA}') AS schema_trusted,
       (SELECT (has_schema_privilege(n.oid, 'CREATE'))::text FROM pg_namespace n
         WHERE n.nspname = '{SCHEMA}') AS schema_may_create,
       c.owner AS table_owner, c.trusted AS table_trusted, c.writable AS table_writable
  FROM (SELECT) AS one
  LEFT JOIN (SELECT r.rolname::text AS owner, (r.rolsuper OR r.rolname = current_user)::text AS trusted,
                    (has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT')
                     AND has_table_privilege(t.oid, 'UPDATE') AND t.relkind = 'r')::text AS writable
               FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace JOIN pg_roles r ON r.oid = t.relowner
              WHERE n.nspname = '{SCHEMA}' AND t.relname = 'heartbeat') AS c ON true
"""
)
CREATE_SCHEMA = f"CREATE SCHEMA {SCHEMA}; COMMENT ON SCHEMA {SCHEMA} IS '{MARK}'; "
CREATE_TABLE = (
    f"CREATE TABLE {TABLE} (run text PRIMARY KEY, beats int8 NOT NULL, at timestamptz NOT NULL)"
    f" WITH (fillfactor = 50); COMMENT ON TABLE {TABLE} IS '{MARK}'; "
)
"""Half of each page is left free, so that updates stay in their page and need no new index entry."""
LOCK = f"BEGIN; {_SEARCH_PATH}SET LOCAL lock_timeout = '2s'; LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE"
ROWS = f"SELECT count(*)::text AS rows FROM {TABLE}"
DROP_TABLE = f"DROP TABLE {TABLE}; COMMIT"
DROP_SCHEMA = f"{_SEARCH_PATH}DROP SCHEMA {SCHEMA}"
CREATED_BY_HEARTBEAT = (
    _SEARCH_PATH
    + f"""
SELECT (SELECT (d.description = '{MARK}' AND c.relowner = u.oid)::text
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          LEFT JOIN pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
         WHERE n.nspname = '{SCHEMA}' AND c.relname = 'heartbeat') AS "table",
       (SELECT (d.description = '{MARK}' AND n.nspowner = u.oid)::text
          FROM pg_namespace n
          LEFT JOIN pg_description d ON d.objoid = n.oid AND d.classoid = 'pg_namespace'::regclass
         WHERE n.nspname = '{SCHEMA}') AS "schema"
  FROM pg_roles u WHERE u.rolname = current_user
"""
)
"""What the heartbeat made itself, as this role."""


class WriteTarget(Struct, frozen=True):
    """Where write beats go."""

    advisory: str = ""
    """Why no table is written; empty where one is."""
    create: str = ""
    """The statements that make what is missing."""


def choose_target(facts: Mapping[str, str]) -> WriteTarget:
    """Decide from FACTS. A table of another role is not written: its triggers and rules would run as ours."""
    schema, table = facts.get("schema_owner"), facts.get("table_owner")
    if schema is not None and facts.get("schema_trusted") != "true":
        return WriteTarget(advisory=f"the schema {SCHEMA} belongs to the role {schema}")
    if table is not None:
        if facts.get("table_trusted") != "true":
            return WriteTarget(advisory=f"the table {TABLE} belongs to the role {table}")
        if facts.get("table_writable") != "true":
            return WriteTarget(advisory=f"the role {facts.get('role')} may not write the table {TABLE}")
        return WriteTarget()
    if publishes := facts.get("publishes"):
        # A table that a subscriber lacks stops its apply worker (logicalrep_rel_open).
        return WriteTarget(
            advisory=f"a new table would stop the subscribers of {publishes}, which publishes all tables"
        )
    if schema is None and facts.get("may_create") != "true":
        return WriteTarget(advisory=f"the role {facts.get('role')} may not create a schema in {facts.get('database')}")
    if schema is not None and facts.get("schema_may_create") != "true":
        return WriteTarget(advisory=f"the role {facts.get('role')} may not create a table in the schema {SCHEMA}")
    return WriteTarget(create=(CREATE_SCHEMA if schema is None else "") + CREATE_TABLE)


def write_beat(run: str, create: str = "") -> str:
    """One write beat; `run` is made of letters and digits. What is created is created in the same transaction."""
    return (
        f"{_SEARCH_PATH}{create}INSERT INTO {TABLE} AS h (run, beats, at) SELECT '{run}', 1, "
        f"now(){_IF_CONNECTIONS_ALLOWED}"
        f" ON CONFLICT (run) DO UPDATE SET beats = h.beats + 1, at = excluded.at RETURNING {_SERVER_COLUMNS}"
    )


def remove_rows(run: str) -> str:
    """Delete the row of this heartbeat, and those of heartbeats that were killed."""
    return f"{_SEARCH_PATH}DELETE FROM {TABLE} WHERE run = '{run}' OR at < now() - interval '{STALE}'"
