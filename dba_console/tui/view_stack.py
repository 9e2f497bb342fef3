"""The view stack: views between header and footer, and the prompt. Produces lines, paints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dba_console.core.units import human_duration
from dba_console.jobs.history.duration_trend import NO_WINDOWS, JobWindows
from dba_console.tui.comparison import ComparisonView
from dba_console.tui.feed import Feed, Session
from dba_console.tui.findings import EvidenceView, FindingsView, PendingRevertsView, most_urgent
from dba_console.tui.jobs import PROGRESS_PANEL as OF_JOBS
from dba_console.tui.jobs import AllJobsView, JobPage, JobRunsView, JobsView
from dba_console.tui.keys import Key, ScreenName, groups, keys_of, panel_titles
from dba_console.tui.live_state import Moment
from dba_console.tui.panel_detail import BACKEND_PANELS as OF_BACKENDS
from dba_console.tui.panel_detail import BackendsView, DetailView
from dba_console.tui.prompt import Prompt
from dba_console.tui.recorded_hosts import hosts_line
from dba_console.tui.runbooks import RunbookPage, RunbooksView
from dba_console.tui.screen_view import Scene, ScreenView, ScrolledPage
from dba_console.tui.terminal import MIN_HEIGHT, MIN_WIDTH, too_small
from dba_console.tui.time_cursor import TimeCursor
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.walkthrough import WalkthroughView
from dba_console.watch.drawing.header import HeaderState, header
from dba_console.watch.drawing.overview import overview
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import (
    Line,
    Span,
    ascii_line,
    clean,
    cut,
    fit,
    fit_line,
    line,
    line_width,
    text_width,
    wrap,
)
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.progress.rows import ProgressRow

# The first and the last line of every screen: the header, and the keys that work here.

SILENT_TICKS = 2.5
"""An agent that has sent nothing for longer is shown as silent."""

NOTICE_LINES = 4
"""Most lines of a notice: enough for a whole refusal."""
_SEPARATOR = "  "
_LIVE_ONLY_ACTIONS = frozenset(
    (
        "mark", "note", "acknowledge", "silence", "unsilence", "tick", "cancel", "terminate", "put_back", "inputs",
        "begin", "rehearse", "answer", "hold", "skip", "jump", "stop", "abort", "undo", "take", "resume",
    )
)  # fmt: skip
"""Actions that a recording refuses."""


def outdated_reason(navigator: TimeNavigator, interval_s: float) -> str | None:
    """Return why the screen is not up to date, None if it is."""
    if navigator.connection_state == "lost":
        return f"agent lost: {navigator.connection_text}; reconnecting"
    silent_s = navigator.silent_s
    if (
        navigator.connection_state == "attached"
        and silent_s is not None
        and silent_s > SILENT_TICKS * max(1.0, interval_s)
    ):
        return f"no sample for {human_duration(silent_s)}"
    if navigator.waiting:
        return "the recording is slow to answer"
    return None


def data_age_text(navigator: TimeNavigator) -> str | None:
    """Return the age of the data while no agent sends any: the header shows it, and it grows without a key press."""
    silent_s = navigator.silent_s
    return human_duration(silent_s) if navigator.connection_state == "lost" and silent_s is not None else None


def footer_line(hints: Sequence[str], where: ScreenName, cursor: TimeCursor, cells: int) -> Line:
    """Return as many of the hinted keys as fit entirely; help and quit always fit."""
    spans: list[Span] = [Span(" ")]
    for _, shown, title in _fitting_items(hints, where, cursor, cells):
        spans += [Span(shown, "key"), Span(f" {title}{_SEPARATOR}")]
    return fit_line(tuple(spans), cells)


def footer_key(hints: Sequence[str], where: ScreenName, cursor: TimeCursor, cells: int, column: int) -> Key | None:
    """Return the key shown at that column of the footer. None between keys, on items that name several keys, and on
    keys that change something: those need the keyboard.
    """
    start = 1
    for hint, shown, title in _fitting_items(hints, where, cursor, cells):
        end = start + line_width(line(shown, " ", title))
        if start <= column < end:
            key = next((key for key in keys_of(where) if key.action == hint), None)
            return None if key is None or key.acts else key
        start = end + len(_SEPARATOR)
    return None


def _fitting_items(
    hints: Sequence[str], where: ScreenName, cursor: TimeCursor, cells: int
) -> list[tuple[str, str, str]]:
    """Return the hinted keys that fit: action, key, title."""
    items = [(hint, *item) for hint in hints if (item := _item(hint, where, cursor)) is not None]
    while items and _items_width(items) > cells - 1:
        # The last two are help and quit: those before them are dropped first.
        del items[-3 if len(items) > 2 else -1]
    return items


def notice_lines(text: str, cells: int) -> list[Line]:
    """Return a notice in place of the keys, until the next key; a long one covers the lines above."""
    pieces = wrap(clean(text), max(1, cells - 2))
    shown = pieces[:NOTICE_LINES]
    if len(pieces) > NOTICE_LINES:
        shown[-1] = cut(f"{shown[-1]} {pieces[NOTICE_LINES]}", cells - 2)
    return [fit_line(line(Span(f" {piece}", "changed")), cells) for piece in shown]


def _items_width(items: Iterable[tuple[str, str, str]]) -> int:
    return sum(line_width(line(shown, " ", title, _SEPARATOR)) for _, shown, title in items)


def _item(hint: str, where: ScreenName, cursor: TimeCursor) -> tuple[str, str] | None:
    if hint == "panel":
        return ("1-9", "panel")
    if hint == "time":
        return ("←/→", "time") if cursor.live else ("end", "live" if cursor.can_go_live else "newest")
    if hint in _LIVE_ONLY_ACTIONS and not cursor.can_go_live:
        return None  # a finished recording accepts no marks and no actions
    key = next((key for key in keys_of(where) if key.action == hint), None)
    if key is None:
        return None
    return (key.shown, _space_title(cursor) if hint == "space" else key.title)


def _space_title(cursor: TimeCursor) -> str:
    if cursor.live or cursor.playing:
        return "pause"
    return "live" if cursor.can_go_live and not cursor.moved else "play"


# The header of the screen: the panels' header line, with the state of the screen.


def screen_header(navigator: TimeNavigator, session: Session, width: int) -> Line:
    """Return the first line in exactly `width` cells; before the first sample it names what is being opened."""
    frame = navigator.frame()
    run, needs_answer = navigator.runs.header_status(agent_lost=navigator.connection_state == "lost")
    if frame is None:
        return fit_line(line(Span(session.name, "title"), f"  {navigator.label}", Span(f"  {run}", "warn")), width)
    header_state = replace(
        showing(navigator, session), target_label=session.name, run_text=run, run_needs_answer=needs_answer
    )
    return header(frame, header_state, width)


def showing(navigator: TimeNavigator, session: Session) -> HeaderState:
    """Return the header state: live, paused or replayed, and the age of the data."""
    cursor, now_us = navigator.cursor, navigator.live_state.at_us
    # The newest sample may be older than an agent that has just started to record.
    recording_s = (
        None if session.started_us is None or now_us is None else max(0.0, (now_us - session.started_us) / 1e6)
    )
    if cursor.live:
        return HeaderState("live", recording_s=recording_s, age_s=navigator.silent_s, interval_s=session.interval_s)
    if cursor.can_go_live and not cursor.playing:
        behind_s = 0.0 if now_us is None or cursor.at_us is None else (now_us - cursor.at_us) / 1e6
        return HeaderState("paused", behind_s, recording_s=recording_s, interval_s=session.interval_s)
    return HeaderState("replay", speed=cursor.speed if cursor.playing else 0, interval_s=session.interval_s)


# Help: all keys of the screen it was opened on.

_KEY_CELLS = 11
_TWO_COLUMNS = 110
"""From this width on the groups are side by side."""


class HelpView(ScrolledPage):
    """The keys of a screen, scrolled if they do not fit."""

    hints: tuple[str, ...] = ("back", "quit")

    def __init__(self, screen_name: ScreenName) -> None:
        super().__init__()
        self.where: ScreenName = "detail"
        self._screen_name = screen_name

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = (
            _side_by_side_lines(self._screen_name, width)
            if width >= _TWO_COLUMNS
            else _stacked_lines(_ordered_groups(self._screen_name), width)
        )
        return self.scrolled(lines, height)

    def do_top(self) -> None:
        self._top = 0


def _ordered_groups(where: ScreenName) -> list[tuple[str, list[Key]]]:
    """Return the groups that have keys here; those with this screen's own keys first."""
    every = [group for group in groups(where) if group[1]]
    return sorted(every, key=lambda group: all(key.where == "everywhere" for key in group[1]))


