"""The screen of a recording at any of its times, as lines: made by the functions that draw the console's own screen.

The header is that of a replay. The last line names the session and the time in UTC in place of the keys, and says what
is missing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from dba_console.core.errors import SessionError, UsageError
from dba_console.core.sanitize import clean
from dba_console.recording.recording import Recording
from dba_console.recording.run_paths import run_directories
from dba_console.recording.run_reader import read_run
from dba_console.reports.recorded_moments import FrameReader
from dba_console.watch.drawing.header import HeaderState, header
from dba_console.watch.drawing.overview import alerts, overview, panel_in_full, panel_names
from dba_console.watch.drawing.text_elements import Line, Span, fit_line, line
from dba_console.watch.drawing.time_formats import format_rfc3339
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event

DEFAULT_SIZE = "160x50"
_SMALLEST, _LARGEST = (40, 10), (500, 200)


class ScreenLook(NamedTuple):
    """What is drawn: the size in cells, and the panels in full; none: the overview."""

    width: int
    height: int
    panels: tuple[str, ...] = ()


def screen_look(size: str = DEFAULT_SIZE, panels: Sequence[str] = ()) -> ScreenLook:
    """Return what is drawn for `COLUMNSxLINES` and names of panels. Raises UsageError.

    >>> screen_look("120x36")
    ScreenLook(width=120, height=36, panels=())
    """
    found = re.fullmatch(r"(\d{1,4})[x×](\d{1,4})", size.strip())
    width, height = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (_SMALLEST[0] <= width <= _LARGEST[0] and _SMALLEST[1] <= height <= _LARGEST[1]):
        raise UsageError(
            f"not a size of the screen: {size!r}",
            hint=f"columns and lines, as {DEFAULT_SIZE}; from {_shown(_SMALLEST)} to {_shown(_LARGEST)}",
        )
    return ScreenLook(width, height, tuple(panel_names(panels)))


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


_RUN_STATES = {
    "run.started": "runs", "run.resumed": "runs", "run.paused": "paused", "run.interrupted": "interrupted",
    "block.asked": "asks", "block.answered": "runs", "run.ended": "",
}  # fmt: skip
"""What the header says of a run after such a record, as the live screen does."""


class RunTexts:
    """What the header says about the runs of a session at any time. Runs that cannot be read are left out."""

    def __init__(self, session: Path) -> None:
        self._runs = [_run_changes(directory) for directory in run_directories(session)]

    def at(self, wall_us: int) -> str:
        """Return `lock-queue runs`, of the newest open run; empty without one."""
        texts = [
            changes[position - 1][1]
            for changes in self._runs
            if (position := bisect_right(changes, wall_us, key=itemgetter(0)))
        ]
        return next(filter(None, reversed(texts)), "")


def _run_changes(directory: Path) -> list[tuple[int, str]]:
    try:
        run = read_run(directory)
    except SessionError:
        return []
    return [
        (record.wall_us, state and f"{clean(run.about.runbook)} {state}")
        for record in run.records
        if (state := _RUN_STATES.get(record.kind)) is not None
    ]


class RecordedScreen:
    """Draws the screen of a recording."""

    def __init__(self, recording: Recording, look: ScreenLook) -> None:
        self._recording = recording
        self._look = look
        self._reader = FrameReader(recording)
        self._runs = RunTexts(recording.directory)
        self._name = recording.directory.name if recording.meta is None else recording.meta.target

    @property
    def new_events(self) -> list[Event]:
        """Events between the screen before and the newest one; empty for the first."""
        return self._reader.new_events

    def lines(self, picture: Picture, *, speed: float = 0.0, missing: str = "") -> list[Line]:
        """Return the screen of a sample: `height` lines of `width` cells each.

        `speed`: 0 is paused. `missing` says why there is no newer sample.
        """
        width, height, panels = self._look
        frame = self._reader.frame(picture)
        run = self._runs.at(picture.wall_us)
        top = header(frame, HeaderState("replay", speed=speed, target_label=self._name, run_text=run), width)
        if panels:
            body = alerts(frame, width)
            for name in panels:
                body += panel_in_full(name, frame, self._reader.history, width)
        else:
            body = overview(frame, self._reader.history, width, height - 2)
        body = body[: height - 2] + [()] * (height - 2 - len(body))
        return [fit_line(one, width) for one in (top, *body, self.last_line(picture.wall_us, missing))]

    def last_line(self, wall_us: int, missing: str) -> Line:
        """Return the line about the recording."""
        where = Span(f" {clean(self._recording.directory.name)} · {format_rfc3339(wall_us)[:19]}Z", "dim")
        problems = [clean(problem) for problem in (missing, self._recording.damage) if problem]
        return line(where, *(Span(f" · {problem}", "warn") for problem in problems))
