"""Formats of `session export`, each loaded only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
        """Yield the events in order."""
        step_us = max(_EVENTS_US, (self.to_us - self.from_us) // 1000)
        for from_us in range(self.from_us, self.to_us + 1, step_us):
            yield from self.recording.events(from_us, min(from_us + step_us - 1, self.to_us))


def whole(recording: Recording) -> Span:
    """Return the span of everything recorded."""
    return Span(recording, *recording.bounds_us)


def least_distance(every_us: int) -> int:
    """Return the least distance of two ticks that are `every_us` apart: a tick may be half a second late.

    >>> least_distance(15_000_000), least_distance(0)
    (14500000, 0)
    """
    return every_us - min(500_000, every_us // 2)


_EVENTS_US = 3_600_000_000
"""Events are read by the hour or more, because there may be a hundred thousand."""

Progress = Callable[[float], None]
"""Takes the share done, 0 to 1."""
Exporter = Callable[..., Sequence[str] | None]
"""Called with a Span, a BinaryIO and a Progress, and by keyword with the options of its format. Memory does not grow
with the span. Returns what was left out, in sentences. Raises OSError if the output cannot be written, ConsoleError for
an option or a session it cannot use."""


def _csv() -> Exporter:
    from dba_console.reports.table_export import write_csv

    return write_csv


def _jsonl() -> Exporter:
    from dba_console.reports.table_export import write_jsonl

    return write_jsonl


def _otlp() -> Exporter:
    from dba_console.reports.otlp import write_otlp

    return write_otlp


def _openmetrics() -> Exporter:
    from dba_console.reports.openmetrics import write_openmetrics

    return write_openmetrics


def _asciicast() -> Exporter:
    from dba_console.reports.asciicast import export_asciicast

    return export_asciicast


def _svg() -> Exporter:
    from dba_console.reports.pictures import export_svg

    return export_svg


def _png() -> Exporter:
    from dba_console.reports.pictures import export_png

    return export_png


def _text() -> Exporter:
    from dba_console.reports.pictures import export_text

    return export_text


def _syslog() -> Exporter:
    from dba_console.reports.log_export import export_syslog

    return export_syslog


def _journald() -> Exporter:
    from dba_console.reports.log_export import export_journald

    return export_journald


EXPORTERS: dict[str, Callable[[], Exporter]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "openmetrics": _openmetrics,
    "asciicast": _asciicast,
    "svg": _svg,
    "png": _png,
    "text": _text,
    "syslog": _syslog,
    "journald": _journald,
    "otlp": _otlp,
}
"""Returns the exporter of a format."""