def _side_by_side_lines(where: ScreenName, width: int) -> list[Line]:
    every = _ordered_groups(where)
    half = width // 2
    left, right = _stacked_lines(every[:2], half - 1), _stacked_lines(every[2:], half - 1)
    rows = max(len(left), len(right))
    left += [()] * (rows - len(left))
    right += [()] * (rows - len(right))
    return [(*one, Span(" " * (half - sum(text_width(span.text) for span in one))), *two)
            for one, two in zip(left, right, strict=True)]  # fmt: skip


def _stacked_lines(chosen: list[tuple[str, list[Key]]], width: int) -> list[Line]:
    titles = panel_titles()
    lines: list[Line] = []
    for title, keys in chosen:
        lines.append(line(Span(f" {title}", "title")))
        for key in keys:
            lines += _key_lines(key, key.help or titles.get(key.shown, key.title), width)
        lines.append(())
    return lines[:-1]


def _key_lines(key: Key, meaning: str, width: int) -> list[Line]:
    pieces = wrap(meaning, max(10, width - _KEY_CELLS - 2))
    first = line(Span(f"  {fit(key.shown, _KEY_CELLS - 1)}", "key"), pieces[0])
    return [first, *(line(" " * (_KEY_CELLS + 1) + piece) for piece in pieces[1:])]


