"""From a picture to a frame: every panel derived, none able to take another down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.cluster import derive_cluster
from dba_console.frames.connections import derive_connections
from dba_console.frames.console_usage import derive_own
from dba_console.frames.disks import derive_disks
from dba_console.frames.facts import PictureFacts
from dba_console.frames.findings import add_findings
from dba_console.frames.io import derive_io
from dba_console.frames.locks import derive_locks
from dba_console.frames.memory import derive_memory
from dba_console.frames.model import (
    ClusterPanel,
    Connections,
    Disks,
    EventRow,
    Events,
    Frame,
    Io,
    Locks,
    Memory,
    PanelFrame,
    Progress,
    Replication,
    Safety,
    Sessions,
)
from dba_console.frames.picture import Picture
from dba_console.frames.progress import derive_progress
from dba_console.frames.replication import derive_replication
from dba_console.frames.safety import derive_safety
from dba_console.frames.sessions import derive_sessions
from dba_console.frames.target import derive_target
from dba_console.frames.timestamps import rfc3339
from dba_console.samples.event import Event

P = TypeVar("P", bound=PanelFrame)

LAST_EVENTS = 200


def derive(picture: Picture, history: ChartHistory, events: Sequence[Event] = ()) -> Frame:
    """What the picture and the minutes before it mean. Never raises: a panel that cannot be derived says so."""
    facts = PictureFacts(picture, history)
    frame = Frame(
        at_us=picture.wall_us,
        seq=picture.seq,
        mono_us=picture.mono_us,
        boot=picture.boot,
        target=derive_target(facts),
        connections=_guarded(derive_connections, Connections, facts),
        io=_guarded(derive_io, Io, facts),
        memory=_guarded(derive_memory, Memory, facts),
        safety=_guarded(derive_safety, Safety, facts),
        progress=_guarded(derive_progress, Progress, facts),
        locks=_guarded(derive_locks, Locks, facts),
        replication=_guarded(derive_replication, Replication, facts),
        disks=_guarded(derive_disks, Disks, facts),
        sessions=_guarded(derive_sessions, Sessions, facts),
        events=derive_events(events),
        cluster=_guarded(derive_cluster, ClusterPanel, facts),
        own=derive_own(facts),
    )
    return add_findings(frame, picture)


def derive_events(events: Sequence[Event]) -> Events:
    """The last events of the session, oldest first; times are when it was recorded, or what a note is about."""
    rows = [
        EventRow(
            at=rfc3339(event.occurred_us or event.wall_us) or "",
            kind=event.kind,
            tag=event.tag,
            text=event.text,
            seq=event.seq,
            severity=event.severity,
            finding=event.details.get("id") if event.kind.startswith("finding.") else None,
        )
        for event in events[-LAST_EVENTS:]
    ]
    return Events(rows=rows, age_s=0.0)


def _guarded(derivation: Callable[[PictureFacts], P], empty: Callable[[], P], facts: PictureFacts) -> P:
    """The panel, or an empty one with status error: a reading nobody foresaw hides one panel and not the screen."""
    try:
        return derivation(facts)
    except Exception as error:
        panel = empty()
        panel.status, panel.note = "error", f"cannot be derived: {type(error).__name__}: {error}"
        return panel
