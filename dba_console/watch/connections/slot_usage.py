"""Connection slots for the rules about connections: used, usable, growth, and which clients hold them.

Cheap, because it runs every second on servers with hundreds of sessions: the count comes from the chart values of the
tick, and settings are evaluated only when they were read again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dba_console.core.units import human_duration
from dba_console.watch.connections.growth import WINDOW_S, estimate_growth, is_still_growing
from dba_console.watch.connections.panel import ConnectionsPanel, usable_of
from dba_console.watch.findings import phrases
from dba_console.watch.findings.rule import RuleContext, Value
from dba_console.watch.findings.thresholds import Judgement, Measured, Ordered, RuleThresholds
from dba_console.watch.samples.postgres import Sessions
from dba_console.watch.session_states import is_client


class ConnectionLimits(RuleThresholds, frozen=True):
    """`[findings.connections]`: slots, storms, limits. Percentages are of the usable connections: max_connections minus
    both reserves."""

    family = "connections"

    near_pct: Judgement[float] = 85.0
    """Warning from this percentage of slots in use."""
    critical_pct: Judgement[float] = 95.0
    """Critical from this percentage of slots in use."""
    clear_pct: Judgement[float] = 80.0
    """A finding raised by one of these percentages clears below this one."""
    full_in_s: Judgement[float] = 600.0
    """Warning if the slots are used up within this time at steady growth."""
    critical_in_s: Measured[float] = 90.0
    """Critical if the slots are used up within this time at steady growth."""
    date_from_pct: Judgement[float] = 40.0
    """Below this percentage in use the estimate raises no warning: a starting server fills too."""
    critical_date_from_pct: Judgement[float] = 60.0
    """Below this percentage in use the estimate raises nothing critical."""
    storm_window_s: Judgement[float] = 15.0
    """Time in which the connections of a storm are opened; slower growth is a trend."""
    storm_least: Judgement[int] = 30
    """Minimum of new connections within the window for a storm: a pool opens ten or twenty at once."""
    storm_pct: Judgement[float] = 20.0
    """A storm also takes at least this percentage of the usable connections within the window."""
    storm_majority_pct: Judgement[float] = 50.0
    """Percentage of a storm's connections that one application, or one user, must have opened."""
    storm_warn_pct: Judgement[float] = 50.0
    """A storm is info below this percentage of slots in use, and a warning from there."""
    start_grace_s: Judgement[float] = 120.0
    """A storm within this time after a server start is info: clients reconnect."""
    limit_near_pct: Judgement[float] = 90.0
    """Warning from this percentage of the CONNECTION LIMIT of a role or database, or of max_wal_senders."""
    limit_clear_pct: Judgement[float] = 80.0
    """A finding about a CONNECTION LIMIT or max_wal_senders clears below this percentage."""
    limit_least: Judgement[int] = 5
    """Limits below this number are not watched: they are meant to be reached, as one job at a time."""

    @classmethod
    def in_order(cls) -> Ordered:
        return (
            (cls.clear_pct, cls.near_pct, cls.critical_pct),
            (cls.storm_warn_pct, cls.critical_pct),
            (cls.critical_in_s, cls.full_in_s),
            (cls.date_from_pct, cls.critical_date_from_pct),
            (cls.limit_clear_pct, cls.limit_near_pct),
        )


STARTS = "connection-starts"
"""The memo for when the server, and its observation, started."""
KEPT_US = 182_000_000
"""A little more than the window that growth is based on."""


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """Used and usable connection slots for ordinary roles."""

    used: int
    usable: int
    blind: bool
    """Counted from process titles, because the console has no connection."""

    @property
    def pct(self) -> float:
        return 100.0 * self.used / self.usable


