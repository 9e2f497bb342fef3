"""The panels that matter for a step, one line each: they stay in view while a runbook is walked."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.panels.registry import PANELS
from dba_console.panels.text_elements import Line, Span, line

ALWAYS = ("connections", "io")
"""What any intervention may break first: shown where the runbook names no panels."""


def panel_lines(frame: Frame | None, history: ChartHistory, names: Sequence[str], width: int) -> list[Line]:
    """A line for each panel, its title first; names that are no panels are passed over."""
    if frame is None:
        return []
    lines: list[Line] = []
    for name in [name for name in names if name in PANELS] or ALWAYS:
        title = f" {PANELS[name].title}: "
        laid = PANELS[name].compact(frame, max(10, width - len(title)), 2, history)
        first_line = next((one for one in laid if not _heads(one)), (Span("nothing is known", "dim"),))
        lines.append(line(Span(title, "head"), *first_line))
    return lines


def _heads(one: Line) -> bool:
    """Whether a line only names the columns of those below it."""
    return all(span.style == "head" for span in one)
