"""Findings of a recording: as its agent recorded them, or evaluated again with today's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dba_console.recording.recording import Recording
from dba_console.recording.timeline import Timeline
from dba_console.watch.findings.finding_events import change_event
from dba_console.watch.findings.rule_engine import RuleEngine
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample

PART = "findings"


@dataclass(slots=True)
class EvaluatedFindings:
    """Events of findings, their time span, and the rules that failed, each with its error."""

    events: list[Event] = field(default_factory=list)
    first_us: int = 0
    last_us: int = 0
    failed: set[str] = field(default_factory=set)
    live: bool = False
    """Whether these are the agent's own findings."""


def samples_of(recording: Recording) -> Iterator[Sample]:
    """Yield every sample in order."""
    timeline = Timeline(recording.stored)
    timeline.refresh()
    for index in range(len(timeline)):
        yield from timeline.block(index).samples()


def pictures(samples: Iterable[Sample]) -> Iterator[Picture]:
    """Yield the picture after each sample, as in the agent, including readings from earlier blocks."""
    picture = Picture()
    for sample in samples:
        picture = picture.with_sample(sample)
        yield picture


def unchanged(samples: Iterable[Sample]) -> Iterable[Sample]:
    """Return the samples unchanged."""
    return samples


def evaluate_again(
    session: Path, limits: Limits | None = None, lived: Callable[[Iterable[Sample]], Iterable[Sample]] = unchanged
) -> EvaluatedFindings:
    """Evaluate the samples, changed by `lived`, with today's rules.

    Times of events are those of the monotonic clock since the first sample: clock steps do not move them.
    """
    recording = Recording.open(session)
    judge, history = RuleEngine(limits or Limits()), ChartHistory()
    judged = EvaluatedFindings(first_us=recording.first_us, last_us=recording.last_us)
    began_us = 0
    for picture in pictures(lived(samples_of(recording))):
        point = point_of(picture)
        history.add(picture.wall_us, point)
        changes = judge.evaluate(picture, history, point)
        began_us = began_us or picture.mono_us
        at_us = judged.first_us + picture.mono_us - began_us
        judged.events += [change_event(change, at_us, picture.mono_us) for change in changes]
        judged.failed.update(judge.conclusions.failed)
    recording.close()
    return judged


def findings_recorded_live(session: Path) -> EvaluatedFindings:
    """Return the findings of the agent while it recorded."""
    recording = Recording.open(session)
    judged = EvaluatedFindings(first_us=recording.first_us, last_us=recording.last_us)
    judged.events = [event for event in recording.events() if event.kind.startswith("finding.")]
    for picture in pictures(samples_of(recording)):
        reading = picture.latest.get(PART)
        if reading is not None:
            judged.live = True
            judged.failed.update(reading.value().failed)
    recording.close()
    return judged
