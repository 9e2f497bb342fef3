"""Dump, restore and other long work: how far, how that is known, what is left, who waits behind it.

`est` and `measured` stand beside every share; where nothing tells how far, the elapsed time and the wait event do.
"""

from __future__ import annotations

from dba_console.core.units import human_bytes, human_count, human_duration, human_pct
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.job_sessions import JOBS
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.progress_model import ProgressRow
from dba_console.watch.panels import phrases
from dba_console.watch.panels.phrases import (
    bar,
    join,
    level_style,
    name_of,
    query_lines,
    statement,
    text_line,
    wrap_words,
)
from dba_console.watch.panels.table_layout import number_cell
from dba_console.watch.panels.text_elements import (
    Cell,
    Detail,
    LazyLines,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    clean,
    fit,
    line_width,
)
from dba_console.watch.panels.text_elements import width as len_of
from dba_console.watch.panels.time_formats import local_date_and_time

# The words of long work, the same in the overview, in the table, on the page of a job: what, how far, what is left.
#
# A share always says of what it is one and how it is known, a time left that is no measurement carries `≈`, and
# trouble (errors so far, a disk that will not do) comes before what is merely interesting.

LATE_FACTOR = 1.2
"""From so many times its usual duration on, what is left of a job is marked."""
GRADE_WORDS = {"estimated": "est", "measured": "measured"}
_FORMATS = {"directory": "-Fd", "custom": "-Fc", "tar": "-Ft", "plain": "-Fp"}
_DUMPS = ("pg_dump", "pg_restore", "psql", "pg_dumpall")


def is_job(row: ProgressRow) -> bool:
    """A program with a beginning and an end, which has a page and a history; not one command of a session."""
    return row.kind in JOBS or row.kind == "psql" or bool(row.phases or row.command)


def row_key(row: ProgressRow) -> str:
    """By what a row is known from one frame to the next: sessions of a restore come and go, its process stays."""
    return f"{row.kind} {row.process}" if row.process is not None else f"{row.kind} {row.pid} {row.started}"


def kind_text(row: ProgressRow) -> str:
    """A program by its name, a command as one writes it: `pg_dump`, `create index`."""
    return name_of(row.kind if row.kind.startswith("pg_") else row.kind.replace("_", " "))


def program_text(row: ProgressRow) -> str:
    """`pg_dump -Fd -j4`: the program with the options that decide how it goes, as far as they are known."""
    words = [kind_text(row)]
    if row.kind in _DUMPS:
        if row.format in _FORMATS and row.kind == "pg_dump":
            words.append(_FORMATS[row.format])
        if row.jobs is not None and row.jobs > 1:
            words.append(f"-j{row.jobs}")
    return " ".join(words)


def title_text(row: ProgressRow) -> str:
    """What works on what: `pg_dump -Fd -j4 appdb`, `create index orders_pkey`; with `└` before it where it is a part of
    the dump or restore above."""
    return _title(row) if row.part_of is None else f"└ {_title(row)}"


def _title(row: ProgressRow) -> str:
    if is_job(row):
        return f"{program_text(row)} {name_of(row.database, 40) if row.database else ''}".rstrip()
    if row.object or row.kind == "basebackup":
        return f"{kind_text(row)} {statement(row.object, 60)}".rstrip()
    if row.query:
        return statement(row.query, 60)
    return f"{kind_text(row)} in {name_of(row.database, 40)}" if row.database else kind_text(row)


def phase_text(row: ProgressRow) -> str:
    """The phase as the progress view words it, without what stands before each step of an index build."""
    return name_of((row.phase or "").removeprefix("building index: "), 80)


def share_line(row: ProgressRow, *, named: bool = True) -> Line:
    """`68% est`; of a dump or restore also `38% of data measured`, `41% of file read measured`; of a phase whose name
    does not stand before it (`named` is False), `68% of phase est`."""
    if row.pct is None:
        return text_line("share unknown", "stale")
    alone = " of phase" if is_of_phase(row) and not named else ""
    if part := part_text(row):
        alone = f" of {part}"
    return (Span(human_pct(row.pct)), Span(f"{alone} {grade_text(row.grade)}", "dim"))


def grade_text(grade: str) -> str:
    return GRADE_WORDS.get(grade) or clean(grade[:12])


def remaining_line(row: ProgressRow) -> Line:
    """`left ≈14m`, `phase left 10m`; marked where it will be late. Empty where what is left is not known."""
    if row.eta_s is None:
        return ()
    # What is left of a phase is the least of what is left of the whole.
    is_late = row.usual_s is not None and (row.elapsed_s or 0) + row.eta_s > LATE_FACTOR * row.usual_s
    label = f"{remaining_label(row)} " if is_of_phase(row) else "left "
    return (Span(label, "dim"), Span(remaining_text(row.eta_s, row.eta_grade), "warn" if is_late else ""))


def is_of_phase(row: ProgressRow) -> bool:
    """Share and time left are of the phase it is in, and other phases may follow."""
    return row.scope == "file" or (row.scope != "whole" and bool(row.phase))


def part_text(row: ProgressRow) -> str:
    """What of a dump or restore the share is one of, where that is not all of it: `data`, `file read`."""
    if row.scope == "file":
        return "file read"
    return phase_text(row) if is_of_phase(row) and is_job(row) else ""


def remaining_label(row: ProgressRow) -> str:
    """What the time left is of, where that is not all of it."""
    return "file left" if row.scope == "file" else "phase left"


def remaining_text(eta_s: float | None, grade: str) -> str:
    """A time left, with `≈` where it is no measurement, and then to five seconds at best; `?` where it is not known.

    >>> (remaining_text(840.0, "estimated"), remaining_text(12.0, "history"), remaining_text(12.0, "measured"),
    ...  remaining_text(None, ""))
    ('≈14m', '≈10s', '12s', '?')
    """
    if eta_s is not None and eta_s < 60 and grade in ("estimated", "history"):
        return f"≈{max(5, 5 * round(eta_s / 5))}s"
    sign = "≈" if grade in ("estimated", "history") and eta_s is not None else ""
    return sign + human_duration(eta_s)


def trouble_lines(row: ProgressRow) -> list[Line]:
    """What must not be overlooked."""
    lines: list[Line] = []
    if row.errors:
        lines.append(text_line(f"{row.errors} error{'s' if row.errors > 1 else ''}", "crit"))
    if row.fits is False:
        lines.append(text_line("disk will not do", "crit"))
    return lines


def amount_text(value: float | None, unit: str | None) -> str:
    """`4.1 GB` of bytes, `82M` of anything else."""
    return human_bytes(value) if unit == "bytes" else human_count(value)


def rate_text(value: float | None, unit: str | None) -> str:
    """The same per second."""
    return human_bytes(value, per_s=True) if unit == "bytes" else human_count(value, per_s=True)


_MIN_PHASE_WIDTH = 8
"""Cells a phase needs to say something."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.progress
    lines = [_line(row, width) for row in panel.operations[: max(0, height)]]
    if not lines and panel.status == "ok" and panel.age_s is not None:
        lines = [text_line("no dump, restore, vacuum, copy or index build is running", "dim")]
    return phrases.body(panel, bool(lines), lines, width, height)


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
        return Detail("Dump & restore", tuple(phrases.note_lines(panel, width)))
    return Detail("Dump & restore", phrases.head_lines(panel, (), width), (table,))


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
