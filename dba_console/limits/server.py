"""Figures of the findings about the server."""

from __future__ import annotations

from msgspec import Struct


class ServerLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.server]`."""

    down_warning_s: float = 3.0
    """Nothing listens, or it does not let anybody in yet."""
    down_critical_s: float = 10.0
    """An orderly restart is over by then."""
    silent_warning_s: float = 5.0
    """Connected, and no answer."""
    silent_critical_s: float = 30.0
    news_s: float = 900.0
    """How long a restart, a promotion, changed settings stay on the screen."""
