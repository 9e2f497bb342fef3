"""Roll back a prepared transaction that nobody comes back for: it holds its locks and the horizon for ever.

Whoever prepared it may still mean to commit it, so it is shown with age, owner and database, and a young one is left to
its transaction manager. It ends only in the database it was prepared in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from psycopg import sql

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import Lost, ServerLink, StatementFailed, server
from dba_console.units import human_count, human_duration, parse_duration

_SEEN = """
SELECT p.gid, p.transaction::text AS transaction, p.owner::text AS owner, p.database::text AS database,
       (EXTRACT(epoch FROM p.prepared) * 1000000)::int8 AS prepared_us, pg_catalog.age(p.transaction) AS xids,
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::float8 AS age_s,
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks l
         WHERE l.virtualtransaction = '-1/' || p.transaction::text AND l.locktype = 'relation') AS locks,
       pg_catalog.pg_has_role(p.owner, 'USAGE') AS may,
       pg_catalog.pg_is_in_recovery() AS in_recovery
  FROM pg_catalog.pg_prepared_xacts p
"""
_STATUS = """
WITH next AS (SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8 AS xid),
     full_xid AS (
       SELECT CASE WHEN (xid / 4294967296) * 4294967296 + %(xid)s::int8 > xid
                   THEN (xid / 4294967296 - 1) * 4294967296 + %(xid)s::int8
                   ELSE (xid / 4294967296) * 4294967296 + %(xid)s::int8 END AS xid FROM next)
SELECT pg_catalog.pg_xact_status(xid::text::pg_catalog.xid8) AS status FROM full_xid
"""
"""The view gives 32 bits of the id; the epoch is that of the newest id not greater than the next one."""
_KEY = ("gid", "transaction", "owner", "database", "prepared_us")


class PreparedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gid: str
    """Identifier it was prepared with."""
    min_age: str = "10m"
    """A younger one is refused: its transaction manager may be about to commit it."""


class RollbackPrepared:
    """Implements `Action`."""

    name: ClassVar[str] = "rollback-prepared"
    summary: ClassVar[str] = (
        "Rolls back a prepared transaction, in its own database, after showing its age, owner, and locks. Refuses one "
        "younger than `min_age`. It cannot be taken back: what the transaction did is gone."
    )
    Settings: ClassVar[type[Struct]] = PreparedSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False

    def look(self, settings: PreparedSettings, world: World) -> Sight:
        rows = {row["gid"]: row for row in server(world).rows(_SEEN)}
        row, exact = rows.get(settings.gid), _statement(settings.gid)
        if row is None:
            there = f"there are {', '.join(sorted(rows))}" if rows else "there is none"
            return Sight(
                text=f"No transaction is prepared as {settings.gid}: {there}.", exact=exact, done=True, count=0
            )
        refusal, hint = _refusal(settings, row)
        return Sight(
            text=_told(row),
            exact=f"{exact}  -- in database {row['database']}",
            values={"prepared": len(rows), "held_xids": row["xids"], "locks": row["locks"]},
            refusal=refusal,
            hint=hint,
            count=1,
            rows=({name: row[name] for name in _KEY},),
        )

    def act(self, settings: PreparedSettings, sight: Sight, world: World, control: Control) -> Done:
        link, key = server(world), sight.rows[0]
        if not any(all(row[name] == key[name] for name in _KEY) for row in link.rows(_SEEN)):
            return Done(state="failed", text="nothing was done: it is not the one any more that was shown")
        try:
            link.to(key["database"]).act(_statement(settings.gid), transaction=False, timeout_s=60.0)
        except StatementFailed as error:
            return Done(state="failed", text=f"the server refused: {error.message}")
        except Lost as error:
            return Done(state="unknown", text=error.message)
        return Done(state="ok", text="rolled back; its locks are free", values={"prepared": len(link.rows(_SEEN))})

    def settle(self, settings: PreparedSettings, sight: Sight, world: World) -> Done:
        link, key = server(world), sight.rows[0]
        if any(all(row[name] == key[name] for name in _KEY) for row in link.rows(_SEEN)):
            return Done(state="failed", text=f"{settings.gid} is still prepared")
        status = _status(link, int(key["transaction"]))
        if status == "aborted":
            return Done(state="ok", text=f"transaction {key['transaction']} was rolled back: the commit log says so")
        if status == "committed":
            return Done(state="failed", text=f"transaction {key['transaction']} was committed, not rolled back")
        return Done(state="unknown", text=f"it is prepared no more, and the server does not say how it ended: {status}")

    def undo(self, settings: PreparedSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="what was rolled back cannot be brought back")


def _refusal(settings: PreparedSettings, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    least_s = parse_duration(settings.min_age)
    if row["in_recovery"]:
        return "this is a standby: it ends on its primary", None
    if row["age_s"] < least_s:
        return (
            f"it was prepared {human_duration(row['age_s'])} ago: its transaction manager may be about to commit it",
            f"wait, or ask whoever runs it; min_age is {settings.min_age}",
        )
    if not row["may"]:
        return f"it is {row['owner']}'s: only that role or a superuser may end it", f"act as {row['owner']}"
    return None, None


def _told(row: Mapping[str, Any]) -> str:
    return (
        f"{row['gid']} of {row['owner']} in database {row['database']} was prepared {human_duration(row['age_s'])} "
        f"ago, holds locks on {row['locks']} relations and the horizon {human_count(row['xids'])} transactions back. "
        "What it did will be gone: ask the transaction manager it belongs to whether it still means to commit it."
    )


def _statement(gid: str) -> str:
    return sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)).as_string(None)


def _status(link: ServerLink, xid: int) -> str:
    try:
        [row] = link.rows(_STATUS, {"xid": xid})
    except StatementFailed as error:
        return error.message
    return row["status"] or "it is older than the commit log that is kept"
