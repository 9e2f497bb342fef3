"""The views of dumps, restores and other long operations: the table, one job in full, and the history."""

from __future__ import annotations

from collections.abc import Callable

from dba_console.jobs.history.duration_trend import NO_WINDOWS, JobWindows, PastRuns, TargetJobHistory
from dba_console.jobs.history.history_reader import only_ended_before
from dba_console.jobs.pages.history_page import history_detail, job_key, job_runs_detail
from dba_console.jobs.pages.job_page import find_row, job_page, job_title
from dba_console.tui.keys import ScreenName
from dba_console.tui.panel_detail import DetailView
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.overview import title_rule
from dba_console.watch.drawing.text_elements import (
    Detail,
    Line,
    Span,
    clean,
    fit_line,
    line,
    move_spare_columns_last,
    wrap_lines,
    wrap_words,
)
from dba_console.watch.drawing.time_formats import parse_rfc3339, time_of_day
from dba_console.watch.frames.model import Frame
from dba_console.watch.job_sessions import job_name
from dba_console.watch.progress.layout import row_key
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ProgressRow

PROGRESS_PANEL = "progress"


class JobsView(DetailView):
    """The panel of long operations; enter opens the selected row."""

    where: ScreenName = "jobs"

    def __init__(self) -> None:
        super().__init__(PROGRESS_PANEL)
        self._last: tuple[str, ProgressRow] | None = None
        """The selected row as last seen, and its key."""

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "job", "past", "filter", "sort_next", "space", "time", "help", "quit")

    @property
    def chosen(self) -> ProgressRow | None:
        """The selected row, as last seen if it is gone; with none selected the first one. None if there are no rows."""
        if self.grid.selected is None:
            self.grid.move(0)
        self._remember_selected()
        return None if self._last is None else self._last[1]

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = super().lines(scene, width, height)
        self._remember_selected()
        return lines

    def _update(self, detail: Detail) -> None:
        # A row is identified by its session until its program is found: the selection follows.
        grid, last = self.grid, self._last
        if last is not None and grid.selected == last[0] and self._frame is not None:
            found = find_row(self._frame, last[0], _session_pid(last[1]))
            if found is not None:
                grid.selected = row_key(found)
        super()._update(detail)

    def _remember_selected(self) -> None:
        key = self.selected
        found = None if key is None or self._frame is None else find_row(self._frame, key)
        if key is not None and found is not None:
            self._last = (key, found)
        elif self._last is not None and self._last[0] != key:
            self._last = None


def _session_pid(row: ProgressRow) -> int | None:
    """Return a session pid of the row, by which it is found again."""
    return row.pid if row.pid is not None else next(iter(row.backends), None)


class JobPage(ScrolledPage):
    """One job in full. After it ended it stays as last seen, with what is known of its end above."""

    where: ScreenName = "job"

    def __init__(self, row: ProgressRow, windows: JobWindows = NO_WINDOWS) -> None:
        super().__init__()
        self._windows = windows
        self._row = row
        self._key = row_key(row)
        self._last_seen_us: int | None = None
        self._last_seen_frame: Frame | None = None
        """The frame in which it was last seen."""
        self._frame: Frame | None = None
        self._width = 0
        self._lines: list[Line] = []

    @property
    def row(self) -> ProgressRow:
        """The row as last seen."""
        return self._row

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "row_down", "past", "space", "time", "help", "quit")

    def copied_text(self) -> str:
        return self._row.command or ""

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        frame = scene.frame
        if frame is None:
            return [(), line(Span(f" {scene.waiting_text}", "dim"))]
        if frame is not self._frame or width != self._width:
            self._frame, self._width, self._lines = frame, width, self._lay_out(frame, width)
        return [self._lines[0], *self.scrolled(self._lines[1:], height - 1)]

    def _lay_out(self, frame: Frame, width: int) -> list[Line]:
        found = find_row(frame, self._key, _session_pid(self._row))
        if found is not None:
            self._row, self._key, self._last_seen_us, self._last_seen_frame = found, row_key(found), frame.at_us, frame
        panel = frame.of(ProgressPanel)
        panel_state = phrases.title_suffix(panel)
        age = (
            (Span(f" {panel_state}", phrases.status_style(panel.status)),) if panel_state and found is not None else ()
        )
        head = fit_line(title_rule((*job_title(self._row), *age), width), width)
        window_s = self._windows.for_name(job_name(self._row.kind, self._row.database))
        gone = [] if found is not None else self._not_found_lines(frame, width)
        return [head, *gone, *job_page(self._last_seen_frame or frame, self._row, width, window_s)]

    def _not_found_lines(self, frame: Frame, width: int) -> list[Line]:
        """Return why it is not among the operations of this moment, as far as known."""
        panel = frame.of(ProgressPanel)
        if panel.status != "ok":
            text = "unknown whether it continues: the panel could not be read"
        elif self._last_seen_us is not None and frame.at_us < self._last_seen_us:
            text = "it was not running at this moment"
        else:
            text = self._ended_text(frame) or "it has ended; its result is not known"
        last_seen_text = (
            "" if self._last_seen_us is None else f". Shown as last seen at {time_of_day(self._last_seen_us)}"
        )
        return [(Span(f" {one}", "warn"),) for one in wrap_words(f"{text}{last_seen_text}", width - 2)] + [()]

    def _ended_text(self, frame: Frame) -> str | None:
        """Return the agent's message about its end, None if not found."""
        name = job_name(self._row.kind, self._row.database)
        for event in frame.events.rows:  # the first one since; a later one is about another run
            at_us = parse_rfc3339(event.at) or 0
            if event.kind == "job.ended" and at_us >= (self._last_seen_us or 0) and event.text.startswith(f"{name} "):
                return clean(event.text)
        return None


