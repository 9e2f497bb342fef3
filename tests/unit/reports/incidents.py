"""Sessions with an incident: ten minutes of a server, a finding with its events, what an operator did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dba_console.demo.recordings
from dba_console.core.sanitize import clean
from dba_console.recording.layout import SessionMeta, session_directory
from dba_console.recording.recorder import Recorder
from dba_console.recording.recording import Recording
from dba_console.reports.postmortem.facts import IncidentFacts
from dba_console.reports.postmortem.gather import Asked, gather
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, FindingsNow
from dba_console.watch.samples.host import Pressure, PressureStall
from dba_console.watch.samples.sample import Sample, encode_sample, make_part
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.readings import activity, of, server, sessions, setting
from tests.unit.recording.recordings import meta

SHIPPED = Path(dba_console.demo.recordings.__file__).parent / "reclaim-stall"
"""A real incident: 56 samples of a server whose memory is reclaimed."""
SECOND = 1_000_000
BEGAN_S, RAISED_S, CLEARED_S, END_S = 300, 303, 420, 480
USABLE = 20
FINDING = "connections-filling"


def at(second: float) -> int:
    """The wall time of a second of the session."""
    return NOW_US + int(second * SECOND)


def finding_event(second: float, kind: str, name: str = FINDING, **fields: Any) -> Event:
    details = {
        "id": name, "name": name, "severity": fields.pop("severity", "critical"), "since_us": at(BEGAN_S),
        "at_us": at(second), "chain": [name, "io-stalled"], "also": [], "evidence": {"used": 20, "usable": USABLE},
        "runbook": "connection-storm", "state": "open", **fields.pop("details", {}),
    }  # fmt: skip
    text = fields.pop("text", f"finding {kind}: {name}")
    return event(second, f"finding.{kind}", text, severity=str(details["severity"]), details=details, **fields)


def event(second: float, kind: str, text: str, **fields: Any) -> Event:
    return Event(wall_us=at(second), mono_us=1_000_000_000 + int(second * SECOND), kind=kind, text=text, **fields)


EVENTS = (
    finding_event(RAISED_S, "raised", text="finding raised, critical: Connections fill (20 of 20 usable)"),
    finding_event(330, "acknowledged", who="alice"),
    finding_event(CLEARED_S, "cleared"),
)


def tick(second: int) -> Sample:
    """One second: half as many transactions and all slots in use during the incident, the last minute of it stalled."""
    ill = BEGAN_S <= second < CLEARED_S
    done = 100 * min(second, BEGAN_S) + 50 * max(0, min(second, CLEARED_S) - BEGAN_S) + 100 * max(0, second - CLEARED_S)
    stalled_us = 500_000 * max(0, min(second, CLEARED_S) - (CLEARED_S - 60))
    rows = [activity(1000 + index, "active", wait_event_type="Lock") for index in range(USABLE if ill else 8)]
    row = FindingNow(
        FINDING, FINDING, "critical", "slots", "Connections fill (20 of 20 usable)", {"used": 20}, at(BEGAN_S),
        at(second), [FINDING, "io-stalled"], ["connections.used", "io.psi_full_pct"], "connection-storm", "Ask them.",
    )  # fmt: skip
    still = PressureStall(0.0, 0.0, 0.0, 0)
    readings: dict[str, Any] = {
        "pg.activity": sessions(*rows, now_us=at(second)),
        "host.pressure": of(Pressure, io_full=PressureStall(50.0, 0.0, 0.0, stalled_us), memory_full=still),
        "self": of(AgentHealth, recording="ok"),
        "findings": FindingsNow([row] if RAISED_S <= second < CLEARED_S else []),
    }
    if second % 3 == 0:
        readings["pg.databases"] = DatabaseStats([of(DatabaseStat, name="shop", xact_commit=done)])
    if second % 30 == 0:
        limits = (
            ("max_connections", str(USABLE + 3)),
            ("superuser_reserved_connections", "3"),
            ("reserved_connections", "0"),
        )
        changed = setting("work_mem", "4096" if second < 330 else "65536", "kB")
        readings["pg.server"] = server(now_us=at(second), settings=[*(setting(*one) for one in limits), changed])
    mono_us = 1_000_000_000 + second * SECOND
    parts = [make_part(name, reading, at_us=mono_us, took_us=1000) for name, reading in readings.items()]
    return Sample(second + 1, at(second), mono_us, parts, "run1")


def record_incident(
    place: Path,
    events: Sequence[Event] = EVENTS,
    *,
    seconds: Sequence[int] = range(END_S),
    about: SessionMeta | None = None,
    make: Callable[[int], Sample] = tick,
    close: bool = True,
) -> Path:
    """A session of these seconds; missing ones are gaps."""
    clock = HeldClock()
    about = about or meta()
    made = Recorder(session_directory(place, about), about, clock)
    for number, one in enumerate(events):
        made.put_event(one)
        assert number % 1000 or made.flush()
    for second in seconds:
        sample = make(second)
        clock.wall, clock.mono = sample.wall_us, sample.mono_us
        made.put_sample(sample, encode_sample(sample))
        assert second % 100 or made.flush()
    clock.advance(1)
    assert made.close("done") if close else made.flush()
    return made.directory


def facts_of(session: Path, asked: Asked = Asked(), *others: Path) -> IncidentFacts:  # noqa: B008
    """The facts of the incident in that session."""
    recordings = [Recording.open(one) for one in (session, *others)]
    try:
        return gather(recordings[0], asked, recordings[1:])
    finally:
        for one in recordings:
            one.close()


def texts_of(value: object) -> Iterator[str]:
    """Every text in a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from texts_of(one)
    elif hasattr(value, "__struct_fields__"):
        for name in value.__struct_fields__:
            yield from texts_of(getattr(value, name))


def unclean(incident: IncidentFacts) -> list[str]:
    """Texts that a terminal or a table would not show as one line."""
    return [text for text in texts_of(incident) if clean(text) != text]
