"""Builds a frame from a picture: derives every panel; a failing one does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dba_console.core.clock import rfc3339
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.cluster import derive_cluster
from dba_console.watch.frames.connections import derive_connections
from dba_console.watch.frames.disks import derive_disks
from dba_console.watch.frames.io import derive_io
from dba_console.watch.frames.memory import derive_memory
from dba_console.watch.frames.model import (
    ClusterPanel,
    Connections,
    Disks,
    Events,
    Finding,
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
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.frames.progress import derive_progress
from dba_console.watch.frames.replication import derive_replication
from dba_console.watch.frames.rows import EventRow
from dba_console.watch.frames.safety import derive_safety
from dba_console.watch.frames.sessions import derive_locks, derive_sessions
from dba_console.watch.frames.target import derive_own, derive_target
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, FindingsNow

# Findings as the agent concluded them at the time shown, not as they would be concluded now.


def add_findings(frame: Frame, picture: Picture) -> Frame:
    """Add the findings open at that time, in the order they began, and whether rules were evaluated."""
    conclusions = picture.now("findings", FindingsNow)
    if conclusions is not None:
        frame.judged = True
        frame.findings = [finding_of(row) for row in conclusions.rows]
        if conclusions.begun_us is not None:
            frame.judged_s = (picture.mono_us - conclusions.begun_us) / 1e6
        frame.pending = conclusions.pending
        if conclusions.failed:
            frame.findings_note = f"some rules could not be evaluated: {'; '.join(conclusions.failed)}"
    return frame


def finding_of(row: FindingNow) -> Finding:
    """Convert a recorded finding; times as text."""
    return Finding(
        id=row.id,
        severity=row.severity,
        subject=row.subject,
        text=row.text,
        evidence=row.evidence,
        runbook=row.runbook,
        since=rfc3339(row.since_us),
        rule=row.rule,
        at=rfc3339(row.at_us),
        chain=row.chain,
        also=row.also,
        series=row.series,
        advice=row.advice,
        state=row.state,
        who=row.who,
        note=row.note,
        until=rfc3339(row.until_us),
    )


P = TypeVar("P", bound=PanelFrame)

LAST_EVENTS = 200


def derive(picture: Picture, history: ChartHistory, events: Sequence[Event] = ()) -> Frame:
    """Derive the frame from the picture and its history. Never raises: a panel that fails has status error."""
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
        for event in events[-LAST_EVENTS:]
    ]
    return Events(rows=rows, age_s=0.0)


def _guarded(derivation: Callable[[PictureFacts], P], empty: Callable[[], P], facts: PictureFacts) -> P:
    """Return the panel, or an empty one with status error: an unexpected reading hides one panel and not the screen."""
    try:
        return derivation(facts)
    except Exception as error:
        panel = empty()
        panel.status, panel.note = "error", f"cannot be derived: {type(error).__name__}: {error}"
        return panel