# The overview: every panel in short, one of them selected to be opened.

_BORDERS = "│┬┼├┤"
"""Characters at which a panel ends to the side: lines below them belong to two panels."""


class OverviewView:
    """The first screen. `chosen` is the panel that enter opens, None until tab selects one."""

    where: ScreenName = "overview"
    hints: tuple[str, ...] = ("panel", "panel_f", "runbooks", "open", "space", "time", "mark", "help", "quit")

    def __init__(self) -> None:
        self.chosen: str | None = None
        self._order: list[str] = []
        self._lines: list[Line] = []
        self._frame: Frame | None = None
        self._size = (0, 0)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        if scene.frame is None:
            self._order, self._lines, self._frame = [], [], None
            return [(), line(Span(f" {scene.waiting_text}", "dim"))]
        if scene.frame is not self._frame or (width, height) != self._size:
            self._frame, self._size = scene.frame, (width, height)
            self._lines = overview(scene.frame, scene.history, width, height, ascii=scene.ascii)
            self._order = _panels_in(self._lines)
        return [_highlighted(spans, self.chosen) for spans in self._lines]

    def do_focus_next(self) -> None:
        self._focus(1)

    def do_focus_previous(self) -> None:
        self._focus(-1)

    def _focus(self, direction: int) -> None:
        order = self._order or list(PANELS)
        if self.chosen in order:
            self.chosen = order[(order.index(self.chosen) + direction) % len(order)]
        else:
            self.chosen = order[0 if direction > 0 else -1]

    def back(self) -> bool:
        self.chosen = None
        return True

    def click(self, row: int, column: int) -> str | None:
        """Return the action that opens the panel under the pointer: of those with a title on that line or above it, the
        nearest in its column.
        """
        for spans in reversed(self._lines[: row + 1]):
            if (name := _panel_at(spans, column)) is not None:
                return f"panel_{PANELS[name].key}"
        return None

    def wheel(self, rows: int) -> None:
        self._focus(1 if rows > 0 else -1)

    def copied_text(self) -> str:
        found = most_urgent(self._frame)
        return "" if found is None else found.text


def _panels_in(lines: list[Line]) -> list[str]:
    """Return the names of the panels whose titles are in the lines, in reading order."""
    return [name for spans in lines for span in spans if (name := _panel_of(span)) is not None]


def _panel_at(spans: Line, column: int) -> str | None:
    """Return the panel whose title is between the same two borders of that line as the column, else None."""
    cells, start = "", 0
    for span in spans:
        cells += "".join(sign * line_width((Span(sign),)) for sign in span.text)
    borders = [-1, *(index for index, sign in enumerate(cells) if sign in _BORDERS), len(cells)]
    left = max((border for border in borders if border <= column), default=-1)
    right = min((border for border in borders if border > column), default=len(cells))
    for span in spans:
        name, start = _panel_of(span), start + line_width((span,))
        if name is not None and left < start <= right:
            return name
    return None


def _panel_of(span: Span) -> str | None:
    if span.style != "title":
        return None
    word = span.text.strip()
    return next((name for name, kind in PANELS.items() if word == kind.title), None)


def _highlighted(spans: Line, chosen: str | None) -> Line:
    if chosen is None:
        return spans
    return tuple(Span(span.text, "selected") if _panel_of(span) == chosen else span for span in spans)


