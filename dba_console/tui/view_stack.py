"""What is on the screen: the stack of views between header and footer, and the prompt. Lines out, nothing painted."""

from __future__ import annotations

from dba_console.frames.model import Finding
from dba_console.frames.progress_model import ProgressRow
from dba_console.frames.window_forecast import NO_WINDOWS, JobWindows
from dba_console.panels.ascii_fallback import ascii_line
from dba_console.panels.text_elements import Line, Span, line
from dba_console.tui.backends import BACKEND_PANELS as OF_BACKENDS
from dba_console.tui.backends import BackendsView
from dba_console.tui.feed import Feed
from dba_console.tui.findings import EvidenceView, FindingsView
from dba_console.tui.footer import data_age_text, footer_key, footer_line, notice_lines, outdated_reason
from dba_console.tui.header import screen_header
from dba_console.tui.help import HelpView
from dba_console.tui.job_history_views import AllJobsView, JobRunsView
from dba_console.tui.jobs import PROGRESS_PANEL as OF_JOBS
from dba_console.tui.jobs import JobPage, JobsView
from dba_console.tui.keys import Key
from dba_console.tui.overview import OverviewView
from dba_console.tui.panel_detail import DetailView
from dba_console.tui.pending_reverts import PendingRevertsView
from dba_console.tui.prompt import Prompt
from dba_console.tui.runbooks import RunbookPage, RunbooksView
from dba_console.tui.screen_view import Scene, ScreenView
from dba_console.tui.terminal import MIN_HEIGHT, MIN_WIDTH, too_small
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.walkthrough import WalkthroughView


