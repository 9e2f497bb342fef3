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


class Place(Struct, frozen=True):
    """A row that names a database, or a table in it; it may say more of it."""

    datname: str
    table: str | None = None


class VacuumSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    table: str | None = None
    """As one writes it in SQL, with its schema; without it the whole database."""
    database: str | None = None
    """Where; without it the run's own."""
    rows: list[Place] = []
    """Instead: rows of a preview with `datname`, and `table` where tables are meant, as in `rows = "%(oldest)s"`."""
    freeze: bool = False
    """Freeze every row: more than a wraparound emergency needs."""
    analyze: bool = False
    """Gather the planner's statistics too. Not in a wraparound emergency: that needs a transaction id."""
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
    """How long at most for each; what was vacuumed by then stays so."""

    @property
    def places(self) -> list[tuple[str | None, str | None]]:
        """Database (None: the run's own) and table (None: all of it), in order."""
        own = [] if self.rows else [(self.database, self.table)]
        return list(dict.fromkeys([*own, *((row.datname, row.table) for row in self.rows)]))


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
        if settings.rows and (settings.database or settings.table):
            told = "it has to be said what to vacuum once: by rows, or by database and table"
            return Sight(text=f"It will not be vacuumed: {told}.", exact="", refusal=told)
        seen = [_seen(settings, *place, server(world)) for place in settings.places]
        refused = next((sight for sight in seen if sight.refusal is not None), None)
        if refused is not None:
            return refused
        return Sight(
            text=" ".join([sight.text for sight in seen[:5]] + ([f"And {len(seen) - 5} more."] if seen[5:] else [])),
            exact="; ".join(sight.exact for sight in seen),
            values={**_together([sight.values for sight in seen]), "looked_us": seen[0].values["looked_us"]},
            count=len(seen),
            rows=tuple(row for sight in seen for row in sight.rows),
        )

    def act(self, settings: VacuumSettings, sight: Sight, world: World, control: Control) -> Done:
        link, told = server(world), list[str]()
        for number, key in enumerate(sight.rows):
            if told and control.stop_asked():
                return _end(link, sight, "stopped", f"stopped after {number} of {len(sight.rows)}")
            try:
                state, text = _vacuum(settings, key, link.to(key["database"]), world, control)
            except Lost as error:
                return Done(state="unknown", text=f"{_name(key)}: {error.message}")
            told.append(text if len(sight.rows) == 1 else f"{_name(key)}: {text}")
            if state != "ok":
                return _end(link, sight, state, "; ".join(told[-3:]))
        return _end(link, sight, "ok", "; ".join(told[-3:]))

    def settle(self, settings: VacuumSettings, sight: Sight, world: World) -> Done:
        asked, undone, known = server(world), list[str](), True
        for key in sight.rows:
            link = asked.to(key["database"])
            if rows := link.rows(OURS, {"database": key["database"]}):
                pids = ", ".join(str(row["pid"]) for row in rows)
                return Done(state="unknown", text=f"a VACUUM of this console is still under way in process {pids}")
            [row] = link.rows(DONE_SINCE, {"since": sight.values["looked_us"], "oid": key["oid"]})
            if row["vacuumed"] < row["tables"]:
                undone.append(f"{_name(key)}: {row['vacuumed']} of {row['tables']} tables")
            known = known and bool(row["tables"]) and not row["restarted"]
        if not known:
            text = "its backend has ended, and the server's statistics do not tell how; vacuuming again does no harm"
            return _end(asked, sight, "unknown", text)
        if undone:
            text = f"not all was vacuumed ({'; '.join(undone[:3])}); vacuuming again does no harm"
            return _end(asked, sight, "failed", text)
        return _end(asked, sight, "ok", "every table of it was vacuumed since")

    def undo(self, settings: VacuumSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="there is nothing to take back")


def _seen(settings: VacuumSettings, name: str | None, table_name: str | None, asked: ServerLink) -> Sight:
    """What is there in one place."""
    database = next(iter(asked.rows(DATABASE, {"database": name})), None)
    if database is None or not database["connects"]:
        told = f"database {name} {'does not exist' if database is None else 'allows no connections'}"
        return Sight(text=f"The {told}.", exact="", refusal=told)
    link = asked.to(database["name"])
    [now] = link.rows(SERVER, {"database": database["name"]})
    table = None if table_name is None else _table(table_name, link)
    refusal = _refusal(table_name, now, table, link)
    if refusal is not None:
        return Sight(text=f"It will not be vacuumed: {refusal}.", exact="", refusal=refusal)
    shown = table or database
    return Sight(
        text=_told(table_name, database["name"], shown),
        exact=f"{_statement(settings, table)} in database {database['name']}",
        values={**_figures(shown), "looked_us": now["now_us"]},
        rows=({"database": database["name"], "table": table_name, "oid": None if table is None else table["oid"]},),
    )


