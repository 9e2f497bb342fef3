"""The screen between two times as asciicast, version 2 or 3, which asciinema and its players show.

https://docs.asciinema.org/manual/asciicast/v2/ and v3. Times have three decimals, as asciinema writes them. The rounded
part of each is carried to the next, so a long recording does not drift. Only cells that changed are sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from dba_console.core.errors import UsageError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import Progress, Span
from dba_console.reports.recorded_moments import TimedPicture, timed_pictures
from dba_console.reports.recorded_screen import DEFAULT_SIZE, RecordedScreen, ScreenLook, screen_look
from dba_console.reports.terminal_codes import ScreenPainter
from dba_console.watch.samples.event import Event

IDLE_S = 2.0
"""Seconds. Players shorten a longer pause to this."""
CHAPTER_KINDS = (
    "finding.raised", "finding.cleared", "mark", "note", "run.started", "run.resumed", "step.started", "run.ended",
)  # fmt: skip
"""Events that become markers: a player jumps to them."""
_LONGEST_LABEL = 120
_encode = msgspec.json.Encoder().encode


def export_asciicast(
    span: Span,
    file: BinaryIO,
    progress: Progress,
    *,
    size: str = DEFAULT_SIZE,
    panel: Sequence[str] = (),
    version: int = 2,
    idle_limit_s: float = IDLE_S,
    every_s: float = 0,
) -> None:
    """Write the screen of the span's samples, at most one in `every_s`. Raises UsageError, SessionError."""
    if version not in (2, 3):
        raise UsageError(f"--cast-version {version}: no such version of asciicast", hint="2, or 3 for asciinema 3")
    look = screen_look(size, panel)
    screen = RecordedScreen(span.recording, look)
    cast = CastWriter(file, version)
    painter = ScreenPainter()
    begun = False
    for timed in timed_pictures(span, int(every_s * 1e6)):
        lines = screen.lines(timed.picture, speed=1.0, missing=timed.missing)
        if not begun:
            begun = True  # only now is it known that the span has samples
            cast.header(look, timed.picture.wall_us, idle_limit_s, _title(span.recording))
        for event in screen.new_events:
            if event.kind in CHAPTER_KINDS:
                cast.event(_offset_us(event, timed), "m", label(event))
        cast.event(timed.offset_us, "o", painter.paint(lines))
        progress(span.share(timed.picture.wall_us))
    cast.event(cast.at_us, "o", painter.end())


class CastWriter:
    """Writes header and events. Times never decrease; an earlier one is written as that of the event before."""

    def __init__(self, file: BinaryIO, version: int) -> None:
        self._file = file
        self._version = version
        self.at_us = 0
        """Time of the newest event, in microseconds after the start."""
        self._written_ms = 0

    def header(self, look: ScreenLook, wall_us: int, idle_s: float, title: str) -> None:
        """Write the first line. `wall_us`: the start of the recording."""
        size: dict[str, object] = {"width": look.width, "height": look.height}
        if self._version == 3:
            size = {"term": {"cols": look.width, "rows": look.height, "type": "xterm-256color"}}
        about = {"timestamp": wall_us // 1_000_000, "idle_time_limit": idle_s, "title": title}
        self._file.write(_encode({"version": self._version, **size, **about}) + b"\n")

    def event(self, at_us: int, code: str, data: str) -> None:
        """Write one event, `at_us` after the start; nothing if it has no data."""
        if not data:
            return
        self.at_us = max(self.at_us, at_us)
        at_ms = round(self.at_us / 1000)
        # Version 2 has times since the start, version 3 since the event before.
        shown_ms = at_ms - self._written_ms if self._version == 3 else at_ms
        self._written_ms = at_ms
        time = f"{shown_ms // 1000}.{shown_ms % 1000:03d}".encode()
        self._file.write(b'[%b, "%b", %b]\n' % (time, code.encode(), _encode(data)))


def label(event: Event) -> str:
    """Return the text of a marker: one printable line."""
    text = clean(redact(event.text))
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


def _offset_us(event: Event, timed: TimedPicture) -> int:
    """Return the time of an event: as long before the sample that shows it as it happened."""
    return timed.offset_us - max(0, timed.picture.wall_us - event.happened_us)


def _title(recording: Recording) -> str:
    meta = recording.meta
    return clean(recording.directory.name if meta is None else f"{meta.target} on {meta.host}")
