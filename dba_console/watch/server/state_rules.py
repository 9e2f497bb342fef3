"""Rules about the server: down or silent, postmaster stopped, recent changes, settings not reverted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dba_console.core.clock import rfc3339
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.findings.rule import Outage, Rule, RuleContext, Signal, find_outage
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.samples.console import PendingRevertNow, PendingRevertsNow
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.host import ControlFile, Processes
from dba_console.watch.server.change_rules import (
    ChangeLimits,
    server_promoted,
    server_restarted,
    settings_changed,
    version_changed,
)


class ServerLimits(RuleThresholds, frozen=True):
    """`[findings.server]`: a server that is down or silent."""

    family = "server"

    down_warning_s: Judgement[float] = 3.0
    """Warning if the server is unreachable, or accepts no connections, for this long."""
    down_critical_s: Judgement[float] = 10.0
    """Critical if that lasts this long. Most restarts are over by then; with large shared_buffers the shutdown
    checkpoint alone may take longer."""
    silent_warning_s: Judgement[float] = 5.0
    """Warning if the server does not answer on an open connection for this long."""
    silent_critical_s: Judgement[float] = 30.0
    """Critical if the server does not answer on an open connection for this long."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.down_warning_s, cls.down_critical_s), (cls.silent_warning_s, cls.silent_critical_s))


# The server is down, does not answer, or accepts no new connections.

GAP_US = 5_000_000
"""After a longer time without a tick it is not known whether it was down all the time."""
_ORDERLY = ("shut down", "shut down in recovery")
_STOPPED = ("T", "t")


