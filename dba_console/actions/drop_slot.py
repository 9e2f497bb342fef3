"""Drop a replication slot that keeps WAL or dead rows for a standby or subscriber that does not come for them.

What used the slot has to be made anew afterwards, so the slot is named, shown with what it costs, and dropped only as
it was shown. One that is in use is left alone unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import Lost, ServerLink, StatementFailed, server
from dba_console.units import human_bytes, human_count

_TRIES = 50
_PAUSE_S = 0.1
"""Five seconds for a walsender to go. Its standby comes back at once, so the end and the drop are tried together."""

_SEEN = """
SELECT s.slot_name::text AS slot_name, s.slot_type, s.plugin::text AS plugin, s.database::text AS database,
       s.temporary, s.active, s.active_pid, s.wal_status,
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
_END = """
SELECT pg_catalog.pg_terminate_backend(s.active_pid)
  FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %(slot_name)s AND s.active
"""
_KEY = ("slot_name", "slot_type", "plugin", "database")


class SlotSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slot: str
    """Name of the slot."""
    active: bool = False
    """Drop it although something is connected to it; that connection is ended."""


class DropSlot:
    """Implements `Action`."""

    name: ClassVar[str] = "drop-slot"
    summary: ClassVar[str] = (
        "Drops a replication slot, after showing the WAL and the transaction ids it holds back. Refuses one that is in "
        "use unless asked. It cannot be taken back: a standby or subscriber that used the slot has to be made anew."
    )
    Settings: ClassVar[type[Struct]] = SlotSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False

    def look(self, settings: SlotSettings, world: World) -> Sight:
        slots = {row["slot_name"]: row for row in server(world).rows(_SEEN)}
        row = slots.get(settings.slot)
        exact = f"SELECT pg_drop_replication_slot('{settings.slot}')"
        if row is None:
            there = f"there are {', '.join(sorted(slots))}" if slots else "the server has no slot"
            return Sight(text=f"There is no slot {settings.slot}: {there}.", exact=exact, done=True, count=0)
        refusal, hint = _refusal(settings, row)
        return Sight(
            text=_told(row),
            exact=exact,
            values={"retained_bytes": row["retained_bytes"], "slots": len(slots), "held_xids": _held(row)},
            refusal=refusal,
            hint=hint,
            count=1,
            rows=({name: row[name] for name in _KEY},),
        )

    def act(self, settings: SlotSettings, sight: Sight, world: World, control: Control) -> Done:
        link, key = server(world), sight.rows[0]
        for _ in range(_TRIES):
            if settings.active:
                link.act(_END, key)
            try:
                dropped = link.act(_DROP, key).count
            except StatementFailed as error:
                if error.sqlstate != "55006":  # object_in_use: somebody connected between the two
                    return Done(state="failed", text=f"the server refused: {error.message}")
                dropped = 0
            except Lost as error:
                return Done(state="unknown", text=error.message)
            if dropped:
                return _gone(link, sight)
            if not settings.active or control.wait(_PAUSE_S):
                break
            control.tell("its walsender goes, and comes back")
        return Done(
            state="failed", text="nothing was dropped: the slot is in use, or is no longer the one that was shown"
        )

    def settle(self, settings: SlotSettings, sight: Sight, world: World) -> Done:
        link = server(world)
        there = any(row["slot_name"] == settings.slot for row in link.rows(_SEEN))
        if there:
            return Done(state="failed", text=f"the slot {settings.slot} is still there")
        return _gone(link, sight)

    def undo(self, settings: SlotSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="a dropped slot cannot be brought back: what it held is gone")


def _refusal(settings: SlotSettings, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    if row["temporary"]:
        return f"{settings.slot} is temporary and belongs to a session", "it goes when that session ends"
    if row["active"] and not settings.active:
        return (
            f"process {row['active_pid']} is connected to {settings.slot}: something uses it",
            "stop its standby or subscriber first; active = true drops it all the same",
        )
    return None, None


def _told(row: Mapping[str, Any]) -> str:
    kind = row["slot_type"] if row["plugin"] is None else f"{row['slot_type']} ({row['plugin']}, {row['database']})"
    use = f"in use by process {row['active_pid']}" if row["active"] else "not in use"
    held = _held(row)
    xids = "" if held is None else f" and rows that have been dead for up to {human_count(held)} transactions"
    maker = "A standby" if row["slot_type"] == "physical" else "A subscriber"
    return (
        f"{row['slot_name']}, {kind}, {use}, holds back {human_bytes(row['retained_bytes'])} of WAL{xids}. "
        f"{maker} that used it has to be made anew."
    )


def _held(row: Mapping[str, Any]) -> int | None:
    ages = [age for age in (row["xmin_age"], row["catalog_xmin_age"]) if age is not None]
    return max(ages, default=None)


def _gone(link: ServerLink, sight: Sight) -> Done:
    slots = link.rows(_SEEN)
    freed = human_bytes(sight.values.get("retained_bytes"))
    text = f"dropped; up to {freed} of WAL may be removed at the next checkpoint"
    return Done(state="ok", text=text, values={"retained_bytes": 0, "slots": len(slots)})
