"""The action set-database-properties: give a restored database the owner, grants and settings that are in its dump.

pg_restore sets owner, grants, settings, comment and connection limit of the database only with --create, which also
gives it the old name. The statements of the dump are parsed, not executed: what is executed is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.create_database import (
    PRIVILEGES,
    STATEMENT_TIMEOUT_S,
    DatabaseDefinition,
    alter_statements,
    read_definition,
)
from dba_console.actions.parameter_sql import LIST_QUOTED
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core.errors import ConsoleError, UsageError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.archive_file import open_archive

_NAME = r'("(?:[^"]|"")*"|[^\s"\',;]+)'
_TEXT = r"(?:E?'(?:[^']|'')*')"
_TEXTS = rf"({_TEXT}(?:, {_TEXT})*)"
_STATEMENT = re.compile(r"""\s*((?:"(?:[^"]|"")*"|'(?:[^']|'')*'|[^;"'])+);""")
_LIMIT = re.compile(rf"ALTER DATABASE {_NAME} CONNECTION LIMIT = (-?\d+)")
_TEMPLATE = re.compile(rf"ALTER DATABASE {_NAME} IS_TEMPLATE = true")
_SET = re.compile(rf"ALTER (?:ROLE {_NAME} IN )?DATABASE {_NAME} SET {_NAME} TO {_TEXTS}")
_COMMENT = re.compile(rf"COMMENT ON DATABASE {_NAME} IS ({_TEXT})")
_GRANT = re.compile(rf"(GRANT|REVOKE) ([A-Z, ]+) ON DATABASE {_NAME} (?:TO|FROM) {_NAME}( WITH GRANT OPTION)?")
_WITHOUT_EFFECT = re.compile(r"(?:SET|RESET) SESSION AUTHORIZATION\b.*|CREATE DATABASE .*", re.DOTALL)
"""The grantor is not kept, and the database exists."""
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_ROLES = """
SELECT rolname::text AS name, pg_catalog.pg_has_role(oid, 'MEMBER') AS member, rolname = current_user AS me
  FROM pg_catalog.pg_roles
"""


class DumpedProperties(Struct, frozen=True):
    """The database as dumped, and statements that were not understood."""

    definition: DatabaseDefinition
    other: tuple[str, ...]


def parse_properties(statements: Iterable[str], owner: str | None) -> DumpedProperties:
    """Return the properties in the statements of a dump.

    >>> made = parse_properties(["REVOKE CONNECT,TEMPORARY ON DATABASE a FROM PUBLIC;", "COMMENT ON DATABASE a IS 'b';"
    ...                          "ALTER DATABASE a SET work_mem TO '64MB';SECURITY LABEL FOR x ON DATABASE a IS 'b';"],
    ...                         "app")
    >>> made.definition.settings, made.definition.comment, [key for key in made.definition.grants if key[0] != "app"]
    ({(None, 'work_mem'): '64MB'}, 'b', [])
    >>> made.other
    ("SECURITY LABEL FOR x ON DATABASE a IS 'b'",)
    """
    found: dict[str, Any] = {"owner": owner}
    settings: dict[tuple[str | None, str], str] = {}
    grants = {(None, "CONNECT"): False, (None, "TEMPORARY"): False, **{(owner, one): False for one in PRIVILEGES}}
    other = []
    for text in (match[1] for statement in statements for match in _STATEMENT.finditer(statement)):
        if (match := _LIMIT.fullmatch(text)) is not None:
            found["connection_limit"] = int(match[2])
        elif _TEMPLATE.fullmatch(text) is not None:
            found["template"] = True
        elif (match := _SET.fullmatch(text)) is not None:
            role, name = match[1] and _unquote(match[1]), _unquote(match[3])
            settings[role, name] = _setting(name, match[4])
        elif (match := _COMMENT.fullmatch(text)) is not None:
            found["comment"] = _literal(match[2])
        elif (match := _GRANT.fullmatch(text)) is not None:
            _apply_grant(match, grants)
        elif _WITHOUT_EFFECT.fullmatch(text) is None:
            other.append(text)
    return DumpedProperties(DatabaseDefinition(grants=grants, settings=settings, **found), tuple(other))


def _apply_grant(match: re.Match[str], grants: dict[tuple[str | None, str], bool]) -> None:
    role = None if match[4] == "PUBLIC" else _unquote(match[4])
    words = [
        one.strip().replace("TEMP", "TEMPORARY") if one.strip() == "TEMP" else one.strip()
        for one in match[2].split(",")
    ]
    for privilege in PRIVILEGES if "ALL" in words else words:
        if match[1] == "REVOKE":
            grants.pop((role, privilege), None)
        else:
            grants[role, privilege] = grants.get((role, privilege), False) or match[5] is not None


