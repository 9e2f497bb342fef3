"""Time in which nobody looked: a connection that is lost, ticks that were missed.

What was seen last is neither over nor worse because it could not be read since; and seconds nobody watched do not count
as seconds in which something was away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal

RuleCheck = Callable[[RuleContext], Iterable[Signal]]

KEPT_US = 600_000_000
"""What was seen last stands for so long while its part cannot be read: the longest restart one waits for in front of
the screen. After that it is not known any more, and nothing is said."""
MAX_STEP_US = 8_000_000
"""Readings further apart than four turns of the part (two seconds each) have unwatched time between them."""


def keep_signals_while_stale(part: str, look: RuleCheck) -> RuleCheck:
    """`look` where the newest attempt at the part gave a reading, else what it saw last."""

    @wraps(look)
    def check(s: RuleContext) -> Iterable[Signal]:
        memo = s.memo(f"unread:{look.__module__}.{look.__qualname__}")
        latest = s.picture.latest.get(part)
        if latest is not None and latest.part.reading is None:
            seen: list[Signal] = memo.get("seen", [])
            return seen if s.mono_us - memo.get("at_us", 0) < KEPT_US else []
        memo["seen"], memo["at_us"] = list(look(s)), s.mono_us
        return list(memo["seen"])

    return check


def unobserved_us(memo: dict[str, Any], mono_us: int) -> int:
    """Microseconds since the last call that nobody watched; 0 where it was asked regularly, and the first time."""
    last_us: int = memo.get("read_us", mono_us)
    memo["read_us"] = mono_us
    return mono_us - last_us if mono_us - last_us > MAX_STEP_US else 0
