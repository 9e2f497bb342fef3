"""Findings about connections: here that they fill; storms, limits and idle transactions have files of their own.

The count against the limit is looked at every second; who holds the slots only when there is reason to, and then every
few seconds, for counting hundreds of sessions by three things costs more than all rules together may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dba_console.findings.connection_growth import FillEstimate, estimate_fill, is_sustained
from dba_console.findings.connection_holders import Clause, main_holder_clause, newcomer_clause
from dba_console.findings.connection_limits import CONNECTION_LIMIT
from dba_console.findings.connection_slots import SlotUsage, current_usage
from dba_console.findings.connection_storm import STARTS, STORM
from dba_console.findings.hysteresis import keep_signals_briefly, latch
from dba_console.findings.idle_transactions import IDLE_IN_TRANSACTION
from dba_console.findings.outage import find_outage
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.model import Connections
from dba_console.samples.findings import Severity
from dba_console.units import human_duration, human_pct

FILLING = "connections-filling"
REFRESH_HOLDERS_US = 10_000_000
MOVED_SHARE = 0.05
"""A count that moved by so much of the limit is looked at again at once."""


def connections_filling(s: RuleContext) -> Iterator[Signal]:
    """The usable connections are nearly taken, or will be soon at a steady growth.

    A warning at 85 %, a little before the 90 % of check_postgres (action backends), since the finding is to be there
    when the pager is; critical at its 95 %. By date: full within ten minutes, and critical within ninety seconds, the
    time from the first symptom to "too many clients" in story S1. Critical, too, where the console itself is refused.
    """
    slots, memo = current_usage(s), s.memo(FILLING)
    if slots is None:
        memo.clear()
        return
    limits = s.limits.connections
    near = s.over(slots.pct, limits.near_pct, limits.clear_pct, FILLING)
    date = estimate_fill(s, slots)
    critical = latch(memo, "critical", at=_is_critical(s, slots, date), until=slots.pct >= limits.near_pct)
    factor = 2.0 if s.is_open(FILLING) else 1.0
    dated = date.full_in_s is not None and date.full_in_s <= factor * limits.full_in_s
    if not (near or critical or dated):
        memo.pop("panel", None)
        return
    panel = _panel(s, slots, memo)
    came = memo["newcomers"] if dated else ("", {})
    yield _filling_signal(slots, panel, came, date, "critical" if critical else "warning", dated=dated)


def _panel(s: RuleContext, slots: SlotUsage, memo: dict[str, Any]) -> Connections:
    """Who holds the slots, and who came of late: looked at again every ten seconds, and when the count moved."""
    known: Connections | None = memo.get("panel")
    moved = known is None or abs(slots.used - (known.used or 0)) >= slots.usable * MOVED_SHARE
    if known is None or moved or s.mono_us - memo["panel_us"] >= REFRESH_HOLDERS_US:
        known = memo["panel"] = s.connections
        memo["newcomers"] = newcomer_clause(
            None if slots.blind else s.facts.sessions, s.memo(STARTS).get("found_us", 0)
        )
        memo["panel_us"] = s.mono_us
    return known


def _is_critical(s: RuleContext, slots: SlotUsage, date: FillEstimate) -> bool:
    limits = s.limits.connections
    if slots.pct >= limits.critical_pct or (slots.blind and _is_refused(s)):
        return True
    soon = date.full_in_s is not None and date.full_in_s <= limits.critical_in_s
    return soon and slots.pct >= limits.critical_date_from_pct and is_sustained(s, slots)


def _is_refused(s: RuleContext) -> bool:
    """Whether our own attempts to connect fail because no slot of the server is free (SQLSTATE 53300): not one of our
    role's, or the database's, or of a pooler before it."""
    outage = find_outage(s.picture)
    return outage is not None and outage.kind == "no_slots" and outage.refused_by in ("server", None)


def _filling_signal(
    slots: SlotUsage, panel: Connections, came: Clause, date: FillEstimate, severity: Severity, *, dated: bool
) -> Signal:
    growth, full_in_s = date
    details = [f"{slots.used} of {slots.usable} usable", human_pct(slots.pct)]
    if growth is not None and growth >= 1 and dated:
        details.append(f"+{growth:.0f}/min")
    if slots.used < slots.usable and dated:
        details.append(f"full in {human_duration(full_in_s)}")
    full = slots.used >= slots.usable
    effect = ("Connections are used up" if full else "Connections fill") + f" ({', '.join(details)})"
    holds, evidence = main_holder_clause(panel, slots)
    clause = came[0] or holds
    return Signal(
        severity=severity,
        text=effect + (f"; {clause}" if clause else ""),
        effect=effect,
        evidence={
            "used": slots.used,
            "usable": slots.usable,
            "used_pct": round(min(100.0, slots.pct), 1),
            "growth_per_min": None if growth is None else round(growth, 1),
            "full_in_s": None if full_in_s is None else round(full_in_s),
            "active": panel.active,
            "idle": panel.idle,
            "waiting": panel.waiting,
            "source": panel.source,
            **evidence,
            **came[1],
        },
        series=("connections.used", "connections.active", "connections.idle", "locks.waiting"),
        runbook="connection-storm",
        advice="See who holds them (panel 1) before anything is raised: max_connections needs a restart.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        name=FILLING,
        title="The usable connections are nearly taken, or will be soon",
        parts=("pg.activity", "host.titles"),
        check=keep_signals_briefly(lambda s: "connections.used" in s.point, connections_filling),
        raise_after_s=0.5,
        clear_after_s=20.0,
        settings=("connections.near_pct", "connections.critical_pct", "connections.clear_pct",
                  "connections.full_in_s", "connections.critical_in_s", "connections.date_from_pct",
                  "connections.critical_date_from_pct"),
        source="check_postgres (backends: 90 %, 95 %), story S1",
        runbook="connection-storm",
    ),
    STORM,
    CONNECTION_LIMIT,
    IDLE_IN_TRANSACTION,
)  # fmt: skip
