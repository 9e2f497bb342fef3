"""How the monitor connection behaves: deadlines and limits, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """Times in seconds. The first three come from the configuration's `[agent]`."""

    statement_timeout_s: float = 2.0
    """The server ends a query of ours after this."""
    lock_timeout_s: float = 0.1
    """The server ends our wait for a lock after this; the fast queries wait for none."""
    connect_timeout_s: float = 3.0
    answer_timeout_s: float = 2.5
    """One `read` waits for answers no longer than this, whatever the server does. What is still due then is awaited by
    the next `read`: the connection, and with it the slot, is kept."""
    max_silence_s: float = 30.0
    """A server that owes an answer for longer than this is given up and the connection closed. Long, because each new
    connection to a server that hangs takes one more slot from it."""
    expensive_s: float = 0.5
    """A query that took longer than this is asked more rarely, so that it costs a tenth of the time at most, or a
    third where it is asked each second."""
    retry_refused_s: float = 300.0
    """A query refused for a privilege or an object that is not there is asked again after this: each refusal is a line
    in the server's log."""
    host_panels: bool | None = None
    """True: the server runs on this host although it cannot be proven; False: it does not; None: find out."""
    query_texts: str = "full"
    """full (with secrets masked), normalised (no literals, numbers and comments), none: the configuration's
    `agent.query_texts`."""
