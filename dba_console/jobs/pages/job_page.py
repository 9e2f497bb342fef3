"""One dump, restore or other long operation in full: progress, problems, phases, objects, sessions it blocks.

Uncertain values are marked where they appear and listed at the end: their sources, and what is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dba_console.core.units import human_bytes, human_count, human_duration, human_pct
from dba_console.watch.drawing.phrases import bar, fact, integer, join, name_of, reflow, text_line, xids_text
from dba_console.watch.drawing.text_elements import (
    Cell,
    Line,
    Span,
    Style,
    TableColumn,
    TableRow,
    clean,
    cut,
    fit_line,
    table_lines,
    wrap_words,
)
from dba_console.watch.drawing.time_formats import date_and_time, hour_and_minute, local_date_and_time
from dba_console.watch.frames.model import Frame
from dba_console.watch.locks.panel import LockNode
from dba_console.watch.progress.layout import (
    amount_text,
    grade_text,
    is_job,
    is_of_phase,
    part_text,
    program_text,
    rate_text,
    remaining_text,
    row_key,
    title_text,
)
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ObjectRow, PhaseRow, ProgressRow
from dba_console.watch.wait_events import explained_wait

# The facts of one operation: progress, description, input and output, what it holds back. A label at the left, and
# beside it the value with how it is known.

LABEL_WIDTH = 9
"""Cells of a label at the left."""
_BAR = 16
_FORMATS = {"directory": "directory", "custom": "custom", "tar": "tar", "plain": "plain SQL"}


def fact_lines(frame: Frame, row: ProgressRow, cells: int) -> list[Line]:
    """Return the lines of each known fact; unknown facts that matter are shown as unknown."""
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
        ("waits for", text_line(explained_wait(row.wait)) if row.wait and not row.phases else ()),
        ("query", _query(row) if row.query and not is_job(row) else ()),
    ]
    return [line for label, value in known if value for line in labelled_lines(label, value, cells)]


def _query(row: ProgressRow) -> Line:
    whole = "" if row.query_bytes is None else f" … ({human_bytes(row.query_bytes)} total)"
    return text_line(clean((row.query or "")[:600]) + whole)


def labelled_lines(label: str, value: Line, cells: int) -> Iterator[Line]:
    """Yield the label at the left with the value, wrapped, beside it."""
    space = max(10, cells - LABEL_WIDTH - 1)
    pieces = reflow(value, space)
    if len(value) == 1:
        pieces = [(Span(text, value[0].style),) for text in wrap_words(value[0].text, space)]
    for index, piece in enumerate(pieces):
        yield (Span(f"{label if index == 0 else '':<{LABEL_WIDTH}} ", "dim"), *piece)


def _progress(row: ProgressRow, at_us: int) -> Line:
    """Return the share with its whole, amount, rate, and time left, each with how it is known."""
    facts: list[Line] = []
    if row.pct is None:
        facts.append(text_line("progress unknown", "stale"))
    else:
        of = f" of phase {name_of(row.phase or '', 40)}" if is_of_phase(row) else " of all" if is_job(row) else ""
        if part := part_text(row):
            of = f" of {part}"
        known = {"estimated": ", estimated", "measured": ", measured"}.get(row.grade, f", {clean(row.grade[:12])}")
        facts.append((Span(bar(row.pct, _BAR), "bar"), Span(f" {human_pct(row.pct)}{of}"), Span(known, "dim")))
    if row.phase and (row.scope in ("whole", "file") or row.pct is None):
        facts.append(text_line(f"in {name_of(row.phase, 40)}"))
    if row.done is not None:
        about = "about " if row.unit == "s" else ""
        whole = "" if row.total is None else f" of {about}{amount_text(row.total, row.unit)}"
        unit = f" {name_of(row.unit, 12)}" if row.unit not in (None, "bytes", "s") else ""
        facts.append(text_line(f"{amount_text(row.done, row.unit)}{whole}{unit}"))
    if row.rate_per_s is not None:
        facts.append(text_line(rate_text(row.rate_per_s, row.unit)))
    facts += [_remaining(row), _end_time(row, at_us)]
    return join(facts)


def _end_time(row: ProgressRow, at_us: int) -> Line:
    """Return when it ends according to the time left, if that refers to the whole."""
    if row.eta_s is None or is_of_phase(row):
        return ()
    end_us = at_us + int(min(row.eta_s, 1e9) * 1e6)
    return fact("ends about", hour_and_minute(end_us) if row.eta_s < 12 * 3600 else date_and_time(end_us)[:16])


def _remaining(row: ProgressRow) -> Line:
    if row.eta_s is None:
        return text_line("time left unknown", "stale")
    by = {"history": " from earlier runs", "estimated": " estimated", "measured": " measured"}.get(row.eta_grade, "")
    label = ("left of the file" if row.scope == "file" else "left of this phase") if is_of_phase(row) else "left"
    return (*fact(label, remaining_text(row.eta_s, row.eta_grade)), Span(by, "dim"))


def _description(row: ProgressRow) -> Line:
    parts = [program_text(row)]
    if row.version:
        parts[0] += f", version {name_of(row.version, 20)}"
    if row.format:
        parts.append(_FORMATS.get(row.format, name_of(row.format, 16)) + " format")
    if row.compression:
        parts.append("no compression" if row.compression == "none" else name_of(row.compression, 16))
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
        facts.append(fact("typical", human_duration(row.usual_s) + runs))
    if row.run:
        facts.append(fact("runbook run", name_of(row.run, 60)))
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
    """Return whether the output fits on the disk, or that this is unknown."""
    if row.mount is None and row.free_bytes is None:
        return ()
    facts = [text_line(name_of(row.mount, 120))] if row.mount else []
    facts.append(fact("free", human_bytes(row.free_bytes)))
    need = "?" if row.need_bytes is None else f"≈{human_bytes(row.need_bytes)}"
    facts.append(fact("still needed", need))
    if row.fits is not None:
        facts.append(text_line("enough space", "ok") if row.fits else text_line("not enough space", "crit"))
    else:
        facts.append(text_line("unknown if this is enough", "stale"))
    return join(facts)


def _horizon(row: ProgressRow) -> Line:
    if row.xid_age is None:
        return ()
    return text_line(f"{xids_text(row.xid_age)} transactions back: rows dead since then cannot be vacuumed")


# Phases and objects of a dump or restore: bars by phase, running objects first; omitted ones are counted.

_OBJECT_BAR = 12
_MAX_SHOWN = {"running": 64, "failed": 12, "waiting": 12, "done": 8}
"""Objects shown per state; the rest is counted. More than 64 jobs are not expected."""
_TITLES = {"running": "running", "failed": "failed", "waiting": "waiting, largest first", "done": "done, last first"}

_PHASE_COLUMNS = (
    TableColumn("name", "phase", 11),
    TableColumn("objects", "objects", 26, right=True),
    TableColumn("bar", "", _OBJECT_BAR, spare=6),
    TableColumn("pct", "share", 6, right=True),
    TableColumn("grade", "basis", 8),
    TableColumn("done", "done", 9, right=True, spare=3),
    TableColumn("total", "of", 11, right=True, spare=3),
    TableColumn("rate", "rate", 10, right=True, spare=5),
    TableColumn("wall", "took", 8, right=True),
    TableColumn(
        "busy", "sum", 8, right=True, help="Sum of the times of its objects, which parallel jobs share", spare=4
    ),
    TableColumn("left", "left", 8, right=True),
)
_OBJECT_COLUMNS = (
    TableColumn("what", "what", 14, spare=2),
    TableColumn("name", "object", 20, grow=True),
    TableColumn("bar", "", 8, spare=3),
    TableColumn("pct", "share", 6, right=True),
    TableColumn("grade", "basis", 8, spare=4),
    TableColumn("done", "done", 9, right=True, spare=5),
    TableColumn("total", "of", 11, right=True, spare=1),
    TableColumn("rate", "rate", 10, right=True, spare=6),
    TableColumn("elapsed", "elapsed", 8, right=True),
    TableColumn("left", "left", 8, right=True),
    TableColumn("pid", "pid", 8, right=True, spare=7),
)


def phase_lines(row: ProgressRow, width: int) -> list[Line]:
    """Return a line for each phase. With -j they overlap: `wall` is first to last, `busy` the sum of all objects."""
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
    """`180 of 214, 4▶, 1 failed`: done of total, running, failed."""
    running = f", {one.items_running}▶" if one.items_running else ""
    wrong = f", {failed} failed" if failed else ""
    return f"{one.items_done} of {integer(one.items)}{running}{wrong}"


def object_lines(row: ProgressRow, width: int) -> list[Line]:
    """Return the objects by state, running ones first."""
    counts = row.counts
    lines: list[Line] = []
    for state, max_shown in _MAX_SHOWN.items():
        shown = [one for one in row.objects if one.state == state]
        total = len(shown) if counts is None else max(len(shown), getattr(counts, state))
        if not shown and not (total and state == "failed"):
            continue
        style: Style = "crit" if state == "failed" else "title"
        lines += [(), (Span(_TITLES[state], style), Span(f"  {total}" if total > 1 else "", "dim"))]
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
    """Return the object's total in its unit, else its size in bytes."""
    if one.total is not None:
        return amount_text(one.total, one.unit) + ("" if one.unit in (None, "bytes") else f" {name_of(one.unit, 6)}")
    return "" if one.weight is None else human_bytes(one.weight)


