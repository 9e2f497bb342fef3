"""Formats of `session export`, each loaded only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

from dba_console.recording.recording import Recording
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event


class Span(NamedTuple):
    """What is exported: a recording between two wall times in microseconds, inclusive."""

    recording: Recording
    from_us: int
    to_us: int

    def share(self, wall_us: int) -> float:
        """Return the share of the span before that time, 0 to 1."""
        return min(1.0, max(0.0, (wall_us - self.from_us) / max(1, self.to_us - self.from_us)))

    def frames(self, every_us: int = 0) -> Iterator[Frame]:
        """Yield the frame of each tick, at most one in `every_us`; without the panel of events."""
        history = ChartHistory()
        history.extend(self.recording.points(self.from_us - history.span_us, self.from_us - 1))
        picture = self.recording.picture_at(self.from_us - 1) or Picture()
        last_us: int | None = None
        for block in self.recording.blocks(self.from_us, self.to_us):
            points = dict(block.points)
            for sample in block.samples:
                picture = picture.with_sample(sample)
                history.add(sample.wall_us, points.get(sample.wall_us, {}))
                if last_us is None or not 0 <= sample.wall_us - last_us < least_distance(every_us):
                    last_us = sample.wall_us
                    yield derive(picture, history)

    def events(self) -> Iterator[Event]:
        """Yield the events in the order they were recorded, notes about another time at that time."""
        return self.recording.each_event(self.from_us, self.to_us)


def whole(recording: Recording) -> Span:
    """Return the span of everything recorded."""
    return Span(recording, *recording.bounds_us)


def least_distance(every_us: int) -> int:
    """Return the least distance of two ticks that are `every_us` apart: a tick may be half a second late.

    >>> least_distance(15_000_000), least_distance(0)
    (14500000, 0)
    """
    return every_us - min(500_000, every_us // 2)


Progress = Callable[[float], None]
"""Takes the share done, 0 to 1."""
Exporter = Callable[..., Sequence[str] | None]
"""Called with a Span, a BinaryIO and a Progress, and by keyword with the options of its format. Memory does not grow
with the span. Returns what was left out, in sentences. Raises OSError if the output cannot be written, ConsoleError for
an option or a session it cannot use."""


EXPORTERS = {
    "csv": "table_export.write_csv",
    "jsonl": "table_export.write_jsonl",
    "openmetrics": "openmetrics.write_openmetrics",
    "otlp": "otlp.write_otlp",
    "asciicast": "asciicast.export_asciicast",
    "svg": "pictures.export_svg",
    "png": "pictures.export_png",
    "text": "pictures.export_text",
    "syslog": "syslog_export.export_syslog",
    "journald": "syslog_export.export_journald",
}
"""Module and function of each format."""


def load_exporter(format: str) -> Exporter:
    """Return the exporter of a format, one of EXPORTERS."""
    module, _, function = EXPORTERS[format].partition(".")
    exporter: Exporter = getattr(import_module(f"dba_console.reports.{module}"), function)
    return exporter
