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

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.database_sql import BORN_WITH, PRIVILEGES, Database, alterations, creation, database, of_dump
from dba_console.actions.link import Lost, ServerLink, StatementFailed, server
from dba_console.redact import redact

CREATE_S = 900.0
"""A checkpoint is part of it (dbcommands.c), which takes minutes on a busy server; the files of template0 are small."""
STATEMENT_S = 30.0
_CREATE = "CREATE DATABASE "
_MAY = """
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

    def look(self, settings: DatabaseSettings, world: World) -> Sight:
        link = server(world)
        [me] = link.rows(_MAY)
        now, wanted = database(link, settings.database), _wanted(settings, link, superuser=me["superuser"])
        refusal, hint = _refusal(settings, now, wanted, me)
        if refusal is not None or wanted is None:
            return Sight(text=f"Database {settings.database} is to be made.", exact="", refusal=refusal, hint=hint)
        texts = [redact(text) for text in _statements(settings, link, now, wanted)]
        return Sight(
            text=_told(settings, now, wanted, len(texts)),
            exact="; ".join(texts),
            count=len(texts),
            rows=tuple({"statement": text} for text in texts),
            done=not texts,
        )

    def act(self, settings: DatabaseSettings, sight: Sight, world: World, control: Control) -> Done:
        link, made = server(world), False
        [me] = link.rows(_MAY)
        wanted = _wanted(settings, link, superuser=me["superuser"])
        texts = [] if wanted is None else _statements(settings, link, database(link, settings.database), wanted)
        shown = [row["statement"] for row in sight.rows]
        if [redact(text) for text in texts] != shown:
            return Done(state="failed", text="it would do something else than was shown: look again")
        for count, text in enumerate(texts):
            if count and control.stop_asked():
                return _end(settings, link, made, "stopped", f"stopped after {count} of {len(texts)} statements")
            control.tell(shown[count], count, len(texts), "statements")
            new = text.startswith(_CREATE)
            try:
                link.act(text, transaction=not new, timeout_s=CREATE_S if new else STATEMENT_S)
            except StatementFailed as error:
                text = f"{count} of {len(texts)} statements executed, then {shown[count]}: {error.message}"
                return _end(settings, link, made, "failed", text)
            except Lost as error:
                return Done(state="unknown", text=f"{shown[count]}: {error.message}")
            made = made or new
        left = self.look(settings, world)
        if not left.done:
            return _end(settings, link, made, "failed", f"it is not as it was to be: {left.refusal or left.exact}")
        return _end(settings, link, made, "ok", _words(settings))

    def settle(self, settings: DatabaseSettings, sight: Sight, world: World) -> Done:
        link, left = server(world), self.look(settings, world)
        made = any(row["statement"].startswith(_CREATE) for row in sight.rows)
        if left.done:
            return _end(settings, link, made, "ok", _words(settings))
        done = _end(settings, link, made, "failed", f"not executed yet: {left.refusal or left.exact}")
        return replace(done, again=left.refusal is None)

    def undo(self, settings: DatabaseSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        link = server(world)
        now = database(link, settings.database)
        if now is None:
            return Done(state="ok", text=f"there is no database {settings.database}")
        if now.oid != data["oid"]:
            return Done(state="failed", text=f"{settings.database} is not the one that was made: it is left alone")
        drop = sql.SQL("DROP DATABASE {}").format(sql.Identifier(settings.database)).as_string(None)
        try:
            link.act(drop, transaction=False, timeout_s=CREATE_S)
        except StatementFailed as error:
            return Done(state="failed", text=f"{drop}: {error.message}")
        return Done(state="ok", text=f"dropped {settings.database}, with what was in it")


def _wanted(settings: DatabaseSettings, link: ServerLink, *, superuser: bool) -> Database | None:
    """None where the one it is to be like is not there."""
    wanted = of_dump(settings.dumped) if settings.like is None else database(link, settings.like)
    return replace(wanted, connection_limit=0) if wanted and settings.closed and superuser else wanted


def _statements(settings: DatabaseSettings, link: ServerLink, now: Database | None, wanted: Database) -> list[str]:
    """What is to be executed, in this order. Where nothing is `like`, one that is there is as it should be.

    The tablespace a database gets anyway is not named: that would take a right to it (dbcommands.c).
    """
    texts = []
    if now is None:
        standard = database(link, "template0")
        anyway = standard is not None and wanted.tablespace == standard.tablespace
        texts.append(creation(settings.database, replace(wanted, tablespace=None) if anyway else wanted))
    if settings.like is not None:
        texts += alterations(settings.database, now or _fresh(wanted), wanted)
    return texts


def _refusal(
    settings: DatabaseSettings, now: Database | None, wanted: Database | None, me: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    if me["standby"]:
        return "this is a standby: databases are made on its primary", None
    if not me["may"]:
        return "this role may not make databases", "ALTER ROLE … CREATEDB, or act as another role"
    if wanted is None:
        return f"there is no database {settings.like} to make it like", None
    born = [name for name in BORN_WITH if now and getattr(wanted, name) not in (None, getattr(now, name))]
    if born:
        return (
            f"{settings.database} is there, and its {', '.join(born)} cannot be changed any more",
            "drop it or call it otherwise; then it is made",
        )
    return None, None


def _fresh(wanted: Database) -> Database:
    """What CREATE DATABASE gives: rights as the server gives to everybody and to the owner."""
    granted = [(None, "CONNECT"), (None, "TEMPORARY"), *((wanted.owner, one) for one in PRIVILEGES)]
    return Database(owner=wanted.owner, connection_limit=wanted.connection_limit, grants=dict.fromkeys(granted, False))


def _told(settings: DatabaseSettings, now: Database | None, wanted: Database, count: int) -> str:
    after = "like " + settings.like if settings.like is not None else "as the server makes them"
    if now is not None:
        return f"Database {settings.database} is there: {count or 'no'} statements make it {after}."
    known = (wanted.encoding, wanted.provider, wanted.lc_collate, wanted.locale, wanted.owner, wanted.tablespace)
    named = ", ".join(one for one in known if one)
    told = f"An empty database {settings.database}, {after}" + (f": {named}." if named else ".")
    return told + (" Until it is opened superusers alone get in." if wanted.connection_limit == 0 else "")


def _words(settings: DatabaseSettings) -> str:
    if settings.like is None:
        return f"{settings.database} is there"
    return f"{settings.database} is like {settings.like}: compared once more after the last statement"


def _end(settings: DatabaseSettings, link: ServerLink, made: bool, state: str, text: str) -> Done:
    now = database(link, settings.database) if made else None
    return Done(state=state, text=text, undo=None if now is None else {"oid": now.oid})
