"""Connection slots as the rules about connections count them: taken, usable, and the seconds before.

Everything here is cheap, for it is asked every second on servers with hundreds of sessions: the count comes from the
chart values of the tick, settings are looked up again only when they were read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dba_console.findings.rule_context import RuleContext
from dba_console.frames.connections import is_blind
from dba_console.frames.facts import PictureFacts

KEPT_US = 182_000_000
"""A little more than the window growth is told from."""


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """What is taken of what ordinary roles can have."""

    used: int
    usable: int
    blind: bool
    """Counted from process titles: there is no connection to ask."""

    @property
    def pct(self) -> float:
        return 100.0 * self.used / self.usable


def current_usage(s: RuleContext) -> SlotUsage | None:
    """The slots of this tick; None where the count or the limit is not known. Remembers the count for
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
    blind = is_blind(s.facts)
    if blind:
        used = s.connections.used  # without the attempts at a connection that are being refused, ours among them
    usable = _usable(s, memo, blind)
    if used is None or not usable:
        return None
    _record_count(s, memo, int(used))
    return SlotUsage(int(used), usable, blind)


def _usable(s: RuleContext, memo: dict[str, Any], blind: bool) -> int | None:
    """Usable slots by the newest settings; without any, in blind mode, max_connections of pg_control."""
    server = s.picture.current.get("pg.server")
    if server is None:
        return s.connections.usable or s.connections.max if blind else None
    if memo.get("server") is not server:
        memo["server"], memo["usable"] = server, usable_of(s.facts)
    usable: int | None = memo["usable"]
    return usable


def usable_of(facts: PictureFacts) -> int | None:
    """max_connections less superuser_reserved_connections and, from 16 on, reserved_connections (postinit.c)."""
    most, superuser = facts.number("max_connections"), facts.number("superuser_reserved_connections")
    reserved = facts.number("reserved_connections")
    if reserved is None and facts.major is not None and facts.major < 16:
        reserved = 0
    if most is None or superuser is None or reserved is None:
        return None
    return max(0, most - superuser - reserved)


def _record_count(s: RuleContext, memo: dict[str, Any], used: int) -> None:
    counts: deque[tuple[int, int]] = memo.setdefault("counts", deque())
    counts.append((s.mono_us, used))
    while counts[0][0] < s.mono_us - KEPT_US:
        counts.popleft()


def server_start_us(s: RuleContext) -> int | None:
    """When the server started, by its own clock."""
    return None if s.facts.server is None else s.facts.server.start_us


def recent_counts(s: RuleContext) -> Sequence[tuple[int, int]]:
    """Monotonic microseconds and count of the last three minutes, the newest last."""
    counts: deque[tuple[int, int]] = s.memo("connection-slots").get("counts") or deque()
    return counts


def lowest_count(s: RuleContext, window_s: float) -> int | None:
    """The lowest count of the last `window_s` seconds; None before the second reading."""
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
    """For how long the count has been followed, at most a little more than three minutes."""
    counts = recent_counts(s)
    return (counts[-1][0] - counts[0][0]) / 1e6 if counts else 0.0
