"""Dump, restore and other long operations: how far, how that is known, time left, who waits for them.

Every share is marked `est` or `measured`; if progress is unknown, elapsed time and wait event are shown.
"""

from __future__ import annotations

from dba_console.core.units import human_bytes, human_count, human_duration, human_pct
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import bar, join, level_style, name_of, query_lines, statement, text_line
from dba_console.watch.drawing.text_elements import (
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableRow,
    clean,
    fit,
    line_width,
    text_width,
    wrap_words,
)
from dba_console.watch.drawing.time_formats import local_date_and_time
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.job_sessions import JOBS
from dba_console.watch.layout import Layout
from dba_console.watch.progress.panel import LATE_FACTOR, ProgressPanel
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.tables import Column, cells
from dba_console.watch.wait_events import explained_wait

# Text about long operations, the same in the overview, the table and the page of a job.
#
# A share always names its whole and how it is known, an estimated time left carries `≈`, and trouble (errors so far,
# a disk that will be full) comes first.

GRADE_WORDS = {"estimated": "est", "measured": "measured"}
_FORMATS = {"directory": "-Fd", "custom": "-Fc", "tar": "-Ft", "plain": "-Fp"}
_DUMPS = ("pg_dump", "pg_restore", "psql", "pg_dumpall")


def is_job(row: ProgressRow) -> bool:
    """True for a program with a start and an end, which has a page and a history; not for a command of a session."""
    return row.kind in JOBS or row.kind == "psql" or bool(row.phases or row.command)


def row_key(row: ProgressRow) -> str:
    """Return a row's identity across frames: sessions of a restore come and go, its process stays."""
    return f"{row.kind} {row.process}" if row.process is not None else f"{row.kind} {row.pid} {row.started}"


def kind_text(row: ProgressRow) -> str:
    """Return a program's name, or a command as SQL spells it: `pg_dump`, `create index`."""
    return name_of(row.kind if row.kind.startswith("pg_") else row.kind.replace("_", " "))


def program_text(row: ProgressRow) -> str:
    """`pg_dump -Fd -j4`: the program with the options that determine its course, as far as known."""
    words = [kind_text(row)]
    if row.kind in _DUMPS:
        if row.format in _FORMATS and row.kind == "pg_dump":
            words.append(_FORMATS[row.format])
        if row.jobs is not None and row.jobs > 1:
            words.append(f"-j{row.jobs}")
    return " ".join(words)


def title_text(row: ProgressRow) -> str:
    """Return the operation and its object: `pg_dump -Fd -j4 appdb`, `create index orders_pkey`.

    A part of the dump or restore above starts with `└`.
    """
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
    """Return the phase as in the progress view, without the prefix of an index build's steps."""
    return name_of((row.phase or "").removeprefix("building index: "), 80)


def share_line(row: ProgressRow, *, named: bool = True) -> Line:
    """`68% est`; for a dump or restore also `38% of data measured`, `41% of file read measured`; for a phase whose name
    does not precede it (`named` is False), `68% of phase est`."""
    if row.pct is None:
        return text_line("progress ?", "stale")
    alone = " of phase" if is_of_phase(row) and not named else ""
    if part := part_text(row):
        alone = f" of {part}"
    return (Span(human_pct(row.pct)), Span(f"{alone} {grade_text(row.grade)}", "dim"))


def grade_text(grade: str) -> str:
    return GRADE_WORDS.get(grade) or clean(grade[:12])


def remaining_line(row: ProgressRow) -> Line:
    """`left ≈14m`, `phase left 10m`; highlighted if it will be late. Empty if unknown."""
    if row.eta_s is None:
        return ()
    # The time left of a phase is the minimum for the whole.
    is_late = row.usual_s is not None and (row.elapsed_s or 0) + row.eta_s > LATE_FACTOR * row.usual_s
    label = f"{remaining_label(row)} " if is_of_phase(row) else "left "
    return (Span(label, "dim"), Span(remaining_text(row.eta_s, row.eta_grade), "warn" if is_late else ""))


def is_of_phase(row: ProgressRow) -> bool:
    """True if share and time left refer to the current phase, and other phases may follow."""
    return row.scope == "file" or (row.scope != "whole" and bool(row.phase))


def part_text(row: ProgressRow) -> str:
    """Return which part of a dump or restore the share refers to, if not the whole: `data`, `file read`."""
    if row.scope == "file":
        return "file read"
    return phase_text(row) if is_of_phase(row) and is_job(row) else ""


def remaining_label(row: ProgressRow) -> str:
    """Return what the time left refers to, if not the whole."""
    return "file left" if row.scope == "file" else "phase left"


