"""Disks: what fills up, when it is full, and what PostgreSQL stores there."""

from __future__ import annotations

from dba_console.core.units import human_bytes, human_count, human_pct
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.rows import DatabaseRow, MountRow
from dba_console.watch.panels import phrases
from dba_console.watch.panels.phrases import bar, integer, level_style, name_of, rate_change, text_line, time_ahead
from dba_console.watch.panels.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    clean,
    fit,
    line_width,
    number_cell,
    wrap_words,
)

_FULL_WARN, _FULL_CRIT = 85.0, 95.0
_SOON_WARN_S, _SOON_CRIT_S = 86400.0, 3600.0
_FILLING_PCT, _WATCHED_S = 80.0, 270.0
"""The fill time is emphasised from this usage on, or if an hour is left, computed from this many seconds of growth
(nearly all a trend is computed from): what grew for two minutes may have been a checkpoint."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.disks
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


def _full_in_style(row: MountRow) -> Style:
    """Return the emphasis for the time until full, which needs more evidence than the number."""
    if row.full_in_s is None:
        return ""
    if (row.used_pct or 0.0) >= _FILLING_PCT:
        return "crit" if row.full_in_s < _SOON_CRIT_S else "warn" if row.full_in_s < _SOON_WARN_S else ""
    return "warn" if row.full_in_s < _SOON_CRIT_S and (row.watched_s or 0.0) >= _WATCHED_S else ""


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.disks
    head = [
        (Span(("! " if index == 0 else "  ") + text, "warn"),)
        for sentence in [*panel.warnings, *_unreadable(panel.mounts)]
        for index, text in enumerate(wrap_words(sentence, width - 2))
    ]
    if not panel.mounts and not panel.databases and not head:
        return Detail("Disks", tuple(phrases.note_lines(panel, width)))
    tables = [
        Table("mounts", _MOUNT_COLUMNS, tuple(_mount_row(row) for row in sorted(panel.mounts, key=_mount_order)), None,
              "File systems", phrases.note_text(panel))
    ]  # fmt: skip
    if panel.databases:
        tables.append(Table("databases", _DATABASE_COLUMNS, tuple(_database_row(row) for row in panel.databases),
                            "bytes", "Databases"))  # fmt: skip
    return Detail("Disks", phrases.head_lines(panel, head, width), tuple(tables))


def _unreadable(mounts: list[MountRow]) -> list[str]:
    return [f"{row.path}: {row.note or row.status}" for row in mounts if row.status != "ok"]


_MOUNT_COLUMNS = (
    TableColumn("path", "mount", 30, grow=True),
    TableColumn("device", "device", 12, help="Block device", spare=5),
    TableColumn("fstype", "type", 8, spare=6),
    TableColumn("holds", "holds", 22, help="What PostgreSQL stores there"),
    TableColumn("size", "size", 9, right=True, descending=True, spare=7),
    TableColumn("used", "used", 9, right=True, descending=True),
    TableColumn("available", "left", 9, right=True, help="Space available to unprivileged users"),
    TableColumn("pct", "used %", 7, right=True, help="As df computes it", descending=True),
    TableColumn("inodes", "inodes", 7, right=True, help="Share of inodes used", descending=True, spare=8),
    TableColumn("growth", "growth", 14, right=True, help="Trend of the last ten minutes", descending=True, spare=3),
    TableColumn("full_in", "full in", 8, right=True, help="At that trend; blank if it does not grow"),
    TableColumn("options", "options", 40, help="Mount options", spare=9),
)


def _mount_row(row: MountRow) -> TableRow:
    path, holds = name_of(row.path, 200), name_of(", ".join(row.holds))
    more = [text_line(f"source {name_of(row.source, 200)}")]
    if row.status != "ok" or row.note:
        more.insert(0, text_line(f"{clean(row.status)}: {name_of(row.note or 'not readable', 300)}", "warn"))
    return TableRow(
        row.path,
        (
            Cell(path, path, "" if row.status == "ok" else "warn"),
            Cell(name_of(row.device) if row.device else "", row.device),
            Cell(name_of(row.fstype), row.fstype),
            Cell(holds, holds),
            number_cell(human_bytes(row.size_bytes), row.size_bytes),
            number_cell(human_bytes(row.used_bytes), row.used_bytes),
            number_cell(human_bytes(row.available_bytes), row.available_bytes),
            Cell(human_pct(row.used_pct), row.used_pct, level_style(row.used_pct, _FULL_WARN, _FULL_CRIT)),
            Cell(human_pct(row.inodes_pct), row.inodes_pct, level_style(row.inodes_pct, _FULL_WARN, _FULL_CRIT)),
            number_cell(rate_change(row.growth_bytes_per_s), row.growth_bytes_per_s),
            Cell("" if row.full_in_s is None else time_ahead(row.full_in_s), row.full_in_s, _full_in_style(row)),
            Cell(name_of(row.options, 120)),
        ),
        lambda: more,
    )


_DATABASE_COLUMNS = (
    TableColumn("name", "database", 24, grow=True),
    TableColumn("bytes", "size", 9, right=True, help="pg_database_size, read every five minutes", descending=True),
    TableColumn("temp", "temp", 10, right=True, help="Written to temporary files", descending=True),
    TableColumn("commits", "commits", 9, right=True, help="Per second", descending=True),
    TableColumn("rollbacks", "rollbacks", 9, right=True, help="Per second", descending=True),
    TableColumn("hit", "hit", 6, right=True, help="Blocks found in shared buffers in the last interval"),
    TableColumn("deadlocks", "deadlocks", 9, right=True, help="Since the statistics were reset", descending=True),
)


def _database_row(row: DatabaseRow) -> TableRow:
    return TableRow(
        row.name,
        (
            Cell(name_of(row.name), row.name),
            number_cell(human_bytes(row.bytes), row.bytes),
            number_cell(human_bytes(row.temp_bytes_per_s, per_s=True), row.temp_bytes_per_s),
            number_cell(human_count(row.commits_per_s, per_s=True), row.commits_per_s),
            number_cell(human_count(row.rollbacks_per_s, per_s=True), row.rollbacks_per_s),
            number_cell(human_pct(row.hit_pct), row.hit_pct),
            number_cell(integer(row.deadlocks), row.deadlocks),
        ),
    )