def current_usage(s: RuleContext) -> SlotUsage | None:
    """Return the slots of this tick; None if the count or the limit is not known. Records the count for
    `lowest_count`."""
    memo = s.memo("connection-slots")
    if memo.get("tick") != s.mono_us:
        memo["tick"] = s.mono_us
        memo["slots"] = _count_slots(s, memo)
    slots: SlotUsage | None = memo["slots"]
    return slots


def _count_slots(s: RuleContext, memo: dict[str, Any]) -> SlotUsage | None:
    used = s.point.get("connections.used")
    if used is None:
        return None
    blind = s.facts.is_blind
    if blind:
        used = s.panel(ConnectionsPanel).used  # without connection attempts that are being refused, ours among them
    usable = _usable(s, memo, blind)
    if used is None or not usable:
        return None
    _record_count(s, memo, int(used))
    return SlotUsage(int(used), usable, blind)


def _usable(s: RuleContext, memo: dict[str, Any], blind: bool) -> int | None:
    """Usable slots by the newest settings; without settings, in blind mode, max_connections of pg_control."""
    server = s.picture.current.get("pg.server")
    if server is None:
        if not blind:
            return None
        panel = s.panel(ConnectionsPanel)
        return panel.usable or panel.max
    if memo.get("server") is not server:
        memo["server"], memo["usable"] = server, usable_of(s.facts)
    usable: int | None = memo["usable"]
    return usable


def _record_count(s: RuleContext, memo: dict[str, Any], used: int) -> None:
    counts: deque[tuple[int, int]] = memo.setdefault("counts", deque())
    counts.append((s.mono_us, used))
    while counts[0][0] < s.mono_us - KEPT_US:
        counts.popleft()


def server_start_us(s: RuleContext) -> int | None:
    """Return when the server started, by its own clock."""
    return None if s.facts.server is None else s.facts.server.start_us


def recent_counts(s: RuleContext) -> Sequence[tuple[int, int]]:
    """Return monotonic microseconds and count of the last three minutes, the newest last."""
    counts: deque[tuple[int, int]] = s.memo("connection-slots").get("counts") or deque()
    return counts


def lowest_count(s: RuleContext, window_s: float) -> int | None:
    """Return the lowest count of the last `window_s` seconds; None before the second reading."""
    counts = recent_counts(s)
    if len(counts) < 2:
        return None
    since_us, least = s.mono_us - window_s * 1e6, counts[-1][1]
    for at_us, used in reversed(counts):
        if at_us < since_us:
            break
        least = min(least, used)
    return least


def observed_s(s: RuleContext) -> float:
    """Return how long the count has been recorded, at most a little more than three minutes."""
    counts = recent_counts(s)
    return (counts[-1][0] - counts[0][0]) / 1e6 if counts else 0.0


# Growth of the connections, and when they are used up.
#
# The growth is that of the panel (growth.py), computed only if the count rose recently, and every few
# seconds. A pool that has opened all it needs raises nothing: a finding needs growth now, critical growth for a minute.

RECOMPUTE_US = 5_000_000
"""How often growth is computed: a trend over minutes does not change faster."""
GROWTH_S = 30.0
SUSTAINED_S = 60.0
"""An estimate is critical only after growth for this long: a pool of 180 that opens in half a minute stops on its own,
and growth that does not stop has passed `critical_pct` by then."""
LEAST_GROWTH = 3
"""New connections over GROWTH_S below which no estimate is made (the gate of growth.py)."""


class FillEstimate(NamedTuple):
    """Growth of the last minutes, and when the slots are used up; None without steady growth."""

    per_min: float | None = None
    full_in_s: float | None = None


def estimate_fill(s: RuleContext, slots: SlotUsage, from_pct: float) -> FillEstimate:
    """Return the estimate, at most RECOMPUTE_US old; empty below `from_pct`, or if the count did not rise recently."""
    memo = s.memo("connection-growth")
    if slots.pct < from_pct or not (_is_rising(s, slots) or s.is_open("connections-filling")):
        memo.clear()
        return FillEstimate()
    known: FillEstimate | None = memo.get("date")
    if known is None or s.mono_us - memo["date_us"] >= RECOMPUTE_US:
        found = estimate_growth(s.history.series("connections.used"), slots.usable)
        known = FillEstimate() if found is None else FillEstimate(found.per_min, found.full_in_s)
        memo["date"], memo["date_us"] = known, s.mono_us
    return known if _is_still_growing(s, slots, known) else FillEstimate()


