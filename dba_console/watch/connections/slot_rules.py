"""Rules about slots: those for all nearly used up, and those of a role, a database or of walsenders.

The count against the limit is checked every second; who holds the slots only when needed, and then every few seconds,
because counting hundreds of sessions three ways costs more than all rules together may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dba_console.core.units import human_duration, human_pct
from dba_console.watch.connections.panel import ConnectionsPanel
from dba_console.watch.connections.slot_usage import (
    STARTS,
    Clause,
    ConnectionLimits,
    FillEstimate,
    SlotUsage,
    current_usage,
    estimate_fill,
    is_sustained,
    main_holder_clause,
    newcomer_clause,
)
from dba_console.watch.findings import phrases
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, find_outage, keep_signals_briefly, latch
from dba_console.watch.samples.findings import Severity

FILLING = "connections-filling"
REFRESH_HOLDERS_US = 10_000_000
MOVED_SHARE = 0.05
"""A change of the count by this share of the limit is checked at once."""


def connections_filling(s: RuleContext) -> Iterator[Signal]:
    """The usable connection slots are nearly used up, or will be soon at a steady growth.

    A warning at 85 %, a little before the 90 % of check_postgres (action backends), so that the finding comes before
    the alarm; critical at its 95 %. By estimate: a warning if full within ten minutes, critical within ninety seconds,
    the time from the first symptom to "too many clients" in an incident. Also critical if the console itself is
    refused.
    """
    slots, memo = current_usage(s), s.memo(FILLING)
    if slots is None:
        memo.clear()
        return
    limits = s.limits.of(ConnectionLimits)
    near = s.over(slots.pct, limits.near_pct, limits.clear_pct, FILLING)
    date = estimate_fill(s, slots, limits.date_from_pct)
    critical = latch(memo, "critical", at=_is_critical(s, slots, date), until=slots.pct >= limits.near_pct)
    factor = 2.0 if s.is_open(FILLING) else 1.0
    dated = date.full_in_s is not None and date.full_in_s <= factor * limits.full_in_s
    if not (near or critical or dated):
        memo.pop("panel", None)
        return
    panel = _panel(s, slots, memo)
    came = memo["newcomers"] if dated else ("", {})
    yield _filling_signal(slots, panel, came, date, "critical" if critical else "warning", dated=dated)


def _panel(s: RuleContext, slots: SlotUsage, memo: dict[str, Any]) -> ConnectionsPanel:
    """Return who holds the slots and who came recently: every ten seconds, and when the count moved."""
    known: ConnectionsPanel | None = memo.get("panel")
    moved = known is None or abs(slots.used - (known.used or 0)) >= slots.usable * MOVED_SHARE
    if known is None or moved or s.mono_us - memo["panel_us"] >= REFRESH_HOLDERS_US:
        known = memo["panel"] = s.panel(ConnectionsPanel)
        memo["newcomers"] = newcomer_clause(
            None if slots.blind else s.facts.sessions, s.memo(STARTS).get("found_us", 0)
        )
        memo["panel_us"] = s.mono_us
    return known


def _is_critical(s: RuleContext, slots: SlotUsage, date: FillEstimate) -> bool:
    limits = s.limits.of(ConnectionLimits)
    if slots.pct >= limits.critical_pct or (slots.blind and _is_refused(s)):
        return True
    soon = date.full_in_s is not None and date.full_in_s <= limits.critical_in_s
    return soon and slots.pct >= limits.critical_date_from_pct and is_sustained(s, slots)


def _is_refused(s: RuleContext) -> bool:
    """Whether the console's connection attempts fail because the server has no free slot (SQLSTATE 53300), not because
    of a limit of its role, its database or a pooler."""
    outage = find_outage(s.picture)
    return outage is not None and outage.kind == "no_slots" and outage.refused_by in ("server", None)


def _filling_signal(
    slots: SlotUsage, panel: ConnectionsPanel, came: Clause, date: FillEstimate, severity: Severity, *, dated: bool
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
        advice="Check who holds them (panel 1) before raising a limit: max_connections needs a restart.",
    )


CONNECTIONS_FILLING = Rule(
    name=FILLING,
    title="The usable connections are nearly used up, or will be soon",
    parts=("pg.activity", "host.titles"),
    check=keep_signals_briefly(lambda s: "connections.used" in s.point, connections_filling),
    raise_after_s=0.5,
    clear_after_s=20.0,
    settings=(
        ConnectionLimits.near_pct,
        ConnectionLimits.critical_pct,
        ConnectionLimits.clear_pct,
        ConnectionLimits.full_in_s,
        ConnectionLimits.critical_in_s,
        ConnectionLimits.date_from_pct,
        ConnectionLimits.critical_date_from_pct,
    ),
    source="check_postgres (backends: 90 %, 95 %)",
    runbook="connection-storm",
)


# The finding `connection-limit`: CONNECTION LIMIT of a role or database, and max_wal_senders; only if such a limit is
# set.

LIMIT = "connection-limit"
RECOUNT_US = 5_000_000
"""How often limits are counted: they are reached by a pool that grows and stays."""


def connection_limit(s: RuleContext) -> Iterator[Signal]:
    """A role or a database has nearly as many connections as its CONNECTION LIMIT; the same for max_wal_senders.

    From 90 %, the threshold of check_postgres for the whole server. Always a warning: a refusal there does not affect
    others. Superusers are exempt (postinit.c), limits below five are meant to be reached, and walsenders have slots
    of their own since 12.
    """
    memo = s.memo("connection-limit-counts")
    if s.mono_us - memo.get("at_us", -RECOUNT_US) >= RECOUNT_US:
        memo["at_us"], memo["seen"] = s.mono_us, list(_near_limits(s))
    yield from memo["seen"]


def _near_limits(s: RuleContext) -> Iterator[Signal]:
    sessions, limits = s.facts.sessions, s.limits.of(ConnectionLimits)
    known = _limits(s)
    if sessions is None or not known:
        return
    counts: dict[str, Counter[str | None]] = {
        "role": Counter(row.user for row in s.facts.clients),
        "database": Counter(row.database for row in s.facts.clients),
        "server": Counter("walsenders" for row in sessions.rows if row.backend_type == "walsender"),
    }
    for kind, name, limit in known:
        subject = f"{kind} {phrases.display_name(name)}"
        used = counts[kind][name]
        near = 100.0 * used / limit
        if s.over(near, limits.limit_near_pct, limits.limit_clear_pct, LIMIT, subject):
            yield _near_signal(subject, kind, name, used, limit)


def _limits(s: RuleContext) -> list[tuple[str, str, int]]:
    """Return every limit (kind, name, number), computed when the settings were read again."""
    memo, server = s.memo(LIMIT), s.picture.current.get("pg.server")
    if server is None or s.facts.server is None:
        return []
    if memo.get("server") is not server:
        least = s.limits.of(ConnectionLimits).limit_least
        roles = [("role", role.name, role.connection_limit) for role in s.facts.server.roles if not role.superuser]
        databases = [("database", one.name, one.connection_limit) for one in s.facts.server.databases]
        walsenders = [("server", "walsenders", s.facts.number("max_wal_senders") or 0)]
        memo["server"] = server
        memo["limits"] = [each for each in (*roles, *databases, *walsenders) if each[2] >= least]
    limits: list[tuple[str, str, int]] = memo["limits"]
    return limits


def _near_signal(subject: str, kind: str, name: str, used: int, limit: int) -> Signal:
    if kind == "server":
        what, setting = "Walsenders", "max_wal_senders"
    else:
        what, setting = f"Connections of {subject}", "its CONNECTION LIMIT"
    how = "have reached" if used >= limit else "are near"
    refused = "; more are refused" if used >= limit else ""
    return Signal(
        severity="warning",
        subject=subject,
        text=f"{what} {how} {setting} ({used} of {limit}){refused}",
        evidence={
            "used": used,
            "limit": limit,
            "used_pct": round(100.0 * used / limit, 1),
            kind: phrases.display_name(name),
        },
        series=("connections.used",),
        runbook=None if kind == "server" else "connection-storm",
    )


CONNECTION_LIMIT = Rule(
    name=LIMIT,
    title="A role or database is near its CONNECTION LIMIT, or walsenders are near max_wal_senders",
    parts=("pg.activity",),
    check=keep_signals_briefly("pg.activity", connection_limit),
    clear_after_s=20.0,
    settings=(
        ConnectionLimits.limit_near_pct,
        ConnectionLimits.limit_clear_pct,
        ConnectionLimits.limit_least,
    ),
    source="PostgreSQL: CREATE ROLE, CREATE DATABASE (CONNECTION LIMIT), max_wal_senders (19.6)",
    runbook="connection-storm",
)
