"""Sessions by type and state, as pg_stat_activity reports them; used by several subjects."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.watch.samples.postgres import Activity

CLIENT = "client backend"
ACTIVE = ("active", "fastpath function call")
IN_TRANSACTION = ("idle in transaction", "idle in transaction (aborted)")
DISABLED = "disabled"
"""The state PostgreSQL reports if track_activities is off for the session."""


def is_client(row: Activity) -> bool:
    """Check for a client backend. Without a visible type, a session with a user and a database counts as one."""
    if row.backend_type is None:
        return row.user is not None and row.database is not None and row.leader_pid is None
    return row.backend_type == CLIENT


def count_waiting(rows: Iterable[Activity]) -> int:
    """Count sessions that wait for a lock: the server reports waits even if it does not track activities."""
    return len([row for row in rows if row.wait_event_type == "Lock" and row.state in (*ACTIVE, DISABLED)])


def wait_text(row: Activity) -> str | None:
    """Return `wait_event_type:wait_event`, None for a session that does not wait."""
    return None if row.wait_event_type is None else f"{row.wait_event_type}:{row.wait_event or ''}"
