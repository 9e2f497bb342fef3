"""Dump, restore and other long work: how far, how that is known, what is left, who waits behind it.

`est` and `measured` stand beside every share; where nothing tells how far, the elapsed time and the wait event do.
"""

from __future__ import annotations

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.frames.progress_model import ProgressRow
from dba_console.panels import status_text
from dba_console.panels.phrases import bar, join, level_style, name_of, query_lines, text_line, wrap_words
from dba_console.panels.progress_text import (
    amount_text,
    is_job,
    is_of_phase,
    part_text,
    phase_text,
    rate_text,
    remaining_line,
    remaining_text,
    row_key,
    share_line,
    title_text,
    trouble_lines,
)
from dba_console.panels.table_layout import number_cell
from dba_console.panels.text_elements import (
    Cell,
    Detail,
    LazyLines,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    fit,
    line_width,
)
from dba_console.panels.text_elements import width as len_of
from dba_console.panels.time_formats import local_date_and_time
from dba_console.units import human_duration, human_pct

_MIN_PHASE_WIDTH = 8
"""Cells a phase needs to say something."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.progress
    lines = [_line(row, width) for row in panel.operations[: max(0, height)]]
    if not lines and panel.status == "ok" and panel.age_s is not None:
        lines = [text_line("no dump, restore, vacuum, copy or index build is running", "dim")]
    return status_text.body(panel, bool(lines), lines, width, height)


def _line(row: ProgressRow, width: int) -> Line:
    """The fullest wording that fits: first the bar is short, then the usual duration goes, then the bar."""
    cells = max(6, min(16, width // 8))
    for bar_cells, short, min_name_width in ((cells, False, 30), (6, False, 24), (cells, True, 24), (0, True, 16)):
        line = _line_with_bar(row, width, bar_cells, short=short, min_name_width=min_name_width)
        if line is not None:
            return line
    return _narrow(row, width)


def _line_with_bar(row: ProgressRow, width: int, cells: int, *, short: bool, min_name_width: int) -> Line | None:
    """The line with a bar of so many cells; None where that leaves the name less than `min_name_width`.

    A share of the whole stands before the phase, a share of the phase behind it: nobody takes one for the other.
    """
    name, phase, tail = title_text(row), phase_text(row), _tail(row, short=short)
    if row.pct is not None and part_text(row) == phase:
        phase = ""
    if phase and is_job(row) and (row.pct is None or row.scope in ("whole", "file")):
        middle = (*_middle(row, cells, named=True), Span(f", in {phase}", "dim"))
        return _join_parts(name, "", middle, tail, width, min_name_width)
    beside = _join_parts(name, phase, _middle(row, cells, named=True), tail, width, min_name_width)
    return beside or _join_parts(name, "", _middle(row, cells, named=False), tail, width, min_name_width)


def _narrow(row: ProgressRow, width: int) -> Line:
    """Where nothing fits: what it is, how far, and of the rest what must not be overlooked as far as there is room."""
    middle, tail = share_line(row, named=False), _tail(row, short=True)
    if width - line_width(middle) - line_width(tail) < 10:
        tail = join(trouble_lines(row), ", ")
    room = width - line_width(middle) - line_width(tail) - 4
    return (Span(fit(title_text(row), max(6, room))), Span("  "), *middle, Span("  "), *tail)


def _join_parts(name: str, phase: str, middle: Line, tail: Line, width: int, min_name_width: int) -> Line | None:
    """Name and phase in the room that is left; None where that is too little."""
    room = width - line_width(middle) - line_width(tail) - 4
    taken = len_of(name)
    if phase and room < taken + 2 + min(len_of(phase), _MIN_PHASE_WIDTH):
        return None
    if not phase and room < min(taken, min_name_width):
        return None
    start: Line = (Span(fit(name, max(6, room))),)
    if phase:
        start = (Span(name + "  "), Span(fit(phase, room - taken - 2), "dim"))
    return (*start, Span("  "), *middle, Span("  "), *tail)


def _middle(row: ProgressRow, cells: int, *, named: bool) -> Line:
    if row.pct is None or not cells:
        return share_line(row, named=named)
    return (Span(bar(row.pct, cells), "bar"), Span(" "), *share_line(row, named=named))


def _tail(row: ProgressRow, *, short: bool = False) -> Line:
    """Trouble, then what is left where that is known, else how long it runs and what it waits for."""
    facts: list[Line] = [*trouble_lines(row)]
    if row.eta_s is not None:
        facts.append(remaining_line(row))
    else:
        facts.append((Span("for ", "dim"), Span(human_duration(row.elapsed_s))))
        if row.wait and row.late_s is None and not short:
            facts.append(text_line(name_of(row.wait, 24), "dim"))
    if row.usual_s is not None and not short:
        facts.append((Span("usual ", "dim"), Span(human_duration(row.usual_s))))
    if row.late_s is not None:
        facts.append((Span("late by ", "dim"), Span(human_duration(row.late_s), "warn")))
    line = join(facts, ", ")
    if row.blocks:
        line = (*line, Span("  "), Span(f"{row.blocks} wait", level_style(row.blocks, 1, 10)))
    return line


_COLUMNS = (
    TableColumn("kind", "operation", 22, help="Program and database, or command and object", sort_key="K"),
    TableColumn("phase", "phase", 12, help="As the progress view words it", sort_key="H"),
    TableColumn("pct", "share", 6, right=True, help="Share done; ≈ is an estimate", sort_key="S", descending=True),
    TableColumn("of", "of", 5, help="What it is a share of: all of it, the phase it is in, or the file it reads"),
    TableColumn("grade", "known by", 9, help="measured by the server, estimated by the console, or unknown", spare=2),
    TableColumn("object", "works on", 30, help="What a program works on now", grow=True, sort_key="O", spare=3),
    TableColumn("database", "database", 14, sort_key="D", spare=8),
    TableColumn("done", "done", 9, right=True, sort_key="N", descending=True, spare=6),
    TableColumn("total", "total", 9, right=True, sort_key="T", descending=True, spare=7),
    TableColumn("unit", "unit", 9, help="Of done and total", spare=5),
    TableColumn("rate", "rate", 10, right=True, help="Units per second", sort_key="R", descending=True, spare=9),
    TableColumn("elapsed", "elapsed", 7, right=True, sort_key="E", descending=True),
    TableColumn(
        "eta",
        "left",
        7,
        right=True,
        help="Time left of what the share is of; ≈ is no measurement",
        sort_key="L",
        descending=True,
    ),
    TableColumn(
        "usual", "usual", 7, right=True, help="How long it took before", sort_key="U", descending=True, spare=1
    ),
    TableColumn(
        "errors",
        "errors",
        6,
        right=True,
        help="So far; ? where its messages cannot be read",
        sort_key="X",
        descending=True,
    ),
    TableColumn(
        "blocks", "wait", 5, right=True, help="Sessions that wait behind its locks", sort_key="W", descending=True
    ),
    TableColumn(
        "pid", "pid", 8, right=True, help="Backend; blank where it is a program without one", sort_key="P", spare=4
    ),
)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.progress
    rows = tuple(_progress_row(row) for row in panel.operations)
    table = Table("operations", _COLUMNS, rows, None, "Dump & restore",
                  "no dump, restore, vacuum, copy or index build is running")  # fmt: skip
    if not rows and panel.status != "ok":
        return Detail("Dump & restore", tuple(status_text.note_lines(panel, width)))
    return Detail("Dump & restore", status_text.head_lines(panel, (), width), (table,))


def _progress_row(row: ProgressRow) -> TableRow:
    name = name_of(row.object, 120) if row.object and is_job(row) else ""
    phase = phase_text(row)
    late: Style = "" if row.late_s is None else "warn"
    return TableRow(
        row_key(row),
        (
            Cell(title_text(row), row.kind),
            Cell(phase, phase),
            number_cell(_pct_text(row), row.pct),
            _scope_cell(row),
            Cell(name_of(row.grade), row.grade),
            Cell(name, name),
            Cell("–" if _is_cluster_wide(row) else name_of(row.database), row.database),
            number_cell(amount_text(row.done, row.unit), row.done),
            number_cell(amount_text(row.total, row.unit), row.total),
            Cell(name_of(row.unit) if row.unit else "", row.unit),
            number_cell(rate_text(row.rate_per_s, row.unit), row.rate_per_s),
            number_cell(human_duration(row.elapsed_s), row.elapsed_s),
            number_cell(remaining_text(row.eta_s, row.eta_grade), row.eta_s),
            Cell("" if row.usual_s is None else human_duration(row.usual_s), row.usual_s, late),
            _errors_cell(row),
            Cell(str(row.blocks), row.blocks, level_style(row.blocks, 1, 10)),
            Cell("" if row.pid is None else str(row.pid), row.pid),
        ),
        LazyLines(lambda: _detail_lines(row)),
    )


def _pct_text(row: ProgressRow) -> str:
    sign = "≈" if row.grade == "estimated" and row.pct is not None else ""
    return sign + human_pct(row.pct)


def _scope_cell(row: ProgressRow) -> Cell:
    if row.pct is None:
        return Cell("")
    return Cell("file" if row.scope == "file" else "phase", 0) if is_of_phase(row) else Cell("all", 1)


def _errors_cell(row: ProgressRow) -> Cell:
    """Blank for what counts none."""
    if row.errors is None:
        return Cell("?" if row.phases else "", None, "stale")
    return Cell(str(row.errors), row.errors, "crit" if row.errors else "")


def _is_cluster_wide(row: ProgressRow) -> bool:
    """A base backup is of all databases."""
    return row.database is None and row.kind in ("basebackup", "pg_basebackup")


def _detail_lines(row: ProgressRow) -> tuple[Line, ...]:
    facts = join(
        [
            *trouble_lines(row),
            text_line(f"started {local_date_and_time(row.started)}"),
            text_line(f"user {name_of(row.user)}"),
            text_line(f"waits for {name_of(row.wait) if row.wait else 'nothing'}"),
            *([] if row.late_s is None else [text_line(f"late by {human_duration(row.late_s)}", "warn")]),
        ]
    )
    if row.command:
        return (facts, *((Span(text),) for text in wrap_words(row.command, 200)))
    return (facts, *query_lines(row.query, row.query_bytes))
