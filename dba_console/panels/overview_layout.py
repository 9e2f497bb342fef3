"""Bands: panels stacked over each other, each as high as it needs and the screen allows.

First every band gets the least it makes sense with, most important first, then what it needs to look good, in the same
order; what room is left goes round, a row at a time, to those that have more to say. A band that does not get its least
is not shown at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.panels import events, findings, status_text
from dba_console.panels.boxes import Box
from dba_console.panels.findings import urgent_findings
from dba_console.panels.phrases import name_of
from dba_console.panels.recent_charts import chart_window_s, recent_charts
from dba_console.panels.registry import PANELS
from dba_console.panels.text_elements import Line, Span

LAST_RANK = 6
"""Bands of this rank on come after all others look good: a list of sessions is no reason to hide who blocks them."""


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """Panels side by side. The numbers are rows below the title; the lowest `rank` gets room first.

    A band is not shown with less than `min_rows`; all may get up to `good_rows` before any gets up to `max_rows`.
    """

    names: tuple[str, ...]
    min_rows: int
    good_rows: int
    max_rows: int
    rank: int


@dataclass(frozen=True, slots=True)
class FrameWithHistory:
    """What every band draws from."""

    frame: Frame
    history: ChartHistory


def panel_title(name: str, view: FrameWithHistory) -> Line:
    if name == "charts":
        return (Span(f"Last {chart_window_s(view.frame, view.history) // 60} minutes", "title"),)
    if name == "happenings":
        found = _findings_title(view.frame)
        return (*found, *status_text.title_spans(PANELS["events"].title, view.frame.events))
    kind = PANELS[name]
    panel = kind.status(view.frame)
    line = status_text.title_spans(kind.title, panel)
    if name == "progress" and len(view.frame.progress.operations) > 1:
        line = (*line, Span(f" · {len(view.frame.progress.operations)} running", "dim"))
    if name == "connections" and view.frame.connections.source == "process_titles":
        line = (*line, Span(" by process title", "warn"))
    return line


def _findings_title(frame: Frame) -> Line:
    """`Findings 1 critical, 2 info · `, also those that are not shown here; nothing where no rule was asked."""
    if not frame.findings and not frame.judged:
        return ()
    kinds = Counter("silenced" if one.state == "silenced" else name_of(one.severity) for one in frame.findings)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("critical", "warning", "info", "silenced") if kinds[kind])
    return (Span("Findings", "title"), Span(f" {counts or 'none'} · ", "dim"))


def panel_lines(name: str, view: FrameWithHistory, width: int, rows: int) -> list[Line]:
    """The lines of one panel, at most `rows`."""
    if name == "charts":
        return recent_charts(view.frame, view.history, width, rows)
    if name == "happenings":
        return _event_lines(view, width, rows)
    return PANELS[name].compact(view.frame, width, rows, view.history)


def _event_lines(view: FrameWithHistory, width: int, rows: int) -> list[Line]:
    """Findings that call first, and below them what happened, as far as there is room."""
    calling = urgent_findings(view.frame.findings)
    found = findings.list_lines(calling, width, rows) if calling else []
    if len(found) >= rows:
        return found
    shown_ids = {one.id for one in calling}
    return found + events.compact(view.frame, width, rows - len(found), view.history, shown_ids)


def box_columns(layout_row: LayoutRow, width: int) -> list[tuple[str, int, int]]:
    """Name, cells of the box, cells of its lines: boxes fill `width` with one column between neighbours.

    Lines keep a blank to the left, and to the right where another box follows.
    """
    count = len(layout_row.names)
    room = width - (count - 1)
    placed = []
    for index, name in enumerate(layout_row.names):
        cells = room * (index + 1) // count - room * index // count
        placed.append((name, cells, cells - (1 if index == count - 1 else 2)))
    return placed


def stack_rows(
    view: FrameWithHistory, layout: Sequence[LayoutRow], x: int, y: int, width: int, height: int
) -> list[Box]:
    """Boxes for the bands, from (x, y) down, filling `height` exactly; the last band takes what nobody needs."""
    needed = [_needed_rows(band, view, width) for band in layout]
    rows = distribute_rows(layout, needed, height)
    shown = [index for index, count in enumerate(rows) if count is not None]
    if not shown:
        return []
    spare = height - sum(1 + (rows[index] or 0) for index in shown)
    rows[shown[-1]] = (rows[shown[-1]] or 0) + spare
    boxes: list[Box] = []
    for index in shown:
        count = rows[index] or 0
        left = x
        for name, cells, inside in box_columns(layout[index], width):
            boxes.append(
                Box(left, y, cells, count + 1, panel_title(name, view), panel_lines(name, view, inside, count))
            )
            left += cells + 1
        y += count + 1
    return boxes


def needed_height(view: FrameWithHistory, layout: Sequence[LayoutRow], width: int, *, good: bool = False) -> int:
    """Rows the bands would fill if nothing were short, titles counted in; with `good` no more than looks good."""
    wants = [(band, _needed_rows(band, view, width)) for band in layout]
    return sum(1 + (min(band.good_rows, rows) if good else rows) for band, rows in wants)


def _needed_rows(layout_row: LayoutRow, view: FrameWithHistory, width: int) -> int:
    if layout_row.names == ("charts",):
        return layout_row.max_rows
    needed = (
        len(panel_lines(name, view, inside, layout_row.max_rows)) for name, _, inside in box_columns(layout_row, width)
    )
    return max(layout_row.min_rows, min(layout_row.max_rows, max(needed)))


def distribute_rows(layout: Sequence[LayoutRow], needed: Sequence[int], height: int) -> list[int | None]:
    """Rows of each band, None for one that is left out."""
    rows: list[int | None] = [None] * len(layout)
    ranked = sorted(range(len(layout)), key=lambda index: layout[index].rank)
    first = [index for index in ranked if layout[index].rank < LAST_RANK]
    for group in (first, ranked[len(first) :]):
        for index in group:
            if height >= layout[index].min_rows + 1:
                rows[index] = layout[index].min_rows
                height -= layout[index].min_rows + 1
        for index in group:
            if (count := rows[index]) is not None:
                more = min(height, max(0, min(needed[index], layout[index].good_rows) - count))
                rows[index] = count + more
                height -= more
    _distribute_rest(rows, ranked, needed, height)
    return rows


def _distribute_rest(rows: list[int | None], ranked: Sequence[int], limits: Sequence[int], height: int) -> None:
    """Give a row at a time, in order of rank, to those below `limits`, until none is left or wanted."""
    growing = True
    while height > 0 and growing:
        growing = False
        for index in ranked:
            count = rows[index]
            if count is not None and count < limits[index] and height > 0:
                rows[index] = count + 1
                height -= 1
                growing = True
