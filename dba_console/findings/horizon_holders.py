"""Who holds the xid horizon back: ranked, named, and what to do about each kind."""

from __future__ import annotations

from dba_console.samples import postgres
from dba_console.sanitize import clean


def rank_holders(horizon: postgres.Horizon) -> list[postgres.HorizonHolder]:
    """Who holds most first; of those that hold the same, who began first. Ages that may not be seen are left out."""
    held = [row for row in horizon.rows if row.xid_age is not None]
    held.sort(key=lambda row: (-(row.xid_age or 0), float("inf") if row.since is None else row.since))
    return held


def holder_text(row: postgres.HorizonHolder) -> str:
    """What holds it, in words."""
    who = clean(row.who)
    match row.kind:
        case "backend":
            state = f", {clean(row.state)}" if row.state else ""
            return f"session {row.pid} ({who}{state})"
        case "prepared":
            return f"prepared transaction {who!r}"
        case "slot":
            return f"{row.state or ''} replication slot {who}".lstrip()
        case _:
            return f"standby {who} (hot_standby_feedback)"


def holder_advice(row: postgres.HorizonHolder) -> str:
    """One phrase for each kind, in the words of the documentation (maintenance.sgml, "Preventing Transaction ID
    Wraparound Failures")."""
    database = f" in database {clean(row.database)}" if row.database else ""
    match row.kind:
        case "backend":
            return f"End that transaction: ask its owner, or SELECT pg_terminate_backend({row.pid})."
        case "prepared":
            return f"COMMIT PREPARED or ROLLBACK PREPARED it{database}, once its coordinator was asked."
        case "slot" if row.state == "active":
            return "Find out what the reader of this slot waits for: it confirms nothing."
        case "slot":
            return "Drop the slot if nobody will read it again; its replica or subscriber must then be built anew."
        case _:
            return "End the long query on that standby, or turn hot_standby_feedback off there."
