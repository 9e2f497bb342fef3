"""The action create-database: create an empty database like another one, with what a dump of its contents omits.

A database created again under an old name has the server's locale, no settings, no grants and another owner, which is
noticed only when something sorts differently. The statements shown are the statements executed; after a kill it
continues from the server's current state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from psycopg import sql

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.parameter_sql import ParameterLocation, set_statement
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core.redact import redact_statement

# Properties of the database itself, not of its contents: how they are read, and the statements that set them.
#
# A dump or restore without --create omits encoding, locale, owner, tablespace, grants on the database, settings of the
# database and of roles in it, and comment (PostgreSQL documentation, pg_dump, option -C).

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
         WHERE s.setdatabase = d.oid AND NOT pg_catalog.starts_with(c.entry, 'dba_console.')) AS settings
  FROM pg_catalog.pg_database d
 WHERE d.datname = %(name)s
"""
_OPTION = re.compile(r"\b([A-Z_]+) = (?:E?'((?:[^']|'')*)'|(\w+))")
_OPTIONS = {
    "ENCODING": "encoding", "LOCALE_PROVIDER": "provider", "LC_COLLATE": "lc_collate", "LC_CTYPE": "lc_ctype",
    "ICU_LOCALE": "locale", "BUILTIN_LOCALE": "locale", "ICU_RULES": "icu_rules",
}  # fmt: skip

PRIVILEGES = ("CONNECT", "CREATE", "TEMPORARY")
"""All privileges on a database."""
Grants = Mapping[tuple[str | None, str], bool]
"""Role (None: PUBLIC) and privilege -> with grant option. The grantor is not kept."""
Parameters = Mapping[tuple[str | None, str], str]
"""Role (None: all roles) and name -> value as stored in the catalog."""


class DatabaseDefinition(Struct, frozen=True, kw_only=True):
    """An existing or requested database; for a requested one, None or empty means the server's default."""

    oid: int | None = None
    """OID of an existing database."""
    encoding: str | None = None
    provider: str | None = None
    """libc, icu, builtin; None before version 15."""
    lc_collate: str | None = None
    lc_ctype: str | None = None
    locale: str | None = None
    """Locale of icu and builtin."""
    icu_rules: str | None = None
    template: bool = False
    owner: str | None = None
    tablespace: str | None = None
    connection_limit: int = -1
    comment: str | None = None
    grants: Grants | None = None
    settings: Parameters = {}


FIXED_AT_CREATION = ("encoding", "provider", "lc_collate", "lc_ctype", "locale", "icu_rules", "tablespace")
"""Cannot be changed after creation, or only by copying the whole database."""


def read_definition(connection: QueryConnection, name: str) -> DatabaseDefinition | None:
    """Return the database of this name; None if it does not exist."""
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
    """Return encoding and locale from the CREATE DATABASE of a dump; options not given are None.

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
    """Return the CREATE DATABASE statement."""
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
    """Return the statements for everything that can still be changed; none if all is as requested."""
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
    """Return the grant statements. REVOKE comes first: otherwise PUBLIC would have the privilege for a moment."""
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


CREATE_TIMEOUT_S = 900.0
"""It includes a checkpoint (dbcommands.c), which takes minutes on a busy server; the files of template0 are small."""
STATEMENT_TIMEOUT_S = 30.0
_CREATE = "CREATE DATABASE "
_PRIVILEGES = """
SELECT pg_catalog.pg_is_in_recovery() AS standby, r.rolsuper AS superuser, r.rolsuper OR r.rolcreatedb AS may
  FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""


class DatabaseSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str
    """Name of the new database."""
    like: str | None = None
    """Name of the database to copy the properties from; without it the server's defaults and `dumped` apply."""
    dumped: str = ""
    """Options of CREATE DATABASE as `pg_restore --create` writes them: encoding and locale if `like` is not set."""
    closed: bool = False
    """Leave the connection limit at 0, so that only superusers can connect; ignored if this role is not a superuser."""


