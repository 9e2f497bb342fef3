"""The clocks, read in one place so that tests can control time.

Wall time is for points in time, monotonic time for durations. Both are integers in microseconds: stored in every
sample, they subtract without rounding and match PostgreSQL's resolution.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """The clock interface of all other modules."""

    def wall_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC; may step when the host's clock is set."""

    def mono_us(self) -> int:
        """Return microseconds of CLOCK_MONOTONIC; never decreases, valid within one boot."""


class SystemClock:
    """The host's clocks."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def mono_us(self) -> int:
        return time.monotonic_ns() // 1000


SYSTEM = SystemClock()


# Times as text: RFC 3339 in UTC.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def rfc3339(wall_us: int | None) -> str | None:
    """Return the time with the fraction it has; None for None and for values out of range.

    Cached: a screen of a thousand sessions shows the same thousand times every second.

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
    """Return the seconds from `then` to `now` by the same clock, at least 0; None if either is unknown.

    >>> age_s(5_000_000, 2_000_000), age_s(1, 2), age_s(None, 2)
    (3.0, 0.0, None)
    """
    return None if now_us is None or then_us is None else max(0.0, (now_us - then_us) / 1e6)