# The history of dumps and restores: every job known on the target, and every run of one job.

ReadJobHistory = Callable[[], TargetJobHistory | None]


class JobHistoryTablesView(DetailView):
    """Tables of the history; at a moment of the past they show only what was known then."""

    def __init__(self, name: str, read: ReadJobHistory, windows: JobWindows) -> None:
        super().__init__(name)
        self._read, self._windows = read, windows
        self._arrived: TargetJobHistory | None = None
        self._laid_out_for: tuple[int | None, int] | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        arrived = self._read()
        if arrived is None:
            return [(), line(Span(" reading the history …", "dim"))]
        at_us = None if scene.live or scene.frame is None else scene.frame.at_us
        if arrived is not self._arrived or self._laid_out_for != (at_us, width):
            self._arrived, self._laid_out_for = arrived, (at_us, width)
            self._show(arrived if at_us is None else only_ended_before(arrived, at_us), width)
        return self._fit_lines(width, height)

    def _show(self, job_history: TargetJobHistory, width: int) -> None:
        detail = self._detail(job_history, width)
        self._width = width
        title = title_rule(line(Span(detail.title, "title")), width)
        self._head = [fit_line(title, width), *wrap_lines(detail.head, width)]
        self._update(
            Detail(detail.title, detail.head, tuple(move_spare_columns_last(one, width) for one in detail.tables))
        )

    def _detail(self, job_history: TargetJobHistory, width: int) -> Detail:
        raise NotImplementedError


class AllJobsView(JobHistoryTablesView):
    """Every job; enter opens its runs."""

    where: ScreenName = "history"
    always_selects = True

    def __init__(self, read: ReadJobHistory, windows: JobWindows) -> None:
        super().__init__("history", read, windows)

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "past_runs", "filter", "sort_next", "help", "quit")

    def _detail(self, job_history: TargetJobHistory, width: int) -> Detail:
        return history_detail(job_history, self._windows, width)


class JobRunsView(JobHistoryTablesView):
    """Every run of one job."""

    def __init__(self, job: str, read: ReadJobHistory, windows: JobWindows) -> None:
        super().__init__("past runs", read, windows)
        self._job = job

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "row", "filter", "sort_next", "help", "quit")

    def _detail(self, job_history: TargetJobHistory, width: int) -> Detail:
        job = find_job(job_history, self._job)
        if job is None:
            nothing = line(Span("no run known at this moment", "dim"))
            return Detail("Runs", (nothing,))
        return job_runs_detail(job, self._windows, width)


def find_job(job_history: TargetJobHistory, key: str) -> PastRuns | None:
    """Return the job of that key, None if it is unknown; the only format of a dump is not part of its key."""
    own = [job for job in job_history.jobs if job_key(job).rpartition("\0")[0] == key.rpartition("\0")[0]]
    return next((job for job in own if job_key(job) == key), own[0] if len(own) == 1 else None)
