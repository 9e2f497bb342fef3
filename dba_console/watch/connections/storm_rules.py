"""The finding `connection-storm`: one application or user opens many connections in a short time.

Based on backend_start of the current sessions, so it needs no history and can name the client, its host and the rate.
Sessions are read only when the count rose enough for a storm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dba_console.core.clock import age_s
from dba_console.core.units import human_duration
from dba_console.watch.connections.slot_usage import (
    STARTS,
    ConnectionLimits,
    SlotUsage,
    current_usage,
    lowest_count,
    server_start_us,
)
from dba_console.watch.findings import phrases
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_briefly, latch
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.postgres import Activity, Sessions
from dba_console.watch.session_states import ACTIVE

STORM_NAME = "connection-storm"
RECOUNT_US = 5_000_000
"""How often the sessions of a finished storm are counted, to know whether they are still there."""
CLEAR_SHARE = 0.9
"""A warning returns to info below this share of its threshold."""


@dataclass(frozen=True, slots=True)
class Storm:
    """A connection storm: the client, and the sessions it opened, oldest first."""

    by: str
    """`application` or `user`."""
    name: str
    began_us: int
    """Start of its first session, by the server's clock."""
    rows: tuple[Activity, ...]


def connection_storm(s: RuleContext) -> Iterator[Signal]:
    """Thirty connections more within fifteen seconds, and a fifth of the usable slots, most from one client.

    Growth counts, not churn: a pool of twenty that starts is not a storm, nor is an application that opens and closes
    a connection for each query. Info while less than half of the usable slots are used, because that is how an
    application server starts; a warning from there; critical if the total reaches 95 %. It stays while the client
    still holds half of what it opened and the slots are nearly used up. Connections that return within two minutes of
    an observed restart are marked as such and stay info; sessions that existed when the console started do not count.
    """
    slots, sessions, memo = current_usage(s), s.facts.sessions, s.memo(STORM_NAME)
    if slots is None or slots.blind or sessions is None:
        memo.clear()
        return
    _note_start(s, sessions)
    storm = _rising_storm(s, slots, sessions) or _continuing_storm(s, slots, memo)
    if storm is None:
        memo.clear()
        return
    known: Storm | None = memo.get("storm")
    if known is None or (known.by, known.name) != (storm.by, storm.name):
        memo["most"] = 0
        memo["back_s"] = _seconds_after_restart(s, storm)
    memo["storm"], memo["most"] = storm, max(memo["most"], len(storm.rows))
    severity = "info" if memo["back_s"] is not None else _storm_severity(s, slots, memo)
    yield _storm_signal(s, slots, storm, memo["back_s"], severity)


def _storm_severity(s: RuleContext, slots: SlotUsage, memo: dict[str, Any]) -> Severity:
    """By the share of slots used, by any client: that is what a storm endangers."""
    limits = s.limits.of(ConnectionLimits)
    if latch(memo, "critical", at=slots.pct >= limits.critical_pct, until=slots.pct >= limits.near_pct):
        return "critical"
    steps_back = slots.pct >= limits.storm_warn_pct * CLEAR_SHARE
    return "warning" if latch(memo, "warning", at=slots.pct >= limits.storm_warn_pct, until=steps_back) else "info"


def _rising_storm(s: RuleContext, slots: SlotUsage, sessions: Sessions) -> Storm | None:
    limits = s.limits.of(ConnectionLimits)
    before = lowest_count(s, limits.storm_window_s)
    grown = 0 if before is None else slots.used - before
    if grown < max(limits.storm_least, slots.usable * limits.storm_pct / 100):
        return None
    since_us = max(sessions.now_us - int(limits.storm_window_s * 1e6), s.memo(STARTS)["found_us"])
    new = [row for row in s.facts.clients if (row.backend_start or 0) >= since_us]
    least = max(limits.storm_least, grown * limits.storm_majority_pct / 100)
    for by in ("application", "user"):
        counted = Counter(name for row in new if (name := getattr(row, by)))
        for name, count in counted.most_common(1):
            if count >= least:
                return _storm_since(by, name, s.facts.clients, _known_begin_us(s, by, name) or since_us)
    return None


def _storm_since(by: str, name: str, clients: list[Activity], since_us: int) -> Storm | None:
    rows = [row for row in clients if getattr(row, by) == name and (row.backend_start or 0) >= since_us]
    rows.sort(key=lambda row: row.backend_start or 0)
    return Storm(by, name, rows[0].backend_start or since_us, tuple(rows)) if rows else None


