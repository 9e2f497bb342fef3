"""The actions rollback-prepared and commit-prepared: end an orphaned prepared transaction.

It holds locks and the xmin horizon. The manager may still end it itself, so it is shown with age, owner and database,
and a young one is refused. It can only be ended in the database it was prepared in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from psycopg import sql

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control, named_objects_text
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.lost_answer import xact_status
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core.declarations import Duration
from dba_console.core.units import human_count, human_duration, parse_duration

_PREPARED = """
WITH held AS MATERIALIZED (SELECT l.* FROM pg_catalog.pg_locks l WHERE l.pid IS NULL)
SELECT p.gid, p.transaction::text AS transaction, p.owner::text AS owner, p.database::text AS database,
       (EXTRACT(epoch FROM p.prepared) * 1000000)::int8 AS prepared_us, pg_catalog.age(p.transaction) AS xids,
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::float8 AS age_s,
       (SELECT pg_catalog.count(*) FROM held x JOIN held l ON l.virtualtransaction = x.virtualtransaction
         WHERE x.locktype = 'transactionid' AND x.transactionid = p.transaction AND l.locktype = 'relation') AS locks,
       p.owner = current_user OR me.rolsuper AS may
  FROM pg_catalog.pg_prepared_xacts p
  JOIN pg_catalog.pg_roles me ON me.rolname = current_user
"""
"""Until a restart the locks of a prepared transaction have the virtualtransaction of the session that prepared it.
Membership in the owner's role is not enough to end it (LockGXact in twophase.c)."""
_STANDBY = "SELECT pg_catalog.pg_is_in_recovery() AS standby"
_STATUS = """
WITH next AS (SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::int8 AS xid),
     full_xid AS (
       SELECT CASE WHEN (xid / 4294967296) * 4294967296 + %(xid)s::int8 > xid
                   THEN (xid / 4294967296 - 1) * 4294967296 + %(xid)s::int8
                   ELSE (xid / 4294967296) * 4294967296 + %(xid)s::int8 END AS xid FROM next)
SELECT pg_catalog.pg_xact_status(xid::text::pg_catalog.xid8) AS status FROM full_xid
"""
"""The view has the lower 32 bits of the id; the epoch is that of the newest id not greater than the next one."""
_KEY_COLUMNS = ("gid", "transaction", "owner", "database", "prepared_us")


class NamedPrepared(Struct, frozen=True):
    """A row that names a prepared transaction; other columns are ignored."""

    gid: str


class PreparedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gid: str | None = None
    """Global transaction identifier (gid)."""
    rows: list[NamedPrepared] = []
    """Instead: rows of a preview with `gid`, as in `rows = "%(prepared)s"`."""
    min_age: Duration = "10m"
    """Younger transactions are refused: the transaction manager may be about to end them."""

    @property
    def gids(self) -> list[str]:
        named = [] if self.gid is None else [self.gid]
        return list(dict.fromkeys([*named, *(row.gid for row in self.rows)]))


