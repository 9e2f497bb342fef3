"""Find out whether a statement took effect whose answer was lost with the connection, from its recorded transaction id.

`pg_xact_status` knows a transaction as long as the server keeps its commit log: months on most servers, and never less
than back to the oldest transaction still needed. For a statement outside our own transaction only its backend is
evidence: while the backend runs the outcome is open; after that it must be read from the changed objects.
"""

from __future__ import annotations

import threading

from dba_console.actions.action import ActionResult
from dba_console.actions.identity import server_mismatch
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementMark
from dba_console.core.clock import SYSTEM, Clock

WAIT_S = 20.0
"""How long a transaction may stay in progress before its outcome is called unknown: longer than a server takes to
notice the lost connection and to roll back."""
POLL_S = 0.25
_NEVER = threading.Event()

_STATUS = "SELECT pg_catalog.pg_xact_status(%(xid)s::text::pg_catalog.xid8) AS status"
_BACKEND = """
SELECT a.state, a.wait_event_type, pg_catalog.left(a.query, 200) AS query
  FROM pg_catalog.pg_stat_activity a
 WHERE a.pid = %(pid)s::int4
   AND a.backend_start = timestamptz 'epoch' + %(start)s::int8 * interval '1 microsecond'
"""
_CHECKPOINTER = """
SELECT (extract(epoch FROM max(a.backend_start)) * 1000000)::int8 AS start_us
  FROM pg_catalog.pg_stat_activity a
 WHERE a.backend_type = 'checkpointer'
"""
_STATES = {"committed": "ok", "aborted": "failed"}
_TEXTS = {
    "committed": "transaction {xid} was committed, according to the server's commit log",
    "aborted": "transaction {xid} was rolled back, according to the server's commit log; it has no effect",
}


def settle_mark(
    connection: QueryConnection,
    mark: StatementMark,
    *,
    patience_s: float = WAIT_S,
    clock: Clock = SYSTEM,
) -> ActionResult:
    """Return the outcome: ok, failed or unknown. Raises ConnectError if the server cannot be asked."""
    if message := _server_refusal(connection, mark):
        return ActionResult(state="unknown", text=message)
    if mark.xid is None:
        return _settle_by_backend(connection, mark)
    deadline_us = clock.mono_us() + int(patience_s * 1e6)
    while (status := xact_status(connection, mark.xid)) == "in progress" and clock.mono_us() < deadline_us:
        _NEVER.wait(POLL_S)
    if status == "committed" and _restarted_since(connection, mark):
        # A crash loses transaction ids that were not yet on disk: the server assigns them again.
        text = f"transaction {mark.xid} is committed, but the server restarted since: the id may have been reassigned"
        return ActionResult(state="unknown", text=text)
    if status in _STATES:
        return ActionResult(state=_STATES[status], text=_TEXTS[status].format(xid=mark.xid))
    if status == "in progress":
        return ActionResult(
            state="unknown", text=f"transaction {mark.xid} is still in progress{_backend_text(connection, mark)}"
        )
    return ActionResult(state="unknown", text=f"the server does not know transaction {mark.xid}: {status}")


def backend_activity(connection: QueryConnection, mark: StatementMark) -> str | None:
    """Return the state of the backend that ran it; None: ended."""
    rows = connection.rows(_BACKEND, {"pid": mark.pid, "start": mark.backend_start_us})
    return f"{rows[0]['state'] or 'hidden'}: {rows[0]['query'] or ''}" if rows else None


def _server_refusal(connection: QueryConnection, mark: StatementMark) -> str | None:
    """Check the timeline: after a failover a transaction id may have been assigned again."""
    now = connection.read_identity()
    was = type(now)(system_identifier=mark.system_identifier, timeline=mark.timeline, role=now.role)
    message = server_mismatch(was, now)
    return None if message is None else f"the server cannot be asked about it: {message}"


def _restarted_since(connection: QueryConnection, mark: StatementMark) -> bool:
    """Whether the server may have crashed since; after a backend crash only the postmaster is the same process."""
    if connection.read_identity().server_start_us != mark.server_start_us:
        return True
    [row] = connection.rows(_CHECKPOINTER)
    return bool(mark.backend_start_us and row["start_us"] and row["start_us"] > mark.backend_start_us)


def _settle_by_backend(connection: QueryConnection, mark: StatementMark) -> ActionResult:
    state = backend_activity(connection, mark)
    if state is not None:
        return ActionResult(state="unknown", text=f"it is still running in process {mark.pid} ({state})")
    return ActionResult(
        state="unknown",
        text=f"it ran outside a transaction, and its process {mark.pid} has ended: check whether it took effect",
    )


def xact_status(connection: QueryConnection, xid: int, statement: str = _STATUS) -> str:
    """Return committed, aborted, in progress, or why it is unknown. `statement` returns the `status` of `xid`."""
    try:
        [row] = connection.rows(statement, {"xid": xid})
    except StatementFailed as error:
        return error.message  # an id in the future: this server never assigned it
    return row["status"] or "it is older than the oldest kept commit log"


def _backend_text(connection: QueryConnection, mark: StatementMark) -> str:
    state = backend_activity(connection, mark)
    return "" if state is None else f" in process {mark.pid} ({state})"
