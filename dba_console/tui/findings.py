"""The views of findings: the list, one finding with its evidence, and the settings that runs left changed."""

from __future__ import annotations

from dba_console.tui.keys import ScreenName
from dba_console.tui.panel_detail import MIN_TABLE, DetailView
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.tui.table_view import Grid, row_pane
from dba_console.watch.drawing.findings import CONTEXT_SERIES, all_evidence_lines, sort_by_urgency
from dba_console.watch.drawing.overview import title_rule
from dba_console.watch.drawing.text_elements import Line, Span, Style, clean, fit_line, line, wrap_lines
from dba_console.watch.drawing.time_formats import local_date_and_time, parse_rfc3339, time_of_day
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame

RECENT_START_US = 420_000_000
"""A start this recent lies within the ten minutes in memory, with three minutes before it."""


class FindingsView(DetailView):
    """The panel of findings; the first one is selected, because it is the one to act on."""

    where: ScreenName = "findings"
    always_selects = True

    def __init__(self) -> None:
        super().__init__("findings")
        self._hints: tuple[str, ...] = ()

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", *(("evidence",) if self.finding else ()), *self._hints)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = super().lines(scene, width, height)
        chosen = None if scene.frame is None or self.finding is None else find_finding(scene.frame, self.finding)
        self._hints = _hints(chosen, live=scene.live)
        return lines

    def _pane(self, grid: Grid, width: int, height: int) -> list[Line]:
        """The selected finding with all details, in the space the list leaves: few servers have more than a few."""
        table = max(MIN_TABLE, min(len(grid.rows) + 2, height // 2))
        return row_pane(grid, width, height, opened=False, max_lines=max(2, height - table - 2))

    @property
    def finding(self) -> str | None:
        """The id of the selected finding."""
        return self.selected


class EvidenceView(ScrolledPage):
    """One finding: sentence, numbers, charts around its start. Stays as it was after the finding cleared."""

    where: ScreenName = "evidence"

    def __init__(self, finding: str) -> None:
        super().__init__()
        self.finding = finding
        self._last_known: Finding | None = None
        self._observed_us = (0, 0)
        """When this view first and last saw it open."""
        self._hints: tuple[str, ...] = ()

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", *self._hints)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        frame = scene.frame
        if frame is None:
            return [(), line(Span(f" {scene.waiting_text}", "dim"))]
        now = find_finding(frame, self.finding)
        self._hints = _hints(now, live=scene.live)
        if now is not None:
            self._record_observation(now, frame.at_us)
        ended_us, state = (None, "") if now is not None else self._end_state(frame)
        head = [fit_line(title_rule(line(Span("Finding", "title"), Span(state, "ok")), width), width)]
        one = self._last_known
        if one is None:
            words = line(Span(f" {clean(self.finding)} is not open at this moment", "dim"))
            return [*head, fit_line(words, width)]
        lines = all_evidence_lines(frame, one, _chart_history(scene, one), width, height - 1, ended_us)
        return [*head, *self.scrolled(lines, height - 1)]

    def copied_text(self) -> str:
        return "" if self._last_known is None else self._last_known.text

    def _record_observation(self, one: Finding, at_us: int) -> None:
        restarted = self._last_known is None or self._last_known.since != one.since
        first_us, last_us = (at_us, at_us) if restarted else self._observed_us
        self._last_known, self._observed_us = one, (min(first_us, at_us), max(last_us, at_us))

    def _end_state(self, frame: Frame) -> tuple[int, str]:
        """When a finding that is not open was last open, and the text about it."""
        first_us, last_us = self._observed_us
        if frame.at_us < first_us:
            return max(frame.at_us, last_us), " not open yet at this moment"
        cleared_us = _cleared_us(frame, self.finding, first_us)
        if cleared_us is None:
            return last_us, " cleared"
        return max(first_us, cleared_us), f" cleared at {time_of_day(cleared_us)}"


def _hints(one: Finding | None, *, live: bool) -> tuple[str, ...]:
    """Return the actions for the footer: those possible in the finding's state, and only live."""
    mark_actions: tuple[str, ...] = ()
    if one is not None and live:
        mark_actions = ("acknowledge", "silence") if one.state == "open" else ("unsilence", "silence")
    answer = () if one is None or one.runbook is None else ("runbook",)
    return (*mark_actions, *answer, "space", "time", "help", "quit")


def _cleared_us(frame: Frame, finding_id: str, after_us: int) -> int | None:
    """Return when it was last reported cleared, as far as the events in memory show."""
    for row in reversed(frame.events.rows):
        if row.kind == "finding.cleared" and row.finding == finding_id:
            at_us = parse_rfc3339(row.at)
            return at_us if at_us is not None and at_us >= after_us else None
    return None


def _chart_history(scene: Scene, one: Finding) -> ChartHistory:
    """Return the minutes shown if the start lies in them, else the minutes around the start from the recording."""
    since_us = parse_rfc3339(one.since)
    if since_us is None or scene.frame is None or scene.frame.at_us - since_us < RECENT_START_US:
        return scene.history
    recorded = scene.history_around(since_us)
    known = recorded is not None and any(recorded.series(name) for name in (*one.series, *CONTEXT_SERIES))
    return recorded if recorded is not None and known else scene.history


def find_finding(frame: Frame, finding_id: str) -> Finding | None:
    """Return the finding of that id, None if it is not open."""
    return next((one for one in frame.findings if one.id == finding_id), None)


def most_urgent(frame: Frame | None) -> Finding | None:
    """Return the most urgent finding, None if none is open."""
    return None if frame is None else next(iter(sort_by_urgency(frame.findings)), None)


def find_by_runbook(frame: Frame | None, runbook_id: str) -> Finding | None:
    """Return the most urgent finding that names this runbook, None if none is open."""
    found = () if frame is None else sort_by_urgency(frame.findings)
    return next((one for one in found if one.runbook == runbook_id), None)


# The view of settings that runs left changed on this server: shown first in a new console, reverted with a key.

REVERT_RULE = "settings-left"
REVERT_RUNBOOK = "put-back"
_EXPLANATION = (
    "A preview shows each setting with its previous value, then you confirm. Settings that were changed again since "
    "are left alone. The finding stays open until then. An interrupted run can be resumed instead (w)."
)


class PendingRevertsView(ScrolledPage):
    """The settings, since when, by which run. Stays as last known."""

    where: ScreenName = "reverts"
    hints: tuple[str, ...] = ("put_back", "back", "help", "quit")

    def __init__(self) -> None:
        super().__init__()
        self._last_known: Finding | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        now = pending_reverts_finding(scene.frame)
        self._last_known = now or self._last_known
        head = [fit_line(title_rule(line(Span("Settings of a run were not reverted", "title")), width), width)]
        one = self._last_known
        if one is None:
            return [*head, line(Span(f" {scene.waiting_text}", "dim"))]
        lines = _reverted_lines() if now is None else _pending_lines(one)
        wrapped = [(Span(" "), *spans) for spans in wrap_lines(lines, max(1, width - 2))]
        return [*head, *self.scrolled([fit_line(spans, width) for spans in wrapped], height - 1)]


def pending_reverts_finding(frame: Frame | None) -> Finding | None:
    """Return the finding about them; None if none are left, or the run continues."""
    if frame is None:
        return None
    return next((one for one in frame.findings if one.id == REVERT_RULE and one.severity != "info"), None)


def _pending_lines(one: Finding) -> list[Line]:
    style: Style = "crit" if one.severity == "critical" else "warn"
    who = [clean(str(name)) for name in one.evidence.get("who") or ()]
    by = f", by {', '.join(who)}" if who else ""
    settings = [line(Span("  "), Span(clean(str(setting)), style)) for setting in one.evidence.get("settings") or ()]
    return [
        (),
        line(Span(f"{clean(one.text)}.", style)),
        (),
        *settings,
        (),
        line(f"Since {local_date_and_time(one.since)}{by}."),
        (),
        line(
            Span("P", "key"), f" reverts them now (runbook {REVERT_RUNBOOK}); ", Span("esc", "key"), " decides later."
        ),
        line(Span(_EXPLANATION, "dim")),
    ]


def _reverted_lines() -> list[Line]:
    return [(), line(Span("All settings are reverted.", "ok"))]
