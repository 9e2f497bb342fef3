"""An event: something that happened, in recording order. Append-only; the session chains them by hash."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `seq` is assigned by the journal (0 before); `text` is one redacted sentence.

    `occurred_us` is set on notes about an earlier moment; `wall_us` is always when it was recorded.
    """

    wall_us: int
    kind: str
    """`finding.raised`, `server.lost`, …; those of records of runs are in recording/plan.py. A reader passes unknown
    kinds through."""
    text: str
    seq: int = 0
    mono_us: int = 0
    tag: str = "DBACONSOLE"
    severity: str = "info"
    """info, warning or critical."""
    who: str | None = None
    """Login of the operator; None for the agent itself."""
    occurred_us: int | None = None
    details: dict[str, Any] = {}

    @property
    def happened_us(self) -> int:
        """When it happened: for a note about an earlier moment that moment, else when it was recorded."""
        return self.wall_us if self.occurred_us is None else self.occurred_us
