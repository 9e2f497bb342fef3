"""The action drop-slot: drop a replication slot that retains WAL or dead rows for an absent standby or subscriber.

The standby or subscriber of the slot must be rebuilt afterwards, so the slot is named, shown with its cost, and dropped
only if it is still as shown. A slot in use is not dropped unless requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, Control, named_objects_text
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core.units import human_bytes, human_count

_IN_USE = "55006"
"""object_in_use."""
_DROP_ATTEMPTS = 50
_PAUSE_S = 0.1
"""Five seconds for a walsender to end. Its standby reconnects at once, so terminate and drop are retried together."""

_SLOTS = """
SELECT s.slot_name::text AS slot_name, s.slot_type, s.plugin::text AS plugin, s.database::text AS database,
       s.temporary, s.active, s.active_pid, s.wal_status,
       pg_catalog.pg_is_in_recovery() AND coalesce((pg_catalog.to_jsonb(s)->>'synced')::bool, false) AS copied,
       coalesce((pg_catalog.to_jsonb(s)->>'failover')::bool, false) AS failover,
       pg_catalog.age(s.xmin) AS xmin_age, pg_catalog.age(s.catalog_xmin) AS catalog_xmin_age,
       pg_catalog.pg_wal_lsn_diff(
         CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
              ELSE pg_catalog.pg_current_wal_lsn() END, s.restart_lsn)::int8 AS retained_bytes
  FROM pg_catalog.pg_replication_slots s
"""
_DROP = """
SELECT pg_catalog.pg_drop_replication_slot(s.slot_name)
  FROM pg_catalog.pg_replication_slots s
 WHERE s.slot_name = %(slot_name)s AND s.slot_type = %(slot_type)s AND NOT s.active
   AND s.plugin IS NOT DISTINCT FROM %(plugin)s::name AND s.database IS NOT DISTINCT FROM %(database)s::name
"""
_TERMINATE = """
SELECT pg_catalog.pg_terminate_backend(s.active_pid)
  FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %(slot_name)s AND s.active
