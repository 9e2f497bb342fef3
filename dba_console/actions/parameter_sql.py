"""How a parameter is read and written in each of its places: postgresql.auto.conf, a database, a role, the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from psycopg import sql

from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.parameter_values import LIST_QUOTED, same_value, split_list

Scope = Literal["system", "database", "role", "session"]

_SETTING = """
SELECT s.name, s.setting, s.unit, s.context, s.vartype, s.source, s.sourcefile, s.pending_restart, s.boot_val,
       pg_catalog.current_setting(s.name) AS shown, me.rolsuper AS superuser,
       pg_catalog.current_setting('server_version_num')::int4 AS version_num,
       coalesce(pg_catalog.current_setting('allow_alter_system', true), 'on') = 'off' AS closed,
       pg_catalog.pg_is_in_recovery() AS standby,
       pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()', 'EXECUTE') AS may_reload,
       pg_catalog.has_table_privilege('pg_catalog.pg_file_settings', 'SELECT')
         AND pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE') AS may_read_files
  FROM pg_catalog.pg_settings s
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
 WHERE pg_catalog.lower(s.name) = pg_catalog.lower(%(name)s)
"""
_MAY_ALTER = "SELECT pg_catalog.has_parameter_privilege(%(name)s, 'ALTER SYSTEM') AS may"
_NAMES = "SELECT s.name FROM pg_catalog.pg_settings s"
_AUTO_CONF_ENTRY = """
SELECT f.setting, f.applied, f.error
  FROM pg_catalog.pg_file_settings f
 WHERE f.sourcefile ~ '(^|/)postgresql\\.auto\\.conf$' AND pg_catalog.lower(f.name) = pg_catalog.lower(%(name)s)
 ORDER BY f.seqno DESC LIMIT 1
"""
_ANY_FILE_ENTRY = """
SELECT f.setting FROM pg_catalog.pg_file_settings f
 WHERE pg_catalog.lower(f.name) = pg_catalog.lower(%(name)s)
 ORDER BY f.seqno DESC LIMIT 1
"""
_BROKEN_FILE = """
SELECT f.sourcefile, f.sourceline, f.error FROM pg_catalog.pg_file_settings f
 WHERE NOT (SELECT pg_catalog.bool_or(g.applied) FROM pg_catalog.pg_file_settings g) AND f.error IS NOT NULL
 ORDER BY f.seqno LIMIT 1
"""
"""A file that cannot be parsed: the server applies nothing of any file then."""
_STORED = """
SELECT pg_catalog.substr(c.entry, pg_catalog.strpos(c.entry, '=') + 1) AS setting
  FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) AS c (entry)
 WHERE s.setdatabase = coalesce((SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = %(database)s), 0)
   AND s.setrole = coalesce((SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = %(role)s), 0)
   AND pg_catalog.lower(pg_catalog.split_part(c.entry, '=', 1)) = pg_catalog.lower(%(name)s)
"""
_EXISTS = """
SELECT %(database)s::text IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = %(database)s)
         AS database,
       %(role)s::text IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = %(role)s) AS role
"""
CONF_LOAD_TIME = "SELECT pg_catalog.pg_conf_load_time() AS at"
RELOAD = "SELECT pg_catalog.pg_reload_conf()"


class ParameterLocation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a parameter is set."""

    parameter: str
    scope: Scope = "system"
    database: str | None = None
    role: str | None = None

    def describe(self) -> str:
        match self.scope:
            case "system":
                return "in postgresql.auto.conf"
            case "session":
                return "for the statements of this run"
            case "database":
                return f"for database {self.database}"
            case "role":
                return f"for role {self.role}" + (f" in database {self.database}" if self.database else "")


def read_setting(connection: ServerConnection, name: str) -> dict[str, Any] | None:
    """What the server says of a parameter, None where it has none of that name."""
    rows = connection.rows(_SETTING, {"name": name})
    if not rows:
        return None
    row = rows[0]
    row["may_alter"] = row["superuser"]
    if not row["superuser"] and row["version_num"] >= 150000:
        row["may_alter"] = connection.rows(_MAY_ALTER, {"name": row["name"]})[0]["may"]
    return row


def parameter_names(connection: ServerConnection) -> list[str]:
    return [row["name"] for row in connection.rows(_NAMES)]


def find_missing_object(connection: ServerConnection, location: ParameterLocation) -> str | None:
    """What of the spot the server does not have."""
    [row] = connection.rows(_EXISTS, _params(location))
    return (
        f"role {location.role}" if not row["role"] else f"database {location.database}" if not row["database"] else None
    )


def find_broken_file(connection: ServerConnection) -> str | None:
    """Why a reload would apply nothing at all."""
    rows = connection.rows(_BROKEN_FILE)
    return f"{rows[0]['sourcefile']} line {rows[0]['sourceline']}: {rows[0]['error']}" if rows else None


def read_auto_conf_entry(connection: ServerConnection, name: str) -> dict[str, Any] | None:
    """The entry of postgresql.auto.conf that counts."""
    rows = connection.rows(_AUTO_CONF_ENTRY, {"name": name})
    return rows[0] if rows else None


def restart_pending(connection: ServerConnection, now: Mapping[str, Any]) -> bool:
    """Whether the server goes by something else than it would after a restart.

    `pending_restart` alone does not tell: it stays when an entry that never counted is taken out again (guc-file.c).
    """
    if not now["pending_restart"] or now["context"] != "postmaster":
        return False
    rows = connection.rows(_ANY_FILE_ENTRY, {"name": now["name"]})
    written = rows[0]["setting"] if rows else now["boot_val"]
    return not same_value(now["name"], now["setting"], written, now["vartype"], now["unit"])


def read_stored_value(connection: ServerConnection, location: ParameterLocation) -> str | None:
    """The value as it is set there, None where it is not set there."""
    if location.scope == "system":
        entry = read_auto_conf_entry(connection, location.parameter)
        return None if entry is None else entry["setting"]
    if location.scope == "session":
        row = read_setting(connection, location.parameter)
        return None if row is None or row["source"] != "session" else row["shown"]
    rows = connection.rows(_STORED, _params(location))
    return rows[0]["setting"] if rows else None


def set_statement(location: ParameterLocation, value: str | None) -> str:
    """The statement that sets it there, or takes it out there. Quoted by the driver; nothing is pasted."""
    parts = [_STATEMENT_PREFIXES[location.scope, location.scope == "role" and location.database is not None]]
    parts.append("RESET {name}" if value is None else "SET {name} = {value}")
    return (
        sql.SQL(" ".join(parts))  # joined from the literals of this module
        .format(
            name=sql.Identifier(*location.parameter.split(".")),
            value=_literal(location.parameter, value or ""),
            database=sql.Identifier(location.database or ""),
            role=sql.Identifier(location.role or ""),
        )
        .as_string(None)
    )


_STATEMENT_PREFIXES: Mapping[tuple[str, bool], str] = {
    ("system", False): "ALTER SYSTEM",
    ("database", False): "ALTER DATABASE {database}",
    ("role", False): "ALTER ROLE {role}",
    ("role", True): "ALTER ROLE {role} IN DATABASE {database}",
    ("session", False): "",
}


def _literal(name: str, value: str) -> sql.Composable:
    if name.lower() in LIST_QUOTED:
        return sql.SQL(", ").join(sql.Literal(element) for element in split_list(value))
    return sql.Literal(value)


def _params(location: ParameterLocation) -> dict[str, Any]:
    return {"name": location.parameter, "database": location.database, "role": location.role}
