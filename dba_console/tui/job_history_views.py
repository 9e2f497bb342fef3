"""The history of dumps and restores on the screen: every job known on the target, and every run of one of them."""

from __future__ import annotations

from collections.abc import Callable

from dba_console.agent.jobs.history_reader import only_ended_before
from dba_console.frames.past_jobs import PastRuns, TargetJobHistory
from dba_console.frames.window_forecast import JobWindows
from dba_console.panels.job_history import history_detail, job_key, job_runs_detail
from dba_console.panels.show_output import title_rule
from dba_console.panels.table_layout import move_spare_columns_last
from dba_console.panels.text_elements import Detail, Line, Span, fit_line, line
from dba_console.panels.wrapping import wrap_lines
from dba_console.tui.job_history_loader import JobHistoryArrived
from dba_console.tui.keys import ScreenName
from dba_console.tui.panel_detail import DetailView
from dba_console.tui.screen_view import Scene

ReadJobHistory = Callable[[], JobHistoryArrived | None]


class JobHistoryTablesView(DetailView):
    """Tables made of the history; at a moment of the past only what was known then is in it."""

    def __init__(self, name: str, read: ReadJobHistory, windows: JobWindows) -> None:
        super().__init__(name)
        self._read, self._windows = read, windows
        self._arrived: JobHistoryArrived | None = None
        self._laid_out_for: tuple[int | None, int] | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        arrived = self._read()
        if arrived is None:
            return [(), line(Span(" reading the history …", "dim"))]
        at_us = None if scene.live or scene.frame is None else scene.frame.at_us
        if arrived is not self._arrived or self._laid_out_for != (at_us, width):
            self._arrived, self._laid_out_for = arrived, (at_us, width)
            self._show(arrived.history if at_us is None else only_ended_before(arrived.history, at_us), width)
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

    def __init__(self, read: ReadJobHistory, windows: JobWindows) -> None:
        super().__init__("history", read, windows)

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "past_runs", "filter", "sort_next", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = super().lines(scene, width, height)
        if self.grid is not None and self.grid.selected is None and self.grid.rows:
            self.grid.select(0)
            lines = super().lines(scene, width, height)
        return lines

    @property
    def chosen(self) -> str | None:
        """The key of the job the keys act on."""
        return None if self.grid is None else self.grid.selected

    def back(self) -> bool:
        if self.grid is not None:
            self.grid.unselect()
        return super().back()

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
            nothing = line(Span("no run of it is known at this moment", "dim"))
            return Detail("Runs", (nothing,))
        return job_runs_detail(job, self._windows, width)


def find_job(job_history: TargetJobHistory, key: str) -> PastRuns | None:
    """The job of that key, None where nothing is known of it."""
    return next((job for job in job_history.jobs if job_key(job) == key), None)