def remaining_text(eta_s: float | None, grade: str) -> str:
    """Return a time left, with `≈` and rounded to at least five seconds if not measured; `?` if unknown.

    >>> (remaining_text(840.0, "estimated"), remaining_text(12.0, "history"), remaining_text(12.0, "measured"),
    ...  remaining_text(None, ""))
    ('≈14m', '≈10s', '12s', '?')
    """
    if eta_s is not None and eta_s < 60 and grade in ("estimated", "history"):
        return f"≈{max(5, 5 * round(eta_s / 5))}s"
    sign = "≈" if grade in ("estimated", "history") and eta_s is not None else ""
    return sign + human_duration(eta_s)


def trouble_lines(row: ProgressRow) -> list[Line]:
    """Return what must not be overlooked: errors and a disk that will be full."""
    lines: list[Line] = []
    if row.errors:
        lines.append(text_line(f"{row.errors} error{'s' if row.errors > 1 else ''}", "crit"))
    if row.fits is False:
        lines.append(text_line("not enough disk", "crit"))
    return lines


def amount_text(value: float | None, unit: str | None) -> str:
    """`4.1 GB` for bytes, `1m36s` for seconds, `82M` for anything else."""
    if unit == "s":
        return human_duration(value)
    return human_bytes(value) if unit == "bytes" else human_count(value)


def rate_text(value: float | None, unit: str | None) -> str:
    """Return the same per second."""
    return human_bytes(value, per_s=True) if unit == "bytes" else human_count(value, per_s=True)


_MIN_PHASE_WIDTH = 8
"""Minimum cells for a useful phase."""
_NOTHING_RUNS = "no dump, restore, vacuum, copy or index build running"


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(ProgressPanel)
    lines = [_line(row, width) for row in panel.operations[: max(0, height)]]
    if not lines and panel.status == "ok" and panel.age_s is not None:
        lines = [text_line(_NOTHING_RUNS, "dim")]
    return phrases.body(panel, bool(lines), lines, width, height)


