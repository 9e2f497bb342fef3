"""Disks on the screen: what fills up, when it is full, and what PostgreSQL stores there."""

from __future__ import annotations

from dba_console.core.units import human_bytes, human_pct
from dba_console.watch.disks.panel import DisksPanel, MountRow
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import bar, level_style, name_of, rate_change, text_line, time_ahead
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
    wrap_words,
)
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.tables import Column, cells

_FULL_WARN, _FULL_CRIT = 85.0, 95.0
_SOON_WARN_S, _SOON_CRIT_S = 86400.0, 3600.0
_FILLING_PCT, _WATCHED_S = 80.0, 270.0
"""The fill time is emphasised from this usage on, or if an hour is left, computed from this many seconds of growth
(nearly all a trend is computed from): what grew for two minutes may have been a checkpoint."""


# The tables.


def _path_text(row: MountRow) -> str:
    return name_of(row.path, 200)


def _path_style(row: MountRow) -> Style:
    return "" if row.status == "ok" else "warn"


def _used_style(row: MountRow) -> Style:
    return level_style(row.used_pct, _FULL_WARN, _FULL_CRIT)


def _inodes_style(row: MountRow) -> Style:
    return level_style(row.inodes_pct, _FULL_WARN, _FULL_CRIT)


def _growth_text(row: MountRow) -> str:
    return rate_change(row.growth_bytes_per_s)


def _full_in_text(row: MountRow) -> str:
    return time_ahead(row.full_in_s)


def _full_in_style(row: MountRow) -> Style:
    """Return the emphasis for the time until full, which needs more evidence than the number."""
    if row.full_in_s is None:
        return ""
    if (row.used_pct or 0.0) >= _FILLING_PCT:
        return "crit" if row.full_in_s < _SOON_CRIT_S else "warn" if row.full_in_s < _SOON_WARN_S else ""
    return "warn" if row.full_in_s < _SOON_CRIT_S and (row.watched_s or 0.0) >= _WATCHED_S else ""


def _options_text(row: MountRow) -> str:
    return name_of(row.options, 120)


_MOUNTS = (
    Column("path", "mount", 30, text=_path_text, style=_path_style, grow=True),
    Column("device", "device", 12, help="Block device", optional=True, spare=5),
    Column("fstype", "type", 8, spare=6),
    Column("holds", "holds", 22, help="What PostgreSQL stores there"),
    Column("size_bytes", "size", 9, right=True, descending=True, spare=7),
    Column("used_bytes", "used", 9, right=True, descending=True),
    Column("available_bytes", "left", 9, right=True, help="Space available to unprivileged users"),
    Column("used_pct", "used %", 7, right=True, help="As df computes it", style=_used_style, descending=True),
    Column(
        "inodes_pct",
        "inodes",
        7,
        right=True,
        help="Share of inodes used",
        style=_inodes_style,
        descending=True,
        spare=8,
    ),
    Column(
        "growth_bytes_per_s",
        "growth",
        14,
        right=True,
        help="Trend of the last ten minutes",
        text=_growth_text,
        descending=True,
        spare=3,
    ),
    Column(
        "full_in_s",
        "full in",
        8,
        right=True,
        help="At that trend; blank if it does not grow",
        text=_full_in_text,
        style=_full_in_style,
        optional=True,
    ),
    Column("options", "options", 40, help="Mount options", text=_options_text, spare=9),
)

_DATABASES = (
    Column("name", "database", 24, grow=True),
    Column("bytes", "size", 9, right=True, help="pg_database_size, read every five minutes", descending=True),
    Column("temp_bytes_per_s", "temp", 10, right=True, help="Written to temporary files", descending=True),
    Column("commits_per_s", "commits", 9, right=True, help="Per second", descending=True),
    Column("rollbacks_per_s", "rollbacks", 9, right=True, help="Per second", descending=True),
    Column("hit_pct", "hit", 6, right=True, help="Blocks found in shared buffers in the last interval"),
    Column("deadlocks", "deadlocks", 9, right=True, help="Since the statistics were reset", descending=True),
)


def mount_table(panel: DisksPanel) -> Table:
    rows = tuple(_mount_row(row) for row in sorted(panel.mounts, key=_mount_order))
    return Table("mounts", _MOUNTS, rows, None, "File systems", phrases.note_text(panel))