def _unquote(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _literal(text: str) -> str:
    value = text[text.index("'") + 1 : -1].replace("''", "'")
    return value.replace("\\\\", "\\") if text.startswith("E") else value


def _setting(name: str, texts: str) -> str:
    """Return a value as the catalog stores it: a list of names quotes each that needs it."""
    values = [_literal(one) for one in re.findall(_TEXT, texts)]
    if name.lower() not in LIST_QUOTED:
        return ", ".join(values)
    return ", ".join(one if _PLAIN_NAME.fullmatch(one) else '"' + one.replace('"', '""') + '"' for one in values)


class PropertiesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str
    """The restored database."""
    archive: str
    """The dump: a directory, a custom or a tar file."""
    owner: bool = True
    """no: its owner stays the present one."""
    closed: bool = False
    """Leave a connection limit of 0 as it is: the database is opened later."""


class SetDatabaseProperties(Action):
    name: ClassVar[str] = "set-database-properties"
    summary: ClassVar[str] = (
        "Sets what a dump contains of the database itself and a restore without --create omits: owner, grants, "
        "settings of the database and of roles in it, comment, connection limit. Roles that do not exist here are left "
        "out and named, and so are security labels."
    )
    Settings: ClassVar[type[Struct]] = PropertiesSettings

    def preview(self, settings: PropertiesSettings, context: ActionContext) -> ActionPreview:
        what = f"What the dump contains of the database itself, for {settings.database}"
        try:
            texts, left_out = _statements(settings, context.require_connection())
        except ConsoleError as error:
            return ActionPreview(text=f"{what}.", exact="", refusal=error.message, hint=error.hint)
        shown = [redact(text) for text in texts]
        ending = "; ".join([f"{len(shown)} statements" if shown else "nothing to set", *left_out])
        return ActionPreview(
            text=f"{what}: {ending}.", exact="; ".join(shown), count=len(shown),
            rows=tuple({"statement": text} for text in shown), done=not shown,
        )  # fmt: skip

    def act(
        self, settings: PropertiesSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection = context.require_connection()
        texts, _ = _statements(settings, connection)
        shown = [row["statement"] for row in preview.rows]
        if [redact(text) for text in texts] != shown:
            return ActionResult(state="failed", text="the statements differ from those shown: preview again")
        for count, text in enumerate(texts):
            if control.stop_requested():
                return ActionResult(state="stopped", text=f"stopped after {count} of {len(texts)} statements")
            control.report_progress(shown[count], count, len(texts), "statements")
            try:
                connection.execute_change(text, timeout_s=STATEMENT_TIMEOUT_S)
            except StatementFailed as error:
                text = f"{count} of {len(texts)} statements executed, then {shown[count]}: {error.message}"
                return ActionResult(state="failed", text=text)
            except StatementLost as error:
                return ActionResult(state="unknown", text=f"{shown[count]}: {error.message}")
        return self.settle(settings, preview, context)

    def settle(self, settings: PropertiesSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        left = self.preview(settings, context)
        if left.done:
            return ActionResult(state="ok", text=left.text)
        return ActionResult(state="failed", text=f"not set yet: {left.refusal or left.exact}", again=not left.refusal)


def _statements(settings: PropertiesSettings, connection: QueryConnection) -> tuple[list[str], list[str]]:
    """Return the statements to execute, and what is left out. Raises ArchiveError, UsageError."""
    if connection.rows("SELECT 1 WHERE pg_catalog.pg_is_in_recovery()"):
        raise UsageError("this is a standby: databases are changed on its primary")
    plan, now = open_archive(settings.archive), read_definition(connection, settings.database)
    if now is None or now.grants is None:
        raise UsageError(f"database {settings.database} does not exist")
    dumped = parse_properties(plan.database_statements, plan.database_owner)
    wanted, left_out = _possible(dumped, now, settings, connection)
    left_out += [f"not set: {clean(redact(one))}" for one in dumped.other]
    # A change of the owner hands over what was granted to the owner.
    grants = {
        (wanted.owner if role == now.owner else role, what): option for (role, what), option in now.grants.items()
    }
    given = replace(now, owner=wanted.owner, grants=grants)
    owned = alter_statements(settings.database, now, replace(now, owner=wanted.owner))
    return [*owned, *alter_statements(settings.database, given, wanted)], left_out


def _possible(
    dumped: DumpedProperties, now: DatabaseDefinition, settings: PropertiesSettings, connection: QueryConnection
) -> tuple[DatabaseDefinition, list[str]]:
    """Return what can be set here, and what is left out. Fixed properties of the database stay as they are."""
    roles: Mapping[str, Mapping[str, Any]] = {row["name"]: row for row in connection.rows(_ROLES)}
    wanted, left_out = dumped.definition, []
    named = {role for role, _ in (*(wanted.grants or {}), *wanted.settings) if role is not None}
    if missing := sorted(named - roles.keys()):
        left_out.append(f"left out, because these roles do not exist here: {clean(', '.join(missing))}")
    owner = now.owner
    if settings.owner and wanted.owner is not None and wanted.owner != now.owner:
        if wanted.owner in roles and roles[wanted.owner]["member"]:
            owner = wanted.owner
        else:
            why = "this role is not a member of it" if wanted.owner in roles else "it does not exist here"
            left_out.append(f"its owner stays {now.owner}: {clean(wanted.owner)} was it, but {why}")
    granted = {
        (owner if role == wanted.owner else role, what): option
        for (role, what), option in (wanted.grants or {}).items()
    }
    kept = replace(
        now, owner=owner, comment=wanted.comment, template=wanted.template,
        connection_limit=0 if settings.closed and now.connection_limit == 0 else wanted.connection_limit,
        grants={key: option for key, option in granted.items() if key[0] is None or key[0] in roles},
        settings={key: value for key, value in wanted.settings.items() if key[0] is None or key[0] in roles},
    )  # fmt: skip
    return kept, left_out
