"""What keys do about dumps and restores: open one in full, show the history of all, or of one."""

from __future__ import annotations

from dba_console.frames.past_jobs import PastRuns
from dba_console.panels.job_history import job_key
from dba_console.tui.job_history import HistoryView, PastView
from dba_console.tui.job_shelf import JobShelf
from dba_console.tui.jobs import JobPage, JobsView
from dba_console.tui.navigator import Navigator
from dba_console.tui.stage import Stage


class JobActions:
    """The actions of jobs, for whichever view shows one."""

    _stage: Stage
    _navigator: Navigator
    _past: JobShelf

    def do_job(self) -> None:
        view = self._stage.view
        if isinstance(view, JobsView):
            row = view.chosen
            if row is None:
                self._navigator.notice = "nothing is under way"
            else:
                self._stage.job(row)

    def do_past(self) -> None:
        """The history of all; on the page of a job the runs of that one, where any are known."""
        self._past.want()
        view = self._stage.view
        if isinstance(view, JobPage):
            row = view.row
            self._stage.past_runs(job_key(PastRuns(kind=row.kind, database=row.database, user=row.user)))
        elif not isinstance(view, PastView):
            self._stage.past()

    def do_past_runs(self) -> None:
        view = self._stage.view
        if isinstance(view, HistoryView) and view.chosen is not None:
            self._stage.past_runs(view.chosen)

    def follow_past(self) -> None:
        """Keep the history fresh while it is looked at."""
        if isinstance(self._stage.view, PastView):
            self._past.keep()
