"""Whose the connections are: who holds most of them, and who opened those that came of late.

Where a house is nearly full one asks who holds it; where it fills, who comes. A pool that has sat there for an hour is
no answer to the second question.
"""

from __future__ import annotations

from collections import Counter

from dba_console.findings import session_names
from dba_console.findings.connection_slots import SlotUsage
from dba_console.findings.signal import Value
from dba_console.frames.connection_growth import WINDOW_S
from dba_console.frames.connections import is_client
from dba_console.frames.model import Connections
from dba_console.samples.postgres import Sessions
from dba_console.units import human_duration

Clause = tuple[str, dict[str, Value]]
"""A clause of the sentence, and its evidence; empty where nothing is known."""


def newcomer_clause(sessions: Sessions | None, found_us: int) -> Clause:
    """Who opened most of the sessions that came within the window growth is told from, and not before the first reading
    (`found_us`, the server's clock); by application, and by user where no application opened half of them."""
    if sessions is None:
        return "", {}
    since_us = max(sessions.now_us - int(WINDOW_S * 1e6), found_us)
    new = [row for row in sessions.rows if (row.backend_start or 0) >= since_us and is_client(row)]
    for by in ("application", "user"):
        counted = Counter(name for row in new if (name := getattr(row, by)))
        for name, count in counted.most_common(1):
            if 2 * count >= len(new):
                who = (
                    session_names.display_name(name)
                    if by == "application"
                    else f"user {session_names.display_name(name)}"
                )
                text = (
                    f"{count} of them opened by {who} in the last {human_duration((sessions.now_us - since_us) / 1e6)}"
                )
                return text, {f"newest_{by}": session_names.display_name(name), "newest_count": count}
    return "", {}


def main_holder_clause(panel: Connections, slots: SlotUsage) -> Clause:
    """Who holds most of the slots, by application, without one by user; and in which state."""
    by, groups = ("application", panel.by_application) if panel.by_application else ("user", panel.by_user)
    groups = [group for group in groups if group.name]
    if not groups:
        return "", {}
    most = groups[0]
    active, in_transaction = most.active or 0, most.idle_in_transaction or 0
    idle = most.count - active - in_transaction
    kinds = (("idle", idle), ("active", active), ("idle in transaction", in_transaction))
    state, count = max(kinds, key=lambda kind: kind[1])
    of = f"{by} {session_names.display_name(most.name)}" if by == "user" else session_names.display_name(most.name)
    known = panel.active is not None
    text = f"{count} are {state} sessions of {of}" if known else f"{most.count} are sessions of {of}"
    if known and state == "idle" and most.oldest_idle_s is not None:
        text += f", oldest idle {human_duration(most.oldest_idle_s)}"
    evidence: dict[str, Value] = {f"holder_{by}": session_names.display_name(most.name), "holder_count": most.count}
    if known:
        evidence |= {"holder_idle": idle, "holder_active": active}
    return text, evidence | {"holder_pct": round(100.0 * most.count / max(1, slots.used), 1)}