_MAX_WAITERS = 6
"""Waiting sessions shown; the locks panel has all."""


def find_row(frame: Frame, key: str, pid: int | None = None) -> ProgressRow | None:
    """Return the row of that key, else that of the same session: a program is found seconds after its first session."""
    rows = frame.of(ProgressPanel).operations
    found = next((row for row in rows if row_key(row) == key), None)
    if found is None and pid is not None:
        kind = key.partition(" ")[0]
        found = next((row for row in rows if row.kind == kind and (row.pid == pid or pid in row.backends)), None)
    return found


def job_title(row: ProgressRow) -> Line:
    """`pg_dump -Fd -j4 appdb`."""
    return (Span(title_text(row), "title"),)


def job_page(frame: Frame, row: ProgressRow, width: int, window_s: float | None = None) -> list[Line]:
    """Return the lines of the page, most important first, at most `width` wide. `window_s`: the allowed duration."""
    cells = max(20, width - 1)
    lines = [
        *_trouble_lines(row, cells),
        *_window_lines(row, window_s, cells),
        *fact_lines(frame, row, cells),
        *_waiting(frame, row, cells),
    ]
    phases = phase_lines(row, cells)
    if phases:
        lines += [(), *phases]
    lines += object_lines(row, cells)
    lines += _critical_lines(row, cells)
    lines += _source_lines(row, cells)
    return [fit_line((Span(" "), *one), width) for one in lines]


