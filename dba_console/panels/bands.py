"""Bands: panels stacked over each other, each as high as it needs and the screen allows.

First every band gets the least it makes sense with, most important first; then the room that is left goes round, a row
at a time, to those that have more to say. A band that does not get its least is not shown at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.frames.history import History
from dba_console.frames.model import Frame
from dba_console.panels import events, states
from dba_console.panels.cells import Line, Span
from dba_console.panels.grid import Box
from dba_console.panels.registry import PANELS
from dba_console.panels.stacked import stacked


@dataclass(frozen=True, slots=True)
class Band:
    """Panels side by side. `least` and `most` are rows below the title; the lowest `rank` gets room first."""

    names: tuple[str, ...]
    least: int
    most: int
    rank: int


@dataclass(frozen=True, slots=True)
class View:
    """What every band draws from."""

    frame: Frame
    history: History


def title(name: str, view: View) -> Line:
    if name == "charts":
        return (Span("Last 10 minutes", "title"),)
    if name == "happenings":
        return (Span("Findings" if view.frame.findings else "Events", "title"),)
    kind = PANELS[name]
    panel = kind.state(view.frame)
    line = states.title_spans(kind.title, panel)
    if name == "connections" and view.frame.connections.source == "process_titles":
        line = (*line, Span(" by process title", "warn"))
    return line


def content(name: str, view: View, width: int, rows: int) -> list[Line]:
    """The lines of one panel, at most `rows`."""
    if name == "charts":
        return stacked(view.frame, view.history, width, rows)
    if name == "happenings":
        found = events.findings(view.frame, rows)
        # Findings first, and below them what happened, as far as there is room.
        return found + (events.compact(view.frame, width, rows - len(found), view.history) if len(found) < rows else [])
    return PANELS[name].compact(view.frame, width, rows, view.history)


def split(width: int, count: int) -> list[int]:
    """`count` widths that fill `width` with one column between neighbours."""
    room = width - (count - 1)
    return [room * (index + 1) // count - room * index // count for index in range(count)]


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
        for name, cells in zip(bands[index].names, split(width, len(bands[index].names)), strict=True):
            boxes.append(Box(left, y, cells, count + 1, title(name, view), content(name, view, cells - 2, count)))
            left += cells + 1
        y += count + 1
    return boxes


def _wanted(band: Band, view: View, width: int) -> int:
    if band.names == ("charts",):
        return band.most
    widths = split(width, len(band.names))
    needed = (len(content(name, view, cells - 2, band.most)) for name, cells in zip(band.names, widths, strict=True))
    return max(band.least, min(band.most, max(needed)))


def share(bands: Sequence[Band], wants: Sequence[int], height: int) -> list[int | None]:
    """Rows of each band, None for one that is left out."""
    rows: list[int | None] = [None] * len(bands)
    ranked = sorted(range(len(bands)), key=lambda index: bands[index].rank)
    for index in ranked:
        if height >= bands[index].least + 1:
            rows[index] = bands[index].least
            height -= bands[index].least + 1
    growing = True
    while height > 0 and growing:
        growing = False
        for index in ranked:
            count = rows[index]
            if count is not None and count < wants[index] and height > 0:
                rows[index] = count + 1
                height -= 1
                growing = True
    return rows
