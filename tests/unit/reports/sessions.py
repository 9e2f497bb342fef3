"""Sessions for reports: a busy server with hostile text in every field an outsider fills, events, lines of output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dba_console.recording.journal import LogLine
from dba_console.recording.layout import SessionMeta
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import Span, whole
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, make_part
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.readings import activity, sessions
from tests.unit.recording.recordings import record_samples, recorder

SECOND = 1_000_000
HOSTILE = (
    "select 1 -- \x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\r\n<14>1 forged\nMESSAGE=forged \u202e \x00 "
    '<script>x</script> "]'
)
"""Escapes that clear the screen and set its title, line ends that begin another log line, markup, bidi."""


def hostile_ticks(samples: Iterable[Sample]) -> list[Sample]:
    """The samples with a session whose query, user and application are hostile."""
    made = []
    for sample in samples:
        row = activity(99, "active", query=HOSTILE, user=HOSTILE, application=HOSTILE, wait_event_type="Lock")
        part = make_part("pg.activity", sessions(row, now_us=sample.wall_us), at_us=sample.mono_us, took_us=1)
        made.append(Sample(sample.seq, sample.wall_us, sample.mono_us, [part], sample.boot))
    return made


def event(second: float, kind: str, text: str, **fields: object) -> Event:
    """An event that many seconds after NOW_US."""
    at_us = int(second * SECOND)
    return Event(wall_us=NOW_US + at_us, mono_us=1_000_000_000 + at_us, kind=kind, text=text, **fields)  # type: ignore[arg-type]


def recorded(
    place: Path,
    samples: Iterable[Sample],
    events: Sequence[Event] = (),
    lines: Sequence[LogLine] = (),
    *,
    about: SessionMeta | None = None,
) -> Path:
    """A closed session of all that."""
    clock = HeldClock()
    made = recorder(place, about, clock=clock)
    for one in events:
        made.put_event(one)
    made.put_lines(lines)
    record_samples(made, samples)
    clock.advance(3600)
    assert made.close("done")
    return made.directory


def opened(directory: Path) -> Span:
    """The whole session."""
    return whole(Recording.open(directory))


def sampled(directory: Path) -> Span:
    """From its first to its last sample."""
    recording = Recording.open(directory)
    return Span(recording, recording.first_us, recording.last_us)
