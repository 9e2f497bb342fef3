"""What belongs to a database itself, and not to what is in it: how it is read, and the statements that make it so.

Neither a dump nor a restore without --create has it: encoding, locale, owner, tablespace, grants on the database,
settings of the database and of roles in it, comment (PostgreSQL documentation, pg_dump, option -C).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from psycopg import sql

from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.parameter_sql import ParameterLocation, set_statement

_DEFINITION = """
SELECT d.oid::int8 AS oid, d.datname::text AS name, pg_catalog.pg_encoding_to_char(d.encoding)::text AS encoding,
       CASE pg_catalog.to_jsonb(d) ->> 'datlocprovider' WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' WHEN 'c' THEN 'libc'
       END AS provider,
       d.datcollate::text AS lc_collate, d.datctype::text AS lc_ctype,
       coalesce(pg_catalog.to_jsonb(d) ->> 'datlocale', pg_catalog.to_jsonb(d) ->> 'daticulocale') AS locale,
       pg_catalog.to_jsonb(d) ->> 'daticurules' AS icu_rules, d.datistemplate AS template,
       pg_catalog.pg_get_userbyid(d.datdba)::text AS owner,
       (SELECT t.spcname::text FROM pg_catalog.pg_tablespace t WHERE t.oid = d.dattablespace) AS tablespace,
       d.datconnlimit::int4 AS connection_limit,
       pg_catalog.shobj_description(d.oid, 'pg_database') AS comment,
       (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(
                 CASE WHEN a.grantee <> 0 THEN pg_catalog.pg_get_userbyid(a.grantee) END, a.privilege_type,
                 a.is_grantable)), '[]')::text
          FROM pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) a) AS grants,
       (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(
                 CASE WHEN s.setrole <> 0 THEN pg_catalog.pg_get_userbyid(s.setrole) END, c.entry)), '[]')::text
          FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) AS c (entry)
         WHERE s.setdatabase = d.oid) AS settings
  FROM pg_catalog.pg_database d
 WHERE d.datname = %(name)s
