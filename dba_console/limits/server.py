"""Figures of the findings about the server."""

from __future__ import annotations

from msgspec import Struct


class ServerLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.server]`."""

    down_warning_s: float = 3.0
    """Nothing listens, or nobody is let in, for so long: a warning."""
    down_critical_s: float = 10.0
    """For so long: critical; an orderly restart is over by then."""
    silent_warning_s: float = 5.0
    """Connected, and no answer for so long: a warning."""
    silent_critical_s: float = 30.0
    """For so long: critical."""
    news_s: float = 900.0
    """How long a restart, a promotion, changed settings stay on the screen."""
