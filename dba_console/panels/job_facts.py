"""The facts of one dump, restore or other long work: how far, what it is, what it reads and writes, what it holds back.

A label at the left, and beside it what is known with how it is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.frames.model import Frame
from dba_console.frames.progress_model import ProgressRow
from dba_console.panels.phrases import bar, fact, join, name_of, reflow, text_line, wrap_words, xids_text
from dba_console.panels.progress_text import (
    amount_text,
    is_job,
    is_of_phase,
    part_text,
    program_text,
    rate_text,
    remaining_text,
)
from dba_console.panels.text_elements import Line, Span, clean
from dba_console.panels.time_formats import date_and_time, hour_and_minute, local_date_and_time
from dba_console.units import human_bytes, human_duration, human_pct

LABEL_WIDTH = 9
"""Cells of a label at the left."""
_BAR = 16
_FORMATS = {"directory": "directory", "custom": "custom", "tar": "tar", "plain": "plain SQL"}


def fact_lines(frame: Frame, row: ProgressRow, cells: int) -> list[Line]:
    """A line or more for each fact that is known; what should be known and is not says so."""
    known = [
        ("done", _progress(row, frame.at_us)),
        ("works on", text_line(name_of(row.object, 400)) if row.object and not row.objects else ()),
        ("what", _description(row)),
        ("since", _started(row)),
        ("command", text_line(clean(row.command[:2000])) if row.command else ()),
        ("reads", _reads(row)),
        ("writes", _writes(row)),
        ("disk", _disk(row)),
        ("horizon", _horizon(row)),
        ("waits for", text_line(name_of(row.wait, 60)) if row.wait and not row.phases else ()),
        ("query", _query(row) if row.query and not is_job(row) else ()),
    ]
    return [line for label, value in known if value for line in labelled_lines(label, value, cells)]


def _query(row: ProgressRow) -> Line:
    whole = "" if row.query_bytes is None else f" … ({human_bytes(row.query_bytes)} in all)"
    return text_line(clean((row.query or "")[:600]) + whole)


def labelled_lines(label: str, value: Line, cells: int) -> Iterator[Line]:
    """The label at the left, the value broken beside it."""
    room = max(10, cells - LABEL_WIDTH - 1)
    pieces = reflow(value, room)
    if len(value) == 1:
        pieces = [(Span(text, value[0].style),) for text in wrap_words(value[0].text, room)]
    for place, piece in enumerate(pieces):
        yield (Span(f"{label if place == 0 else '':<{LABEL_WIDTH}} ", "dim"), *piece)


def _progress(row: ProgressRow, at_us: int) -> Line:
    """The share with what it is of, the amount, the rate, and what is left, each with how it is known."""
    facts: list[Line] = []
    if row.pct is None:
        facts.append(text_line("share unknown", "stale"))
    else:
        of = f" of phase {name_of(row.phase or '', 40)}" if is_of_phase(row) else " of all" if is_job(row) else ""
        if part := part_text(row):
            of = f" of {part}"
        known = {"estimated": ", estimated", "measured": ", measured"}.get(row.grade, f", {clean(row.grade[:12])}")
        facts.append((Span(bar(row.pct, _BAR), "bar"), Span(f" {human_pct(row.pct)}{of}"), Span(known, "dim")))
    if row.phase and (row.scope in ("whole", "file") or row.pct is None):
        facts.append(text_line(f"in {name_of(row.phase, 40)}"))
    if row.done is not None:
        whole = "" if row.total is None else f" of {amount_text(row.total, row.unit)}"
        unit = f" {name_of(row.unit, 12)}" if row.unit not in (None, "bytes") else ""
        facts.append(text_line(f"{amount_text(row.done, row.unit)}{whole}{unit}"))
    if row.rate_per_s is not None:
        facts.append(text_line(rate_text(row.rate_per_s, row.unit)))
    facts += [_remaining(row), _end_time(row, at_us)]
    return join(facts)


def _end_time(row: ProgressRow, at_us: int) -> Line:
    """When it ends by what is left, where that is of the whole."""
    if row.eta_s is None or is_of_phase(row):
        return ()
    end_us = at_us + int(min(row.eta_s, 1e9) * 1e6)
    return fact("ends about", hour_and_minute(end_us) if row.eta_s < 12 * 3600 else date_and_time(end_us)[:16])


def _remaining(row: ProgressRow) -> Line:
    if row.eta_s is None:
        return text_line("time left unknown", "stale")
    by = {"history": " by its runs before", "estimated": " estimated", "measured": " measured"}.get(row.eta_grade, "")
    label = ("left of the file" if row.scope == "file" else "left of this phase") if is_of_phase(row) else "left"
    return (*fact(label, remaining_text(row.eta_s, row.eta_grade)), Span(by, "dim"))


def _description(row: ProgressRow) -> Line:
    parts = [program_text(row)]
    if row.version:
        parts[0] += f", version {name_of(row.version, 20)}"
    if row.format:
        parts.append(_FORMATS.get(row.format, name_of(row.format, 16)) + " format")
    if row.compression:
        parts.append(name_of(row.compression, 16))
    if row.jobs is not None:
        parts.append(f"{row.jobs} job{'s' if row.jobs != 1 else ''}")
    if row.database:
        parts.append(f"database {name_of(row.database, 64)}")
    if row.user:
        parts.append(f"as {name_of(row.user, 64)}")
    if row.process is not None:
        parts.append(f"process {row.process}")
    elif row.client:
        parts.append(f"on {name_of(row.client, 40)}")
    if row.pid is not None:
        parts.append(f"backend {row.pid}" + (f" and {len(row.backends) - 1} more" if len(row.backends) > 1 else ""))
    return join([text_line(part) for part in parts])


def _started(row: ProgressRow) -> Line:
    facts = [text_line(local_date_and_time(row.started)), fact("for", human_duration(row.elapsed_s))]
    if row.usual_s is not None and row.late_s is None:
        of = "runs" if row.source is None else f"restores of {name_of(row.source, 64)}"
        runs = f" ({row.usual_runs} {of})" if row.usual_runs else ""
        facts.append(fact("usual", human_duration(row.usual_s) + runs))
    if row.run:
        facts.append(fact("begun by run", name_of(row.run, 60)))
    return join(facts)


def _reads(row: ProgressRow) -> Line:
    if row.reads is None:
        return ()
    facts = [text_line(name_of(row.reads, 200))]
    if row.read_bytes is not None:
        whole = "" if row.read_size_bytes is None else f" of {human_bytes(row.read_size_bytes)}"
        facts.append(text_line(f"{human_bytes(row.read_bytes)}{whole} read"))
    return join(facts)


def _writes(row: ProgressRow) -> Line:
    if row.writes is None:
        return ()
    facts = [text_line(name_of(row.writes, 200))]
    if row.written_bytes is not None:
        facts.append(text_line(f"{human_bytes(row.written_bytes)} written"))
    if row.written_per_s is not None:
        facts.append(text_line(human_bytes(row.written_per_s, per_s=True)))
    return join(facts)


def _disk(row: ProgressRow) -> Line:
    """Whether what it writes fits; that this is not known is said as well."""
    if row.mount is None and row.free_bytes is None:
        return ()
    facts = [text_line(name_of(row.mount, 120))] if row.mount else []
    facts.append(fact("free", human_bytes(row.free_bytes)))
    need = "?" if row.need_bytes is None else f"≈{human_bytes(row.need_bytes)}"
    facts.append(fact("still needed", need))
    if row.fits is not None:
        facts.append(text_line("should suffice", "ok") if row.fits else text_line("will not suffice", "crit"))
    else:
        facts.append(text_line("whether it suffices is not known", "stale"))
    return join(facts)


def _horizon(row: ProgressRow) -> Line:
    if row.xid_age is None:
        return ()
    return text_line(f"held back by {xids_text(row.xid_age)} transactions: what died since then no vacuum removes")