class CreateDatabase(Action):
    name: ClassVar[str] = "create-database"
    summary: ClassVar[str] = (
        "Creates an empty database like another one: encoding, locale and its provider, tablespace, owner, grants, "
        "connection limit, comment, settings of the database and of roles in it. If it exists, differences are "
        "corrected, except encoding, locale and tablespace, which are refused. Its undo drops the database it created."
    )
    Settings: ClassVar[type[Struct]] = DatabaseSettings
    undoable: ClassVar[bool] = True

    def preview(self, settings: DatabaseSettings, context: ActionContext) -> ActionPreview:
        connection = context.require_connection()
        [me] = connection.rows(_PRIVILEGES)
        now, wanted = (
            read_definition(connection, settings.database),
            _wanted_definition(settings, connection, superuser=me["superuser"]),
        )
        refusal, hint = _refusal(settings, now, wanted, me)
        if refusal is not None or wanted is None:
            return ActionPreview(text=f"Create database {settings.database}.", exact="", refusal=refusal, hint=hint)
        texts = [redact_statement(text) for text in _statements(settings, connection, now, wanted)]
        return ActionPreview(
            text=_preview_text(settings, now, wanted, len(texts)),
            exact="; ".join(texts),
            count=len(texts),
            rows=tuple({"statement": text} for text in texts),
            done=not texts,
        )

    def act(
        self, settings: DatabaseSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection, made = context.require_connection(), False
        [me] = connection.rows(_PRIVILEGES)
        wanted = _wanted_definition(settings, connection, superuser=me["superuser"])
        texts = (
            []
            if wanted is None
            else _statements(settings, connection, read_definition(connection, settings.database), wanted)
        )
        shown = [row["statement"] for row in preview.rows]
        if [redact_statement(text) for text in texts] != shown:
            return ActionResult(state="failed", text="the statements differ from those shown: preview again")
        for count, text in enumerate(texts):
            if count and control.stop_requested():
                return _result(
                    settings, connection, made, "stopped", f"stopped after {count} of {len(texts)} statements"
                )
            control.report_progress(shown[count], count, len(texts), "statements")
            new = text.startswith(_CREATE)
            try:
                connection.execute_change(
                    text, transaction=not new, timeout_s=CREATE_TIMEOUT_S if new else STATEMENT_TIMEOUT_S
                )
            except StatementFailed as error:
                text = f"{count} of {len(texts)} statements executed, then {shown[count]}: {error.message}"
                return _result(settings, connection, made, "failed", text)
            except StatementLost as error:
                return ActionResult(state="unknown", text=f"{shown[count]}: {error.message}")
            made = made or new
        left = self.preview(settings, context)
        if not left.done:
            return _result(settings, connection, made, "failed", f"it still differs: {left.refusal or left.exact}")
        return _result(settings, connection, made, "ok", _done_text(settings))

    def settle(self, settings: DatabaseSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection, left = context.require_connection(), self.preview(settings, context)
        made = any(row["statement"].startswith(_CREATE) for row in preview.rows)
        if left.done:
            return _result(settings, connection, made, "ok", _done_text(settings))
        done = _result(settings, connection, made, "failed", f"not executed yet: {left.refusal or left.exact}")
        return replace(done, again=left.refusal is None)

    def undo(
        self, settings: DatabaseSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        connection = context.require_connection()
        now = read_definition(connection, settings.database)
        if now is None:
            return ActionResult(state="ok", text=f"database {settings.database} does not exist")
        if now.oid != data["oid"]:
            return ActionResult(
                state="failed", text=f"{settings.database} is not the database that was created: not dropped"
            )
        drop = sql.SQL("DROP DATABASE {}").format(sql.Identifier(settings.database)).as_string(None)
        try:
            connection.execute_change(drop, transaction=False, timeout_s=CREATE_TIMEOUT_S)
        except StatementFailed as error:
            return ActionResult(state="failed", text=f"{drop}: {error.message}")
        return ActionResult(state="ok", text=f"dropped {settings.database} and its contents")


def _wanted_definition(
    settings: DatabaseSettings, connection: QueryConnection, *, superuser: bool
) -> DatabaseDefinition | None:
    """Return the requested database; None if the one to copy from does not exist."""
    wanted = (
        parse_dump_options(settings.dumped) if settings.like is None else read_definition(connection, settings.like)
    )
    return replace(wanted, connection_limit=0) if wanted and settings.closed and superuser else wanted


def _statements(
    settings: DatabaseSettings, connection: QueryConnection, now: DatabaseDefinition | None, wanted: DatabaseDefinition
) -> list[str]:
    """Return the statements to execute, in order. Without `like`, an existing database needs no statement.

    The default tablespace is not named: naming it would need a privilege on it (dbcommands.c).
    """
    texts = []
    if now is None:
        standard = read_definition(connection, "template0")
        anyway = standard is not None and wanted.tablespace == standard.tablespace
        texts.append(create_statement(settings.database, replace(wanted, tablespace=None) if anyway else wanted))
    if settings.like is not None:
        texts += alter_statements(settings.database, now or _new_definition(wanted), wanted)
    return texts


def _refusal(
    settings: DatabaseSettings, now: DatabaseDefinition | None, wanted: DatabaseDefinition | None, me: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    if me["standby"]:
        return "this is a standby: databases are created on its primary", None
    if not me["may"]:
        return "this role may not create databases", "ALTER ROLE … CREATEDB, or use another role"
    if wanted is None:
        return f"database {settings.like}, to copy the properties from, does not exist", None
    born = [name for name in FIXED_AT_CREATION if now and getattr(wanted, name) not in (None, getattr(now, name))]
    if born:
        return (
            f"database {settings.database} exists, and its {', '.join(born)} cannot be changed",
            "drop or rename it first; then it is created",
        )
    return None, None


def _new_definition(wanted: DatabaseDefinition) -> DatabaseDefinition:
    """Return what CREATE DATABASE makes, with the default privileges of PUBLIC and the owner."""
    granted = [(None, "CONNECT"), (None, "TEMPORARY"), *((wanted.owner, one) for one in PRIVILEGES)]
    return DatabaseDefinition(
        owner=wanted.owner, connection_limit=wanted.connection_limit, grants=dict.fromkeys(granted, False)
    )


def _preview_text(
    settings: DatabaseSettings, now: DatabaseDefinition | None, wanted: DatabaseDefinition, count: int
) -> str:
    after = "like " + settings.like if settings.like is not None else "with the server's defaults"
    if now is not None:
        return f"Database {settings.database} exists: {count or 'no'} statements make it {after}."
    known = (wanted.encoding, wanted.provider, wanted.lc_collate, wanted.locale, wanted.owner, wanted.tablespace)
    named = ", ".join(one for one in known if one)
    message = f"An empty database {settings.database}, {after}" + (f": {named}." if named else ".")
    closed = " Until its connection limit is raised, only superusers can connect."
    return message + (closed if wanted.connection_limit == 0 else "")


def _done_text(settings: DatabaseSettings) -> str:
    if settings.like is None:
        return f"{settings.database} exists"
    return f"{settings.database} is like {settings.like}: compared again after the last statement"


def _result(settings: DatabaseSettings, connection: QueryConnection, made: bool, state: str, text: str) -> ActionResult:
    now = read_definition(connection, settings.database) if made else None
    return ActionResult(state=state, text=text, undo=None if now is None else {"oid": now.oid})
