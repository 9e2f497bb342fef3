"""One dump, restore or other long work in full: what it is, how far, its trouble, its phases and objects, who waits.

What is known badly is said where it stands and gathered at the end: from what it was read, and what is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dba_console.frames.model import Frame, LockNode
from dba_console.frames.progress_model import ProgressRow
from dba_console.panels.job_facts import LABEL_WIDTH, fact_lines, labelled_lines
from dba_console.panels.job_objects import object_lines, phase_lines
from dba_console.panels.phrases import name_of, text_line, wrap_words
from dba_console.panels.progress_text import is_job, row_key, title_text
from dba_console.panels.text_elements import Line, Span, Style, clean, fit_line
from dba_console.units import human_bytes, human_count, human_duration

__all__ = ["find_row", "job_page", "job_title"]

_MAX_WAITERS = 6
"""Sessions told that wait behind it; the locks panel has all."""


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
    return (Span(title_text(row), "title"),)


def job_page(frame: Frame, row: ProgressRow, width: int, window_s: float | None = None) -> list[Line]:
    """Every line of the page; the most important first, none wider than `width`. `window_s`: how long it may take."""
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
            f"{name_of(row.mount) if row.mount else 'the disk'} will be full before it ends: it needs"
            f" ≈{human_bytes(row.need_bytes)} more, and {human_bytes(row.free_bytes)} are free",
            cells, "crit",
        )  # fmt: skip
    if row.late_s is not None:
        runs = f" (median of {row.usual_runs} runs)" if row.usual_runs else ""
        usual = f"usual {human_duration(row.usual_s)}{runs}"
        lines += _warning_lines(f"late by {human_duration(row.late_s)}: {usual}", cells, "warn")
    return lines


def _window_lines(row: ProgressRow, window_s: float | None, cells: int) -> list[Line]:
    """It is past its window, or will be by what is left of it."""
    if window_s is None or row.elapsed_s is None or not is_job(row):
        return []
    window = f"its window of {human_duration(window_s)}"
    if row.elapsed_s > window_s:
        return _warning_lines(f"over {window} by {human_duration(row.elapsed_s - window_s)}", cells, "warn")
    # What is left of a phase is the least of what is left of all.
    if row.eta_s is not None and row.elapsed_s + row.eta_s > window_s:
        over = human_duration(row.elapsed_s + row.eta_s - window_s)
        return _warning_lines(f"will not fit {window}: about {over} over, by what is left of it now", cells, "warn")
    return []


def _warning_lines(text: str, cells: int, style: Style) -> list[Line]:
    return [
        (Span(("! " if place == 0 else "  ") + one, style),) for place, one in enumerate(wrap_words(text, cells - 2))
    ]


# Who waits


def _waiting(frame: Frame, row: ProgressRow, cells: int) -> list[Line]:
    if not row.blocks:
        return []
    own_pids = {*row.backends, *([] if row.pid is None else [row.pid])}
    nodes = list(_blocked_nodes(frame.locks.trees, own_pids))[:_MAX_WAITERS]
    lines = [_waiter(node) for node in nodes]
    left = row.blocks - len(lines)
    if left > 0:
        lines.append(text_line(f"… and {left} more: 6 shows all" if lines else f"{left}: 6 shows them", "dim"))
    who = "1 session waits behind it" if row.blocks == 1 else f"{row.blocks} sessions wait behind it"
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
    """The sessions below its own in the trees of waits."""
    for node in nodes:
        own = node.pid in own_pids
        if inside and not own:
            yield node
        yield from _blocked_nodes(node.waiters, own_pids, inside=inside or own)


# What decides, and how it is known


def _critical_lines(row: ProgressRow, cells: int) -> list[Line]:
    if not row.critical:
        return []
    lines: list[Line] = [(), (Span("decides when it ends", "title"),)]
    for place, one in enumerate(row.critical[:40]):
        lines.append((Span(("  " if place == 0 else "  → ") + name_of(one, max(10, cells - 6))),))
    if len(row.critical) > 40:
        lines.append(text_line(f"  … and {human_count(len(row.critical) - 40)} more", "dim"))
    return lines


def _source_lines(row: ProgressRow, cells: int) -> list[Line]:
    lines: list[Line] = []
    if row.sources:
        lines += [(), *labelled_lines("known by", text_line("; ".join(clean(one[:300]) for one in row.sources)), cells)]
    if row.unknown and not lines:
        lines.append(())
    for place, one in enumerate(row.unknown[:20]):
        lines += labelled_lines("unknown" if place == 0 else "", text_line(one, "stale"), cells)
    return lines
