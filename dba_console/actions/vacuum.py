"""Vacuum a table or a whole database, with progress, and stopped at any time by the operator.

In the emergency of a wraparound it is the plain VACUUM that helps: FULL needs transaction ids itself, FREEZE does more
than is needed (PostgreSQL documentation, "Preventing Transaction ID Wraparound Failures"); so the one is not offered,
and the other has to be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import Lost, ServerLink, StatementFailed, Stopped, server
from dba_console.actions.vacuum_sql import (
    DATABASE,
    DONE_SINCE,
    MAINTAIN,
    OURS,
    SERVER,
    TABLE,
    statement,
)
from dba_console.actions.vacuum_watch import Watcher
from dba_console.errors import ConnectError
from dba_console.units import human_bytes, human_count, parse_duration

_KINDS = {"r", "m", "p", "t"}
"""Tables, materialized views, partitioned tables, TOAST tables."""
_LOOKS, _LOOK_S = 15, 0.2
"""Before 15 the server's statistics come half a second late."""


class VacuumSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: str | None = None
    """As one writes it in SQL, with its schema; without it the whole database."""
    database: str | None = None
    """Where; without it the run's own."""
    freeze: bool = False
    """Freeze every row: more than a wraparound emergency needs."""
    analyze: bool = False
    index_cleanup: bool | None = None
    """False passes the indexes over, which is quicker and leaves dead entries in them."""
    truncate: bool | None = None
    """False keeps the empty end of the table, and never takes the exclusive lock that cutting it off needs."""
    skip_locked: bool = False
    """Pass over what is locked, and say nothing of it."""
    parallel: int | None = None
    """Workers for the indexes of a table."""
    lock_timeout: str | None = None
    """How long to wait for a table's lock; without it as long as it takes, told who holds it."""
    timeout: str | None = None
    """How long at most; what was vacuumed by then stays so."""


class Vacuum:
    """Implements `Action`."""

    name: ClassVar[str] = "vacuum"
    summary: ClassVar[str] = (
        "Vacuums a table or a database, showing phase, progress, and whom it waits for; stopped, it leaves what is "
        "done as it is. Never FULL. There is nothing to take back."
    )
    Settings: ClassVar[type[Struct]] = VacuumSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False

    def look(self, settings: VacuumSettings, world: World) -> Sight:
        asked = server(world)
        database = next(iter(asked.rows(DATABASE, {"database": settings.database})), None)
        if database is None or not database["connects"]:
            why = "does not exist" if database is None else "allows no connections"
            told = f"database {settings.database} {why}"
            return Sight(text=f"The {told}.", exact="", refusal=told)
        link = asked.to(database["name"])
        [now] = link.rows(SERVER, {"database": database["name"]})
        table = _table(settings, link) if settings.table is not None else None
        refusal = _refusal(settings, now, table, link)
        if refusal is not None:
            return Sight(text=f"It will not be vacuumed: {refusal}.", exact="", refusal=refusal)
        shown = table or database
        return Sight(
            text=_told(settings, database["name"], shown),
            exact=f"{_statement(settings, table)};  -- in database {database['name']}",
            values={**_figures(shown), "looked_us": now["now_us"]},
            count=1,
            rows=({"database": database["name"], "oid": None if table is None else table["oid"]},),
        )

    def act(self, settings: VacuumSettings, sight: Sight, world: World, control: Control) -> Done:
        asked, key = server(world), sight.rows[0]
        link = asked.to(key["database"])
        [now] = link.rows(SERVER, {"database": key["database"]})
        table = None if key["oid"] is None else _table(settings, link)
        if key["oid"] is not None and (table is None or table["oid"] != key["oid"]):
            return Done(
                state="failed", text=f"nothing was done: {settings.table} is not the table any more that was shown"
            )
        lock_s = parse_duration(settings.lock_timeout) if settings.lock_timeout else 0.0
        with closing(link.aside()) as aside:
            try:
                result = link.act(
                    _statement(settings, table),
                    transaction=False,
                    timeout_s=None if settings.timeout is None else parse_duration(settings.timeout),
                    lock_timeout_s=lock_s,
                    watch=Watcher(aside, world.clock, control),
                )
            except Stopped:
                text = "stopped; what was vacuumed by then stays so"
                return Done(state="stopped", text=text, values=_after(settings, link, key))
            except StatementFailed as error:
                text = f"the server gave up: {error.message}"
                return Done(state="failed", text=text, values=_after(settings, link, key))
            except Lost as error:
                return Done(state="unknown", text=error.message)
        state, text = _came_to(link, key, now["now_us"], result.warnings, control)
        return Done(state=state, text=text, values=_after(settings, link, key))

    def settle(self, settings: VacuumSettings, sight: Sight, world: World) -> Done:
        key = sight.rows[0]
        link = server(world).to(key["database"])
        if rows := link.rows(OURS, {"database": key["database"]}):
            pids = ", ".join(str(row["pid"]) for row in rows)
            return Done(state="unknown", text=f"a VACUUM of this console is still under way in process {pids}")
        [row] = link.rows(DONE_SINCE, {"since": sight.values["looked_us"], "oid": key["oid"]})
        values = _after(settings, link, key)
        told = f"{row['vacuumed']} of {row['tables']} tables were vacuumed since"
        if row["tables"] and row["vacuumed"] == row["tables"]:
            return Done(state="ok", text=told, values=values)
        if row["restarted"] or not row["tables"]:
            text = "its backend has ended, and the server's statistics do not tell how; vacuuming again does no harm"
            return Done(state="unknown", text=text, values=values)
        return Done(state="failed", text=f"{told}; vacuuming again does no harm", values=values)

    def undo(self, settings: VacuumSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="there is nothing to take back")


