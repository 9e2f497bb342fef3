"""What keys do about dumps and restores: open one in full, show the history of all, or of one."""

from __future__ import annotations

from dba_console.frames.past_jobs import PastRuns
from dba_console.panels.job_history import job_key
from dba_console.tui.job_history_loader import JobHistoryLoader
from dba_console.tui.job_history_views import AllJobsView, JobHistoryTablesView
from dba_console.tui.jobs import JobPage, JobsView
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack


class JobActions:
    """The actions of jobs, for whichever view shows one."""

    _view_stack: ViewStack
    _navigator: TimeNavigator
    _job_history_loader: JobHistoryLoader

    def do_job(self) -> None:
        view = self._view_stack.view
        if isinstance(view, JobsView):
            row = view.chosen
            if row is None:
                self._navigator.notice = "nothing is under way"
            else:
                self._view_stack.show_job(row)

    def do_past(self) -> None:
        """The history of all; on the page of a job the runs of that one, where any are known."""
        self._job_history_loader.request_read()
        view = self._view_stack.view
        if isinstance(view, JobPage):
            row = view.row
            self._view_stack.show_job_runs(job_key(PastRuns(kind=row.kind, database=row.database, user=row.user)))
        elif not isinstance(view, JobHistoryTablesView):
            self._view_stack.show_job_history()

    def do_past_runs(self) -> None:
        view = self._view_stack.view
        if isinstance(view, AllJobsView) and view.chosen is not None:
            self._view_stack.show_job_runs(view.chosen)

    def reread_job_history(self) -> None:
        """Keep the history fresh while it is looked at."""
        if isinstance(self._view_stack.view, JobHistoryTablesView):
            self._job_history_loader.reread_if_old()
