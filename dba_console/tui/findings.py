"""Findings on the screen: the list of them, and one with its evidence."""

from __future__ import annotations

from dba_console.tui.grid import Grid, row_pane
from dba_console.tui.keys import ScreenName
from dba_console.tui.panel_detail import MIN_TABLE, DetailView
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.panels.findings import CONTEXT_SERIES, all_evidence_lines, sort_by_urgency
from dba_console.watch.panels.overview import title_rule
from dba_console.watch.panels.text_elements import Line, Span, clean, fit_line, line
from dba_console.watch.panels.time_formats import parse_rfc3339, time_of_day

RECENT_START_US = 420_000_000
"""A beginning so recent lies in the ten minutes at hand, with three minutes before it."""


class FindingsView(DetailView):
    """The panel of findings; the first one is selected, for it is the one to act on."""

    where: ScreenName = "findings"

    def __init__(self, name: str = "findings") -> None:
        super().__init__(name)
        self._hints: tuple[str, ...] = ()

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", *(("evidence",) if self.finding else ()), *self._hints)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = super().lines(scene, width, height)
        if self.grid is not None and self.grid.selected is None and self.grid.rows:
            self.grid.select(0)
            lines = super().lines(scene, width, height)
        chosen = None if scene.frame is None or self.finding is None else find_finding(scene.frame, self.finding)
        self._hints = _hints(chosen, live=scene.live)
        return lines

    def _pane(self, grid: Grid, width: int, height: int) -> list[Line]:
        """The selected finding in full, in whatever room the list leaves: few have more than a few findings."""
        table = max(MIN_TABLE, min(len(grid.rows) + 2, height // 2))
        return row_pane(grid, width, height, opened=False, max_lines=max(2, height - table - 2))

    @property
    def finding(self) -> str | None:
        """The id of the finding the keys act on."""
        return None if self.grid is None else self.grid.selected

    def back(self) -> bool:
        if self.grid is not None:
            self.grid.unselect()
        return super().back()


class EvidenceView(ScrolledPage):
    """One finding: its sentence, its numbers, their course around its start. Kept as it was once it is cleared."""

    where: ScreenName = "evidence"

    def __init__(self, finding: str) -> None:
        super().__init__()
        self.finding = finding
        self._last_known: Finding | None = None
        self._observed_us = (0, 0)
        """When it was first and last seen open by this view."""
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

    def _record_observation(self, one: Finding, at_us: int) -> None:
        restarted = self._last_known is None or self._last_known.since != one.since
        first_us, last_us = (at_us, at_us) if restarted else self._observed_us
        self._last_known, self._observed_us = one, (min(first_us, at_us), max(last_us, at_us))

    def _end_state(self, frame: Frame) -> tuple[int, str]:
        """When a finding that is not open was so last, and what is to be said of it."""
        first_us, last_us = self._observed_us
        if frame.at_us < first_us:
            return max(frame.at_us, last_us), " not open yet at this moment"
        cleared_us = _cleared_us(frame, self.finding, first_us)
        if cleared_us is None:
            return last_us, " cleared"
        return max(first_us, cleared_us), f" cleared at {time_of_day(cleared_us)}"


def _hints(one: Finding | None, *, live: bool) -> tuple[str, ...]:
    """Actions for the footer: what may be said of a finding in its state, and only where it is the present."""
    mark_actions: tuple[str, ...] = ()
    if one is not None and live:
        mark_actions = ("acknowledge", "silence") if one.state == "open" else ("unsilence", "silence")
    answer = () if one is None or one.runbook is None else ("runbook",)
    return (*mark_actions, *answer, "space", "time", "help", "quit")


def _cleared_us(frame: Frame, finding_id: str, after_us: int) -> int | None:
    """When it was last said to be cleared, as far as the events at hand tell."""
    for row in reversed(frame.events.rows):
        if row.kind == "finding.cleared" and row.finding == finding_id:
            at_us = parse_rfc3339(row.at)
            return at_us if at_us is not None and at_us >= after_us else None
    return None


def _chart_history(scene: Scene, one: Finding) -> ChartHistory:
    """The minutes shown, where the beginning lies in them, else those around it from the recording."""
    since_us = parse_rfc3339(one.since)
    if since_us is None or scene.frame is None or scene.frame.at_us - since_us < RECENT_START_US:
        return scene.history
    around = scene.history_around(since_us)
    known = around is not None and any(around.series(name) for name in (*one.series, *CONTEXT_SERIES))
    return around if around is not None and known else scene.history


def find_finding(frame: Frame, finding_id: str) -> Finding | None:
    """The finding of that id, None where it is not open."""
    return next((one for one in frame.findings if one.id == finding_id), None)


def most_urgent(frame: Frame | None) -> Finding | None:
    """The finding to look at first, None where there is none."""
    return None if frame is None else next(iter(sort_by_urgency(frame.findings)), None)
