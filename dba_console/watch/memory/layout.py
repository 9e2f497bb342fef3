"""Memory on the screen: page cache, free memory, and whether reclaim slows down queries."""

from __future__ import annotations

from dba_console.core.units import human_bytes, human_count, human_pct
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import (
    fact,
    first_fitting,
    integer,
    join,
    join_fitting,
    level_style,
    name_of,
    rate_change,
    text_line,
)
from dba_console.watch.drawing.text_elements import Cell, Detail, Line, Span, Table, TableColumn, TableRow
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.memory.panel import MemoryPanel, NumaRow
from dba_console.watch.tables import Column, cells

# The tables.


def _miss_text(node: NumaRow) -> str:
    return human_count(node.numa_miss_per_s)


def _foreign_text(node: NumaRow) -> str:
    return human_count(node.numa_foreign_per_s)


_NODES = (
    Column("node", "node", 6, right=True, help="NUMA node"),
    Column("total_bytes", "total", 10, right=True, help="Memory of the node", descending=True),
    Column("free_bytes", "free", 10, right=True, help="Free on the node"),
    Column(
        "numa_miss_per_s",
        "miss/s",
        10,
        right=True,
        help="Pages allocated here, intended for another node",
        text=_miss_text,
        descending=True,
    ),
    Column(
        "numa_foreign_per_s",
        "foreign/s",
        10,
        right=True,
        help="Pages intended for this node, allocated elsewhere",
        text=_foreign_text,
        descending=True,
    ),
)

_SETTINGS = (
    TableColumn("name", "kernel setting", 28, help="As /proc/sys/vm and /sys name it"),
    TableColumn("value", "value", 20, help="? if it cannot be read", grow=True),
)


def _settings_table(panel: MemoryPanel) -> Table:
    rows = tuple(
        TableRow(name, (Cell(name_of(name), name), Cell(name_of(None if value is None else str(value)), value)))
        for name, value in panel.settings.items()
    )
    return Table("settings", _SETTINGS, rows, None, "Kernel settings", "not read yet")


# The short form and the full form.


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(MemoryPanel)
    cached = _level_line("cached", panel.cached_bytes, panel.cached_change_bytes_per_s)
    free = _level_line("free", panel.free_bytes, panel.free_change_bytes_per_s)
    if height == 1:
        cached = join_fitting(width, [cached, free])
    lines = [cached, free, _reclaim(panel, width), _stalls(panel, width), _writing(panel, width), _swap(panel, width)]
    return phrases.body(panel, panel.total_bytes is not None, lines, width, height)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(MemoryPanel)
    if panel.total_bytes is None:
        return Detail("Memory", tuple(phrases.note_lines(panel, width)))
    head = [
        _level_line("cached", panel.cached_bytes, panel.cached_change_bytes_per_s),
        _level_line("free", panel.free_bytes, panel.free_change_bytes_per_s),
        join([fact(name, human_bytes(value)) for name, value in _level_values(panel)]),
        _reclaim(panel, 200),
        _stalls(panel, 200),
        _refaults(panel),
        _writing(panel, 200),
        _swap(panel, 200),
        _huge(panel),
    ]
    tables = [_settings_table(panel)]
    if panel.numa_nodes:
        rows = tuple(TableRow(str(node.node), cells(_NODES, node)) for node in panel.numa_nodes)
        tables.append(Table("numa", _NODES, rows, None, "NUMA nodes"))
    return Detail("Memory", phrases.head_lines(panel, head, width), tuple(tables))


def _level_values(panel: MemoryPanel) -> list[tuple[str, int | None]]:
    return [
        ("total", panel.total_bytes),
        ("anonymous", panel.anon_bytes),
        ("shmem", panel.shmem_bytes),
        ("slab", panel.slab_bytes),
        ("buffers", panel.buffers_bytes),
        ("shared_buffers", panel.shared_buffers_bytes),
    ]