def _is_still_growing(s: RuleContext, slots: SlotUsage, date: FillEstimate) -> bool:
    """Whether that growth continues; True if the slots are already used up."""
    if date.full_in_s is None or date.per_min is None or slots.used >= slots.usable:
        return True
    return is_still_growing(recent_counts(s), date.per_min)


def _is_rising(s: RuleContext, slots: SlotUsage) -> bool:
    before = lowest_count(s, GROWTH_S)
    return before is not None and slots.used - before >= LEAST_GROWTH


def is_sustained(s: RuleContext, slots: SlotUsage) -> bool:
    """Whether at least a quarter of the last minute's growth is older than half a minute."""
    then, half = lowest_count(s, SUSTAINED_S), lowest_count(s, SUSTAINED_S / 2)
    if then is None or half is None or observed_s(s) < SUSTAINED_S - 2:
        return False
    return half - then >= (slots.used - then) / 4


# Which clients hold most connections, and which opened the recent ones.
#
# When max_connections is nearly reached, the holders matter; while connections grow, the newcomers do: a pool that has
# been there for an hour does not explain the growth.

Clause = tuple[str, dict[str, Value]]
"""A clause of the sentence, and its evidence; empty if nothing is known."""


def newcomer_clause(sessions: Sessions | None, found_us: int) -> Clause:
    """Return who opened most of the sessions within the window that growth is based on, but not before the first
    reading (`found_us`, the server's clock): by application, or by user if no application opened half of them."""
    if sessions is None:
        return "", {}
    since_us = max(sessions.now_us - int(WINDOW_S * 1e6), found_us)
    new = [row for row in sessions.rows if (row.backend_start or 0) >= since_us and is_client(row)]
    for by in ("application", "user"):
        counted = Counter(name for row in new if (name := getattr(row, by)))
        for name, count in counted.most_common(1):
            if 2 * count >= len(new):
                who = phrases.display_name(name) if by == "application" else f"user {phrases.display_name(name)}"
                text = (
                    f"{count} of them opened by {who} in the last {human_duration((sessions.now_us - since_us) / 1e6)}"
                )
                return text, {f"newest_{by}": phrases.display_name(name), "newest_count": count}
    return "", {}


def main_holder_clause(panel: ConnectionsPanel, slots: SlotUsage) -> Clause:
    """Return who holds most of the slots, by application or else by user, and in which state."""
    by, groups = ("application", panel.by_application) if panel.by_application else ("user", panel.by_user)
    groups = [group for group in groups if group.name]
    if not groups:
        return "", {}
    most = groups[0]
    active, in_transaction = most.active or 0, most.idle_in_transaction or 0
    idle = most.count - active - in_transaction
    kinds = (("idle", idle), ("active", active), ("idle in transaction", in_transaction))
    state, count = max(kinds, key=lambda kind: kind[1])
    of = f"{by} {phrases.display_name(most.name)}" if by == "user" else phrases.display_name(most.name)
    known = panel.active is not None
    text = f"{count} are {state} sessions of {of}" if known else f"{most.count} are sessions of {of}"
    if known and state == "idle" and most.oldest_idle_s is not None:
        text += f", oldest idle {human_duration(most.oldest_idle_s)}"
    evidence: dict[str, Value] = {f"holder_{by}": phrases.display_name(most.name), "holder_count": most.count}
    if known:
        evidence |= {"holder_idle": idle, "holder_active": active}
    return text, evidence | {"holder_pct": round(100.0 * most.count / max(1, slots.used), 1)}
