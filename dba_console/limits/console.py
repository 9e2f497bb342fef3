"""Figures of the findings about the console itself."""

from __future__ import annotations

from msgspec import Struct


class ConsoleLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.console]`."""

    late_share_pct: float = 50.0
    """A tick is late that begins later than its time by this share of the interval."""
    late_ticks: int = 5
    """So many late ones in a row are told."""
    unanswered_s: float = 30.0
    """A query of the console has had no answer within its time limit for so long."""
    stuck_s: float = 3.0
    """A file system or process has not answered for so long."""
    lagging_s: float = 10.0
    """The recording has been behind for so long."""
    dropped_s: float = 300.0
    """How long samples that were not recorded stay on the screen."""