def _line(row: ProgressRow, width: int) -> Line:
    """Return the fullest wording that fits: first shorten the bar, then drop the typical duration, then the bar."""
    cells = max(6, min(16, width // 8))
    for bar_cells, short, min_name_width in ((cells, False, 30), (6, False, 24), (cells, True, 24), (0, True, 16)):
        line = _line_with_bar(row, width, bar_cells, short=short, min_name_width=min_name_width)
        if line is not None:
            return line
    return _narrow(row, width)


def _line_with_bar(row: ProgressRow, width: int, cells: int, *, short: bool, min_name_width: int) -> Line | None:
    """Return the line with a bar of `cells`; None if that leaves the name less than `min_name_width`.

    A share of the whole is before the phase, a share of the phase after it, so that they are not confused.
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
    """Return the shortest wording: the operation, how far, and as much of the trouble as fits."""
    middle, tail = share_line(row, named=False), _tail(row, short=True)
    if width - line_width(middle) - line_width(tail) < 10:
        tail = join(trouble_lines(row), ", ")
    space = width - line_width(middle) - line_width(tail) - 4
    return (Span(fit(title_text(row), max(6, space))), Span("  "), *middle, Span("  "), *tail)


def _join_parts(name: str, phase: str, middle: Line, tail: Line, width: int, min_name_width: int) -> Line | None:
    """Fit name and phase into the space left; None if it is too small."""
    space = width - line_width(middle) - line_width(tail) - 4
    taken = text_width(name)
    if phase and space < taken + 2 + min(text_width(phase), _MIN_PHASE_WIDTH):
        return None
    if not phase and space < min(taken, min_name_width):
        return None
    start: Line = (Span(fit(name, max(6, space))),)
    if phase:
        start = (Span(name + "  "), Span(fit(phase, space - taken - 2), "dim"))
    return (*start, Span("  "), *middle, Span("  "), *tail)


def _middle(row: ProgressRow, cells: int, *, named: bool) -> Line:
    if row.pct is None or not cells:
        return share_line(row, named=named)
    return (Span(bar(row.pct, cells), "bar"), Span(" "), *share_line(row, named=named))


def _tail(row: ProgressRow, *, short: bool = False) -> Line:
    """Return trouble, then the time left, or if that is unknown the elapsed time and the wait event."""
    facts: list[Line] = [*trouble_lines(row)]
    if row.eta_s is not None:
        facts.append(remaining_line(row))
    else:
        facts.append((Span("for ", "dim"), Span(human_duration(row.elapsed_s))))
        if row.wait and row.late_s is None and not short:
            facts.append(text_line(name_of(row.wait, 24), "dim"))
    if row.usual_s is not None and not short:
        facts.append((Span("typical ", "dim"), Span(human_duration(row.usual_s))))
    if row.late_s is not None:
        facts.append((Span("overdue ", "dim"), Span(human_duration(row.late_s), "warn")))
    line = join(facts, ", ")
    if row.blocks:
        line = (*line, Span("  "), Span(f"{row.blocks} wait", level_style(row.blocks, 1, 10)))
    return line


# The table of the full form.


def _pct_text(row: ProgressRow) -> str:
    sign = "≈" if row.grade == "estimated" and row.pct is not None else ""
    return sign + human_pct(row.pct)


def _scope_text(row: ProgressRow) -> str:
    if row.pct is None:
        return ""
    return ("file" if row.scope == "file" else "phase") if is_of_phase(row) else "all"


def _object_text(row: ProgressRow) -> str:
    """Return what a program works on; the object of a command is in its title."""
    return name_of(row.object, 120) if row.object and is_job(row) else ""


def _unit_text(row: ProgressRow) -> str:
    return "time" if row.unit == "s" else name_of(row.unit) if row.unit else ""


def _errors_text(row: ProgressRow) -> str:
    """Return the errors; blank for operations that count none."""
    return str(row.errors) if row.errors is not None else "?" if row.phases else ""


def _errors_style(row: ProgressRow) -> Style:
    return "stale" if row.errors is None else "crit" if row.errors else ""


def _has_database(row: ProgressRow) -> bool:
    """False for a base backup: it covers all databases."""
    return row.database is not None or row.kind not in ("basebackup", "pg_basebackup")


_COLUMNS = (
    Column("kind", "operation", 22, help="Program and database, or command and object", text=title_text),
    Column("phase", "phase", 12, help="As in the progress view", text=phase_text),
    Column("pct", "share", 6, right=True, help="Share done; ≈ is an estimate", text=_pct_text, descending=True),
    Column(
        "scope",
        "of",
        5,
        help="What the share refers to: everything, the current phase, or the file read",
        text=_scope_text,
    ),
    Column("grade", "basis", 9, help="measured by the server, estimated by the console, or unknown", spare=2),
    Column("object", "works on", 30, help="What a program is processing now", text=_object_text, grow=True, spare=3),
    Column("database", "database", 14, applies=_has_database, spare=8),
    Column("done", "done", 9, right=True, text=lambda row: amount_text(row.done, row.unit), descending=True, spare=6),
    Column(
        "total", "total", 9, right=True, text=lambda row: amount_text(row.total, row.unit), descending=True, spare=7
    ),
    Column("unit", "unit", 9, help="Of done and total", text=_unit_text, spare=5),
    Column(
        "rate_per_s",
        "rate",
        10,
        right=True,
        help="Units per second",
        text=lambda row: rate_text(row.rate_per_s, row.unit),
        descending=True,
        spare=9,
    ),
    Column("elapsed_s", "elapsed", 7, right=True, descending=True),
    Column(
        "eta_s",
        "left",
        7,
        right=True,
        help="Time left for what the share refers to; ≈ is an estimate",
        text=lambda row: remaining_text(row.eta_s, row.eta_grade),
        descending=True,
    ),
    Column(
        "usual_s",
        "typical",
        7,
        right=True,
        help="Typical duration of earlier runs",
        style=lambda row: "" if row.late_s is None else "warn",
        descending=True,
        optional=True,
        spare=1,
    ),
    Column(
        "errors",
        "errors",
        6,
        right=True,
        help="So far; ? if its messages cannot be read",
        text=_errors_text,
        style=_errors_style,
        descending=True,
    ),
    Column(
        "blocks",
        "wait",
        5,
        right=True,
        help="Sessions waiting for its locks",
        style=lambda row: level_style(row.blocks, 1, 10),
        descending=True,
    ),
    Column("pid", "pid", 8, right=True, help="Backend; blank for a program without one", optional=True, spare=4),
)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(ProgressPanel)
    rows = tuple(_table_row(row) for row in panel.operations)
    if not rows and panel.status != "ok":
        return Detail("Dump & restore", tuple(phrases.note_lines(panel, width)))
    table = Table("operations", _COLUMNS, rows, None, "Dump & restore", _NOTHING_RUNS)
    return Detail("Dump & restore", phrases.head_lines(panel, (), width), (table,))


def _table_row(row: ProgressRow) -> TableRow:
    return TableRow(row_key(row), cells(_COLUMNS, row), lambda: _detail_lines(row))


def _detail_lines(row: ProgressRow) -> tuple[Line, ...]:
    facts = join(
        [
            *trouble_lines(row),
            text_line(f"started {local_date_and_time(row.started)}"),
            text_line(f"user {name_of(row.user)}"),
            text_line(f"waits for {explained_wait(row.wait) if row.wait else 'nothing'}"),
            *([] if row.late_s is None else [text_line(f"overdue by {human_duration(row.late_s)}", "warn")]),
        ]
    )
    if row.command:
        return (facts, *((Span(text),) for text in wrap_words(row.command, 200)))
    return (facts, *query_lines(row.query, row.query_bytes))


LAYOUT = Layout(name="progress", title="Dump & restore", key="5", compact=compact, full=full)
