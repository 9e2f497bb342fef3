"""Dump, restore and other long work: how far, how that is known, what is left, who waits behind it.

`est` and `measured` stand beside every share; where nothing tells how far, the elapsed time and the wait event do.
"""

from __future__ import annotations

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.frames.progress_model import ProgressRow
from dba_console.panels import states
from dba_console.panels.cells import Cell, Column, Detail, Line, Lines, Row, Span, Style, Table, fit, line_width
from dba_console.panels.cells import width as len_of
from dba_console.panels.phrases import bar, join, level, name_of, query_lines, said, wrap
from dba_console.panels.progress_words import (
    amount,
    is_job,
    left,
    left_words,
    of_phase,
    part_words,
    per_s,
    phase_words,
    row_key,
    share,
    title_words,
    trouble,
)
from dba_console.panels.tables import cell_number
from dba_console.panels.times import moment_of
from dba_console.units import human_duration, human_pct

_LEAST_PHASE = 8
"""Cells a phase needs to say something."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.progress
    lines = [_line(row, width) for row in panel.operations[: max(0, height)]]
    if not lines and panel.status == "ok" and panel.age_s is not None:
        lines = [said("no dump, restore, vacuum, copy or index build is running", "dim")]
    return states.body(panel, bool(lines), lines, width, height)


def _line(row: ProgressRow, width: int) -> Line:
    """The fullest wording that fits: first the bar is short, then the usual duration goes, then the bar."""
    cells = max(6, min(16, width // 8))
    for bar_cells, short, least in ((cells, False, 30), (6, False, 24), (cells, True, 24), (0, True, 16)):
        line = _worded(row, width, bar_cells, short=short, least=least)
        if line is not None:
            return line
    return _narrow(row, width)


def _worded(row: ProgressRow, width: int, cells: int, *, short: bool, least: int) -> Line | None:
    """The line with a bar of so many cells; None where that leaves the name less than `least`.

    A share of the whole stands before the phase, a share of the phase behind it: nobody takes one for the other.
    """
    name, phase, tail = title_words(row), phase_words(row), _tail(row, short=short)
    if row.pct is not None and part_words(row) == phase:
        phase = ""
    if phase and is_job(row) and (row.pct is None or row.scope in ("whole", "file")):
        middle = (*_middle(row, cells, named=True), Span(f", in {phase}", "dim"))
        return _joined(name, "", middle, tail, width, least)
    beside = _joined(name, phase, _middle(row, cells, named=True), tail, width, least)
    return beside or _joined(name, "", _middle(row, cells, named=False), tail, width, least)


def _narrow(row: ProgressRow, width: int) -> Line:
    """Where nothing fits: what it is, how far, and of the rest what must not be overlooked as far as there is room."""
    middle, tail = share(row, named=False), _tail(row, short=True)
    if width - line_width(middle) - line_width(tail) < 10:
        tail = join(trouble(row), ", ")
    room = width - line_width(middle) - line_width(tail) - 4
    return (Span(fit(title_words(row), max(6, room))), Span("  "), *middle, Span("  "), *tail)


def _joined(name: str, phase: str, middle: Line, tail: Line, width: int, least: int) -> Line | None:
    """Name and phase in the room that is left; None where that is too little."""
    room = width - line_width(middle) - line_width(tail) - 4
    taken = len_of(name)
    if phase and room < taken + 2 + min(len_of(phase), _LEAST_PHASE):
        return None
    if not phase and room < min(taken, least):
        return None
    start: Line = (Span(fit(name, max(6, room))),)
    if phase:
        start = (Span(name + "  "), Span(fit(phase, room - taken - 2), "dim"))
    return (*start, Span("  "), *middle, Span("  "), *tail)


def _middle(row: ProgressRow, cells: int, *, named: bool) -> Line:
    if row.pct is None or not cells:
        return share(row, named=named)
    return (Span(bar(row.pct, cells), "bar"), Span(" "), *share(row, named=named))


def _tail(row: ProgressRow, *, short: bool = False) -> Line:
    """Trouble, then what is left where that is known, else how long it runs and what it waits for."""
    facts: list[Line] = [*trouble(row)]
    if row.eta_s is not None:
        facts.append(left(row))
    else:
        facts.append((Span("for ", "dim"), Span(human_duration(row.elapsed_s))))
        if row.wait and row.late_s is None and not short:
            facts.append(said(name_of(row.wait, 24), "dim"))
    if row.usual_s is not None and not short:
        facts.append((Span("usual ", "dim"), Span(human_duration(row.usual_s))))
    if row.late_s is not None:
        facts.append((Span("late by ", "dim"), Span(human_duration(row.late_s), "warn")))
    line = join(facts, ", ")
    if row.blocks:
        line = (*line, Span("  "), Span(f"{row.blocks} wait", level(row.blocks, 1, 10)))
    return line


_COLUMNS = (
    Column("kind", "operation", 22, help="Program and database, or command and object", sort_key="K"),
    Column("phase", "phase", 12, help="As the progress view words it", sort_key="H"),
    Column("pct", "share", 6, right=True, help="Share done; ≈ is an estimate", sort_key="S", descending=True),
    Column("of", "of", 5, help="What it is a share of: all of it, the phase it is in, or the file it reads"),
    Column("grade", "known by", 9, help="measured by the server, estimated by the console, or unknown", spare=2),
    Column("object", "works on", 30, help="What a program works on now", grow=True, sort_key="O",
           spare=3),
    Column("database", "database", 14, sort_key="D", spare=8),
    Column("done", "done", 9, right=True, sort_key="N", descending=True, spare=6),
    Column("total", "total", 9, right=True, sort_key="T", descending=True, spare=7),
    Column("unit", "unit", 9, help="Of done and total", spare=5),
    Column("rate", "rate", 10, right=True, help="Units per second", sort_key="R", descending=True, spare=9),
    Column("elapsed", "elapsed", 7, right=True, sort_key="E", descending=True),
    Column("eta", "left", 7, right=True, help="Time left of what the share is of; ≈ is no measurement", sort_key="L",
           descending=True),
    Column("usual", "usual", 7, right=True, help="How long it took before", sort_key="U", descending=True, spare=1),
    Column("errors", "errors", 6, right=True, help="So far; ? where its messages cannot be read", sort_key="X",
           descending=True),
    Column(
        "blocks", "wait", 5, right=True, help="Sessions that wait behind its locks", sort_key="W", descending=True
    ),
    Column("pid", "pid", 8, right=True, help="Backend; blank where it is a program without one", sort_key="P", spare=4),
)  # fmt: skip


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.progress
    rows = tuple(_row(row) for row in panel.operations)
    table = Table("operations", _COLUMNS, rows, None, "Dump & restore",
                  "no dump, restore, vacuum, copy or index build is running")  # fmt: skip
    if not rows and panel.status != "ok":
        return Detail("Dump & restore", tuple(states.note_lines(panel, width)))
    return Detail("Dump & restore", states.head_lines(panel, (), width), (table,))


def _row(row: ProgressRow) -> Row:
    name = name_of(row.object, 120) if row.object and is_job(row) else ""
    phase = phase_words(row)
    late: Style = "" if row.late_s is None else "warn"
    return Row(
        row_key(row),
        (
            Cell(title_words(row), row.kind),
            Cell(phase, phase),
            cell_number(_pct(row), row.pct),
            _of(row),
            Cell(name_of(row.grade), row.grade),
            Cell(name, name),
            Cell("–" if _of_cluster(row) else name_of(row.database), row.database),
            cell_number(amount(row.done, row.unit), row.done),
            cell_number(amount(row.total, row.unit), row.total),
            Cell(name_of(row.unit) if row.unit else "", row.unit),
            cell_number(per_s(row.rate_per_s, row.unit), row.rate_per_s),
            cell_number(human_duration(row.elapsed_s), row.elapsed_s),
            cell_number(left_words(row.eta_s, row.eta_grade), row.eta_s),
            Cell("" if row.usual_s is None else human_duration(row.usual_s), row.usual_s, late),
            _errors(row),
            Cell(str(row.blocks), row.blocks, level(row.blocks, 1, 10)),
            Cell("" if row.pid is None else str(row.pid), row.pid),
        ),
        Lines(lambda: _more(row)),
    )


def _pct(row: ProgressRow) -> str:
    sign = "≈" if row.grade == "estimated" and row.pct is not None else ""
    return sign + human_pct(row.pct)


def _of(row: ProgressRow) -> Cell:
    if row.pct is None:
        return Cell("")
    return Cell("file" if row.scope == "file" else "phase", 0) if of_phase(row) else Cell("all", 1)


def _errors(row: ProgressRow) -> Cell:
    """Blank for what counts none."""
    if row.errors is None:
        return Cell("?" if row.phases else "", None, "stale")
    return Cell(str(row.errors), row.errors, "crit" if row.errors else "")


def _of_cluster(row: ProgressRow) -> bool:
    """A base backup is of all databases."""
    return row.database is None and row.kind in ("basebackup", "pg_basebackup")


def _more(row: ProgressRow) -> tuple[Line, ...]:
    facts = join(
        [
            *trouble(row),
            said(f"started {moment_of(row.started)}"),
            said(f"user {name_of(row.user)}"),
            said(f"waits for {name_of(row.wait) if row.wait else 'nothing'}"),
            *([] if row.late_s is None else [said(f"late by {human_duration(row.late_s)}", "warn")]),
        ]
    )
    if row.command:
        return (facts, *((Span(text),) for text in wrap(row.command, 200)))
    return (facts, *query_lines(row.query, row.query_bytes))
