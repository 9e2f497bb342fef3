"""Time, asked for in one place so that tests can hold it still.

Wall time says when, monotonic time says how long. Both are integers in microseconds: they are stored in every sample,
subtract without rounding, and match PostgreSQL's own resolution.
"""

from __future__ import annotations

import time
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
