"""Time, asked for in one place so that tests can hold it still.

Wall time says when, monotonic time says how long. Both are integers in microseconds: they are stored in every sample,
subtract without rounding, and match PostgreSQL's own resolution.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """What the rest of the house may ask of time."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may step when the host's clock is set."""

    def mono_us(self) -> int:
        """Microseconds of CLOCK_MONOTONIC; never goes back, meaningless on another boot."""


class SystemClock:
    """The host's clocks."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def mono_us(self) -> int:
        return time.monotonic_ns() // 1000


SYSTEM = SystemClock()


# Moments as text, as the contract writes them: RFC 3339 in UTC.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def rfc3339(wall_us: int | None) -> str | None:
    """The moment with as many digits of a second as it has; None for None and for what no calendar holds.

    Cached: a screen of a thousand sessions shows the same thousand moments every second.

    >>> rfc3339(1_795_186_649_000_000), rfc3339(1_795_186_649_123_400), rfc3339(None)
    ('2026-11-20T14:57:29Z', '2026-11-20T14:57:29.123400Z', None)
    """
    if wall_us is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=wall_us)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat() + "Z"


def age_s(now_us: int | None, then_us: int | None) -> float | None:
    """Seconds from `then` to `now` by the same clock, never below 0; None where either is unknown.

    >>> age_s(5_000_000, 2_000_000), age_s(1, 2), age_s(None, 2)
    (3.0, 0.0, None)
    """
    return None if now_us is None or then_us is None else max(0.0, (now_us - then_us) / 1e6)
