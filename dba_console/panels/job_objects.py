"""The phases and objects of a dump or restore as lines: bars by phase, what runs first; what is left out is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dba_console.frames.progress_model import ObjectRow, PhaseRow, ProgressRow
from dba_console.panels.cells import Cell, Column, Line, Row, Span, Style, clean, cut
from dba_console.panels.phrases import bar, integer, name_of, said
from dba_console.panels.progress_words import amount, grade_words, left_words, per_s
from dba_console.panels.tables import table_lines
from dba_console.units import human_bytes, human_duration, human_pct

_BAR = 12
_MOST = {"running": 64, "failed": 12, "waiting": 12, "done": 8}
"""Objects shown of each state; the rest is counted. -j of more than 64 is not a thing one waits for."""
_TITLES = {"running": "running", "failed": "failed", "waiting": "waiting, largest first", "done": "done, last first"}

_PHASES = (
    Column("name", "phase", 11),
    Column("objects", "objects", 26, right=True),
    Column("bar", "", _BAR, spare=6),
    Column("pct", "share", 6, right=True),
    Column("grade", "known by", 8),
    Column("done", "done", 9, right=True, spare=3),
    Column("total", "of", 11, right=True, spare=3),
    Column("rate", "rate", 10, right=True, spare=5),
    Column("wall", "wall", 8, right=True),
    Column("busy", "busy", 8, right=True, spare=4),
    Column("left", "left", 8, right=True),
)
_OBJECTS = (
    Column("what", "what", 14, spare=2),
    Column("name", "object", 20, grow=True),
    Column("bar", "", 8, spare=3),
    Column("pct", "share", 6, right=True),
    Column("grade", "known by", 8, spare=4),
    Column("done", "done", 9, right=True, spare=5),
    Column("total", "of", 11, right=True, spare=1),
    Column("rate", "rate", 10, right=True, spare=6),
    Column("elapsed", "elapsed", 8, right=True),
    Column("left", "left", 8, right=True),
    Column("pid", "pid", 8, right=True, spare=7),
)


def phase_lines(row: ProgressRow, width: int) -> list[Line]:
    """A line for each phase. With -j they overlap: `wall` is from first to last, `busy` that of all its objects."""
    if not row.phases:
        return []
    failed = Counter(one.phase for one in row.objects if one.state == "failed")
    return table_lines(_PHASES, [_phase(one, failed[one.name]) for one in row.phases], width)


def _phase(one: PhaseRow, failed: int) -> Row:
    state = {"waiting": "waiting", "done": "done"}.get(one.state)
    grade = state or ("unknown" if one.pct is None else grade_words(one.grade))
    unit = "" if one.unit in (None, "bytes") else f" {name_of(one.unit, 6)}"
    under_way = one.state not in ("done", "waiting")
    return Row(
        one.name,
        (
            Cell(name_of(one.name, 11), None, "" if one.state != "waiting" else "dim"),
            Cell(_objects(one, failed), None, "crit" if failed else ""),
            Cell(bar(one.pct, _BAR) if under_way and one.pct is not None else "", None, "bar"),
            Cell(human_pct(one.pct) if under_way else "", one.pct),
            Cell(grade, None, "dim" if one.state == "waiting" else "stale" if grade == "unknown" else ""),
            Cell("" if one.done is None else amount(one.done, one.unit)),
            Cell("" if one.total is None else f"{amount(one.total, one.unit)}{unit}"),
            Cell("" if one.rate_per_s is None else per_s(one.rate_per_s, one.unit)),
            Cell("" if one.wall_s is None else human_duration(one.wall_s)),
            Cell("" if one.busy_s is None else human_duration(one.busy_s)),
            Cell("" if one.eta_s is None else left_words(one.eta_s, one.eta_grade)),
        ),
    )


def _objects(one: PhaseRow, failed: int) -> str:
    """`180 of 214, 4▶, 1 failed`: done of all there are, how many are under way, and that some went wrong."""
    running = f", {one.items_running}▶" if one.items_running else ""
    wrong = f", {failed} failed" if failed else ""
    return f"{one.items_done} of {integer(one.items)}{running}{wrong}"


def object_lines(row: ProgressRow, width: int) -> list[Line]:
    """The objects told, by state; those running first, for they are what goes on."""
    counts = row.counts
    lines: list[Line] = []
    for state, most in _MOST.items():
        told = [one for one in row.objects if one.state == state]
        total = len(told) if counts is None else max(len(told), getattr(counts, state))
        if not told and not (total and state == "failed"):
            continue
        style: Style = "crit" if state == "failed" else "title"
        lines += [(), (Span(_TITLES[state], style), Span(f"  {total} of them" if total > 1 else "", "dim"))]
        lines += _group(told[:most], width)
        if total > len(told[:most]):
            lines.append(said(f"… and {total - len(told[:most])} more", "dim"))
    return lines


def _group(told: Sequence[ObjectRow], width: int) -> list[Line]:
    if not told:
        return []
    head, *rows = table_lines(_OBJECTS, [_object(one) for one in told], width)
    lines = [head]
    for one, spans in zip(told, rows, strict=True):
        lines.append(spans)
        if one.note:
            words: Style = "crit" if one.state == "failed" else "dim"
            lines.append((Span("  " + cut(clean(one.note[:600]), max(8, width - 2)), words),))
    return lines


def _object(one: ObjectRow) -> Row:
    running = one.state == "running"
    return Row(
        "",
        (
            Cell(name_of(one.what, 14).lower()),
            Cell(name_of(one.name, 140)),
            Cell(bar(one.pct, 8) if running and one.pct is not None else "", None, "bar"),
            Cell(human_pct(one.pct) if running else ""),
            Cell(("unknown" if one.pct is None else grade_words(one.grade)) if running else ""),
            Cell("" if one.done is None else amount(one.done, one.unit)),
            Cell(_size(one)),
            Cell("" if one.rate_per_s is None else per_s(one.rate_per_s, one.unit)),
            Cell("" if one.elapsed_s is None else human_duration(one.elapsed_s)),
            Cell("" if one.eta_s is None else left_words(one.eta_s, "estimated")),
            Cell("" if one.pid is None else str(one.pid)),
        ),
    )


def _size(one: ObjectRow) -> str:
    """The whole of it in its unit, else the bytes it weighs."""
    if one.total is not None:
        return amount(one.total, one.unit) + ("" if one.unit in (None, "bytes") else f" {name_of(one.unit, 6)}")
    return "" if one.weight is None else human_bytes(one.weight)
