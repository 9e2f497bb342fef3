"""Findings on the screen: the list of them, and one with its evidence."""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.frames.model import Finding, Frame
from dba_console.panels.cells import Line, Span, line
from dba_console.panels.evidence import evidence
from dba_console.panels.findings import ordered
from dba_console.panels.text import rule
from dba_console.panels.times import from_rfc3339
from dba_console.tui.detail import DetailView
from dba_console.tui.keys import Where
from dba_console.tui.view import Scene

NEAR_US = 420_000_000
"""A beginning so recent lies in the ten minutes at hand, with three minutes before it."""


class FindingsView(DetailView):
    """The panel of findings; the first one is selected, for it is the one to act on."""

    where: Where = "findings"

    def __init__(self, name: str = "findings") -> None:
        super().__init__(name)

    @property
    def hints(self) -> tuple[str, ...]:
        return ("back", "evidence", "acknowledge", "silence", "runbook", "space", "time", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = super().lines(scene, width, height)
        if self.grid is not None and self.grid.selected is None and self.grid.rows:
            self.grid.select(0)
            lines = super().lines(scene, width, height)
        return lines

    @property
    def finding(self) -> str | None:
        """The id of the finding the keys act on."""
        return None if self.grid is None else self.grid.selected

    def back(self) -> bool:
        if self.grid is not None:
            self.grid.unselect()
        return super().back()


class EvidenceView:
    """One finding: its sentence, its numbers, their course around its start. Kept as it was once it is cleared."""

    where: Where = "evidence"
    hints: tuple[str, ...] = ("back", "acknowledge", "silence", "unsilence", "runbook", "space", "time", "help", "quit")

    def __init__(self, finding: str) -> None:
        self.finding = finding
        self._last: Finding | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        if scene.frame is None:
            return [(), line(Span(f" {scene.waiting_for}", "dim"))]
        one = find(scene.frame, self.finding)
        head = [rule(line(Span("Finding", "title"), Span(" cleared" if one is None else "", "ok")), width)]
        self._last = one = one or self._last
        if one is None:
            return [*head, line(Span(f" {self.finding} is not open at this moment", "dim"))]
        history = _history(scene, one)
        return [*head, *evidence(scene.frame, one, history, width, height - 1)]

    def back(self) -> bool:
        return False

    def sort_key(self, key: str) -> bool:
        return False

    def click(self, row: int) -> str | None:
        return None

    def wheel(self, rows: int) -> None:
        pass


def _history(scene: Scene, one: Finding) -> History:
    """The minutes shown, where the beginning lies in them, else those around it from the recording."""
    since_us = from_rfc3339(one.since)
    if since_us is None or scene.frame is None or scene.frame.at_us - since_us < NEAR_US:
        return scene.history
    return scene.around(since_us) or scene.history


def find(frame: Frame, finding_id: str) -> Finding | None:
    """The finding of that id, None where it is not open."""
    return next((one for one in frame.findings if one.id == finding_id), None)


def most_urgent(frame: Frame | None) -> Finding | None:
    """The finding to look at first, None where there is none."""
    return None if frame is None else next(iter(ordered(frame.findings)), None)