def _table(settings: VacuumSettings, link: ServerLink) -> dict[str, Any] | None:
    rows = link.rows(TABLE, {"table": settings.table})
    return rows[0] if rows else None


def _statement(settings: VacuumSettings, table: Mapping[str, Any] | None) -> str:
    options = {
        "FREEZE": settings.freeze or None,
        "ANALYZE": settings.analyze or None,
        "INDEX_CLEANUP": settings.index_cleanup,
        "TRUNCATE": settings.truncate,
        "SKIP_LOCKED": settings.skip_locked or None,
        "PARALLEL": settings.parallel,
    }
    return statement(options, None if table is None else (table["schema"], table["name"]))


def _refusal(
    settings: VacuumSettings, now: Mapping[str, Any], table: Mapping[str, Any] | None, link: ServerLink
) -> str | None:
    if now["in_recovery"]:
        return "this is a standby: VACUUM runs on its primary, and comes here with the WAL"
    if settings.table is None:
        return None if now["whole"] else "this role does not own the database, so most tables would be passed over"
    if table is None:
        return f"there is no table {settings.table}"
    if table["kind"] not in _KINDS:
        return f"{settings.table} is no table"
    maintains = now["version_num"] >= 170000 and link.rows(MAINTAIN, {"oid": table["oid"]})[0]["may"]
    return None if table["owned"] or maintains else f"this role may not vacuum {settings.table}: it is not its owner"


def _told(settings: VacuumSettings, database: str, shown: Mapping[str, Any]) -> str:
    what = f"table {settings.table} in database {database}" if settings.table else f"every table of database {database}"
    dead = shown.get("dead_rows")
    rows = "" if dead is None else f", about {human_count(dead)} dead rows"
    age = "" if shown["xid_age"] is None else f", oldest transaction id {human_count(shown['xid_age'])} back"
    return f"Vacuum {what}: {human_bytes(shown['bytes'])}{rows}{age}."


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"xid_age": row["xid_age"], "bytes": row["bytes"], "dead_rows": row.get("dead_rows")}


def _after(settings: VacuumSettings, link: ServerLink, key: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the sight, measured anew; none where the server does not answer now."""
    try:
        table = _table(settings, link) if settings.table is not None else None
        [row] = [table] if table is not None else link.rows(DATABASE, {"database": key["database"]})
    except (StatementFailed, ConnectError):
        return {}
    return _figures(row)


def _came_to(
    link: ServerLink, key: Mapping[str, Any], since_us: int, warnings: Sequence[str], control: Control
) -> tuple[str, str]:
    """VACUUM ends well also where it passed a table over, and says so in a warning only."""
    for _ in range(_LOOKS):
        [row] = link.rows(DONE_SINCE, {"since": since_us, "oid": key["oid"]})
        if row["vacuumed"] == row["tables"] or control.wait(_LOOK_S):
            break
    beside = f": {'; '.join(warnings[:3])}" if warnings else ""
    if key["oid"] is not None and row["tables"] and not row["vacuumed"] and warnings:
        return "failed", f"the table was passed over{beside}"
    if key["oid"] is None:
        return "ok", f"{row['vacuumed']} of {row['tables']} tables vacuumed{beside}"
    return "ok", f"vacuumed{beside}"