def _vacuum(
    settings: VacuumSettings, key: Mapping[str, Any], link: ServerLink, world: World, control: Control
) -> tuple[str, str]:
    """State and what to say of it. Raises Lost."""
    [now] = link.rows(SERVER, {"database": key["database"]})
    table = None if key["oid"] is None else _table(key["table"], link)
    if key["oid"] is not None and (table is None or table["oid"] != key["oid"]):
        return "failed", f"nothing was done: {key['table']} is not the table any more that was shown"
    with closing(link.aside()) as aside:
        try:
            result = link.act(
                _statement(settings, table),
                transaction=False,
                timeout_s=None if settings.timeout is None else parse_duration(settings.timeout),
                lock_timeout_s=0.0 if settings.lock_timeout is None else parse_duration(settings.lock_timeout),
                watch=Watcher(aside, world.clock, control),
            )
        except Stopped:
            return "stopped", "stopped; what was vacuumed by then stays so"
        except StatementFailed as error:
            return "failed", f"the server gave up: {error.message}"
    return _came_to(link, key, now["now_us"], result.warnings, control)


def _table(name: str, link: ServerLink) -> dict[str, Any] | None:
    rows = link.rows(TABLE, {"table": name})
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


def _refusal(name: str | None, now: Mapping[str, Any], table: Mapping[str, Any] | None, link: ServerLink) -> str | None:
    if now["in_recovery"]:
        return "this is a standby: VACUUM runs on its primary, and comes here with the WAL"
    if name is None:
        return None if now["whole"] else "this role does not own the database, so most tables would be passed over"
    if table is None:
        return f"there is no table {name}"
    if table["kind"] not in _KINDS:
        return f"{name} is no table"
    maintains = now["version_num"] >= 170000 and link.rows(MAINTAIN, {"oid": table["oid"]})[0]["may"]
    return None if table["owned"] or maintains else f"this role may not vacuum {name}: it is not its owner"


def _told(name: str | None, database: str, shown: Mapping[str, Any]) -> str:
    what = f"table {name} in database {database}" if name else f"every table of database {database}"
    dead = shown.get("dead_rows")
    rows = "" if dead is None else f", about {human_count(dead)} dead rows"
    age = "" if shown["xid_age"] is None else f", oldest transaction id {human_count(shown['xid_age'])} back"
    return f"Vacuum {what}: {human_bytes(shown['bytes'])}{rows}{age}."


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"xid_age": row["xid_age"], "bytes": row["bytes"], "dead_rows": row.get("dead_rows")}


def _together(figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The oldest id; bytes and dead rows of all."""

    def known(name: str) -> list[Any]:
        return [row[name] for row in figures if row.get(name) is not None]

    return {
        "xid_age": max(known("xid_age"), default=None),
        "bytes": sum(known("bytes")) if known("bytes") else None,
        "dead_rows": sum(known("dead_rows")) if known("dead_rows") else None,
    }


def _name(key: Mapping[str, Any]) -> str:
    return f"{key['table']} in {key['database']}" if key["table"] else str(key["database"])


def _end(link: ServerLink, sight: Sight, state: str, text: str) -> Done:
    """With the figures of the sight measured anew; without them where the server does not answer now."""
    figures = []
    try:
        for key in sight.rows:
            table = _table(key["table"], link.to(key["database"])) if key["oid"] is not None else None
            [row] = [table] if table is not None else link.rows(DATABASE, {"database": key["database"]})
            figures.append(_figures(row))
    except (StatementFailed, ConnectError):
        return Done(state=state, text=text)
    return Done(state=state, text=text, values=_together(figures))


def _came_to(
    link: ServerLink, key: Mapping[str, Any], since_us: int, warnings: Sequence[str], control: Control
) -> tuple[str, str]:
    """VACUUM ends well also where it passed a table over, and says so in a warning only."""
    for _ in range(_LOOKS):
        [row] = link.rows(DONE_SINCE, {"since": since_us, "oid": key["oid"]})
        if row["vacuumed"] == row["tables"] or control.wait(_LOOK_S):
            break
    beside = f": {'; '.join(warnings[:3])}" if warnings else ""
    if row["tables"] and not row["vacuumed"] and warnings:
        return "failed", f"{'every table' if key['oid'] is None else 'the table'} was passed over{beside}"
    if key["oid"] is None:
        return "ok", f"{row['vacuumed']} of {row['tables']} tables vacuumed{beside}"
    return "ok", f"vacuumed{beside}"