# What must not be overlooked


def _trouble_lines(row: ProgressRow, cells: int) -> list[Line]:
    lines: list[Line] = []
    if row.errors:
        many = f"{row.errors} errors" if row.errors > 1 else "1 error"
        last = f", the last one: {clean(row.last_error[:400])}" if row.last_error else ""
        lines += _warning_lines(f"{many} so far{last}", cells, "crit")
    if row.fits is False:
        lines += _warning_lines(
            f"{name_of(row.mount) if row.mount else 'the disk'} will be full before it ends: needs"
            f" ≈{human_bytes(row.need_bytes)} more, {human_bytes(row.free_bytes)} free",
            cells, "crit",
        )  # fmt: skip
    if row.late_s is not None:
        runs = f" (median of {row.usual_runs} runs)" if row.usual_runs else ""
        typical = f"typical {human_duration(row.usual_s)}{runs}"
        lines += _warning_lines(f"overdue by {human_duration(row.late_s)}: {typical}", cells, "warn")
    return lines


def _window_lines(row: ProgressRow, window_s: float | None, cells: int) -> list[Line]:
    """Return a warning if it exceeds its window, or will according to the time left."""
    if window_s is None or row.elapsed_s is None or not is_job(row):
        return []
    window = f"its window of {human_duration(window_s)}"
    if row.elapsed_s > window_s:
        return _warning_lines(f"exceeds {window} by {human_duration(row.elapsed_s - window_s)}", cells, "warn")
    # The time left of a phase is the minimum for the whole.
    if row.eta_s is not None and row.elapsed_s + row.eta_s > window_s:
        over = human_duration(row.elapsed_s + row.eta_s - window_s)
        return _warning_lines(f"will exceed {window} by about {over}, by the time left now", cells, "warn")
    return []