def server_down(s: RuleContext) -> Iterator[Signal]:
    """The server cannot be reached or does not answer. How it ended is shown by pg_control, if readable.

    Most restarts are over within seconds (see `server-restarted`; the shutdown checkpoint of large shared_buffers takes
    longer), so it is a warning after 3 s and critical after 10 s; a server that keeps the connection and is silent has
    5 and 30 s, since a stalled disk causes that too. If the server refuses only the console (password, certificate,
    name) it is a warning. SQLSTATE 57P03 means starting up, shutting down or recovering (PostgreSQL documentation,
    appendix A).
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
    limits = s.limits.of(ServerLimits)
    silent = outage.kind == "silent"
    if away_s < (limits.silent_warning_s if silent else limits.down_warning_s):
        return None
    if outage.refuses_console:
        return "warning"
    return "critical" if away_s >= (limits.silent_critical_s if silent else limits.down_critical_s) else "warning"


def _signal(s: RuleContext, outage: Outage, memo: dict[str, Any], severity: Severity) -> Signal:
    reason = clean(outage.text)
    # The checkpoint at the end of recovery also writes "shut down" (CreateCheckPoint in xlog.c): it shows how the
    # server ended only while none is running.
    state = _control_state(s, memo["begun_us"])
    if outage.kind == "starting" and state in _ORDERLY:
        state = None
    what = {
        "silent": "PostgreSQL does not answer",
        "starting": "PostgreSQL does not accept connections yet",
    }.get(
        outage.kind,
        "PostgreSQL refuses the console" if outage.refuses_console else "PostgreSQL cannot be reached",
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
    """Return the state in pg_control, if it was read since the outage began."""
    reading = s.facts.picture.current.get("host.control")
    control = s.facts.picture.now("host.control", ControlFile)
    return None if reading is None or control is None or reading.part.at_us < begun_us else control.state


def _ending_text(state: str | None) -> str:
    if state in _ORDERLY:
        return " (it was shut down cleanly)"
    return "" if state is None else f" (pg_control: {state})"


def _advice(outage: Outage, state: str | None) -> str | None:
    if outage.kind == "silent":
        return "Check what it waits for: the I/O, memory and locks panels still work."
    if outage.kind in ("refused", "lost", "timeout") and state in _ORDERLY:
        return "It was stopped deliberately: find out why before you start it."
    if outage.kind == "refused":
        return "Check the end of the server's log before you start it again."
    return None if outage.help is None else f"{outage.help[0].upper()}{outage.help[1:]}."


def postmaster_stopped(s: RuleContext) -> Iterator[Signal]:
    """A signal stopped the postmaster (state T or t in proc_pid_stat(5)): new connections wait forever.

    Existing sessions continue, so it resembles a network that drops packets; a debugger also causes it.
    """
    processes = s.facts.picture.now("host.processes", Processes)
    if processes is None or not any(processes.states.get(state) for state in _STOPPED):
        return
    state = next((row.state for row in processes.rows if row.pid == processes.postmaster), None)
    if state not in _STOPPED:
        return
    yield Signal(
        severity="critical",
        text=f"The postmaster (pid {processes.postmaster}) is stopped: sessions continue, new connections wait forever",
        cause=f"the postmaster (pid {processes.postmaster}) is stopped",
        evidence={"pid": processes.postmaster, "state": state},
        series=("connections.used",),
        advice=f"kill -CONT {processes.postmaster} continues it; "
        + ("a debugger has stopped it." if state == "t" else "it received SIGSTOP."),
    )


# Temporary settings of a run that are still set after it.

SHOWN = 4
"""Parameters named in the sentence; the evidence has all."""
_STATES = {
    "unread": "; the file is reverted, the server has not read it",
    "pending": "; reverted, effective after the next restart",
    "back": "; reverted",
    "altered": "; changed to another value since",
    "gone": "; its database or role no longer exists",
    "unknown": "; its current value is not known",
}
_TRUST = {
    "untrusted": ". The server restarted meanwhile without a clean shutdown: the data of this cluster cannot be "
    "trusted, restore it from a backup",
    "unknown": ". It is not known whether the server went down meanwhile without a clean shutdown",
}


def settings_left(s: RuleContext) -> Iterator[Signal]:
    """Temporary settings of a run that no agent executes: it ended, or it was interrupted.

    Critical if fsync or full_page_writes is off because of it, or was during a crash. During the run only these two are
    reported, as info. Each parameter is reported until its old value was seen, or the operator decided about it; a
    manual revert is noticed within half a minute. While the server does not answer, the finding says that this is not
    known.
    """
    reading = s.picture.now("reverts", PendingRevertsNow)
    if reading is None:
        return
    left = [revert for revert in reading.reverts if not revert.run_is_active]
    if left:
        yield _left_signal(left)
    elif risky := [revert for revert in reading.reverts if revert.risky]:
        yield _active_run_signal(risky)
    if (note := s.picture.current["reverts"].part.note) is not None:
        yield Signal(
            severity="warning",
            subject="unreadable",
            text=f"Temporary settings of runs are not known: {redact(clean(note))}",
            advice="Read the files named above: they contain the previous settings.",
        )


def _left_signal(reverts: Sequence[PendingRevertNow]) -> Signal:
    runs, since_us = _runs(reverts), min(revert.at_us for revert in reverts)
    trust = _worst_trust(reverts)
    return Signal(
        severity=_unreverted_severity(reverts, trust),
        text=f"{_summary_text(reverts, runs)}{_TRUST.get(trust, '')}",
        evidence={
            "settings": [_setting_text(revert) for revert in reverts],
            "since": rfc3339(since_us),
            "runs": runs,
            "who": sorted({clean(revert.who) for revert in reverts if revert.who}),
            "trust": trust or None,
        },
        since_us=since_us,
        runbook="put-back",
        advice="If the run was interrupted, resume it: it reverts them at its end. Otherwise run the runbook put-back: "
        "it shows each setting and restores its previous value.",
    )


def _active_run_signal(reverts: Sequence[PendingRevertNow]) -> Signal:
    since_us = min(revert.at_us for revert in reverts)
    return Signal(
        severity="info",
        text=f"{_names_and_values(reverts)} for run {', '.join(_runs(reverts))}: a crash of the host now destroys the "
        f"whole cluster",
        evidence={
            "settings": [_setting_text(revert) for revert in reverts],
            "since": rfc3339(since_us),
            "runs": _runs(reverts),
        },
        since_us=since_us,
        advice="The run reverts it; until then the cluster does not survive a power failure.",
    )


def _summary_text(reverts: Sequence[PendingRevertNow], runs: Sequence[str]) -> str:
    """Return the most severe state: not as before; written and not in force; in force and not finished."""
    run = f"run {', '.join(runs)}"
    if all(revert.state == "unknown" for revert in reverts):
        are = "is" if len(reverts) == 1 else "are"
        return (
            f"Whether {_names_and_values(reverts)} {are} still set by {run}, is not known: the server has not answered"
        )
    if still := [revert for revert in reverts if revert.state not in ("back", "pending", "unread")]:
        return f"{_names_and_values(still)} still {'differs' if len(still) == 1 else 'differ'} from before {run}"
    if pending := [revert for revert in reverts if revert.state != "back"]:
        when = "when the server reads its files" if pending[0].state == "unread" else "from the next restart"
        return f"{_names(pending)} will be as before {run} only {when}"
    return f"{_names(reverts)} is as before {run}; data written meanwhile is not synced to disk yet"


def _unreverted_severity(reverts: Sequence[PendingRevertNow], trust: str) -> Severity:
    off = any(revert.risky and revert.state in ("changed", "unread", "unknown") for revert in reverts)
    return "critical" if off or trust == "untrusted" else "warning"


def _worst_trust(reverts: Sequence[PendingRevertNow]) -> str:
    """Return the worst state of the data written meanwhile; empty if durability was never off."""
    found = {revert.trust for revert in reverts if revert.risky}
    return next((word for word in ("untrusted", "unknown", "sound") if word in found), "")


def _runs(reverts: Sequence[PendingRevertNow]) -> list[str]:
    return sorted({clean(revert.run) or "?" for revert in reverts})


def _names_and_values(reverts: Sequence[PendingRevertNow]) -> str:
    """Return names and values, those that disable durability first.

    >>> one = PendingRevertNow("a", "fsync", "", None, "off", "r", "", "", 0, False, "changed", "off", True)
    >>> _names_and_values([one])
    'fsync (off)'
    """
    first = sorted(reverts, key=lambda revert: not revert.risky)
    words = [f"{clean(revert.parameter)} ({_value_text(revert.found or revert.new)})" for revert in first[:SHOWN]]
    more = f" and {len(reverts) - SHOWN} more" if len(reverts) > SHOWN else ""
    return ", ".join(words) + more


def _names(reverts: Sequence[PendingRevertNow]) -> str:
    return ", ".join(clean(revert.parameter) for revert in reverts)


def _setting_text(revert: PendingRevertNow) -> str:
    was = "was not set" if revert.old is None else f"was {_value_text(revert.old)}"
    now = revert.found if revert.state == "altered" else revert.new
    return f"{clean(revert.parameter)} = {_value_text(now)} {clean(revert.place)}, {was}{_STATES.get(revert.state, '')}"


def _value_text(value: str | None) -> str:
    return "removed" if value is None else redact(clean(value)) or "''"


_NEWS = (ChangeLimits.news_s,)

STATE_RULES: tuple[Rule, ...] = (
    Rule(
        name="server-down",
        title="PostgreSQL cannot be reached, accepts no connections, or does not answer",
        parts=("pg.activity",),
        check=server_down,
        clear_after_s=0.0,
        settings=(
            ServerLimits.down_warning_s,
            ServerLimits.down_critical_s,
            ServerLimits.silent_warning_s,
            ServerLimits.silent_critical_s,
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
        title="PostgreSQL was restarted, cleanly or after a crash",
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
        title="Temporary settings of a run were not reverted",
        parts=("reverts",),
        check=settings_left,
        clear_after_s=0.0,
        source="dba-console: docs/actions.md; PostgreSQL: fsync, full_page_writes (runtime-config-wal)",
        runbook="put-back",
    ),
)
