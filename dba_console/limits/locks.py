"""Figures of the findings about locks."""

from __future__ import annotations

from msgspec import Struct


class LockLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.locks]`."""

    queue_behind: int = 3
    """Sessions behind one that waits for a lock of DDL: a warning."""
    queue_critical_behind: int = 10
    """So many, behind a wait of `queue_critical_least_s`: critical."""
    queue_critical_least_s: float = 2.0
    """What is over sooner was an ordinary ALTER TABLE that came in between."""
    queue_long_behind: int = 5
    """So many are critical too where the wait they stand behind lasts `queue_long_s`."""
    queue_long_s: float = 10.0
    """That wait."""
    blocker_s: float = 10.0
    """One session that holds up another for so long: a warning."""
    blocker_many: int = 5
    """So many sessions behind it are a warning after `blocker_many_s` already."""
    blocker_many_s: float = 2.0
    """How long they must have waited."""
    blocker_critical_behind: int = 20
    """So many sessions behind it ..."""
    blocker_critical_s: float = 30.0
    """... for so long: critical."""