def _warning_lines(text: str, cells: int, style: Style) -> list[Line]:
    return [
        (Span(("! " if index == 0 else "  ") + one, style),) for index, one in enumerate(wrap_words(text, cells - 2))
    ]


# Waiting sessions


def _waiting(frame: Frame, row: ProgressRow, cells: int) -> list[Line]:
    if not row.blocks:
        return []
    own_pids = {*row.backends, *([] if row.pid is None else [row.pid])}
    nodes = list(_blocked_nodes(frame.locks.trees, own_pids))[:_MAX_WAITERS]
    lines = [_waiter(node) for node in nodes]
    left = row.blocks - len(lines)
    if left > 0:
        lines.append(text_line(f"… and {left} more: 6 shows all" if lines else f"{left}: 6 shows them", "dim"))
    who = "1 session waits for it" if row.blocks == 1 else f"{row.blocks} sessions wait for it"
    return [
        *labelled_lines("waiting", text_line(who, "warn"), cells),
        *((Span(" " * (LABEL_WIDTH + 1)), *one) for one in lines),
    ]


def _waiter(node: LockNode) -> Line:
    """`8123 app for 42s: alter table …`."""
    query = clean((node.query or "")[:200])
    who = f"{node.pid} {name_of(node.application or node.user, 24)}"
    return (Span(who), Span(" for ", "dim"), Span(human_duration(node.wait_s), "warn"), Span(f": {query}", "dim"))


def _blocked_nodes(nodes: Sequence[LockNode], own_pids: set[int], *, inside: bool = False) -> Iterator[LockNode]:
    """Yield the sessions below its own in the lock trees."""
    for node in nodes:
        own = node.pid in own_pids
        if inside and not own:
            yield node
        yield from _blocked_nodes(node.waiters, own_pids, inside=inside or own)


# Critical path and sources


def _critical_lines(row: ProgressRow, cells: int) -> list[Line]:
    if not row.critical:
        return []
    lines: list[Line] = [(), (Span("critical path", "title"),)]
    for index, one in enumerate(row.critical[:40]):
        lines.append((Span(("  " if index == 0 else "  → ") + name_of(one, max(10, cells - 6))),))
    if len(row.critical) > 40:
        lines.append(text_line(f"  … and {human_count(len(row.critical) - 40)} more", "dim"))
    return lines


def _source_lines(row: ProgressRow, cells: int) -> list[Line]:
    lines: list[Line] = []
    if row.sources:
        lines += [(), *labelled_lines("based on", text_line("; ".join(clean(one[:300]) for one in row.sources)), cells)]
    if row.unknown and not lines:
        lines.append(())
    for index, one in enumerate(row.unknown[:20]):
        lines += labelled_lines("unknown" if index == 0 else "", text_line(one, "stale"), cells)
    return lines
