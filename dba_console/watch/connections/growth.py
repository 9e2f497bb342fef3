"""Growth of the connections over the last minutes, and when they reach the limit, only while growth continues.

A trend over minutes takes a pool that opened all its connections, in one step or in several, for growth until that step
is out of the window. Panel and finding both use these functions, so that they agree.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.watch.frames.rates import Points, fit_trend

WINDOW_S = 180.0
"""Connections fill in minutes: growth is computed over the last three."""
MIN_SPAN_S = 25.0
"""The shortest span that distinguishes a rise from a burst of three seconds."""
MIN_GROWTH = 3.0
"""Fewer new connections than this over the window predict nothing."""
RECENT_S = 10.0
EXPECTED_CONNECTIONS = 6.0
"""Continued growth is checked over the time in which this many new connections are expected, at least RECENT_S: with
six expected, two or fewer arrive by chance once in sixteen times (Poisson), so less than half means that growth has
ended."""


class ConnectionGrowth(NamedTuple):
    """Steady growth, and the time until the limit; None without a forecast."""

    per_min: float
    full_in_s: float | None


def estimate_growth(counts: Points, usable: int | None) -> ConnectionGrowth | None:
    """Return the growth of the last minutes and the seconds until `usable` is reached; None without enough readings.

    Whether it continues is a separate check: `is_still_growing`.
    """
    found = fit_trend(counts, window_s=WINDOW_S, min_span_s=MIN_SPAN_S)
    if found is None:
        return None
    return ConnectionGrowth(found.per_s * 60, None if usable is None else found.time_to_reach(usable, gate=MIN_GROWTH))


def is_still_growing(counts: Points, per_min: float) -> bool:
    """Check whether the count still rises, at least at half that rate. `counts`: microseconds and count, in order."""
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
