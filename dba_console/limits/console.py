"""Figures of the findings about the console itself."""

from __future__ import annotations

from msgspec import Struct


class ConsoleLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.console]`."""

    late_share_pct: float = 50.0
    """Of its interval: a tick that begins later than that is late."""
    late_ticks: int = 5
    """So many late ones in a row."""
    unanswered_s: float = 30.0
    """One of the queries has had no answer within its time limit for so long."""
    stuck_s: float = 3.0
    lagging_s: float = 10.0
    """The recording has been behind for so long."""
    dropped_s: float = 300.0
    """How long samples that were not recorded stay on the screen."""