class RollbackPrepared(Action):
    name: ClassVar[str] = "rollback-prepared"
    summary: ClassVar[str] = (
        "Rolls back prepared transactions, each in its own database, after showing age, owner and locks. Refuses one "
        "younger than `min_age`. It cannot be undone: the changes of the transaction are lost."
    )
    Settings: ClassVar[type[Struct]] = PreparedSettings
    no_undo: ClassVar[str] = "a rolled back transaction cannot be restored"
    may_shrink: ClassVar[bool] = True
    """A transaction that ended meanwhile needs nothing."""
    keyword: ClassVar[str] = "ROLLBACK"
    ended: ClassVar[str] = "rolled back"
    status: ClassVar[str] = "aborted"
    """In the server's commit log afterwards."""
    warning: ClassVar[str] = (
        "Their changes will be lost: check first that their transaction managers did not decide to commit them."
    )

    def preview(self, settings: PreparedSettings, context: ActionContext) -> ActionPreview:
        connection = context.require_connection()
        if connection.rows(_STANDBY)[0]["standby"]:
            message = "this is a standby: prepared transactions can only be ended on its primary"
            return ActionPreview(text=f"Nothing will be done: {message}.", exact="", refusal=message)
        there = {row["gid"]: row for row in connection.rows(_PREPARED)}
        found = [there[gid] for gid in settings.gids if gid in there]
        gone = [gid for gid in settings.gids if gid not in there]
        exact = "; ".join(f"{self._statement(row['gid'])} in database {row['database']}" for row in found)
        known = f"existing: {', '.join(sorted(there)[:5])}" if there else "the server has none"
        transactions = [_transaction_text(row) for row in found]
        text = named_objects_text(transactions, gone, "Prepared transaction not found", known)
        if not found:
            return ActionPreview(text=text or "No prepared transaction is named.", exact=exact, done=True, count=0)
        refusal, hint = next((one for one in (_refusal(settings, row) for row in found) if one[0]), (None, None))
        return ActionPreview(
            text=f"{text} {self.warning}",
            exact=exact,
            values=_figures(list(there.values())),
            refusal=refusal,
            hint=hint,
            count=len(found),
            rows=tuple({name: row[name] for name in _KEY_COLUMNS} for row in found),
        )

    def act(
        self, settings: PreparedSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection = context.require_connection()
        for done, key in enumerate(preview.rows):
            if done and control.stop_requested():
                return _result(connection, "stopped", f"stopped after {done} of {len(preview.rows)}")
            control.report_progress(f"{self.keyword} PREPARED {key['gid']}", done, len(preview.rows), "transactions")
            try:
                message = self._end(connection, key)
            except StatementLost as error:
                return ActionResult(state="unknown", text=f"{key['gid']}: {error.message}")
            if message is not None:
                before = f"{done} of {len(preview.rows)} {self.ended}, then " if done else ""
                return _result(connection, "failed", f"{before}{key['gid']}: {message}")
        return _result(connection, "ok", f"{self.ended} {len(preview.rows)}; their locks are released")

    def settle(self, settings: PreparedSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection = context.require_connection()
        there = {tuple(row[name] for name in _KEY_COLUMNS) for row in connection.rows(_PREPARED)}
        left = [key["gid"] for key in preview.rows if tuple(key[name] for name in _KEY_COLUMNS) in there]
        if left:
            return _result(connection, "failed", f"still prepared: {', '.join(left)}")
        ends = {key["gid"]: xact_status(connection, int(key["transaction"]), _STATUS) for key in preview.rows}
        other = {gid: status for gid, status in ends.items() if status != self.status}
        if not other:
            return _result(connection, "ok", f"{self.ended}, according to the server's commit log")
        message = "; ".join(f"{gid}: {status}" for gid, status in other.items())
        state = "failed" if {"aborted", "committed"} & set(other.values()) else "unknown"
        return _result(connection, state, f"no longer prepared, but not known to be {self.ended}: {message}")

    def _end(self, connection: ActingConnection, key: Mapping[str, Any]) -> str | None:
        """Return why it was not ended; None: ended. Raises StatementLost."""
        if not any(all(row[name] == key[name] for name in _KEY_COLUMNS) for row in connection.rows(_PREPARED)):
            return "it is no longer the transaction that was shown"
        try:
            connection.for_database(key["database"]).execute_change(
                self._statement(key["gid"]), transaction=False, timeout_s=60.0
            )
        except StatementFailed as error:
            return f"the server refused: {error.message}"
        return None

    def _statement(self, gid: str) -> str:
        return sql.SQL(f"{self.keyword} PREPARED {{}}").format(sql.Literal(gid)).as_string(None)


class CommitPrepared(RollbackPrepared):
    name: ClassVar[str] = "commit-prepared"
    summary: ClassVar[str] = (
        "Commits prepared transactions, each in its own database, after showing age, owner and locks. Refuses one "
        "younger than `min_age`. It cannot be undone."
    )
    no_undo: ClassVar[str] = "a committed transaction cannot be taken back"
    keyword: ClassVar[str] = "COMMIT"
    ended: ClassVar[str] = "committed"
    status: ClassVar[str] = "committed"
    warning: ClassVar[str] = "Check first that their transaction managers decided to commit them."


def _refusal(settings: PreparedSettings, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    least_s = parse_duration(settings.min_age)
    if row["age_s"] < least_s:
        return (
            f"it was prepared {human_duration(row['age_s'])} ago: its transaction manager may be about to commit it",
            f"wait, or ask its owner; min_age is {settings.min_age}",
        )
    if not row["may"]:
        return f"its owner is {row['owner']}: only that role or a superuser may end it", f"connect as {row['owner']}"
    return None, None


def _transaction_text(row: Mapping[str, Any]) -> str:
    return (
        f"{row['gid']} of {row['owner']} in database {row['database']} was prepared {human_duration(row['age_s'])} "
        f"ago, holds {row['locks']} relation locks, and the xmin horizon {human_count(row['xids'])} transactions back."
    )


def _figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "prepared": len(rows),
        "held_xids": max((row["xids"] for row in rows), default=None),
        "locks": sum(row["locks"] for row in rows),
    }


def _result(connection: QueryConnection, state: str, text: str) -> ActionResult:
    return ActionResult(state=state, text=text, values=_figures(connection.rows(_PREPARED)))
