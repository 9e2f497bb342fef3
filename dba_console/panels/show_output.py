"""The panels as text and as JSON: what `show` prints. The same functions as the screen, so both say the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dba_console.errors import UsageError
from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import PANELS as CONTRACT_PANELS
from dba_console.frames.model import Frame
from dba_console.panels.ascii_fallback import ascii_text
from dba_console.panels.header import HeaderState, header
from dba_console.panels.overview import BROAD, WIDE, alerts, overview
from dba_console.panels.overview_layout import FrameWithHistory, panel_title
from dba_console.panels.registry import PANELS
from dba_console.panels.table_layout import table_lines
from dba_console.panels.text_elements import Line, Span, Table, fit_line, line_text, line_width
from dba_console.panels.time_formats import format_rfc3339

_TEXT_HEADER = HeaderState()


def panel_names(names: Sequence[str]) -> list[str]:
    """The names as panels know them. Raises UsageError for one that is no panel."""
    for name in names:
        if name not in PANELS:
            raise UsageError(f"no such panel: {name}", hint="panels are " + ", ".join(PANELS))
    return list(names)


def show_text(
    frame: Frame, names: Sequence[str] | None, width: int, history: ChartHistory | None = None, *, ascii: bool = False
) -> str:
    """The overview, or the named panels in full, as lines of text ending in a newline.

    Raises UsageError for a name that is no panel.
    """
    past = history if history is not None else ChartHistory()
    lines: list[Line] = [header(frame, _TEXT_HEADER, width)]
    if names:
        lines += alerts(frame, width)
        for name in panel_names(names):
            lines += _panel_text(name, FrameWithHistory(frame, past), width)
    else:
        lines += overview(frame, past, width, 22 if width < BROAD else 36 if width < WIDE else 46)
    text = "\n".join(line_text(one) for one in lines) + "\n"
    return ascii_text(text) if ascii else text


def _panel_text(name: str, view: FrameWithHistory, width: int) -> list[Line]:
    detail = PANELS[name].full(view.frame, max(20, width), view.history)
    lines = [title_rule(panel_title(name, view), width), *detail.head]
    for table in detail.tables:
        lines += _table_text(table, "" if table.title == detail.title else table.title, width)
    return [fit_line(one, width) for one in lines]


def _table_text(table: Table, words: str, width: int) -> list[Line]:
    heading: list[Line] = [(), (Span(words, "title"),)] if words else [()]
    if not table.rows:
        return [*heading, (Span("  " + table.empty, "dim"),)]
    return [*heading, *table_lines(table.columns, table.rows, width)]


def title_rule(words: Line, width: int) -> Line:
    """What a panel in full begins with: its title, and how well it is known."""
    return (Span("─ ", "dim"), *words, Span(" " + "─" * max(0, width - line_width(words) - 3), "dim"))


def show_json(frame: Frame) -> bytes:
    """One tick as one line of JSON in the contract's shape, without a newline.

    What is not known is null; numbers that are none (NaN, infinity) are null too.
    """
    return msgspec.json.encode(
        {
            "at": format_rfc3339(frame.at_us),
            "seq": frame.seq,
            "target": frame.target,
            "panels": {name: getattr(frame, name) for name in CONTRACT_PANELS},
            "findings": frame.findings,
            "self": frame.own,
        }
    )