"""
_KEY_COLUMNS = ("slot_name", "slot_type", "plugin", "database")


class SlotToDrop(Struct, frozen=True):
    """A row that names a slot; other columns are ignored."""

    slot_name: str


class SlotSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slot: str | None = None
    """Name of the slot."""
    rows: list[SlotToDrop] = []
    """Instead: rows of a preview with `slot_name`, as in `rows = "%(stale)s"`."""
    active: bool = False
    """Drop it even if it is in use; the connection that uses it is terminated."""

    @property
    def names(self) -> list[str]:
        named = [] if self.slot is None else [self.slot]
        return list(dict.fromkeys([*named, *(row.slot_name for row in self.rows)]))


class DropSlot(Action):
    name: ClassVar[str] = "drop-slot"
    summary: ClassVar[str] = (
        "Drops replication slots, after showing the WAL and the transaction ids they retain. Refuses a slot in use "
        "unless requested, and the synchronized copies of the primary's slots on a standby. It cannot be undone: a "
        "standby or subscriber that used the slot must be rebuilt."
    )
    Settings: ClassVar[type[Struct]] = SlotSettings
    no_undo: ClassVar[str] = "a dropped slot cannot be restored: the WAL it retained may be gone"
    may_shrink: ClassVar[bool] = True
    """A slot that was dropped meanwhile needs no drop."""

    def preview(self, settings: SlotSettings, context: ActionContext) -> ActionPreview:
        there = {row["slot_name"]: row for row in context.require_connection().rows(_SLOTS)}
        found = [there[name] for name in settings.names if name in there]
        gone = [name for name in settings.names if name not in there]
        exact = "; ".join(f"SELECT pg_drop_replication_slot('{row['slot_name']}')" for row in found)
        known = f"existing slots: {', '.join(sorted(there))}" if there else "the server has no slots"
        text = named_objects_text([_slot_text(row) for row in found], gone, "Slot not found", known)
        if not found:
            return ActionPreview(text=text or "No slot is named.", exact=exact, done=True, count=0)
        refusal, hint = next(
            (message for message in (_refusal(settings, row) for row in found) if message[0]), (None, None)
        )
        return ActionPreview(
            text=text,
            exact=exact,
            values={
                "slots": len(there),
                "retained_bytes": _max_retained_bytes(list(there.values())),
                "held_xids": _max_xid_age(list(there.values())),
            },
            refusal=refusal,
            hint=hint,
            count=len(found),
            name=found[0]["slot_name"] if len(found) == 1 else "",
            rows=tuple({name: row[name] for name in _KEY_COLUMNS} for row in found),
        )

    def act(
        self, settings: SlotSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection = context.require_connection()
        for dropped, key in enumerate(preview.rows):
            if dropped and control.stop_requested():
                return _result(connection, "stopped", f"stopped after {dropped} of {len(preview.rows)}")
            control.report_progress(f"dropping {key['slot_name']}", dropped, len(preview.rows), "slots")
            try:
                message = _drop(connection, key, control, terminate=settings.active)
            except StatementLost as error:
                return ActionResult(state="unknown", text=f"{key['slot_name']}: {error.message}")
            if message is not None:
                before = f"{dropped} of {len(preview.rows)} dropped, then " if dropped else ""
                return _result(connection, "failed", f"{before}{key['slot_name']}: {message}")
        return _result(connection, "ok", _dropped_text(preview))

    def settle(self, settings: SlotSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection = context.require_connection()
        there = {row["slot_name"] for row in connection.rows(_SLOTS)}
        left = [row["slot_name"] for row in preview.rows if row["slot_name"] in there]
        if left:
            return _result(connection, "failed", f"still there: {', '.join(left)}")
        return _result(connection, "ok", _dropped_text(preview))


def _drop(connection: ActingConnection, key: Mapping[str, Any], control: Control, *, terminate: bool) -> str | None:
    """Return why it was not dropped; None: dropped. Raises StatementLost."""
    for _ in range(_DROP_ATTEMPTS):
        try:
            if terminate:
                connection.execute_change(_TERMINATE, key)
            if connection.execute_change(_DROP, key).count:
                return None
        except StatementFailed as error:
            if error.sqlstate != _IN_USE:  # else a client connected between the two statements
                return f"the server refused: {error.message}"
        if not terminate or control.wait(_PAUSE_S):
            break
        control.report_progress(f"the connection to {key['slot_name']} was terminated and reconnects")
    return "it is in use, or is no longer the slot that was shown"


def _refusal(settings: SlotSettings, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    if row["copied"]:
        return (
            f"{row['slot_name']} is a synchronized copy of a slot of the primary",
            "drop the slot on the primary; its copies are dropped with it",
        )
    if row["temporary"]:
        return f"{row['slot_name']} is temporary and belongs to a session", "it is dropped when that session ends"
    if row["active"] and not settings.active:
        return (
            f"{row['slot_name']} is in use by process {row['active_pid']}",
            "stop its standby or subscriber first; active = true drops it anyway",
        )
    return None, None


def _slot_text(row: Mapping[str, Any]) -> str:
    kind = row["slot_type"] if row["plugin"] is None else f"{row['slot_type']} ({row['plugin']}, {row['database']})"
    use = f"in use by process {row['active_pid']}" if row["active"] else "not in use"
    held = _max_xid_age([row])
    xids = "" if held is None else f" and rows dead for up to {human_count(held)} transactions"
    maker = "A standby" if row["slot_type"] == "physical" else "A subscriber"
    copies = " Its copies on standbys are dropped with it." if row["failover"] else ""
    return (
        f"{row['slot_name']}, {kind}, {use}, retains {human_bytes(row['retained_bytes'])} of WAL{xids}. "
        f"{maker} that used it must be rebuilt.{copies}"
    )


def _max_xid_age(rows: Sequence[Mapping[str, Any]]) -> int | None:
    ages = [age for row in rows for age in (row["xmin_age"], row["catalog_xmin_age"]) if age is not None]
    return max(ages, default=None)


def _max_retained_bytes(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the WAL freed if all are dropped: the maximum, as the slots retain overlapping WAL."""
    return max((row["retained_bytes"] for row in rows if row["retained_bytes"] is not None), default=None)


def _dropped_text(preview: ActionPreview) -> str:
    names = ", ".join(row["slot_name"] for row in preview.rows[:5])
    return f"dropped {len(preview.rows)} ({names}); WAL that only they retained can be removed at the next checkpoint"


def _result(connection: QueryConnection, state: str, text: str) -> ActionResult:
    rows = connection.rows(_SLOTS)
    values = {"slots": len(rows), "retained_bytes": _max_retained_bytes(rows), "held_xids": _max_xid_age(rows)}
    return ActionResult(state=state, text=text, values=values)
