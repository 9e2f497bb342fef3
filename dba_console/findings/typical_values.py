"""What is usual for a number on this host: the median of its minutes, the last one left out.

Trouble that has just begun is then no part of the measure it is held against.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

MINUTES = 10
_MINUTE_US = 60_000_000


@dataclass(slots=True)
class TypicalValue:
    """The course of one number: medians of whole minutes, and the minute that is under way."""

    minutes: deque[float] = field(default_factory=lambda: deque(maxlen=MINUTES + 1))
    _values: list[float] = field(default_factory=list)
    _begun_us: int = 0

    def add(self, value: float, mono_us: int) -> None:
        if not self._begun_us:
            self._begun_us = mono_us
        elif mono_us - self._begun_us >= _MINUTE_US:
            if self._values:
                self.minutes.append(median(self._values))
            self._values, self._begun_us = [], mono_us
        self._values.append(value)

    def value(self, least_minutes: int) -> float | None:
        """The median of the minutes but the last; None before there are `least_minutes` of them."""
        known = list(self.minutes)[:-1]
        return median(known) if len(known) >= least_minutes else None
