"""Dump, restore and other long work: how far, how that is known, what is left, who waits behind it.

`est` and `measured` stand beside every share; where nothing tells how far, the elapsed time and the wait event do.
"""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.frames.model import Frame, ProgressRow
from dba_console.panels import states
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Span, Table, clean, fit, line_width
from dba_console.panels.phrases import bar, join, level, name_of, said, statement, wrap
from dba_console.panels.tables import cell_number
from dba_console.panels.times import moment_of
from dba_console.units import human_bytes, human_count, human_duration, human_pct

LATE = 1.2
"""A job is called late from so many times its usual duration on; when that is a finding is configured."""

_GRADES = {"estimated": "est", "measured": "measured"}


def compact(frame: Frame, width: int, height: int, history: History) -> list[Line]:
    panel = frame.progress
    lines = [_line(row, width) for row in panel.operations[: max(0, height)]]
    if not lines and panel.status == "ok" and panel.age_s is not None:
        lines = [said("no dump, restore, vacuum, copy or index build is running", "dim")]
    return states.body(panel, bool(lines), lines, width, height)


def _line(row: ProgressRow, width: int) -> Line:
    tail = _tail(row)
    middle = _middle(row, max(6, min(16, width // 8)))
    room = width - line_width(tail) - line_width(middle) - 4
    if room < 16:
        tail = _tail(row, short=True)
        room = width - line_width(tail) - line_width(middle) - 4
    if room < 12:
        middle = _share(row)
        room = width - line_width(tail) - line_width(middle) - 4
    name = _name(row)
    phase = clean((row.phase or "")[:80])
    if phase and room >= len(name) + 2 + min(len(phase), 8):
        start: Line = (Span(name + "  "), Span(fit(phase, room - len(name) - 2), "dim"))
    else:
        start = (Span(fit(name, max(8, room))),)
    return (*start, Span("  "), *middle, Span("  "), *tail)


def _name(row: ProgressRow) -> str:
    what = row.object or row.database or row.query
    return f"{_kind(row)} {statement(what, 60)}".rstrip()


def _kind(row: ProgressRow) -> str:
    """A program by its name, a command as one writes it: `pg_dump`, `create index`."""
    return name_of(row.kind if row.kind.startswith("pg_") else row.kind.replace("_", " "))


def _share(row: ProgressRow) -> Line:
    if row.pct is None:
        return said("share unknown", "stale")
    return (Span(human_pct(row.pct)), Span(f" {_GRADES.get(row.grade) or clean(row.grade[:12])}", "dim"))


def _middle(row: ProgressRow, cells: int) -> Line:
    if row.pct is None:
        return _share(row)
    return (Span(bar(row.pct, cells), "bar"), Span(" "), *_share(row))


def _tail(row: ProgressRow, *, short: bool = False) -> Line:
    """What is left where that is known, else how long it runs and what it waits for."""
    facts: list[Line] = []
    late_s = _late_s(row)
    if row.eta_s is not None:
        will_be = row.usual_s is not None and (row.elapsed_s or 0) + row.eta_s > LATE * row.usual_s
        facts.append((Span("left ", "dim"), Span(human_duration(row.eta_s), "warn" if will_be else "")))
    else:
        facts.append((Span("for ", "dim"), Span(human_duration(row.elapsed_s))))
        if row.wait and late_s is None and not short:
            facts.append(said(name_of(row.wait, 24), "dim"))
    if row.usual_s is not None and not short:
        facts.append((Span("usual ", "dim"), Span(human_duration(row.usual_s))))
    if late_s is not None:
        facts.append((Span("late by ", "dim"), Span(human_duration(late_s), "warn")))
    line = join(facts, ", ")
    if row.blocks:
        line = (*line, Span("  "), Span(f"{row.blocks} wait", level(row.blocks, 1, 10)))
    return line


def _late_s(row: ProgressRow) -> float | None:
    """How far it is beyond its usual duration, seconds; None where that is not known or not worth a word."""
    if row.usual_s is None or row.elapsed_s is None or row.elapsed_s < LATE * row.usual_s:
        return None
    return row.elapsed_s - row.usual_s


_COLUMNS = (
    Column("kind", "operation", 17, help="Program or command", sort_key="K"),
    Column("pid", "pid", 8, right=True, help="Backend; blank where it is a program without one", sort_key="P", spare=1),
    Column("database", "database", 14, sort_key="D", spare=7),
    Column("object", "object", 30, help="What it works on now", grow=True, sort_key="O"),
    Column("phase", "phase", 30, help="As the progress view words it", sort_key="H"),
    Column("pct", "share", 6, right=True, help="Share done", sort_key="S", descending=True),
    Column("grade", "known by", 9, help="measured by the server, estimated by the console, or unknown"),
    Column("done", "done", 9, right=True, sort_key="N", descending=True, spare=4),
    Column("total", "total", 9, right=True, sort_key="T", descending=True, spare=5),
    Column("unit", "unit", 9, help="Of done and total", spare=3),
    Column("rate", "rate", 10, right=True, help="Units per second", sort_key="R", descending=True, spare=6),
    Column("elapsed", "elapsed", 8, right=True, sort_key="E", descending=True),
    Column("eta", "left", 8, right=True, help="Estimated time left", sort_key="L", descending=True),
    Column("usual", "usual", 8, right=True, help="How long it took before", sort_key="U", descending=True, spare=2),
    Column(
        "blocks", "waiting", 7, right=True, help="Sessions that wait behind its locks", sort_key="W", descending=True
    ),
)


def detail(frame: Frame, width: int, history: History) -> Detail:
    panel = frame.progress
    rows = tuple(_row(row) for row in panel.operations)
    table = Table("operations", _COLUMNS, rows, None, "Dump & restore",
                  "no dump, restore, vacuum, copy or index build is running")  # fmt: skip
    if not rows and panel.status != "ok":
        return Detail("Dump & restore", tuple(states.note_lines(panel, width)))
    return Detail("Dump & restore", states.head_lines(panel, (), width), (table,))


def _amount(value: float | None, unit: str | None) -> str:
    return human_bytes(value) if unit == "bytes" else human_count(value)


def _rate(row: ProgressRow) -> str:
    return human_bytes(row.rate_per_s, per_s=True) if row.unit == "bytes" else human_count(row.rate_per_s, per_s=True)


def _row(row: ProgressRow) -> Row:
    name, phase = name_of(row.object, 120) if row.object else "", name_of(row.phase, 80) if row.phase else ""
    return Row(
        f"{row.kind} {row.pid} {row.started}",
        (
            Cell(_kind(row), row.kind),
            Cell("" if row.pid is None else str(row.pid), row.pid),
            Cell("–" if _of_cluster(row) else name_of(row.database), row.database),
            Cell(name, name),
            Cell(phase, phase),
            cell_number(human_pct(row.pct), row.pct),
            Cell(name_of(row.grade), row.grade),
            cell_number(_amount(row.done, row.unit), row.done),
            cell_number(_amount(row.total, row.unit), row.total),
            Cell(name_of(row.unit) if row.unit else "", row.unit),
            cell_number(_rate(row), row.rate_per_s),
            cell_number(human_duration(row.elapsed_s), row.elapsed_s),
            cell_number(human_duration(row.eta_s), row.eta_s),
            _usual(row),
            Cell(str(row.blocks), row.blocks, level(row.blocks, 1, 10)),
        ),
        _more(row),
    )


def _usual(row: ProgressRow) -> Cell:
    text = "" if row.usual_s is None else human_duration(row.usual_s)
    return Cell(text, row.usual_s, "" if _late_s(row) is None else "warn")


def _of_cluster(row: ProgressRow) -> bool:
    """A base backup is of all databases."""
    return row.database is None and row.kind in ("basebackup", "pg_basebackup")


def _more(row: ProgressRow) -> tuple[Line, ...]:
    late_s = _late_s(row)
    facts = join(
        [
            said(f"started {moment_of(row.started)}"),
            said(f"user {name_of(row.user)}"),
            said(f"waits for {name_of(row.wait) if row.wait else 'nothing'}"),
            *([] if late_s is None else [said(f"late by {human_duration(late_s)}", "warn")]),
        ]
    )
    return (facts, *((Span(text),) for text in wrap(row.query or "", 200)))
