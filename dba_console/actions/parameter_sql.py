"""How a parameter is read and written in each of its places: postgresql.auto.conf, a database, a role, the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from psycopg import sql

from dba_console.actions.link import ServerLink
from dba_console.actions.parameter_values import LIST_QUOTED, elements, same

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
_FILE = """
SELECT f.setting, f.applied, f.error
  FROM pg_catalog.pg_file_settings f
 WHERE f.sourcefile ~ '(^|/)postgresql\\.auto\\.conf$' AND pg_catalog.lower(f.name) = pg_catalog.lower(%(name)s)
 ORDER BY f.seqno DESC LIMIT 1
"""
_WRITTEN = """
SELECT f.setting FROM pg_catalog.pg_file_settings f
 WHERE pg_catalog.lower(f.name) = pg_catalog.lower(%(name)s)
 ORDER BY f.seqno DESC LIMIT 1
"""
_BROKEN = """
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
_THERE = """
SELECT %(database)s::text IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_database d WHERE d.datname = %(database)s)
         AS database,
       %(role)s::text IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = %(role)s) AS role
"""
LOADED = "SELECT pg_catalog.pg_conf_load_time() AS at"
RELOAD = "SELECT pg_catalog.pg_reload_conf()"


class Spot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a parameter is set."""

    parameter: str
    scope: Scope = "system"
    database: str | None = None
    role: str | None = None

    def words(self) -> str:
        match self.scope:
            case "system":
                return "in postgresql.auto.conf"
            case "session":
                return "for the statements of this run"
            case "database":
                return f"for database {self.database}"
            case "role":
                return f"for role {self.role}" + (f" in database {self.database}" if self.database else "")


def setting(link: ServerLink, name: str) -> dict[str, Any] | None:
    """What the server says of a parameter, None where it has none of that name."""
    rows = link.rows(_SETTING, {"name": name})
    if not rows:
        return None
    row = rows[0]
    row["may_alter"] = row["superuser"]
    if not row["superuser"] and row["version_num"] >= 150000:
        row["may_alter"] = link.rows(_MAY_ALTER, {"name": row["name"]})[0]["may"]
    return row


def names(link: ServerLink) -> list[str]:
    return [row["name"] for row in link.rows(_NAMES)]


def missing(link: ServerLink, spot: Spot) -> str | None:
    """What of the spot the server does not have."""
    [row] = link.rows(_THERE, _params(spot))
    return f"role {spot.role}" if not row["role"] else f"database {spot.database}" if not row["database"] else None


def broken_file(link: ServerLink) -> str | None:
    """Why a reload would apply nothing at all."""
    rows = link.rows(_BROKEN)
    return f"{rows[0]['sourcefile']} line {rows[0]['sourceline']}: {rows[0]['error']}" if rows else None


def file_entry(link: ServerLink, name: str) -> dict[str, Any] | None:
    """The entry of postgresql.auto.conf that counts."""
    rows = link.rows(_FILE, {"name": name})
    return rows[0] if rows else None


def restart_due(link: ServerLink, now: Mapping[str, Any]) -> bool:
    """Whether the server goes by something else than it would after a restart.

    `pending_restart` alone does not tell: it stays when an entry that never counted is taken out again (guc-file.c).
    """
    if not now["pending_restart"] or now["context"] != "postmaster":
        return False
    rows = link.rows(_WRITTEN, {"name": now["name"]})
    written = rows[0]["setting"] if rows else now["boot_val"]
    return not same(now["name"], now["setting"], written, now["vartype"], now["unit"])


def stored(link: ServerLink, spot: Spot) -> str | None:
    """The value as it is set there, None where it is not set there."""
    if spot.scope == "system":
        entry = file_entry(link, spot.parameter)
        return None if entry is None else entry["setting"]
    if spot.scope == "session":
        row = setting(link, spot.parameter)
        return None if row is None or row["source"] != "session" else row["shown"]
    rows = link.rows(_STORED, _params(spot))
    return rows[0]["setting"] if rows else None


def statement(spot: Spot, value: str | None) -> str:
    """The statement that sets it there, or takes it out there. Quoted by the driver; nothing is pasted."""
    parts = [_HEADS[spot.scope, spot.scope == "role" and spot.database is not None]]
    parts.append("RESET {name}" if value is None else "SET {name} = {value}")
    return (
        sql.SQL(" ".join(parts))  # joined from the literals of this module
        .format(
            name=sql.Identifier(*spot.parameter.split(".")),
            value=_literal(spot.parameter, value or ""),
            database=sql.Identifier(spot.database or ""),
            role=sql.Identifier(spot.role or ""),
        )
        .as_string(None)
    )


_HEADS: Mapping[tuple[str, bool], str] = {
    ("system", False): "ALTER SYSTEM",
    ("database", False): "ALTER DATABASE {database}",
    ("role", False): "ALTER ROLE {role}",
    ("role", True): "ALTER ROLE {role} IN DATABASE {database}",
    ("session", False): "",
}


def _literal(name: str, value: str) -> sql.Composable:
    if name.lower() in LIST_QUOTED:
        return sql.SQL(", ").join(sql.Literal(element) for element in elements(value))
    return sql.Literal(value)


def _params(spot: Spot) -> dict[str, Any]:
    return {"name": spot.parameter, "database": spot.database, "role": spot.role}