def _mount_row(row: MountRow) -> TableRow:
    more = [text_line(f"source {name_of(row.source, 200)}")]
    if row.status != "ok" or row.note:
        more.insert(0, text_line(f"{clean(row.status)}: {name_of(row.note or 'not readable', 300)}", "warn"))
    return TableRow(row.path, cells(_MOUNTS, row), lambda: more)


# The short form and the full form.


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(DisksPanel)
    mounts = sorted(panel.mounts, key=_mount_order)
    lines = [_mount_line(row, width) for row in mounts]
    if panel.warnings:
        # One row is kept for the first warning, but not if there are only two: those are for file systems.
        shown = height - 1 if len(lines) >= height > 2 else len(lines)
        lines = lines[:shown] + [text_line(f"! {clean(text[:300])}", "warn") for text in panel.warnings]
    return phrases.body(panel, bool(panel.mounts or panel.warnings), lines, width, height)


def _mount_order(row: MountRow) -> tuple[int, float, float, str]:
    """Sort key: file systems that do not answer, then the server's own, then by time until full."""
    trouble = row.status != "ok" or (row.used_pct or 0) >= _FULL_CRIT
    rank = 0 if trouble else 1 if row.holds else 2
    return rank, row.full_in_s if row.full_in_s is not None else 1e18, -(row.used_pct or 0.0), row.path


def _mount_line(row: MountRow, width: int) -> Line:
    if row.status != "ok":
        words = f" {clean(row.status)}: {clean(row.note or 'not readable')}"
        return (Span(fit(_clean_path(row), min(len(_clean_path(row)), max(8, width // 2)))), Span(words, "warn"))
    facts: Line = (
        Span(f"{human_pct(row.used_pct):>4}", level_style(row.used_pct, _FULL_WARN, _FULL_CRIT)),
        Span(f" {human_bytes(row.available_bytes):>7}", ""),
        Span(" left", "dim"),
    )
    name = _clean_path(row)
    holds = clean(",".join(row.holds))
    full_name = f"{name} {holds}".rstrip()
    if row.full_in_s is not None:
        when = (Span(" full in ", "dim"), Span(time_ahead(row.full_in_s), _full_in_style(row)))
        if line_width((*facts, *when)) + len(name) < width:
            facts = (*facts, *when)
        elif _full_in_style(row):
            # The path does not fit beside both: when it is full matters more than how much is left.
            facts = (facts[0], *when)
    space = width - line_width(facts) - 1
    if space > 50:
        share = bar(row.used_pct, 16)
        return (Span(fit(full_name, space - 17)), Span(" "), Span(share, "bar"), Span(" "), *facts)
    # The end of a long path identifies it better than its beginning.
    shown = full_name if len(full_name) <= space or len(name) + 8 <= space else _path_end(name, space)
    return (Span(fit(shown, max(4, space))), Span(" "), *facts)


def _clean_path(row: MountRow) -> str:
    return clean(row.path[:200])


def _path_end(path: str, cells: int) -> str:
    return path if len(path) <= cells else "…" + path[len(path) - max(1, cells - 1) :]


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(DisksPanel)
    head = [
        (Span(("! " if index == 0 else "  ") + text, "warn"),)
        for sentence in [*panel.warnings, *_unreadable(panel.mounts)]
        for index, text in enumerate(wrap_words(sentence, width - 2))
    ]
    if not panel.mounts and not panel.databases and not head:
        return Detail("Disks", tuple(phrases.note_lines(panel, width)))
    tables = [mount_table(panel)]
    if panel.databases:
        rows = tuple(TableRow(row.name, cells(_DATABASES, row)) for row in panel.databases)
        tables.append(Table("databases", _DATABASES, rows, "bytes", "Databases"))
    return Detail("Disks", phrases.head_lines(panel, head, width), tuple(tables))


def _unreadable(mounts: list[MountRow]) -> list[str]:
    return [f"{row.path}: {row.note or row.status}" for row in mounts if row.status != "ok"]


LAYOUT = Layout(name="disks", title="Disks", key="8", compact=compact, full=full)