def _known_begin_us(s: RuleContext, by: str, name: str) -> int | None:
    """A storm that lasts longer than the window is counted from its start."""
    known: Storm | None = s.memo(STORM_NAME).get("storm")
    return known.began_us if known is not None and (known.by, known.name) == (by, name) else None


def _continuing_storm(s: RuleContext, slots: SlotUsage, memo: dict[str, Any]) -> Storm | None:
    """Return the known storm, while it holds half of what it opened and the slots are nearly used up."""
    known: Storm | None = memo.get("storm")
    if known is None or slots.pct < s.limits.of(ConnectionLimits).near_pct:
        return None
    if s.mono_us - memo.get("counted_us", 0) < RECOUNT_US:
        return known
    memo["counted_us"] = s.mono_us
    now = _storm_since(known.by, known.name, s.facts.clients, known.began_us)
    return now if now is not None and 2 * len(now.rows) >= memo["most"] else None


def _note_start(s: RuleContext, sessions: Sessions) -> None:
    """Record when sessions were first read, by the server's clock, and whether the server restarted since."""
    memo, started_us = s.memo(STARTS), server_start_us(s)
    # After a clock was set back, old sessions must not count as new, nor may new ones be missed.
    memo["found_us"] = min(memo.get("found_us", sessions.now_us), sessions.now_us)
    if memo.get("start_us") not in (None, started_us):
        memo["again_us"] = started_us
    memo["start_us"] = started_us


def _seconds_after_restart(s: RuleContext, storm: Storm) -> float | None:
    """Return the seconds from an observed restart to its start; None if too long, or no restart was observed."""
    after_s = age_s(storm.began_us, s.memo(STARTS).get("again_us"))
    return after_s if after_s is not None and after_s < s.limits.of(ConnectionLimits).start_grace_s else None


def _storm_signal(s: RuleContext, slots: SlotUsage, storm: Storm, back_s: float | None, severity: Severity) -> Signal:
    rows = storm.rows
    first, last = rows[0], rows[-1]
    took_s = max(1.0, ((last.backend_start or 0) - (first.backend_start or 0)) / 1e6)
    clients = [
        name for name, _ in Counter(phrases.display_name(row.client) for row in rows if row.client).most_common(3)
    ]
    active, idle = sum(row.state in ACTIVE for row in rows), sum(row.state == "idle" for row in rows)
    user = phrases.display_name(first.user) if storm.by == "application" else None
    who = f"{phrases.display_name(storm.name)} (user {user})" if user else f"user {phrases.display_name(storm.name)}"
    origin = f" from {', '.join(clients)}" if clients else ""
    summary = f"{who} opened {len(rows)} connections in {human_duration(took_s)}{origin}"
    if back_s is not None:
        summary += f", {human_duration(back_s)} after the server restarted"
    states = "".join(f", {count} {state}" for state, count in (("idle", idle), ("active", active)) if count)
    return Signal(
        severity=severity,
        text=f"{summary}{states}; {slots.used} of {slots.usable} usable slots used",
        effect=summary,
        cause=f"{summary}{states}",
        evidence={
            "used": slots.used,
            "usable": slots.usable,
            "opened": len(rows),
            "opened_per_s": round(len(rows) / took_s, 1),
            "opened_in_s": round(took_s, 1),
            "storm_active": active,
            "storm_idle": idle,
            "application": phrases.display_name(first.application) if storm.by == "application" else None,
            "user": phrases.display_name(first.user),
            "clients": clients,
            "after_start_s": None if back_s is None else round(back_s),
        },
        series=("connections.used", "connections.active", "connections.idle"),
        since_us=s.host_us(storm.began_us),
        runbook="connection-storm",
        advice="Stop it at its source: the client reopens sessions that are ended here.",
    )


STORM = Rule(
    name=STORM_NAME,
    title="One application or user opens many connections in a short time",
    parts=("pg.activity",),
    check=keep_signals_briefly("pg.activity", connection_storm),
    warm_up_s=15.0,
    clear_after_s=20.0,
    settings=(
        ConnectionLimits.storm_window_s,
        ConnectionLimits.storm_least,
        ConnectionLimits.storm_pct,
        ConnectionLimits.storm_majority_pct,
        ConnectionLimits.storm_warn_pct,
        ConnectionLimits.start_grace_s,
        ConnectionLimits.near_pct,
        ConnectionLimits.critical_pct,
    ),
    source="an incident (250 slots used up within a minute or two, by retries); pools start with ten to twenty",
    runbook="connection-storm",
)
