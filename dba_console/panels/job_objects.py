"""The phases and objects of a dump or restore as lines: bars by phase, what runs first; what is left out is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dba_console.frames.progress_model import ObjectRow, PhaseRow, ProgressRow
from dba_console.panels.phrases import bar, integer, name_of, text_line
from dba_console.panels.progress_text import amount_text, grade_text, rate_text, remaining_text
from dba_console.panels.table_layout import table_lines
from dba_console.panels.text_elements import Cell, Line, Span, Style, TableColumn, TableRow, clean, cut
from dba_console.units import human_bytes, human_duration, human_pct

_OBJECT_BAR = 12
_MAX_SHOWN = {"running": 64, "failed": 12, "waiting": 12, "done": 8}
"""Objects shown of each state; the rest is counted. -j of more than 64 is not a thing one waits for."""
_TITLES = {"running": "running", "failed": "failed", "waiting": "waiting, largest first", "done": "done, last first"}

_PHASE_COLUMNS = (
    TableColumn("name", "phase", 11),
    TableColumn("objects", "objects", 26, right=True),
    TableColumn("bar", "", _OBJECT_BAR, spare=6),
    TableColumn("pct", "share", 6, right=True),
    TableColumn("grade", "known by", 8),
    TableColumn("done", "done", 9, right=True, spare=3),
    TableColumn("total", "of", 11, right=True, spare=3),
    TableColumn("rate", "rate", 10, right=True, spare=5),
    TableColumn("wall", "wall", 8, right=True),
    TableColumn("busy", "busy", 8, right=True, spare=4),
    TableColumn("left", "left", 8, right=True),
)
_OBJECT_COLUMNS = (
    TableColumn("what", "what", 14, spare=2),
    TableColumn("name", "object", 20, grow=True),
    TableColumn("bar", "", 8, spare=3),
    TableColumn("pct", "share", 6, right=True),
    TableColumn("grade", "known by", 8, spare=4),
    TableColumn("done", "done", 9, right=True, spare=5),
    TableColumn("total", "of", 11, right=True, spare=1),
    TableColumn("rate", "rate", 10, right=True, spare=6),
    TableColumn("elapsed", "elapsed", 8, right=True),
    TableColumn("left", "left", 8, right=True),
    TableColumn("pid", "pid", 8, right=True, spare=7),
)


def phase_lines(row: ProgressRow, width: int) -> list[Line]:
    """A line for each phase. With -j they overlap: `wall` is from first to last, `busy` that of all its objects."""
    if not row.phases:
        return []
    failed = Counter(one.phase for one in row.objects if one.state == "failed")
    return table_lines(_PHASE_COLUMNS, [_phase_row(one, failed[one.name]) for one in row.phases], width)


def _phase_row(one: PhaseRow, failed: int) -> TableRow:
    state = {"waiting": "waiting", "done": "done"}.get(one.state)
    grade = state or ("unknown" if one.pct is None else grade_text(one.grade))
    unit = "" if one.unit in (None, "bytes") else f" {name_of(one.unit, 6)}"
    under_way = one.state not in ("done", "waiting")
    return TableRow(
        one.name,
        (
            Cell(name_of(one.name, 11), None, "" if one.state != "waiting" else "dim"),
            Cell(_objects_text(one, failed), None, "crit" if failed else ""),
            Cell(bar(one.pct, _OBJECT_BAR) if under_way and one.pct is not None else "", None, "bar"),
            Cell(human_pct(one.pct) if under_way else "", one.pct),
            Cell(grade, None, "dim" if one.state == "waiting" else "stale" if grade == "unknown" else ""),
            Cell("" if one.done is None else amount_text(one.done, one.unit)),
            Cell("" if one.total is None else f"{amount_text(one.total, one.unit)}{unit}"),
            Cell("" if one.rate_per_s is None else rate_text(one.rate_per_s, one.unit)),
            Cell("" if one.wall_s is None else human_duration(one.wall_s)),
            Cell("" if one.busy_s is None else human_duration(one.busy_s)),
            Cell("" if one.eta_s is None else remaining_text(one.eta_s, one.eta_grade)),
        ),
    )


def _objects_text(one: PhaseRow, failed: int) -> str:
    """`180 of 214, 4▶, 1 failed`: done of all there are, how many are under way, and that some went wrong."""
    running = f", {one.items_running}▶" if one.items_running else ""
    wrong = f", {failed} failed" if failed else ""
    return f"{one.items_done} of {integer(one.items)}{running}{wrong}"


def object_lines(row: ProgressRow, width: int) -> list[Line]:
    """The objects told, by state; those running first, for they are what goes on."""
    counts = row.counts
    lines: list[Line] = []
    for state, max_shown in _MAX_SHOWN.items():
        shown = [one for one in row.objects if one.state == state]
        total = len(shown) if counts is None else max(len(shown), getattr(counts, state))
        if not shown and not (total and state == "failed"):
            continue
        style: Style = "crit" if state == "failed" else "title"
        lines += [(), (Span(_TITLES[state], style), Span(f"  {total} of them" if total > 1 else "", "dim"))]
        lines += _group_lines(shown[:max_shown], width)
        if total > len(shown[:max_shown]):
            lines.append(text_line(f"… and {total - len(shown[:max_shown])} more", "dim"))
    return lines


def _group_lines(objects: Sequence[ObjectRow], width: int) -> list[Line]:
    if not objects:
        return []
    head, *rows = table_lines(_OBJECT_COLUMNS, [_object_row(one) for one in objects], width)
    lines = [head]
    for one, spans in zip(objects, rows, strict=True):
        lines.append(spans)
        if one.note:
            words: Style = "crit" if one.state == "failed" else "dim"
            lines.append((Span("  " + cut(clean(one.note[:600]), max(8, width - 2)), words),))
    return lines


def _object_row(one: ObjectRow) -> TableRow:
    running = one.state == "running"
    return TableRow(
        "",
        (
            Cell(name_of(one.what, 14).lower()),
            Cell(name_of(one.name, 140)),
            Cell(bar(one.pct, 8) if running and one.pct is not None else "", None, "bar"),
            Cell(human_pct(one.pct) if running else ""),
            Cell(("unknown" if one.pct is None else grade_text(one.grade)) if running else ""),
            Cell("" if one.done is None else amount_text(one.done, one.unit)),
            Cell(_size_text(one)),
            Cell("" if one.rate_per_s is None else rate_text(one.rate_per_s, one.unit)),
            Cell("" if one.elapsed_s is None else human_duration(one.elapsed_s)),
            Cell("" if one.eta_s is None else remaining_text(one.eta_s, "estimated")),
            Cell("" if one.pid is None else str(one.pid)),
        ),
    )


def _size_text(one: ObjectRow) -> str:
    """The whole of it in its unit, else the bytes it weighs."""
    if one.total is not None:
        return amount_text(one.total, one.unit) + ("" if one.unit in (None, "bytes") else f" {name_of(one.unit, 6)}")
    return "" if one.weight is None else human_bytes(one.weight)
