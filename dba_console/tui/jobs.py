"""Dumps, restores and other long work on the screen: the table of them, and one of them in full."""

from __future__ import annotations

from dba_console.frames.job_sessions import job_name
from dba_console.frames.model import Frame
from dba_console.frames.progress_model import ProgressRow
from dba_console.frames.window_forecast import NO_WINDOWS, JobWindows
from dba_console.panels import states
from dba_console.panels.cells import Detail, Line, Span, clean, fit_line, line
from dba_console.panels.job_page import find_row, job_page, job_title
from dba_console.panels.phrases import wrap
from dba_console.panels.progress_words import row_key
from dba_console.panels.text import rule
from dba_console.panels.times import clock, from_rfc3339
from dba_console.tui.detail import DetailView
from dba_console.tui.keys import Where
from dba_console.tui.pages import Page
from dba_console.tui.view import Scene

PANEL = "progress"


class JobsView(DetailView):
    """The panel of long work; enter opens the selected row in full."""

    where: Where = "jobs"

    def __init__(self, name: str = PANEL) -> None:
        super().__init__(name)
        self._last: tuple[str, ProgressRow] | None = None
        """The selected row as it was last seen, and its key."""

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "job", "past", "filter", "sort_next", "space", "time", "help", "quit")

    @property
    def chosen(self) -> ProgressRow | None:
        """The selected row, as it was last seen where it is gone; with none selected the first one. None where there
        is none."""
        if self.grid is not None and self.grid.selected is None:
            self.grid.move(0)
        self._remember()
        return None if self._last is None else self._last[1]

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = super().lines(scene, width, height)
        self._remember()
        return lines

    def _update(self, detail: Detail) -> None:
        # A row is known by its session until its program is found: the selection goes with it.
        grid, last = self.grid, self._last
        if grid is not None and last is not None and grid.selected == last[0] and self._frame is not None:
            found = find_row(self._frame, last[0], _session(last[1]))
            if found is not None:
                grid.selected = row_key(found)
        super()._update(detail)

    def _remember(self) -> None:
        key = None if self.grid is None else self.grid.selected
        found = None if key is None or self._frame is None else find_row(self._frame, key)
        if key is not None and found is not None:
            self._last = (key, found)
        elif self._last is not None and self._last[0] != key:
            self._last = None


def _session(row: ProgressRow) -> int | None:
    """A session of it, by which it is found again."""
    return row.pid if row.pid is not None else next(iter(row.backends), None)


class JobPage(Page):
    """One of them. Kept as it was last seen once it is over, and what is known of its end said above it."""

    where: Where = "job"

    def __init__(self, row: ProgressRow, windows: JobWindows = NO_WINDOWS) -> None:
        super().__init__()
        self._windows = windows
        self._row = row
        self._key = row_key(row)
        self._seen_us: int | None = None
        self._seen: Frame | None = None
        """The frame it was last seen in."""
        self._frame: Frame | None = None
        self._width = 0
        self._lines: list[Line] = []

    @property
    def row(self) -> ProgressRow:
        """As it was last seen."""
        return self._row

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "row_down", "past", "space", "time", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        frame = scene.frame
        if frame is None:
            return [(), line(Span(f" {scene.waiting_for}", "dim"))]
        if frame is not self._frame or width != self._width:
            self._frame, self._width, self._lines = frame, width, self._lay_out(frame, width)
        return [self._lines[0], *self.scrolled(self._lines[1:], height - 1)]

    def _lay_out(self, frame: Frame, width: int) -> list[Line]:
        found = find_row(frame, self._key, _session(self._row))
        if found is not None:
            self._row, self._key, self._seen_us, self._seen = found, row_key(found), frame.at_us, frame
        known = states.state_words(frame.progress)
        age = (Span(f" {known}", states.style_of(frame.progress.status)),) if known and found is not None else ()
        head = fit_line(rule((*job_title(self._row), *age), width), width)
        window_s = self._windows.for_name(job_name(self._row.kind, self._row.database))
        gone = [] if found is not None else self._gone(frame, width)
        return [head, *gone, *job_page(self._seen or frame, self._row, width, window_s)]

    def _gone(self, frame: Frame, width: int) -> list[Line]:
        """Why it is not among the operations of this moment, as far as that is known."""
        panel = frame.progress
        if panel.status != "ok":
            text = "whether it goes on is not known now: the panel could not be read"
        elif self._seen_us is not None and frame.at_us < self._seen_us:
            text = "it is not under way at this moment"
        else:
            text = self._ending(frame) or "it is over; how it ended is not known here"
        seen = "" if self._seen_us is None else f". Below as it was last seen at {clock(self._seen_us)}"
        return [(Span(f" {one}", "warn"),) for one in wrap(f"{text}{seen}", width - 2)] + [()]

    def _ending(self, frame: Frame) -> str | None:
        """What the agent said of its end."""
        name = job_name(self._row.kind, self._row.database)
        for event in frame.events.rows:  # the first one since: a later one is of another run
            at_us = from_rfc3339(event.at) or 0
            if event.kind == "job.ended" and at_us >= (self._seen_us or 0) and event.text.startswith(f"{name} "):
                return clean(event.text)
        return None
