"""Builds a frame from a picture: derives every panel; a failing one does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import asdict

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch import subjects
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import (
    Finding,
    Frame,
    SelfFrame,
    TargetFrame,
)
from dba_console.watch.frames.panel_status import is_fresh, part_status
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.frames.rates import pair, rate
from dba_console.watch.panel import PanelFrame
from dba_console.watch.samples import host
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, FindingsNow

# Target of the frame: identity, role and connection state of the server; and the console's own usage.

_LIVENESS_PARTS = ("pg.activity", "pg.locks", "pg.progress", "pg.replication")
"""Parts read every second or two: an answer to any of them means the connection works."""


def derive_target(facts: PictureFacts) -> TargetFrame:
    """Return the target by the last readings; role `unknown` if no reading contains it."""
    frame = TargetFrame()
    _identity(frame, facts)
    _host(frame, facts)
    frame.state, frame.note = _state(facts)
    if frame.state == "disconnected":
        frame.uptime_s = None  # unknown whether it is up
    return frame


def _identity(frame: TargetFrame, facts: PictureFacts) -> None:
    server = facts.server
    control = facts.picture.now("host.control", host.ControlFile)
    if control is not None:
        frame.system_identifier, frame.timeline = control.system_identifier, control.timeline
    if facts.in_recovery is not None:
        frame.role = "standby" if facts.in_recovery else "primary"
    if server is None:
        return
    frame.system_identifier = server.system_identifier or frame.system_identifier
    replication = facts.picture.current.get("pg.replication")
    newest = None if replication is None else getattr(replication.value(), "timeline", None)
    frame.timeline = newest or server.timeline or frame.timeline
    frame.server_version, frame.version = server.version_num, server.version
    frame.uptime_s = age_s(facts.server_now_us, server.start_us)
    frame.through, frame.local = server.through, server.local
    frame.name = facts.setting("cluster_name") or None
    frame.port = facts.number("port")
    reading = facts.picture.current["pg.server"]
    frame.clock_offset_s = (server.now_us - reading.wall_us) / 1e6


def _host(frame: TargetFrame, facts: PictureFacts) -> None:
    settings = facts.picture.now("host.settings", host.HostSettings)
    if settings is not None:
        frame.host = settings.hostname
    elif facts.server is not None:
        frame.host = facts.server.server_address
    frame.name = frame.name or frame.host
    frame.postmaster_stopped = _stopped(facts)


def _stopped(facts: PictureFacts) -> bool | None:
    """Return whether the postmaster is in state T or t (proc_pid_stat(5)), from a fresh reading."""
    processes = facts.picture.now("host.processes", host.Processes)
    if processes is None or not is_fresh(facts.picture, "host.processes"):
        return None
    states = [row.state for row in processes.rows if row.pid == processes.postmaster]
    return states[0] in ("T", "t") if states else None


def _state(facts: PictureFacts) -> tuple[str, str | None]:
    """Return connected, blind (host visible, but no free connection slot) or disconnected; with the reason."""
    picture = facts.picture
    server = facts.server
    # Why a server is not local is shown, as is the effect of a pooler; how it is known to be local is not.
    local_note = None if server is None or (server.local and not server.through) else server.local_note
    if any(is_fresh(picture, name) for name in _LIVENESS_PARTS):
        return "connected", local_note
    status, note = part_status(picture, "pg.activity")
    if "pg.activity" in picture.latest and status in ("timeout", "denied", "unsupported"):
        # The connection exists; only the answer is missing.
        return "connected", note
    own = picture.now("self", AgentHealth)
    full = own is None or own.outage in (None, "no_slots")
    state = "blind" if full and is_fresh(picture, "host.titles") else "disconnected"
    return state, _connect_error(picture) or note


def _connect_error(picture: Picture) -> str | None:
    """Return why the last attempt to connect failed: the note of pg.server."""
    latest = picture.latest.get("pg.server")
    return None if latest is None or latest.part.status != "error" else latest.part.note


# Console usage: what the console itself costs, and whether it keeps up.


def derive_own(facts: PictureFacts) -> SelfFrame:
    """Return the agent's cost over the last interval; CPU in percent of one core, as in `top`."""
    now = facts.picture.now("self", AgentHealth)
    if now is None:
        return SelfFrame()
    frame = SelfFrame(
        rss_bytes=now.rss,
        queries=now.queries,
        recorder_lag_s=now.recorder_lag_us / 1e6,
        dropped=now.dropped,
        stuck_lanes=now.stuck_lanes,
        lanes=now.lanes,
        consoles=now.consoles,
        late_s=now.late_us / 1e6,
        recording=now.recording,
        recording_note=now.recording_note,
        readers_dropped=now.readers_dropped,
    )
    both = pair(facts.picture, "self", AgentHealth)
    if both is not None:
        new, old, seconds = both
        frame.cpu_pct = rate(new.cpu_us, old.cpu_us, seconds, 1e-4)
        frame.rules_cpu_pct = rate(new.judged_us, old.judged_us, seconds, 1e-4)
        frame.backend_cpu_pct = rate(new.backend_cpu_us, old.backend_cpu_us, seconds, 1e-4)
        waited_us = rate(new.query_us, old.query_us, 1.0)
        frame.query_ms = None if waited_us is None else waited_us / 1000
    return frame


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
    fields: dict[str, Any] = asdict(row)
    for name in ("since", "at", "until"):
        fields[name] = rfc3339(fields.pop(f"{name}_us"))
    return Finding(**fields)


P = TypeVar("P", bound=PanelFrame)


def derive(picture: Picture, history: ChartHistory, events: Sequence[Event] = ()) -> Frame:
    """Derive the frame from the picture and its history. Never raises: a panel that fails has status error."""
    facts = PictureFacts(picture, history, events)
    frame = Frame(
        at_us=picture.wall_us,
        seq=picture.seq,
        mono_us=picture.mono_us,
        boot=picture.boot,
        target=derive_target(facts),
        own=derive_own(facts),
        panels={name: _guarded(panel.derive, panel.fields, facts) for name, panel in subjects.panels().items()},
    )
    return add_findings(frame, picture)


def _guarded(derivation: Callable[[PictureFacts], P], empty: Callable[[], P], facts: PictureFacts) -> P:
    """Return the panel, or an empty one with status error: an unexpected reading hides one panel and not the screen."""
    try:
        return derivation(facts)
    except Exception as error:
        panel = empty()
        panel.status, panel.note = "error", f"cannot be derived: {type(error).__name__}: {error}"
        return panel
