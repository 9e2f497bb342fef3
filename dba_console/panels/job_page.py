"""One dump, restore or other long work in full: what it is, how far, its trouble, its phases and objects, who waits.

What is known badly is said where it stands and gathered at the end: from what it was read, and what is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dba_console.frames.model import Frame, LockNode, ProgressRow
from dba_console.panels.cells import Line, Span, Style, clean, fit_line
from dba_console.panels.job_objects import object_lines, phase_lines
from dba_console.panels.phrases import bar, fact, join, name_of, reflow, said, wrap, xids
from dba_console.panels.progress_words import (
    amount,
    is_job,
    left_words,
    of_phase,
    per_s,
    program_words,
    row_key,
    title_words,
)
from dba_console.panels.times import minute, moment, moment_of
from dba_console.units import human_bytes, human_count, human_duration, human_pct

__all__ = ["find_row", "job_page", "job_title"]

_WAITERS = 6
"""Sessions told that wait behind it; the locks panel has all."""
_BAR = 16
_LABEL = 9
"""Cells of a label at the left."""
_FORMATS = {"directory": "directory", "custom": "custom", "tar": "tar", "plain": "plain SQL"}


def find_row(frame: Frame, key: str, pid: int | None = None) -> ProgressRow | None:
    """The row of that key; else that of the same session, for a program is found some seconds after its first one."""
    rows = frame.progress.operations
    found = next((row for row in rows if row_key(row) == key), None)
    if found is None and pid is not None:
        kind = key.partition(" ")[0]
        found = next((row for row in rows if row.kind == kind and (row.pid == pid or pid in row.backends)), None)
    return found


def job_title(row: ProgressRow) -> Line:
    """`pg_dump -Fd -j4 appdb`."""
    return (Span(title_words(row), "title"),)


def job_page(frame: Frame, row: ProgressRow, width: int, window_s: float | None = None) -> list[Line]:
    """Every line of the page; the most important first, none wider than `width`. `window_s`: how long it may take."""
    cells = max(20, width - 1)
    lines = [
        *_trouble(row, cells),
        *_outside(row, window_s, cells),
        *_facts(frame, row, cells),
        *_waiting(frame, row, cells),
    ]
    phases = phase_lines(row, cells)
    if phases:
        lines += [(), *phases]
    lines += object_lines(row, cells)
    lines += _critical(row, cells)
    lines += _known(row, cells)
    return [fit_line((Span(" "), *one), width) for one in lines]


# What must not be overlooked


def _trouble(row: ProgressRow, cells: int) -> list[Line]:
    lines: list[Line] = []
    if row.errors:
        many = f"{row.errors} errors" if row.errors > 1 else "1 error"
        last = f", the last one: {clean(row.last_error[:400])}" if row.last_error else ""
        lines += _warned(f"{many} so far{last}", cells, "crit")
    if row.fits is False:
        lines += _warned(
            f"{name_of(row.mount) if row.mount else 'the disk'} will be full before it ends: it needs"
            f" ≈{human_bytes(row.need_bytes)} more, and {human_bytes(row.free_bytes)} are free",
            cells, "crit",
        )  # fmt: skip
    if row.late_s is not None:
        runs = f" (median of {row.usual_runs} runs)" if row.usual_runs else ""
        usual = f"usual {human_duration(row.usual_s)}{runs}"
        lines += _warned(f"late by {human_duration(row.late_s)}: {usual}", cells, "warn")
    return lines


def _outside(row: ProgressRow, window_s: float | None, cells: int) -> list[Line]:
    """It is past its window, or will be by what is left of it."""
    if window_s is None or row.elapsed_s is None or not is_job(row):
        return []
    window = f"its window of {human_duration(window_s)}"
    if row.elapsed_s > window_s:
        return _warned(f"over {window} by {human_duration(row.elapsed_s - window_s)}", cells, "warn")
    # What is left of a phase is the least of what is left of all.
    if row.eta_s is not None and row.elapsed_s + row.eta_s > window_s:
        over = human_duration(row.elapsed_s + row.eta_s - window_s)
        return _warned(f"will not fit {window}: about {over} over, by what is left of it now", cells, "warn")
    return []


def _warned(text: str, cells: int, style: Style) -> list[Line]:
    return [(Span(("! " if place == 0 else "  ") + one, style),) for place, one in enumerate(wrap(text, cells - 2))]


# The facts


def _facts(frame: Frame, row: ProgressRow, cells: int) -> list[Line]:
    facts = [
        ("done", _how_far(row, frame.at_us)),
        ("works on", said(name_of(row.object, 400)) if row.object and not row.objects else ()),
        ("what", _what(row)),
        ("since", _since(row)),
        ("command", said(clean(row.command[:2000])) if row.command else ()),
        ("reads", _reads(row)),
        ("writes", _writes(row)),
        ("disk", _disk(row)),
        ("horizon", _horizon(row)),
        ("waits for", said(name_of(row.wait, 60)) if row.wait and not row.phases else ()),
        ("query", said(clean(row.query[:600])) if row.query and not is_job(row) else ()),
    ]
    return [line for label, value in facts if value for line in _labelled(label, value, cells)]


def _labelled(label: str, value: Line, cells: int) -> Iterator[Line]:
    """The label at the left, the value broken beside it."""
    room = max(10, cells - _LABEL - 1)
    pieces = reflow(value, room)
    if len(value) == 1:
        pieces = [(Span(text, value[0].style),) for text in wrap(value[0].text, room)]
    for place, piece in enumerate(pieces):
        yield (Span(f"{label if place == 0 else '':<{_LABEL}} ", "dim"), *piece)


def _how_far(row: ProgressRow, at_us: int) -> Line:
    """The share with what it is of, the amount, the rate, and what is left, each with how it is known."""
    facts: list[Line] = []
    if row.pct is None:
        facts.append(said("share unknown", "stale"))
    else:
        of = f" of phase {name_of(row.phase, 40)}" if of_phase(row) else " of all" if is_job(row) else ""
        known = {"estimated": ", estimated", "measured": ", measured"}.get(row.grade, f", {clean(row.grade[:12])}")
        facts.append((Span(bar(row.pct, _BAR), "bar"), Span(f" {human_pct(row.pct)}{of}"), Span(known, "dim")))
    if row.phase and (row.scope == "whole" or row.pct is None):
        facts.append(said(f"in {name_of(row.phase, 40)}"))
    if row.done is not None:
        whole = "" if row.total is None else f" of {amount(row.total, row.unit)}"
        unit = f" {name_of(row.unit, 12)}" if row.unit not in (None, "bytes") else ""
        facts.append(said(f"{amount(row.done, row.unit)}{whole}{unit}"))
    if row.rate_per_s is not None:
        facts.append(said(per_s(row.rate_per_s, row.unit)))
    facts += [_left(row), _end(row, at_us)]
    return join(facts)


def _end(row: ProgressRow, at_us: int) -> Line:
    """When it ends by what is left, where that is of the whole."""
    if row.eta_s is None or of_phase(row):
        return ()
    end_us = at_us + int(min(row.eta_s, 1e9) * 1e6)
    return fact("ends about", minute(end_us) if row.eta_s < 12 * 3600 else moment(end_us)[:16])


def _left(row: ProgressRow) -> Line:
    if row.eta_s is None:
        return said("time left unknown", "stale")
    by = {"history": " by its runs before", "estimated": " estimated", "measured": " measured"}.get(row.eta_grade, "")
    label = "left of this phase" if of_phase(row) else "left"
    return (*fact(label, left_words(row.eta_s, row.eta_grade)), Span(by, "dim"))


def _what(row: ProgressRow) -> Line:
    parts = [program_words(row)]
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
    return join([said(part) for part in parts])


def _since(row: ProgressRow) -> Line:
    facts = [said(moment_of(row.started)), fact("for", human_duration(row.elapsed_s))]
    if row.usual_s is not None and row.late_s is None:
        runs = f" ({row.usual_runs} runs)" if row.usual_runs else ""
        facts.append(fact("usual", human_duration(row.usual_s) + runs))
    if row.run:
        facts.append(fact("begun by run", name_of(row.run, 60)))
    return join(facts)


def _reads(row: ProgressRow) -> Line:
    if row.reads is None:
        return ()
    facts = [said(name_of(row.reads, 200))]
    if row.read_bytes is not None:
        whole = "" if row.read_size_bytes is None else f" of {human_bytes(row.read_size_bytes)}"
        facts.append(said(f"{human_bytes(row.read_bytes)}{whole} read"))
    return join(facts)


def _writes(row: ProgressRow) -> Line:
    if row.writes is None:
        return ()
    facts = [said(name_of(row.writes, 200))]
    if row.written_bytes is not None:
        facts.append(said(f"{human_bytes(row.written_bytes)} written"))
    if row.written_per_s is not None:
        facts.append(said(human_bytes(row.written_per_s, per_s=True)))
    return join(facts)


def _disk(row: ProgressRow) -> Line:
    """Whether what it writes fits; that this is not known is said as well."""
    if row.mount is None and row.free_bytes is None:
        return ()
    facts = [said(name_of(row.mount, 120))] if row.mount else []
    facts.append(fact("free", human_bytes(row.free_bytes)))
    need = "?" if row.need_bytes is None else f"≈{human_bytes(row.need_bytes)}"
    facts.append(fact("still needed", need))
    if row.fits is not None:
        facts.append(said("should suffice", "ok") if row.fits else said("will not suffice", "crit"))
    else:
        facts.append(said("whether it suffices is not known", "stale"))
    return join(facts)


def _horizon(row: ProgressRow) -> Line:
    if row.xid_age is None:
        return ()
    return said(f"held back by {xids(row.xid_age)} transactions: what died since then no vacuum removes")


# Who waits


def _waiting(frame: Frame, row: ProgressRow, cells: int) -> list[Line]:
    if not row.blocks:
        return []
    mine = {*row.backends, *([] if row.pid is None else [row.pid])}
    nodes = list(_behind(frame.locks.trees, mine))[:_WAITERS]
    told = [_waiter(node) for node in nodes]
    left = row.blocks - len(told)
    if left > 0:
        told.append(said(f"… and {left} more: 6 shows all" if told else f"{left}: 6 shows them", "dim"))
    who = "1 session waits behind it" if row.blocks == 1 else f"{row.blocks} sessions wait behind it"
    return [*_labelled("waiting", said(who, "warn"), cells), *((Span(" " * (_LABEL + 1)), *one) for one in told)]


def _waiter(node: LockNode) -> Line:
    """`8123 app for 42s: alter table …`."""
    query = clean((node.query or "")[:200])
    who = f"{node.pid} {name_of(node.application or node.user, 24)}"
    return (Span(who), Span(" for ", "dim"), Span(human_duration(node.wait_s), "warn"), Span(f": {query}", "dim"))


def _behind(nodes: Sequence[LockNode], mine: set[int], *, inside: bool = False) -> Iterator[LockNode]:
    """The sessions below its own in the trees of waits."""
    for node in nodes:
        own = node.pid in mine
        if inside and not own:
            yield node
        yield from _behind(node.waiters, mine, inside=inside or own)


# What decides, and how it is known


def _critical(row: ProgressRow, cells: int) -> list[Line]:
    if not row.critical:
        return []
    lines: list[Line] = [(), (Span("decides when it ends", "title"),)]
    for place, one in enumerate(row.critical[:40]):
        lines.append((Span(("  " if place == 0 else "  → ") + name_of(one, max(10, cells - 6))),))
    if len(row.critical) > 40:
        lines.append(said(f"  … and {human_count(len(row.critical) - 40)} more", "dim"))
    return lines


def _known(row: ProgressRow, cells: int) -> list[Line]:
    lines: list[Line] = []
    if row.sources:
        lines += [(), *_labelled("known by", said("; ".join(clean(one[:300]) for one in row.sources)), cells)]
    if row.unknown and not lines:
        lines.append(())
    for place, one in enumerate(row.unknown[:20]):
        lines += _labelled("unknown" if place == 0 else "", said(one, "stale"), cells)
    return lines
