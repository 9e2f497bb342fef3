"""SQL to read and set a parameter in each location: postgresql.auto.conf, a database, a role, the session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from psycopg import sql

from dba_console.actions.query_connection import QueryConnection

# Values of configuration parameters: parsing, comparison, quoting.
#
# Units and their base: PostgreSQL documentation, "Parameter Names and Values". Pure.

LIST_QUOTED = frozenset(
    ("local_preload_libraries", "search_path", "session_preload_libraries", "shared_preload_libraries",
     "temp_tablespaces", "unix_socket_directories")
)  # fmt: skip
"""Lists whose elements must be quoted one by one: written as a single literal, `a, b` would be one element of that name
(variable_is_guc_list_quote in src/fe_utils/string_utils.c)."""

_SIZES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TIMES_US = {"us": 1, "ms": 1e3, "s": 1e6, "min": 6e7, "h": 3.6e9, "d": 8.64e10}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")
_TRUE = {"on", "true", "tru", "tr", "t", "yes", "ye", "y", "1"}
_FALSE = {"off", "of", "false", "fals", "fal", "fa", "f", "no", "n", "0"}
_ELEMENT = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",]*?))\s*(?:,|$)')


def setting_text(value: str | int | float | bool) -> str:
    """Return a value from a runbook as the server reads it.

    >>> setting_text(True), setting_text(64), setting_text("64MB")
    ('on', '64', '64MB')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def parse_value(text: str, vartype: str, unit: str | None) -> object:
    """Return the value of a text for a parameter of this type, for comparison.

    >>> parse_value("64MB", "integer", "8kB") == parse_value("8192", "integer", "8kB")
    True
    >>> parse_value("1min", "integer", "ms"), parse_value("YES", "bool", None), parse_value(" Logical", "enum", None)
    (60000, True, 'logical')
    """
    if vartype == "bool":
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else word
    if vartype == "enum":
        return text.strip().lower()
    if vartype in ("integer", "real") and (number := _parse_number(text, unit)) is not None:
        return round(number) if vartype == "integer" else number
    return text


def split_list(text: str) -> list[str]:
    """Return the elements of a list of names, without quotes.

    >>> split_list('"$user", public'), split_list(''), split_list('a,"b, c"')
    (['$user', 'public'], [], ['a', 'b, c'])
    """
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _ELEMENT.match(text, position)
        if match is None or match.end() == position:
            return [text]  # not a list: sent unchanged, and refused by the server
        found.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end()
    return [] if found == [""] else found


def same_value(name: str, one: str | None, other: str | None, vartype: str, unit: str | None) -> bool:
    """Whether two values mean the same; None is `not set`."""
    if one is None or other is None:
        return one is other
    if name.lower() in LIST_QUOTED:
        return split_list(one) == split_list(other)
    return parse_value(one, vartype, unit) == parse_value(other, vartype, unit)


def _parse_number(text: str, unit: str | None) -> float | None:
    """Return the number in the base unit of the parameter; None: not a number, or a unit that does not fit."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number, given = float(match[1]), match[2]
    if not given or unit is None:
        return number if not given else None
    base = re.fullmatch(r"(\d*)(\w+)", unit)
    if base is None:
        return None
    for units in (_SIZES, _TIMES_US):
        if given in units and base[2] in units:
            return number * units[given] / (units[base[2]] * int(base[1] or 1))
    return None


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
"""A file that cannot be parsed: the server then applies no file at all."""
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


def read_setting(connection: QueryConnection, name: str) -> dict[str, Any] | None:
    """Return the row of pg_settings and our privileges; None: unknown parameter."""
    rows = connection.rows(_SETTING, {"name": name})
    if not rows:
        return None
    row = rows[0]
    row["may_alter"] = row["superuser"]
    if not row["superuser"] and row["version_num"] >= 150000:
        row["may_alter"] = connection.rows(_MAY_ALTER, {"name": row["name"]})[0]["may"]
    return row


def parameter_names(connection: QueryConnection) -> list[str]:
    return [row["name"] for row in connection.rows(_NAMES)]


def find_missing_object(connection: QueryConnection, location: ParameterLocation) -> str | None:
    """Return the role or database of the location that does not exist."""
    [row] = connection.rows(_EXISTS, _params(location))
    return (
        f"role {location.role}" if not row["role"] else f"database {location.database}" if not row["database"] else None
    )


def find_broken_file(connection: QueryConnection) -> str | None:
    """Return the error because of which a reload would apply nothing."""
    rows = connection.rows(_BROKEN_FILE)
    return f"{rows[0]['sourcefile']} line {rows[0]['sourceline']}: {rows[0]['error']}" if rows else None


def read_auto_conf_entry(connection: QueryConnection, name: str) -> dict[str, Any] | None:
    """Return the entry of postgresql.auto.conf in effect: the last one."""
    rows = connection.rows(_AUTO_CONF_ENTRY, {"name": name})
    return rows[0] if rows else None


def restart_pending(connection: QueryConnection, now: Mapping[str, Any]) -> bool:
    """Whether the value in effect differs from the value after a restart.

    `pending_restart` alone is not enough: it stays set when an entry that never took effect is removed (guc-file.c).
    """
    if not now["pending_restart"] or now["context"] != "postmaster":
        return False
    rows = connection.rows(_ANY_FILE_ENTRY, {"name": now["name"]})
    written = rows[0]["setting"] if rows else now["boot_val"]
    return not same_value(now["name"], now["setting"], written, now["vartype"], now["unit"])


def read_stored_value(connection: QueryConnection, location: ParameterLocation) -> str | None:
    """Return the value set in this location; None: not set there."""
    if location.scope == "system":
        entry = read_auto_conf_entry(connection, location.parameter)
        return None if entry is None else entry["setting"]
    if location.scope == "session":
        row = read_setting(connection, location.parameter)
        return None if row is None or row["source"] != "session" else row["shown"]
    rows = connection.rows(_STORED, _params(location))
    return rows[0]["setting"] if rows else None


def set_statement(location: ParameterLocation, value: str | None) -> str:
    """Return the statement that sets or resets it there, with everything quoted by psycopg."""
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
