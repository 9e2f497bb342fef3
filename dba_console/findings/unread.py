"""Time in which nobody looked: a connection that is lost, ticks that were missed.

What was seen last is neither over nor worse because it could not be read since; and seconds nobody watched do not count
as seconds in which something was away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from dba_console.findings.signal import Signal
from dba_console.findings.situation import Situation

Look = Callable[[Situation], Iterable[Signal]]

KEPT_US = 600_000_000
"""What was seen last stands for so long while its part cannot be read: the longest restart one waits for in front of
the screen. After that it is not known any more, and nothing is said."""
LONGEST_US = 8_000_000
"""Readings further apart than four turns of the part (two seconds each) have unwatched time between them."""


def kept_while_unread(part: str, look: Look) -> Look:
    """`look` where the newest attempt at the part gave a reading, else what it saw last."""

    @wraps(look)
    def asked(s: Situation) -> Iterable[Signal]:
        memo = s.memo(f"unread:{look.__module__}.{look.__qualname__}")
        latest = s.picture.latest.get(part)
        if latest is not None and latest.part.reading is None:
            seen: list[Signal] = memo.get("seen", [])
            return seen if s.mono_us - memo.get("at_us", 0) < KEPT_US else []
        memo["seen"], memo["at_us"] = list(look(s)), s.mono_us
        return list(memo["seen"])

    return asked


def unwatched_us(memo: dict[str, Any], mono_us: int) -> int:
    """Microseconds since the last call that nobody watched; 0 where it was asked regularly, and the first time."""
    last_us: int = memo.get("read_us", mono_us)
    memo["read_us"] = mono_us
    return mono_us - last_us if mono_us - last_us > LONGEST_US else 0
