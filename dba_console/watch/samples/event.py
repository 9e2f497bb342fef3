"""An event: something that happened, in recording order. Append-only; the session chains them by hash."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

KINDS = (
    "session.start",
    "session.end",
    "session.pruned",
    "console.attach",
    "console.detach",
    "server.connected",
    "server.lost",
    "server.changed",
    "server.blind",
    "gap",
    "clock.jump",
    "mark",
    "note",
    "probe.failed",
    "probe.recovered",
    "lane.stuck",
    "lane.recovered",
    "recording.lagging",
    "recording.recovered",
    "heartbeat",
    "finding.raised",
    "finding.changed",
    "finding.joined",
    "finding.cleared",
    "finding.acknowledged",
    "finding.silenced",
    "finding.unsilenced",
    "job.ended",
    "job.history",
    "run.planned",
    "run.started",
    "run.paused",
    "run.resumed",
    "run.interrupted",
    "run.ended",
    "step.started",
    "step.ended",
    "block.started",
    "block.seen",
    "block.asked",
    "block.answered",
    "block.intent",
    "block.result",
    "block.settled",
    "block.skipped",
    "wait.began",
    "wait.held",
    "repeat.round",
    "choose.taken",
    "rows.chosen",
    "input.given",
    "undo.offered",
    "undo.settings",
    "undo.began",
    "undo.ended",
    "deviation",
    "person.took",
    "journal.began",
    "journal.reopened",
    "journal.fallback",
    "journal.home",
)
"""Kinds written now; those from `run.planned` on are records of runs (recording/plan.py).

A reader passes unknown kinds through."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `seq` is assigned by the journal (0 before); `text` is one redacted sentence.

    `occurred_us` is set on notes about an earlier moment; `wall_us` is always when it was recorded.
    """

    wall_us: int
    kind: str
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
