"""Events of the session: the last ones, with their time or the time a note refers to."""

from __future__ import annotations

from msgspec import Struct

from dba_console.core.clock import rfc3339
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.panel import Panel, PanelFrame

LAST_EVENTS = 200


class EventRow(Struct, kw_only=True):
    at: str
    kind: str
    tag: str
    text: str
    seq: int = 0
    severity: str = "info"
    finding: str | None = None
    """The id of the finding it belongs to."""


class EventsPanel(PanelFrame, kw_only=True):
    """The last events, oldest first."""

    rows: list[EventRow] = []


def derive_events(facts: PictureFacts) -> EventsPanel:
    """Return the last events of the session, oldest first, with their time or the time a note refers to."""
    rows = [
        EventRow(
            at=rfc3339(event.happened_us) or "",
            kind=event.kind,
            tag=event.tag,
            text=event.text,
            seq=event.seq,
            severity=event.severity,
            finding=event.details.get("id") if event.kind.startswith("finding.") else None,
        )
        for event in facts.events[-LAST_EVENTS:]
    ]
    return EventsPanel(rows=rows, age_s=0.0)


PANEL = Panel(name="events", fields=EventsPanel, derive=derive_events, points=lambda facts: {})
