"""The words of long work, the same in the overview, in the table, on the page of a job: what, how far, what is left.

A share always says of what it is one and how it is known, a time left that is no measurement carries `≈`, and trouble
(errors so far, a disk that will not do) comes before what is merely interesting.
"""

from __future__ import annotations

from dba_console.frames.job_sessions import JOBS
from dba_console.frames.progress_model import ProgressRow
from dba_console.panels.phrases import name_of, statement, text_line
from dba_console.panels.text_elements import Line, Span, clean
from dba_console.units import human_bytes, human_count, human_duration, human_pct

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