"""
_OPTION = re.compile(r"\b([A-Z_]+) = (?:E?'((?:[^']|'')*)'|(\w+))")
_OPTIONS = {
    "ENCODING": "encoding", "LOCALE_PROVIDER": "provider", "LC_COLLATE": "lc_collate", "LC_CTYPE": "lc_ctype",
    "ICU_LOCALE": "locale", "BUILTIN_LOCALE": "locale", "ICU_RULES": "icu_rules",
}  # fmt: skip

PRIVILEGES = ("CONNECT", "CREATE", "TEMPORARY")
"""All there are on a database."""
Grants = Mapping[tuple[str | None, str], bool]
"""Role, None for PUBLIC, and privilege -> whether it may be granted on. Who granted it is not kept."""
Parameters = Mapping[tuple[str | None, str], str]
"""Role, None for all of them, and name -> value as the catalog has it."""


class DatabaseDefinition(Struct, frozen=True, kw_only=True):
    """A database, or one that is to be: what is None or empty there is left to the server."""

    oid: int | None = None
    """Of one that is there."""
    encoding: str | None = None
    provider: str | None = None
    """libc, icu, builtin; None before version 15."""
    lc_collate: str | None = None
    lc_ctype: str | None = None
    locale: str | None = None
    """Of icu and builtin."""
    icu_rules: str | None = None
    template: bool = False
    owner: str | None = None
    tablespace: str | None = None
    connection_limit: int = -1
    comment: str | None = None
    grants: Grants | None = None
    settings: Parameters = {}


FIXED_AT_CREATION = ("encoding", "provider", "lc_collate", "lc_ctype", "locale", "icu_rules", "tablespace")
"""Cannot be changed any more, or not without a copy of all of it."""


def read_definition(connection: ServerConnection, name: str) -> DatabaseDefinition | None:
    """The database of this name, None where the server has none."""
    rows = connection.rows(_DEFINITION, {"name": name})
    if not rows:
        return None
    row = rows[0]
    grants: dict[tuple[str | None, str], bool] = {}
    for role, privilege, grantable in json.loads(row.pop("grants")):
        assert privilege in PRIVILEGES
        grants[role, privilege] = grants.get((role, privilege), False) or grantable
    pairs = ((role, entry.partition("=")) for role, entry in json.loads(row.pop("settings")))
    settings = {(role, name): value for role, (name, _, value) in pairs}
    del row["name"]
    return DatabaseDefinition(**row, grants=grants, settings=settings)


def parse_dump_options(options: str) -> DatabaseDefinition:
    """Encoding and locale as the CREATE DATABASE of a dump has them; what it does not say is None.

    >>> made = parse_dump_options(" ENCODING = 'UTF8' LOCALE_PROVIDER = icu LOCALE = 'de_DE.UTF-8' ICU_LOCALE = 'de'")
    >>> made.encoding, made.provider, made.lc_collate, made.lc_ctype, made.locale
    ('UTF8', 'icu', 'de_DE.UTF-8', 'de_DE.UTF-8', 'de')
    """
    found: dict[str, Any] = {}
    for name, text, word in _OPTION.findall(options):
        value = text.replace("''", "'") or word
        if name == "LOCALE":
            found |= {"lc_collate": value, "lc_ctype": value}
        elif name in _OPTIONS:
            found[_OPTIONS[name]] = value
    return DatabaseDefinition(**found)


def create_statement(name: str, wanted: DatabaseDefinition) -> str:
    """The statement that makes it, empty."""
    options = [("OWNER", wanted.owner and sql.Identifier(wanted.owner)),
               ("ENCODING", wanted.encoding and sql.Literal(wanted.encoding)),
               ("LOCALE_PROVIDER", wanted.provider and sql.Literal(wanted.provider)),
               ("LC_COLLATE", wanted.lc_collate and sql.Literal(wanted.lc_collate)),
               ("LC_CTYPE", wanted.lc_ctype and sql.Literal(wanted.lc_ctype)),
               ("BUILTIN_LOCALE" if wanted.provider == "builtin" else "ICU_LOCALE",
                wanted.locale and sql.Literal(wanted.locale)),
               ("ICU_RULES", wanted.icu_rules and sql.Literal(wanted.icu_rules)),
               ("TABLESPACE", wanted.tablespace and sql.Identifier(wanted.tablespace)),
               ("CONNECTION LIMIT", sql.Literal(wanted.connection_limit))]  # fmt: skip
    given = [sql.SQL(" {} {}").format(sql.SQL(word), value) for word, value in options if value]
    made = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)) + sql.Composed(given)
    return made.as_string(None)


def alter_statements(name: str, now: DatabaseDefinition, wanted: DatabaseDefinition) -> Iterator[str]:
    """The statements that give a database what it can still be given; none where it is as wanted."""
    this = sql.Identifier(name)
    if wanted.owner and wanted.owner != now.owner:
        yield _text("ALTER DATABASE {} OWNER TO {}", this, sql.Identifier(wanted.owner))
    if wanted.connection_limit != now.connection_limit:
        yield _text("ALTER DATABASE {} CONNECTION LIMIT {}", this, sql.Literal(wanted.connection_limit))
    if wanted.template != now.template:
        yield _text("ALTER DATABASE {} IS_TEMPLATE {}", this, sql.Literal(wanted.template))
    if wanted.comment != now.comment:
        yield _text("COMMENT ON DATABASE {} IS {}", this, sql.Literal(wanted.comment))
    if wanted.grants is not None:
        yield from _grant_statements(this, now.grants or {}, wanted.grants)
    for location in sorted({*now.settings, *wanted.settings}, key=str):
        if now.settings.get(location) != wanted.settings.get(location):
            role, parameter = location
            where = ParameterLocation(
                parameter=parameter, scope="role" if role else "database", database=name, role=role
            )
            yield set_statement(where, wanted.settings.get(location)).strip()


def _grant_statements(this: sql.Identifier, now: Grants, wanted: Grants) -> Iterator[str]:
    """What nobody shall have first: else PUBLIC would have it for a moment."""
    for key in sorted(now.keys() - wanted.keys(), key=str):
        yield _text("REVOKE {} ON DATABASE {} FROM {}", sql.SQL(key[1]), this, _role(key[0]))
    for key in sorted(wanted, key=str):
        if now.get(key) == wanted[key]:
            continue
        if wanted[key] or key not in now:
            end = " WITH GRANT OPTION" if wanted[key] else ""
            yield _text("GRANT {} ON DATABASE {} TO {}" + end, sql.SQL(key[1]), this, _role(key[0]))
        else:
            yield _text("REVOKE GRANT OPTION FOR {} ON DATABASE {} FROM {}", sql.SQL(key[1]), this, _role(key[0]))


def _role(name: str | None) -> sql.Composable:
    return sql.SQL("PUBLIC") if name is None else sql.Identifier(name)


def _text(words: str, *parts: sql.Composable) -> str:
    return sql.SQL(words).format(*parts).as_string(None)
