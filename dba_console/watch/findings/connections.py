"""Rules about connections: slots nearly used up, storms, and limits of roles, databases and walsenders.

The count against the limit is checked every second; who holds the slots only when needed, and then every few seconds,
because counting hundreds of sessions three ways costs more than all rules together may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dba_console.core.clock import age_s
from dba_console.core.units import human_duration, human_pct
from dba_console.watch.findings import phrases
from dba_console.watch.findings.connection_slots import (
    Clause,
    FillEstimate,
    SlotUsage,
    current_usage,
    estimate_fill,
    is_sustained,
    lowest_count,
    main_holder_clause,
    newcomer_clause,
    server_start_us,
)
from dba_console.watch.findings.idle_transactions import IDLE_IN_TRANSACTION
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, find_outage, keep_signals_briefly, latch
from dba_console.watch.findings.thresholds import Judgement, Measured, Ordered, RuleThresholds
from dba_console.watch.frames.model import Connections
from dba_console.watch.idle_transactions import IdleTransactionLimits
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.postgres import Activity, Sessions
from dba_console.watch.session_states import ACTIVE, is_client


class ConnectionLimits(RuleThresholds, frozen=True):
    """`[findings.connections]`: slots, storms, limits. Percentages are of the usable connections: max_connections minus
    both reserves."""

    family = "connections"

    near_pct: Judgement[float] = 85.0
    """Used from this percentage: a warning."""
    critical_pct: Judgement[float] = 95.0
    """Used from this percentage: critical."""
    clear_pct: Judgement[float] = 80.0
    """A finding open because of the percentage clears below this."""
    full_in_s: Judgement[float] = 600.0
    """Full within this time at steady growth: a warning."""
    critical_in_s: Measured[float] = 90.0
    """Full within this time: critical."""
    date_from_pct: Judgement[float] = 40.0
    """No warning by estimate below this percentage: a starting server fills too."""
    critical_date_from_pct: Judgement[float] = 60.0
    """No critical finding by estimate below this percentage."""
    storm_window_s: Judgement[float] = 15.0
    """Growth within this time is a storm, not a trend."""
    storm_least: Judgement[int] = 30
    """Minimum of new connections within the window for a storm: a pool opens ten or twenty at once."""
    storm_pct: Judgement[float] = 20.0
    """And the minimum percentage of the usable connections."""
    storm_majority_pct: Judgement[float] = 50.0
    """The percentage of the growth that one application, or one user, must account for."""
    storm_warn_pct: Judgement[float] = 50.0
    """A storm is info while a smaller percentage of the usable connections is used, and a warning from there."""
    start_grace_s: Judgement[float] = 120.0
    """After a server start clients reconnect: a storm within this time is info."""
    limit_near_pct: Judgement[float] = 90.0
    """Percentage of a CONNECTION LIMIT of a role or database, or of max_wal_senders: a warning."""
    limit_clear_pct: Judgement[float] = 80.0
    """A finding about such a limit clears below this."""
    limit_least: Judgement[int] = 5
    """Smaller limits are meant to be reached: one job at a time."""

    @classmethod
    def in_order(cls) -> Ordered:
        return (
            (cls.clear_pct, cls.near_pct, cls.critical_pct),
            (cls.storm_warn_pct, cls.critical_pct),
            (cls.critical_in_s, cls.full_in_s),
            (cls.date_from_pct, cls.critical_date_from_pct),
            (cls.limit_clear_pct, cls.limit_near_pct),
        )


# The finding `connection-storm`: one application or user opens many connections in a short time.
#
# Based on backend_start of the current sessions, so it needs no history and can name the client, its host and the rate.
# Sessions are read only when the count rose enough for a storm.

STORM_NAME = "connection-storm"
RECOUNT_US = 5_000_000
"""How often limits are counted, which are reached by a pool that grows and stays; and the sessions of a finished storm,
to know whether they are still there."""
STARTS = "connection-starts"
"""The memo for when the server, and its observation, started."""
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
    storm = _rising_storm(s, slots, sessions) or _continuing_storm(s, slots, sessions, memo)
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
    new = [row for row in sessions.rows if (row.backend_start or 0) >= since_us and is_client(row)]
    least = max(limits.storm_least, grown * limits.storm_majority_pct / 100)
    for by in ("application", "user"):
        counted = Counter(name for row in new if (name := getattr(row, by)))
        for name, count in counted.most_common(1):
            if count >= least:
                return _storm_since(by, name, sessions, _known_begin_us(s, by, name) or since_us)
    return None


def _storm_since(by: str, name: str, sessions: Sessions, since_us: int) -> Storm | None:
    rows = [row for row in sessions.rows if getattr(row, by) == name and (row.backend_start or 0) >= since_us]
    rows = sorted((row for row in rows if is_client(row)), key=lambda row: row.backend_start or 0)
    return Storm(by, name, rows[0].backend_start or since_us, tuple(rows)) if rows else None


def _known_begin_us(s: RuleContext, by: str, name: str) -> int | None:
    """A storm that lasts longer than the window is counted from its start."""
    known: Storm | None = s.memo(STORM_NAME).get("storm")
    return known.began_us if known is not None and (known.by, known.name) == (by, name) else None


def _continuing_storm(s: RuleContext, slots: SlotUsage, sessions: Sessions, memo: dict[str, Any]) -> Storm | None:
    """Return the known storm, while it holds half of what it opened and the slots are nearly used up."""
    known: Storm | None = memo.get("storm")
    if known is None or slots.pct < s.limits.of(ConnectionLimits).near_pct:
        return None
    if s.mono_us - memo.get("counted_us", 0) < RECOUNT_US:
        return known
    memo["counted_us"] = s.mono_us
    now = _storm_since(known.by, known.name, sessions, known.began_us)
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


# The finding `connection-limit`: CONNECTION LIMIT of a role or database, and max_wal_senders; only if such a limit is
# set.

LIMIT = "connection-limit"


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
    clients = [row for row in sessions.rows if is_client(row)]
    counts: dict[str, Counter[str | None]] = {
        "role": Counter(row.user for row in clients),
        "database": Counter(row.database for row in clients),
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


def _panel(s: RuleContext, slots: SlotUsage, memo: dict[str, Any]) -> Connections:
    """Return who holds the slots and who came recently: every ten seconds, and when the count moved."""
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
        advice="Check who holds them (panel 1) before raising a limit: max_connections needs a restart.",
    )


THRESHOLDS = (ConnectionLimits, IdleTransactionLimits)
RULES: tuple[Rule, ...] = (
    Rule(
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
    ),
    STORM,
    CONNECTION_LIMIT,
    IDLE_IN_TRANSACTION,
)
