"""Connections that fill: growth of the last minutes and the date it ends at, told only while it goes on.

A trend of minutes takes a pool that opened all it wants, in one step or in several, for growth until that lies in the
past. The panel and the finding ask the same question of it here, so that neither names a date the other denies.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.frames.trend import Points, fit_trend

WINDOW_S = 180.0
"""Connections fill in minutes: growth is told from the last three."""
MIN_SPAN_S = 25.0
"""The least in which a burst of three seconds is told from a rise."""
MIN_GROWTH = 3.0
"""Fewer new connections than this over the window predict nothing."""
RECENT_S = 10.0
EXPECTED_CONNECTIONS = 6.0
"""What goes on is told from as many seconds as should bring so many connections, at least RECENT_S: of six that come by
chance two or fewer come once in sixteen times (Poisson), so that half is too few only where growth has ended."""


class ConnectionGrowth(NamedTuple):
    """Steady growth, and when it ends; None where there is no date."""

    per_min: float
    full_in_s: float | None


def estimate_growth(counts: Points, usable: int | None) -> ConnectionGrowth | None:
    """The growth of the last minutes and the seconds until `usable` is reached; None before it can be told.

    Whether it goes on is another question: `is_still_growing`.
    """
    found = fit_trend(counts, window_s=WINDOW_S, min_span_s=MIN_SPAN_S)
    if found is None:
        return None
    return ConnectionGrowth(found.per_s * 60, None if usable is None else found.time_to_reach(usable, gate=MIN_GROWTH))


def is_still_growing(counts: Points, per_min: float) -> bool:
    """Whether the count still rises, at half that rate at least. `counts`: microseconds and count, the newest last."""
    if not counts or per_min <= 0:
        return False
    window_s = min(WINDOW_S, max(RECENT_S, EXPECTED_CONNECTIONS * 60 / per_min))
    last_us, used = counts[-1]
    first_us, least = last_us, used
    for at_us, value in reversed(counts):
        if at_us < last_us - window_s * 1e6:
            break
        first_us, least = at_us, min(least, value)
    watched_min = (last_us - first_us) / 6e7
    return used - least >= max(1.0, per_min * watched_min / 2)
