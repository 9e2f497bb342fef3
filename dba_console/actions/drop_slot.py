"""Drop a replication slot that keeps WAL or dead rows for a standby or subscriber that does not come for them.

What used the slot has to be made anew afterwards, so the slot is named, shown with what it costs, and dropped only as
it was shown. One that is in use is left alone unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import Lost, ServerLink, StatementFailed, server
from dba_console.units import human_bytes, human_count

_IN_USE = "55006"
"""object_in_use."""
_TRIES = 50
_PAUSE_S = 0.1
"""Five seconds for a walsender to go. Its standby comes back at once, so the end and the drop are tried together."""

_SEEN = """
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
_END = """
SELECT pg_catalog.pg_terminate_backend(s.active_pid)
  FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %(slot_name)s AND s.active
"""
_KEY = ("slot_name", "slot_type", "plugin", "database")


class Slot(Struct, frozen=True):
    """A row that names a slot; it may say more of it."""

    slot_name: str


class SlotSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slot: str | None = None
    """Name of the slot."""
    rows: list[Slot] = []
    """Instead: rows of a preview with `slot_name`, as in `rows = "%(stale)s"`."""
    active: bool = False
    """Drop it although something is connected to it; that connection is ended."""

    @property
    def names(self) -> list[str]:
        named = [] if self.slot is None else [self.slot]
        return list(dict.fromkeys([*named, *(row.slot_name for row in self.rows)]))


class DropSlot:
    """Implements `Action`."""

    name: ClassVar[str] = "drop-slot"
    summary: ClassVar[str] = (
        "Drops replication slots, after showing the WAL and the transaction ids they hold back. Refuses one that is in "
        "use unless asked, and the copies a standby keeps of its primary's slots. It cannot be taken back: a standby "
        "or subscriber that used the slot has to be made anew."
    )
    Settings: ClassVar[type[Struct]] = SlotSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False
    may_shrink: ClassVar[bool] = True
    """What has been dropped meanwhile need not be dropped."""

    def look(self, settings: SlotSettings, world: World) -> Sight:
        there = {row["slot_name"]: row for row in server(world).rows(_SEEN)}
        found = [there[name] for name in settings.names if name in there]
        gone = [name for name in settings.names if name not in there]
        exact = "; ".join(f"SELECT pg_drop_replication_slot('{row['slot_name']}')" for row in found)
        text = " ".join([*(_told(row) for row in found[:5]), *_more(len(found) - 5), *_absent(gone, there)])
        if not found:
            return Sight(text=text or "No slot is named.", exact=exact, done=True, count=0)
        refusal, hint = next((told for told in (_refusal(settings, row) for row in found) if told[0]), (None, None))
        return Sight(
            text=text,
            exact=exact,
            values={
                "slots": len(there),
                "retained_bytes": _most(list(there.values())),
                "held_xids": _held(list(there.values())),
            },
            refusal=refusal,
            hint=hint,
            count=len(found),
            name=found[0]["slot_name"] if len(found) == 1 else "",
            rows=tuple({name: row[name] for name in _KEY} for row in found),
        )

    def act(self, settings: SlotSettings, sight: Sight, world: World, control: Control) -> Done:
        link = server(world)
        for dropped, key in enumerate(sight.rows):
            if dropped and control.stop_asked():
                return _end(link, "stopped", f"stopped after {dropped} of {len(sight.rows)}")
            control.tell(f"dropping {key['slot_name']}", dropped, len(sight.rows), "slots")
            try:
                told = _drop(link, key, control, ended=settings.active)
            except Lost as error:
                return Done(state="unknown", text=f"{key['slot_name']}: {error.message}")
            if told is not None:
                before = f"{dropped} of {len(sight.rows)} dropped, then " if dropped else ""
                return _end(link, "failed", f"{before}{key['slot_name']}: {told}")
        return _end(link, "ok", _freed(sight))

    def settle(self, settings: SlotSettings, sight: Sight, world: World) -> Done:
        link = server(world)
        there = {row["slot_name"] for row in link.rows(_SEEN)}
        left = [row["slot_name"] for row in sight.rows if row["slot_name"] in there]
        if left:
            return _end(link, "failed", f"still there: {', '.join(left)}")
        return _end(link, "ok", _freed(sight))

    def undo(self, settings: SlotSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="a dropped slot cannot be brought back: what it held is gone")


def _drop(link: ServerLink, key: Mapping[str, Any], control: Control, *, ended: bool) -> str | None:
    """Why it was not dropped; None where it was. Raises Lost."""
    for _ in range(_TRIES):
        try:
            if ended:
                link.act(_END, key)
            if link.act(_DROP, key).count:
                return None
        except StatementFailed as error:
            if error.sqlstate != _IN_USE:  # else somebody connected between the two
                return f"the server refused: {error.message}"
        if not ended or control.wait(_PAUSE_S):
            break
        control.tell(f"the connection to {key['slot_name']} is ended, and comes back")
    return "it is in use, or is no longer the one that was shown"


def _refusal(settings: SlotSettings, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    if row["copied"]:
        return (
            f"{row['slot_name']} is the copy of a slot of the primary, which this standby keeps in step",
            "drop the slot on the primary, and its copies go",
        )
    if row["temporary"]:
        return f"{row['slot_name']} is temporary and belongs to a session", "it goes when that session ends"
    if row["active"] and not settings.active:
        return (
            f"process {row['active_pid']} is connected to {row['slot_name']}: something uses it",
            "stop its standby or subscriber first; active = true drops it all the same",
        )
    return None, None


def _told(row: Mapping[str, Any]) -> str:
    kind = row["slot_type"] if row["plugin"] is None else f"{row['slot_type']} ({row['plugin']}, {row['database']})"
    use = f"in use by process {row['active_pid']}" if row["active"] else "not in use"
    held = _held([row])
    xids = "" if held is None else f" and rows that have been dead for up to {human_count(held)} transactions"
    maker = "A standby" if row["slot_type"] == "physical" else "A subscriber"
    copies = " Its copies on standbys go with it." if row["failover"] else ""
    return (
        f"{row['slot_name']}, {kind}, {use}, holds back {human_bytes(row['retained_bytes'])} of WAL{xids}. "
        f"{maker} that used it has to be made anew.{copies}"
    )


def _held(rows: Sequence[Mapping[str, Any]]) -> int | None:
    ages = [age for row in rows for age in (row["xmin_age"], row["catalog_xmin_age"]) if age is not None]
    return max(ages, default=None)


def _most(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """What goes when all are gone: they hold back the same WAL, one more of it than the other."""
    return max((row["retained_bytes"] for row in rows if row["retained_bytes"] is not None), default=None)


def _more(count: int) -> list[str]:
    return [f"And {count} more."] if count > 0 else []


def _absent(gone: Sequence[str], there: Mapping[str, Any]) -> list[str]:
    if not gone:
        return []
    known = f"there are {', '.join(sorted(there))}" if there else "the server has none"
    return [f"There is no slot {', '.join(gone[:5])}: {known}."]


def _freed(sight: Sight) -> str:
    names = ", ".join(row["slot_name"] for row in sight.rows[:5])
    return f"dropped {len(sight.rows)} ({names}); the WAL they alone held may be removed at the next checkpoint"


def _end(link: ServerLink, state: str, text: str) -> Done:
    rows = link.rows(_SEEN)
    values = {"slots": len(rows), "retained_bytes": _most(rows), "held_xids": _held(rows)}
    return Done(state=state, text=text, values=values)
