"""Settings that a run changed for a time and that are still so after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.timestamps import rfc3339
from dba_console.redact import redact
from dba_console.samples.findings import Severity
from dba_console.samples.pending_reverts import PendingRevertNow, PendingRevertsNow
from dba_console.sanitize import clean

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