class ViewStack:
    """Overview at the bottom, a panel or the help above it. Panels keep their order and selection when left."""

    def __init__(
        self, navigator: TimeNavigator, feed: Feed, *, ascii: bool = False, windows: JobWindows = NO_WINDOWS
    ) -> None:
        self._navigator = navigator
        self._feed = feed
        self._ascii = ascii
        self._overview = OverviewView()
        self._details: dict[str, DetailView] = {}
        self._windows = windows
        self._stack: list[ScreenView] = []
        self.prompt: Prompt | None = None
        self._last_status: tuple[object, ...] = ()

    @property
    def view(self) -> ScreenView:
        """The view on top."""
        return self._stack[-1] if self._stack else self._overview

    @property
    def overview(self) -> OverviewView:
        return self._overview

    # Where to

    def open_panel(self, name: str) -> None:
        """Show that panel in full."""
        view = self._details.get(name)
        if view is None:
            view = self._details[name] = _panel_view(name)
        self._stack = [view]

    def show_evidence(self, finding: str) -> None:
        """Show that finding with its evidence, above what is shown."""
        self._stack.append(EvidenceView(finding))

    def show_job(self, row: ProgressRow) -> None:
        """Show that operation in full, above what is shown."""
        self._stack.append(JobPage(row, self._windows))

    def show_job_history(self) -> None:
        """Show the history of dumps and restores, above what is shown."""
        self._stack.append(AllJobsView(lambda: self._navigator.job_history, self._windows))

    def show_job_runs(self, job: str) -> None:
        """Show the runs of that job, above what is shown."""
        self._stack.append(JobRunsView(job, lambda: self._navigator.job_history, self._windows))

    def show_runbooks(self) -> None:
        """Show the runbooks, and the runs under way."""
        self._stack = [RunbooksView(lambda: self._navigator.runbooks, self._navigator.runs)]

    def show_runbook(self, runbook_id: str, finding: Finding | None = None) -> None:
        """Show that runbook to be read, above what is shown; `finding` is what it is to answer."""
        self._stack.append(RunbookPage(runbook_id, lambda: self._navigator.runbooks, finding))

    def show_run(self, run: str) -> None:
        """Show that run, above what is shown; it is on the screen once."""
        shown = [
            view for view in self._stack if not isinstance(view, WalkthroughView | RunbookPage | PendingRevertsView)
        ]
        self._stack = [*shown, WalkthroughView(run, self._navigator.runs)]

    def show_pending_reverts(self) -> None:
        """Show what runs have left changed."""
        self._stack.append(PendingRevertsView())

    def show_help(self) -> None:
        if not isinstance(self.view, HelpView):
            self._stack.append(HelpView(self.view.where))

    def back(self) -> None:
        """One step out of what the view has open, else out of the view."""
        if not self.view.back():
            self._stack.pop()

    def type_into_prompt(self, name: str, character: str | None) -> None:
        """A key for the prompt."""
        prompt = self.prompt
        if prompt is not None and not prompt.handle_key(name, character) and self.prompt is prompt:
            self.prompt = None

    def click(self, row: int, column: int) -> str | None:
        """A press on a cell of the screen; the panel it opens."""
        return self.view.click(row - 1, column) if row > 0 and self.prompt is None else None

    def footer_key(self, column: int, width: int) -> Key | None:
        """The key that the footer shows at that column, None where it shows none that the mouse may press."""
        navigator = self._navigator
        footer_occupied = (
            self.prompt is not None or navigator.notice or outdated_reason(navigator, self._feed.session.interval_s)
        )
        if footer_occupied:
            return None
        return footer_key(self.view.hints, self.view.where, navigator.cursor, width, column)

    # Lines

    def lines(self, width: int, height: int) -> list[Line]:
        """The whole screen: header, body, footer, in exactly `height` lines."""
        if too_small(width, height):
            text = f"{width}×{height} is too small: at least {MIN_WIDTH}×{MIN_HEIGHT}"
            return [line(text), *[()] * (height - 1)]
        self._last_status = self._status_now()
        body_height = height - 2
        body = self.view.lines(self._scene(), width, body_height)[:body_height]
        body += [()] * (body_height - len(body))
        foot = self._footer(width)
        lines = [self._header(width), *body[: body_height + 1 - len(foot)], *foot]
        return [ascii_line(spans) for spans in lines] if self._ascii else lines

    def header_or_footer_changed(self) -> bool:
        """True where header or footer say something else than when they were last laid out."""
        return self._status_now() != self._last_status

    def _status_now(self) -> tuple[object, ...]:
        navigator = self._navigator
        return (
            navigator.label,
            navigator.notice,
            navigator.connection_state,
            outdated_reason(navigator, self._feed.session.interval_s),
            data_age_text(navigator),
            navigator.runs.changed,
            navigator.runbooks,
            navigator.job_history,
        )

    def _scene(self) -> Scene:
        navigator = self._navigator
        return Scene(
            navigator.frame(), navigator.history, self._waiting_text(), self._ascii, navigator.history_around,
            navigator.cursor.live,
        )  # fmt: skip

    def _waiting_text(self) -> str:
        if self._navigator.notice is not None:
            return self._navigator.notice
        match self._navigator.connection_state:
            case "recording":
                return self._navigator.query_refusal or "reading the recording …"
            case "attached":
                return "attached; waiting for the first sample …"
            case "lost":
                return f"no agent: {self._navigator.connection_text}"
            case _:
                return f"connecting to the agent of {self._feed.session.name} …"

    def _header(self, width: int) -> Line:
        navigator = self._navigator
        return screen_header(navigator, self._feed.session, width)

    def _footer(self, width: int) -> list[Line]:
        navigator = self._navigator
        if self.prompt is not None:
            above = [one for piece in self.prompt.told.splitlines() for one in notice_lines(piece, width)]
            return [*above, self.prompt.line(width)[0]]
        if navigator.notice is not None:
            return notice_lines(navigator.notice, width)
        if (text := outdated_reason(navigator, self._feed.session.interval_s)) is not None:
            return [line(Span(f" ! {text}"[: width - 1], "warn"))]
        return [footer_line(self.view.hints, self.view.where, navigator.cursor, width)]


def _panel_view(name: str) -> DetailView:
    if name == "findings":
        return FindingsView()
    if name == OF_JOBS:
        return JobsView()
    return BackendsView(name) if name in OF_BACKENDS else DetailView(name)
