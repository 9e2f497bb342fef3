"""The server is not there, does not answer, or cannot take new connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dba_console.findings.outage import Outage, find_outage
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.samples.findings import Severity
from dba_console.samples.host import ControlFile, Processes
from dba_console.sanitize import clean

GAP_US = 5_000_000
"""Longer without a tick, and nobody knows whether it was down all the time."""
_ORDERLY = ("shut down", "shut down in recovery")
_STOPPED = ("T", "t")


def server_down(s: RuleContext) -> Iterator[Signal]:
    """Nobody gets in, or nobody gets an answer. How it ended is told by pg_control, where that can be read.

    An orderly restart is over within seconds (`server-restarted` tells it), so after 3 s it is a warning and after 10 s
    critical; a server that keeps the connection and is silent gets 5 and 30 s, for a stalled disk makes it so too.
    Where the server lets everybody in but the console (password, certificate, name) it is a warning. SQLSTATE 57P03
    is starting up, shutting down or recovering (PostgreSQL documentation, appendix A).
    """
    memo = s.memo("server-down")
    outage = find_outage(s.picture)
    if outage is None or outage.kind == "no_slots":
        memo.clear()
        return
    if not memo or s.mono_us - memo["seen_us"] > GAP_US:
        memo.update(begun_us=s.mono_us, wall_us=s.now_us)
    memo["seen_us"] = s.mono_us
    away_s = (s.mono_us - memo["begun_us"]) / 1e6
    severity = _severity(s, outage, away_s)
    if severity is not None:
        yield _signal(s, outage, memo, severity)


def _severity(s: RuleContext, outage: Outage, away_s: float) -> Severity | None:
    limits = s.limits.server
    silent = outage.kind == "silent"
    if away_s < (limits.silent_warning_s if silent else limits.down_warning_s):
        return None
    if outage.refuses_console:
        return "warning"
    return "critical" if away_s >= (limits.silent_critical_s if silent else limits.down_critical_s) else "warning"


def _signal(s: RuleContext, outage: Outage, memo: dict[str, Any], severity: Severity) -> Signal:
    reason = clean(outage.text)
    # The checkpoint at the end of recovery says "shut down" too (CreateCheckPoint in xlog.c): only where nobody is
    # there does it tell how the server ended.
    state = _control_state(s, memo["begun_us"])
    if outage.kind == "starting" and state in _ORDERLY:
        state = None
    what = {
        "silent": "PostgreSQL does not answer",
        "starting": "PostgreSQL does not let anybody in yet",
    }.get(
        outage.kind,
        "PostgreSQL does not let the console in" if outage.refuses_console else "PostgreSQL cannot be reached",
    )
    return Signal(
        severity=severity,
        text=f"{what}: {clean(outage.reason)}" + _ending_text(state),
        effect=what,
        evidence={"outage": outage.kind, "reason": reason, "control_state": state},
        series=("connections.used", "io.psi_full_pct"),
        since_us=memo["wall_us"],
        advice=_advice(outage, state),
    )


def _control_state(s: RuleContext, begun_us: int) -> str | None:
    """What pg_control says of the server's end, where it was read since."""
    reading = s.facts.picture.current.get("host.control")
    control = s.facts.picture.now("host.control", ControlFile)
    return None if reading is None or control is None or reading.part.at_us < begun_us else control.state


def _ending_text(state: str | None) -> str:
    if state in _ORDERLY:
        return " (it was shut down in order)"
    return "" if state is None else f" (pg_control: {state})"


def _advice(outage: Outage, state: str | None) -> str | None:
    if outage.kind == "silent":
        return "The I/O, memory and locks panels go on: look there for what it waits for."
    if outage.kind in ("refused", "lost", "timeout") and state in _ORDERLY:
        return "Somebody stopped it: ask who before you start it."
    if outage.kind == "refused":
        return "Look at the end of the server's log before you start it again."
    return None if outage.help is None else f"{outage.help[0].upper()}{outage.help[1:]}."


def postmaster_stopped(s: RuleContext) -> Iterator[Signal]:
    """A signal stopped the postmaster (state T or t in proc_pid_stat(5)): new connections wait for ever.

    Sessions go on, so it looks like a network that swallows packets; a debugger does it too.
    """
    processes = s.facts.picture.now("host.processes", Processes)
    if processes is None or not any(processes.states.get(state) for state in _STOPPED):
        return
    state = next((row.state for row in processes.rows if row.pid == processes.postmaster), None)
    if state not in _STOPPED:
        return
    yield Signal(
        severity="critical",
        text=f"The postmaster (pid {processes.postmaster}) is stopped: sessions go on, new connections wait for ever",
        cause=f"the postmaster (pid {processes.postmaster}) is stopped",
        evidence={"pid": processes.postmaster, "state": state},
        series=("connections.used",),
        advice=f"kill -CONT {processes.postmaster} lets it go on; "
        + ("a debugger holds it." if state == "t" else "somebody sent it SIGSTOP."),
    )
