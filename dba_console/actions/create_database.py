"""Make an empty database as another one is: not only its name, but what a dump of its contents does not hold.

A database that is made anew under the name of an old one has the server's locale, no settings, no grants and another
owner, and nobody notices until something sorts otherwise. What was looked at is what is executed, statement by
statement; killed in the middle, it goes on from what the server says is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from psycopg import sql

from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.connection_api import ServerConnection, StatementFailed, StatementLost, require_connection
from dba_console.actions.database_sql import (
    FIXED_AT_CREATION,
    PRIVILEGES,
    DatabaseDefinition,
    alter_statements,
    create_statement,
    parse_dump_options,
    read_definition,
)
from dba_console.redact import redact

CREATE_TIMEOUT_S = 900.0
"""A checkpoint is part of it (dbcommands.c), which takes minutes on a busy server; the files of template0 are small."""
STATEMENT_TIMEOUT_S = 30.0
_CREATE = "CREATE DATABASE "
_PRIVILEGES = """
SELECT pg_catalog.pg_is_in_recovery() AS standby, r.rolsuper AS superuser, r.rolsuper OR r.rolcreatedb AS may
  FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""


class DatabaseSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str
    """Name of the database that is made."""
    like: str | None = None
    """Name of the one it is to be like; without it the server's defaults count, and what `dumped` says."""
    dumped: str = ""
    """Options of CREATE DATABASE as `pg_restore --create` writes them: encoding and locale where nothing is `like`."""
    closed: bool = False
    """Leave it at connection limit 0, by which superusers alone get in, where this role is one."""


class CreateDatabase:
    """Implements `Action`."""

    name: ClassVar[str] = "create-database"
    summary: ClassVar[str] = (
        "Makes an empty database like another one: encoding, locale and its provider, tablespace, owner, grants, "
        "connection limit, comment, settings of the database and of roles in it. Where it is there, what differs is "
        "made alike; encoding, locale and tablespace are refused then. Its undo drops what it has made."
    )
    Settings: ClassVar[type[Struct]] = DatabaseSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = True

    def preview(self, settings: DatabaseSettings, context: ActionContext) -> ActionPreview:
        connection = require_connection(context)
        [me] = connection.rows(_PRIVILEGES)
        now, wanted = (
            read_definition(connection, settings.database),
            _wanted_definition(settings, connection, superuser=me["superuser"]),
        )
        refusal, hint = _refusal(settings, now, wanted, me)
        if refusal is not None or wanted is None:
            return ActionPreview(
                text=f"Database {settings.database} is to be made.", exact="", refusal=refusal, hint=hint
            )
        texts = [redact(text) for text in _statements(settings, connection, now, wanted)]
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
        connection, made = require_connection(context), False
        [me] = connection.rows(_PRIVILEGES)
        wanted = _wanted_definition(settings, connection, superuser=me["superuser"])
        texts = (
            []
            if wanted is None
            else _statements(settings, connection, read_definition(connection, settings.database), wanted)
        )
        shown = [row["statement"] for row in preview.rows]
        if [redact(text) for text in texts] != shown:
            return ActionResult(state="failed", text="it would do something else than was shown: look again")
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
            return _result(
                settings, connection, made, "failed", f"it is not as it was to be: {left.refusal or left.exact}"
            )
        return _result(settings, connection, made, "ok", _done_text(settings))

    def settle(self, settings: DatabaseSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection, left = require_connection(context), self.preview(settings, context)
        made = any(row["statement"].startswith(_CREATE) for row in preview.rows)
        if left.done:
            return _result(settings, connection, made, "ok", _done_text(settings))
        done = _result(settings, connection, made, "failed", f"not executed yet: {left.refusal or left.exact}")
        return replace(done, again=left.refusal is None)

    def undo(
        self, settings: DatabaseSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        connection = require_connection(context)
        now = read_definition(connection, settings.database)
        if now is None:
            return ActionResult(state="ok", text=f"there is no database {settings.database}")
        if now.oid != data["oid"]:
            return ActionResult(
                state="failed", text=f"{settings.database} is not the one that was made: it is left alone"
            )
        drop = sql.SQL("DROP DATABASE {}").format(sql.Identifier(settings.database)).as_string(None)
        try:
            connection.execute_change(drop, transaction=False, timeout_s=CREATE_TIMEOUT_S)
        except StatementFailed as error:
            return ActionResult(state="failed", text=f"{drop}: {error.message}")
        return ActionResult(state="ok", text=f"dropped {settings.database}, with what was in it")


def _wanted_definition(
    settings: DatabaseSettings, connection: ServerConnection, *, superuser: bool
) -> DatabaseDefinition | None:
    """None where the one it is to be like is not there."""
    wanted = (
        parse_dump_options(settings.dumped) if settings.like is None else read_definition(connection, settings.like)
    )
    return replace(wanted, connection_limit=0) if wanted and settings.closed and superuser else wanted


def _statements(
    settings: DatabaseSettings, connection: ServerConnection, now: DatabaseDefinition | None, wanted: DatabaseDefinition
) -> list[str]:
    """What is to be executed, in this order. Where nothing is `like`, one that is there is as it should be.

    The tablespace a database gets anyway is not named: that would take a right to it (dbcommands.c).
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
        return "this is a standby: databases are made on its primary", None
    if not me["may"]:
        return "this role may not make databases", "ALTER ROLE … CREATEDB, or act as another role"
    if wanted is None:
        return f"there is no database {settings.like} to make it like", None
    born = [name for name in FIXED_AT_CREATION if now and getattr(wanted, name) not in (None, getattr(now, name))]
    if born:
        return (
            f"{settings.database} is there, and its {', '.join(born)} cannot be changed any more",
            "drop it or call it otherwise; then it is made",
        )
    return None, None


def _new_definition(wanted: DatabaseDefinition) -> DatabaseDefinition:
    """What CREATE DATABASE gives: rights as the server gives to everybody and to the owner."""
    granted = [(None, "CONNECT"), (None, "TEMPORARY"), *((wanted.owner, one) for one in PRIVILEGES)]
    return DatabaseDefinition(
        owner=wanted.owner, connection_limit=wanted.connection_limit, grants=dict.fromkeys(granted, False)
    )


def _preview_text(
    settings: DatabaseSettings, now: DatabaseDefinition | None, wanted: DatabaseDefinition, count: int
) -> str:
    after = "like " + settings.like if settings.like is not None else "as the server makes them"
    if now is not None:
        return f"Database {settings.database} is there: {count or 'no'} statements make it {after}."
    known = (wanted.encoding, wanted.provider, wanted.lc_collate, wanted.locale, wanted.owner, wanted.tablespace)
    named = ", ".join(one for one in known if one)
    message = f"An empty database {settings.database}, {after}" + (f": {named}." if named else ".")
    return message + (" Until it is opened superusers alone get in." if wanted.connection_limit == 0 else "")


def _done_text(settings: DatabaseSettings) -> str:
    if settings.like is None:
        return f"{settings.database} is there"
    return f"{settings.database} is like {settings.like}: compared once more after the last statement"


def _result(
    settings: DatabaseSettings, connection: ServerConnection, made: bool, state: str, text: str
) -> ActionResult:
    now = read_definition(connection, settings.database) if made else None
    return ActionResult(state=state, text=text, undo=None if now is None else {"oid": now.oid})
