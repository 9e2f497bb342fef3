"""What became of a statement whose end nobody saw, by the mark it left.

`pg_xact_status` answers for a transaction as long as the server keeps its commit log: months on most, and never less
than since the oldest transaction that is still of use to anybody. What ran in no transaction of ours is told by its
backend alone: while it is there the end is open, and when it is gone only the world itself can tell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dba_console.actions.action import Done
from dba_console.actions.identity import other_server
from dba_console.actions.link import Mark, ServerLink, StatementFailed
from dba_console.clock import SYSTEM, Clock

PATIENCE_S = 20.0
"""How long a transaction may still be under way before its end is called unknown: longer than a server takes to notice
that we are gone, and to roll back."""
LOOK_S = 0.25
_NEVER = threading.Event()

_STATUS = "SELECT pg_catalog.pg_xact_status(%(xid)s::text::pg_catalog.xid8) AS status"
_ALIVE = """
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
_WORDS = {"committed": "ok", "aborted": "failed"}
_TEXTS = {
    "committed": "transaction {xid} was committed: the server's commit log says so",
    "aborted": "transaction {xid} was rolled back: the server's commit log says so, and nothing of it remains",
}


def settle_mark(
    link: ServerLink,
    mark: Mark,
    *,
    patience_s: float = PATIENCE_S,
    clock: Clock = SYSTEM,
    pause: Callable[[float], object] = _NEVER.wait,
) -> Done:
    """ok, failed or unknown. Raises ConnectError where the server cannot be asked."""
    if told := _elsewhere(link, mark):
        return Done(state="unknown", text=told)
    if mark.xid is None:
        return _by_backend(link, mark)
    until_us = clock.mono_us() + int(patience_s * 1e6)
    while (status := xact_status(link, mark.xid)) == "in progress" and clock.mono_us() < until_us:
        pause(LOOK_S)
    if status == "committed" and _started_since(link, mark):
        # What was not on disk when a server crashed is forgotten, the ids it gave out too: they are given out again.
        text = f"transaction {mark.xid} is committed, and the server was started since: it may be another one's by now"
        return Done(state="unknown", text=text)
    if status in _WORDS:
        return Done(state=_WORDS[status], text=_TEXTS[status].format(xid=mark.xid))
    if status == "in progress":
        return Done(state="unknown", text=f"transaction {mark.xid} is still under way{_told(link, mark)}")
    return Done(state="unknown", text=f"the server does not know transaction {mark.xid}: {status}")


def alive(link: ServerLink, mark: Mark) -> str | None:
    """The state of the backend that ran it; None where it has ended."""
    rows = link.rows(_ALIVE, {"pid": mark.pid, "start": mark.backend_start_us})
    return f"{rows[0]['state'] or 'hidden'}: {rows[0]['query'] or ''}" if rows else None


def _elsewhere(link: ServerLink, mark: Mark) -> str | None:
    """A transaction id means something on its own timeline only: after a failover it may have been given out again."""
    now = link.identity()
    was = type(now)(system_identifier=mark.system_identifier, timeline=mark.timeline, role=now.role)
    told = other_server(was, now)
    return None if told is None else f"the server cannot be asked about it: {told}"


def _started_since(link: ServerLink, mark: Mark) -> bool:
    """Whether the server may have crashed since; when a backend crashes the postmaster stays, and the rest is new."""
    if link.identity().server_start_us != mark.server_start_us:
        return True
    [row] = link.rows(_CHECKPOINTER)
    return bool(mark.backend_start_us and row["start_us"] and row["start_us"] > mark.backend_start_us)


def _by_backend(link: ServerLink, mark: Mark) -> Done:
    state = alive(link, mark)
    if state is not None:
        return Done(state="unknown", text=f"it is still under way in process {mark.pid} ({state})")
    return Done(
        state="unknown",
        text=f"it ran outside a transaction, and its process {mark.pid} has ended: only what it was for can tell",
    )


def xact_status(link: ServerLink, xid: int, statement: str = _STATUS) -> str:
    """committed, aborted, in progress, or why the server cannot tell. `statement` gives the `status` of `xid`."""
    try:
        [row] = link.rows(statement, {"xid": xid})
    except StatementFailed as error:
        return error.message  # an id of the future: this server never gave it out
    return row["status"] or "it is older than the commit log that is kept"


def _told(link: ServerLink, mark: Mark) -> str:
    state = alive(link, mark)
    return "" if state is None else f" in process {mark.pid} ({state})"
