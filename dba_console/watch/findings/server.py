"""Rules about the server: whether it is there, and what happened to it lately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dba_console.core.clock import rfc3339
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.findings.rule import Outage, Rule, RuleContext, Signal, find_outage
from dba_console.watch.findings.server_changes import (
    server_promoted,
    server_restarted,
    settings_changed,
    version_changed,
)
from dba_console.watch.samples.console import PendingRevertNow, PendingRevertsNow
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.host import ControlFile, Processes

# The server is not there, does not answer, or cannot take new connections.

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


# Settings that a run changed for a time and that are still so after it.

SHOWN = 4
"""Parameters named in the sentence; the evidence has all."""
_STATES = {
    "unread": "; the file is as it was, the server has not read it",
    "pending": "; put back, counts from the next restart",
    "back": "; as it was again",
    "altered": "; somebody has set something else since",
    "gone": "; its database or role is gone",
    "unknown": "; how it is now is not known",
}
_TRUST = {
    "untrusted": ". The server was started anew meanwhile without having been shut down in order: the data of this "
    "cluster cannot be trusted, restore it anew",
    "unknown": ". Whether the server went down meanwhile without being shut down in order cannot be told",
}


def settings_left(s: RuleContext) -> Iterator[Signal]:
    """Parameters that a run set for a time, where that run is over: it failed, was ended, or its agent was killed.

    Critical where fsync or full_page_writes is off by it, or was while the server crashed. While the run goes on only
    these two are told, as a remark. Each parameter is told until it has been seen to be as it was, or a person has
    decided about it; what was put back by hand is noticed within half a minute. While the server does not answer it is
    told that this is not known.
    """
    reading = s.picture.now("debts", PendingRevertsNow)
    if reading is None:
        return
    left = [debt for debt in reading.reverts if not debt.run_is_active]
    if left:
        yield _left_signal(left)
    elif risky := [debt for debt in reading.reverts if debt.risky]:
        yield _active_run_signal(risky)
    if (note := s.picture.current["debts"].part.note) is not None:
        yield Signal(
            severity="warning",
            subject="unreadable",
            text=f"What runs have set for a time is not known: {redact(clean(note))}",
            advice="Read the files it names: they say what was set there before.",
        )


def _left_signal(debts: Sequence[PendingRevertNow]) -> Signal:
    runs, since_us = _runs(debts), min(debt.at_us for debt in debts)
    trust = _worst_trust(debts)
    return Signal(
        severity=_unreverted_severity(debts, trust),
        text=f"{_summary_text(debts, runs)}{_TRUST.get(trust, '')}",
        evidence={
            "settings": [_setting_text(debt) for debt in debts],
            "since": rfc3339(since_us),
            "runs": runs,
            "who": sorted({clean(debt.who) for debt in debts if debt.who}),
            "trust": trust or None,
        },
        since_us=since_us,
        runbook="put-back",
        advice="Run the runbook put-back: it shows each setting and restores exactly what was there.",
    )


def _active_run_signal(debts: Sequence[PendingRevertNow]) -> Signal:
    since_us = min(debt.at_us for debt in debts)
    return Signal(
        severity="info",
        text=f"{_names_and_values(debts)} for run {', '.join(_runs(debts))}: a crash of the host now costs the "
        f"whole cluster",
        evidence={
            "settings": [_setting_text(debt) for debt in debts],
            "since": rfc3339(since_us),
            "runs": _runs(debts),
        },
        since_us=since_us,
        advice="The run puts it back; until then nothing of this cluster survives a loss of power.",
    )


def _summary_text(debts: Sequence[PendingRevertNow], runs: Sequence[str]) -> str:
    """What is wrong, the gravest there is: not as before; written and not in force; in force and not finished."""
    run = f"run {', '.join(runs)}, which is over"
    if all(debt.state == "unknown" for debt in debts):
        are = "is" if len(debts) == 1 else "are"
        return f"Whether {_names_and_values(debts)} {are} still set by {run}, is not known: the server has not answered"
    if still := [debt for debt in debts if debt.state not in ("back", "pending", "unread")]:
        return f"{_names_and_values(still)} {'is' if len(still) == 1 else 'are'} not as before {run}"
    if pending := [debt for debt in debts if debt.state != "back"]:
        when = "when it reads its files" if pending[0].state == "unread" else "from its next restart"
        return f"The server goes by {_names(pending)} as it was before {run}, only {when}"
    return f"{_names(debts)} is as before {run}; what was written meanwhile has not been brought to the disk yet"


def _unreverted_severity(debts: Sequence[PendingRevertNow], trust: str) -> Severity:
    off = any(debt.risky and debt.state in ("changed", "unread", "unknown") for debt in debts)
    return "critical" if off or trust == "untrusted" else "warning"


def _worst_trust(debts: Sequence[PendingRevertNow]) -> str:
    """The worst that is known of what was written meanwhile; empty where durability was never given up."""
    found = {debt.trust for debt in debts if debt.risky}
    return next((word for word in ("untrusted", "unknown", "sound") if word in found), "")


def _runs(debts: Sequence[PendingRevertNow]) -> list[str]:
    return sorted({clean(debt.run) or "?" for debt in debts})


def _names_and_values(debts: Sequence[PendingRevertNow]) -> str:
    """Those that take durability away first.

    >>> one = PendingRevertNow("a", "fsync", "", None, "off", "r", "", "", 0, False, "changed", "off", True)
    >>> _names_and_values([one])
    'fsync (off)'
    """
    first = sorted(debts, key=lambda debt: not debt.risky)
    words = [f"{clean(debt.parameter)} ({_value_text(debt.found or debt.new)})" for debt in first[:SHOWN]]
    more = f" and {len(debts) - SHOWN} more" if len(debts) > SHOWN else ""
    return ", ".join(words) + more


def _names(debts: Sequence[PendingRevertNow]) -> str:
    return ", ".join(clean(debt.parameter) for debt in debts)


def _setting_text(debt: PendingRevertNow) -> str:
    was = "was not set" if debt.old is None else f"was {_value_text(debt.old)}"
    now = debt.found if debt.state == "altered" else debt.new
    return f"{clean(debt.parameter)} = {_value_text(now)} {clean(debt.place)}, {was}{_STATES.get(debt.state, '')}"


def _value_text(value: str | None) -> str:
    return "taken out" if value is None else redact(clean(value)) or "''"


_NEWS = ("server.news_s",)

RULES: tuple[Rule, ...] = (
    Rule(
        name="server-down",
        title="PostgreSQL cannot be reached, lets nobody in, or does not answer",
        parts=("pg.activity",),
        check=server_down,
        clear_after_s=0.0,
        settings=(
            "server.down_warning_s",
            "server.down_critical_s",
            "server.silent_warning_s",
            "server.silent_critical_s",
        ),
        source="PostgreSQL: error codes, class 57 (errcodes-appendix)",
    ),
    Rule(
        name="postmaster-stopped",
        title="The postmaster is stopped by a signal or a debugger",
        parts=("host.processes",),
        check=postmaster_stopped,
        raise_after_s=2.0,
        clear_after_s=2.0,
        source="Linux: proc_pid_stat(5), states T and t",
    ),
    Rule(
        name="server-promoted",
        title="A standby was promoted, another server or another cluster answers",
        parts=("pg.server",),
        check=server_promoted,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
        source="PostgreSQL: pg_control_system, pg_control_checkpoint (func.sgml)",
    ),
    Rule(
        name="server-restarted",
        title="PostgreSQL was restarted, in order or after a crash",
        parts=("pg.server",),
        check=server_restarted,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
        source="PostgreSQL: pg_postmaster_start_time (func.sgml); pgstat.c discards statistics after a crash",
    ),
    Rule(
        name="version-changed",
        title="Another version of PostgreSQL runs",
        parts=("pg.server",),
        check=version_changed,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
    ),
    Rule(
        name="settings-changed",
        title="Settings of the server changed, from what to what",
        parts=("pg.server",),
        check=settings_changed,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
    ),
    Rule(
        name="settings-left",
        title="Settings that a run changed for a time were not put back",
        parts=("debts",),
        check=settings_left,
        clear_after_s=0.0,
        source="dba-console: docs/actions.md; PostgreSQL: fsync, full_page_writes (runtime-config-wal)",
        runbook="put-back",
    ),
)
