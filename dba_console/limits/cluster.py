"""Figures of the findings about the configured cluster."""

from __future__ import annotations

from msgspec import Struct


class ClusterLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.cluster]`."""

    unreachable_s: float = 10.0
    """A node or pooler has not answered for so long; an orderly restart is over by then."""
    follow_s: float = 10.0
    """A standby that could follow the primary's timeline has not done so for so long."""
    paused_s: float = 60.0
    """A pooler's database has been paused for so long; the pause of a cutover is over by then."""
