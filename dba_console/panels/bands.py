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
from dba_console.panels import events, findings, states
from dba_console.panels.cells import Line, Span
from dba_console.panels.findings import calls
from dba_console.panels.grid import Box
from dba_console.panels.phrases import name_of
from dba_console.panels.registry import PANELS
from dba_console.panels.stacked import stacked, window_s

EXTRA = 6
"""Bands of this rank on come after all others look good: a list of sessions is no reason to hide who blocks them."""


@dataclass(frozen=True, slots=True)
class Band:
    """Panels side by side. The numbers are rows below the title; the lowest `rank` gets room first.

    A band is not shown with less than `least`; all may get up to `good` before any gets up to `most`.
    """

    names: tuple[str, ...]
    least: int
    good: int
    most: int
    rank: int


@dataclass(frozen=True, slots=True)
class View:
    """What every band draws from."""

    frame: Frame
    history: ChartHistory


def title(name: str, view: View) -> Line:
    if name == "charts":
        return (Span(f"Last {window_s(view.frame, view.history) // 60} minutes", "title"),)
    if name == "happenings":
        found = _findings_title(view.frame)
        return (*found, *states.title_spans(PANELS["events"].title, view.frame.events))
    kind = PANELS[name]
    panel = kind.state(view.frame)
    line = states.title_spans(kind.title, panel)
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
    said = ", ".join(f"{kinds[kind]} {kind}" for kind in ("critical", "warning", "info", "silenced") if kinds[kind])
    return (Span("Findings", "title"), Span(f" {said or 'none'} · ", "dim"))


def content(name: str, view: View, width: int, rows: int) -> list[Line]:
    """The lines of one panel, at most `rows`."""
    if name == "charts":
        return stacked(view.frame, view.history, width, rows)
    if name == "happenings":
        return _happenings(view, width, rows)
    return PANELS[name].compact(view.frame, width, rows, view.history)


def _happenings(view: View, width: int, rows: int) -> list[Line]:
    """Findings that call first, and below them what happened, as far as there is room."""
    calling = calls(view.frame.findings)
    found = findings.lines_of(calling, width, rows) if calling else []
    if len(found) >= rows:
        return found
    told = {one.id for one in calling}
    return found + events.compact(view.frame, width, rows - len(found), view.history, told)


def columns(band: Band, width: int) -> list[tuple[str, int, int]]:
    """Name, cells of the box, cells of its lines: boxes fill `width` with one column between neighbours.

    Lines keep a blank to the left, and to the right where another box follows.
    """
    count = len(band.names)
    room = width - (count - 1)
    placed = []
    for index, name in enumerate(band.names):
        cells = room * (index + 1) // count - room * index // count
        placed.append((name, cells, cells - (1 if index == count - 1 else 2)))
    return placed


def stack(view: View, bands: Sequence[Band], x: int, y: int, width: int, height: int) -> list[Box]:
    """Boxes for the bands, from (x, y) down, filling `height` exactly; the last band takes what nobody needs."""
    wants = [_wanted(band, view, width) for band in bands]
    rows = share(bands, wants, height)
    shown = [index for index, count in enumerate(rows) if count is not None]
    if not shown:
        return []
    spare = height - sum(1 + (rows[index] or 0) for index in shown)
    rows[shown[-1]] = (rows[shown[-1]] or 0) + spare
    boxes: list[Box] = []
    for index in shown:
        count = rows[index] or 0
        left = x
        for name, cells, inside in columns(bands[index], width):
            boxes.append(Box(left, y, cells, count + 1, title(name, view), content(name, view, inside, count)))
            left += cells + 1
        y += count + 1
    return boxes


def wanted_height(view: View, bands: Sequence[Band], width: int, *, good: bool = False) -> int:
    """Rows the bands would fill if nothing were short, titles counted in; with `good` no more than looks good."""
    wants = [(band, _wanted(band, view, width)) for band in bands]
    return sum(1 + (min(band.good, rows) if good else rows) for band, rows in wants)


def _wanted(band: Band, view: View, width: int) -> int:
    if band.names == ("charts",):
        return band.most
    needed = (len(content(name, view, inside, band.most)) for name, _, inside in columns(band, width))
    return max(band.least, min(band.most, max(needed)))


def share(bands: Sequence[Band], wants: Sequence[int], height: int) -> list[int | None]:
    """Rows of each band, None for one that is left out."""
    rows: list[int | None] = [None] * len(bands)
    ranked = sorted(range(len(bands)), key=lambda index: bands[index].rank)
    first = [index for index in ranked if bands[index].rank < EXTRA]
    for group in (first, ranked[len(first) :]):
        for index in group:
            if height >= bands[index].least + 1:
                rows[index] = bands[index].least
                height -= bands[index].least + 1
        for index in group:
            if (count := rows[index]) is not None:
                more = min(height, max(0, min(wants[index], bands[index].good) - count))
                rows[index] = count + more
                height -= more
    _grow(rows, ranked, wants, height)
    return rows


def _grow(rows: list[int | None], ranked: Sequence[int], upto: Sequence[int], height: int) -> None:
    """Give a row at a time, in order of rank, to those below `upto`, until none is left or wanted."""
    growing = True
    while height > 0 and growing:
        growing = False
        for index in ranked:
            count = rows[index]
            if count is not None and count < upto[index] and height > 0:
                rows[index] = count + 1
                height -= 1
                growing = True
