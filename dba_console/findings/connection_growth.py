"""Growth of the connections, and the date it ends at: told from minutes, and only while it goes on.

The growth is that of the panel (frames/connection_growth.py), asked for where the count rose of late, and every few
seconds.
Nobody is called for a pool that opened all it wants: what is told rises now, and what is critical has for a minute.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.findings.connection_slots import SlotUsage, lowest_count, observed_s, recent_counts
from dba_console.findings.rule_context import RuleContext
from dba_console.frames.connection_growth import estimate_growth, is_still_growing

RECOMPUTE_US = 5_000_000
"""How often growth is worked out: a trend of minutes does not change within."""
GROWTH_S = 30.0
SUSTAINED_S = 60.0
"""A date is critical only where it has been filling for so long: a pool of 180 that opens in half a minute stops by
itself, and what does not stop has passed `critical_pct` by then."""
LEAST_GROWTH = 3
"""New connections over GROWTH_S below which no date is asked for (the gate of frames/connection_growth.py)."""


class FillEstimate(NamedTuple):
    """Growth of the last minutes, and when it ends; None where there is no steady one."""

    per_min: float | None = None
    full_in_s: float | None = None


def estimate_fill(s: RuleContext, slots: SlotUsage) -> FillEstimate:
    """The date, none older than LOOK_AGAIN_US; not asked for where the count did not rise of late."""
    memo = s.memo("connection-growth")
    if slots.pct < s.limits.connections.date_from_pct or not (_is_rising(s, slots) or s.is_open("connections-filling")):
        memo.clear()
        return FillEstimate()
    known: FillEstimate | None = memo.get("date")
    if known is None or s.mono_us - memo["date_us"] >= RECOMPUTE_US:
        found = estimate_growth(s.history.series("connections.used"), slots.usable)
        known = FillEstimate() if found is None else FillEstimate(found.per_min, found.full_in_s)
        memo["date"], memo["date_us"] = known, s.mono_us
    return known if _is_still_growing(s, slots, known) else FillEstimate()


def _is_still_growing(s: RuleContext, slots: SlotUsage, date: FillEstimate) -> bool:
    """Whether that growth is still under way; what is full has no date to guard."""
    if date.full_in_s is None or date.per_min is None or slots.used >= slots.usable:
        return True
    return is_still_growing(recent_counts(s), date.per_min)


def _is_rising(s: RuleContext, slots: SlotUsage) -> bool:
    before = lowest_count(s, GROWTH_S)
    return before is not None and slots.used - before >= LEAST_GROWTH


def is_sustained(s: RuleContext, slots: SlotUsage) -> bool:
    """Whether a fair part of the growth of the last minute is older than half of it."""
    then, half = lowest_count(s, SUSTAINED_S), lowest_count(s, SUSTAINED_S / 2)
    if then is None or half is None or observed_s(s) < SUSTAINED_S - 2:
        return False
    return half - then >= (slots.used - then) / 4