class ViewStack:
    """The overview at the bottom, other views above it. Panels keep their order and selection when left."""

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
        self._host = 0

    @property
    def view(self) -> ScreenView:
        """The view on top."""
        return self._stack[-1] if self._stack else self._overview

    @property
    def overview(self) -> OverviewView:
        return self._overview

    # Opening views

    def open_panel(self, name: str) -> None:
        """Show that panel."""
        view = self._details.get(name)
        if view is None:
            view = self._details[name] = _panel_view(name)
        self._stack = [view]

    def show_evidence(self, finding: str) -> None:
        """Show that finding with its evidence, on top."""
        self._stack.append(EvidenceView(finding))

    def show_job(self, row: ProgressRow) -> None:
        """Show that job, on top."""
        self._stack.append(JobPage(row, self._windows))

    def show_job_history(self) -> None:
        """Show the history of dumps and restores, on top."""
        self._stack.append(AllJobsView(lambda: self._navigator.job_history, self._windows))

    def show_job_runs(self, job: str) -> None:
        """Show the runs of that job, on top."""
        self._stack.append(JobRunsView(job, lambda: self._navigator.job_history, self._windows))

    def show_runbooks(self) -> None:
        """Show the runbooks and the open runs."""
        self._stack = [RunbooksView(lambda: self._navigator.runbooks, self._navigator.runs)]

    def show_runbook(self, runbook_id: str, finding: Finding | None = None) -> None:
        """Show the page of that runbook, on top; `finding` is the one it is for."""
        self._stack.append(RunbookPage(runbook_id, lambda: self._navigator.runbooks, finding))

    def show_run(self, run: str) -> None:
        """Show that run, on top; it is in the stack only once."""
        shown = [
            view for view in self._stack if not isinstance(view, WalkthroughView | RunbookPage | PendingRevertsView)
        ]
        self._stack = [*shown, WalkthroughView(run, self._navigator.runs)]

    def show_comparison(self, kept: Moment) -> None:
        """Show what changed between that moment and the one shown, on top."""
        self._stack.append(ComparisonView(kept, lambda: self._navigator.moment))

    def show_pending_reverts(self) -> None:
        """Show the settings that runs left changed."""
        self._stack.append(PendingRevertsView())

    def show_help(self) -> None:
        if not isinstance(self.view, HelpView):
            self._stack.append(HelpView(self.view.where))

    def back(self) -> None:
        """Close one thing in the view, else leave the view."""
        if not self.view.back():
            self._stack.pop()

    def type_into_prompt(self, name: str, character: str | None) -> None:
        """Pass a key to the prompt."""
        prompt = self.prompt
        if prompt is not None and not prompt.handle_key(name, character) and self.prompt is prompt:
            self.prompt = None

    def click(self, row: int, column: int) -> str | None:
        """Handle a click on a cell of the screen; returns the action to run. The header leads to an open run."""
        if self.prompt is not None:
            return None
        if row == 0:
            return "walkthrough" if self._navigator.runs.header_status()[0] else None
        if row == 1 and self._feed.hosts:
            return "other_host"
        return self.view.click(row - (2 if self._feed.hosts else 1), column)

    def footer_key(self, column: int, width: int) -> Key | None:
        """Return the key that the footer shows at that column, None if the mouse may not press one there."""
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
            text = f"{width}×{height} is too small: needs {MIN_WIDTH}×{MIN_HEIGHT}"
            return [line(text), *[()] * (height - 1)]
        self._last_status = self._status_now()
        self._leave_views_of_another_host()
        head = [self._header(width), *self._hosts(width)]
        body_height = height - len(head) - 1
        body = self.view.lines(self._scene(), width, body_height)[:body_height]
        body += [()] * (body_height - len(body))
        foot = self._footer(width)
        lines = [*head, *body[: body_height + 1 - len(foot)], *foot]
        return [ascii_line(spans) for spans in lines] if self._ascii else lines

    def header_or_footer_changed(self) -> bool:
        """Check whether header or footer differ from the last layout."""
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

    def _hosts(self, width: int) -> list[Line]:
        """Return the line about the recorded hosts, if there are several."""
        navigator, hosts = self._navigator, self._feed.hosts
        if not hosts:
            return []
        return [hosts_line(self._feed.session.name, navigator.host, len(hosts), navigator.others, width)]

    def _leave_views_of_another_host(self) -> None:
        """After a change of the host: keep panel and finding, leave views of one job, run or moment."""
        if self._navigator.host == self._host:
            return
        self._host = self._navigator.host
        kept = [view for view in self._stack if not isinstance(view, _VIEWS_OF_ONE_HOST)]
        self._stack = [EvidenceView(view.finding) if isinstance(view, EvidenceView) else view for view in kept]

    def _footer(self, width: int) -> list[Line]:
        navigator = self._navigator
        if self.prompt is not None:
            explanation = [*self.prompt.explanation.splitlines(), *filter(None, (navigator.notice,))]
            above = [one for piece in explanation for one in notice_lines(piece, width)]
            return [*above, self.prompt.line(width)[0]]
        if navigator.notice is not None:
            return notice_lines(navigator.notice, width)
        if (text := outdated_reason(navigator, self._feed.session.interval_s)) is not None:
            return [line(Span(f" ! {text}"[: width - 1], "warn"))]
        return [footer_line(self.view.hints, self.view.where, navigator.cursor, width)]


_VIEWS_OF_ONE_HOST = (JobPage, JobRunsView, WalkthroughView, PendingRevertsView, ComparisonView)


def _panel_view(name: str) -> DetailView:
    if name == "findings":
        return FindingsView()
    if name == OF_JOBS:
        return JobsView()
    return BackendsView(name) if name in OF_BACKENDS else DetailView(name)