def _level_line(name: str, level_bytes: int | None, per_s: float | None) -> Line:
    """`cached  2.1 GB ▼ 310 MB/s`."""
    text = rate_change(per_s)
    return (
        Span(f"{name:<6} ", "dim"),
        Span(f"{human_bytes(level_bytes):>8}"),
        Span(f" {text}", "stale" if per_s is None else ""),
    )


def _reclaim(panel: MemoryPanel, width: int) -> Line:
    kswapd = fact("kswapd", human_bytes(panel.reclaim_kswapd_bytes_per_s, per_s=True))
    direct = fact(
        "direct",
        human_bytes(panel.reclaim_direct_bytes_per_s, per_s=True),
        level_style(panel.reclaim_direct_bytes_per_s, 1, 100 << 20),
    )
    stalls = fact(
        "allocation stalls",
        human_count(panel.alloc_stalls_per_s, per_s=True),
        level_style(panel.alloc_stalls_per_s, 1, 100),
    )
    return first_fitting(
        width,
        (Span("reclaim ", "dim"), *join([kswapd, direct, stalls])),
        (Span("reclaim ", "dim"), *join([kswapd, direct], " ")),
        join([kswapd, direct], " "),
    )


def _stalls(panel: MemoryPanel, width: int) -> Line:
    some = fact("some", human_pct(panel.psi_some_avg10), level_style(panel.psi_some_avg10, 10, 40))
    full = fact("full", human_pct(panel.psi_full_avg10), level_style(panel.psi_full_avg10, 5, 20))
    available = fact("available", human_bytes(panel.available_bytes))
    return first_fitting(
        width,
        join([(Span("stalled ", "dim"), *some, Span(" "), *full), available]),
        (Span("stalled ", "dim"), *some, Span(" "), *full),
    )


def _writing(panel: MemoryPanel, width: int) -> Line:
    return join_fitting(
        width,
        [
            fact("dirty", human_bytes(panel.dirty_bytes)),
            fact("writeback", human_bytes(panel.writeback_bytes)),
            fact("cache dropped since boot", f"{integer(panel.drop_pagecache_count)}×"),
        ],
    )


def _swap(panel: MemoryPanel, width: int) -> Line:
    if panel.swap_total_bytes == 0:
        return text_line("no swap", "dim")
    return join_fitting(
        width,
        [
            fact("swap", human_bytes(panel.swap_used_bytes), level_style(panel.swap_used_bytes, 1 << 30, 1 << 40)),
            fact("in", human_count(panel.swap_in_per_s, per_s=True), level_style(panel.swap_in_per_s, 1, 1000)),
            fact("out", human_count(panel.swap_out_per_s, per_s=True), level_style(panel.swap_out_per_s, 1, 1000)),
            fact("of", human_bytes(panel.swap_total_bytes)),
        ],
    )


def _refaults(panel: MemoryPanel) -> Line:
    return join(
        [
            fact("file pages reclaimed", human_bytes(panel.reclaim_file_bytes_per_s, per_s=True)),
            fact("evicted and read again", human_bytes(panel.refault_bytes_per_s, per_s=True)),
            fact("major faults", human_count(panel.major_faults_per_s, per_s=True)),
            fact("compaction stalls", human_count(panel.compact_stalls_per_s, per_s=True)),
        ]
    )


def _huge(panel: MemoryPanel) -> Line:
    return join(
        [
            fact("huge pages", f"{integer(panel.huge_pages_used)} of {integer(panel.huge_pages_total)} used"),
            fact("of", human_bytes(panel.huge_page_bytes)),
            fact("THP", name_of(panel.thp)),
            fact("defrag", name_of(panel.thp_defrag)),
            fact(
                "zone_reclaim_mode", integer(panel.zone_reclaim_mode), level_style(panel.zone_reclaim_mode, 1, 1 << 30)
            ),
        ]
    )


LAYOUT = Layout(name="memory", title="Memory", key="3", compact=compact, full=full)
