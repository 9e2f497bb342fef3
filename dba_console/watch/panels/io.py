"""I/O: whether processes are stalled, on which device, and what PostgreSQL stores there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dba_console.core.units import UNKNOWN, human_bytes, human_count, human_pct
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame, Io
from dba_console.watch.frames.rows import Device
from dba_console.watch.panels import charts, phrases
from dba_console.watch.panels.phrases import (
    fact,
    first_fitting,
    integer,
    join,
    level_style,
    milliseconds,
    name_of,
    text_line,
)
from dba_console.watch.panels.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Table,
    TableColumn,
    TableRow,
    clean,
    fit,
    line_width,
    number_cell,
)

# The tables of the I/O panel: block devices as `iostat -x` shows them, and pg_stat_io.

AWAIT_MS = (20.0, 100.0)
"""Emphasis: from here on a request is slow, and very slow, on any device suitable for a database."""


def worst_await(device: Device) -> float | None:
    """Return the larger of both awaits in milliseconds, None if nothing completed."""
    times = [one for one in (device.read_await_ms, device.write_await_ms) if one is not None]
    return max(times) if times else None


def await_text(value: float | None, per_s: float | None) -> str:
    """Return a time, `–` if no request completed, `?` if unknown."""
    return "–" if value is None and per_s == 0 else milliseconds(value)


_DEVICE_COLUMNS = (
    TableColumn("name", "device", 12, help="Block device, as iostat names it"),
    TableColumn("holds", "holds", 20, help="What PostgreSQL stores there"),
    TableColumn("reads", "r/s", 7, right=True, help="Reads completed per second", descending=True),
    TableColumn("writes", "w/s", 7, right=True, help="Writes completed per second", descending=True),
    TableColumn("read_bytes", "read", 9, right=True, help="Bytes read per second", descending=True),
    TableColumn("write_bytes", "written", 9, right=True, help="Bytes written per second", descending=True),
    TableColumn(
        "r_await",
        "r await",
        8,
        right=True,
        help="Mean time of a read, queue included; – if none completed",
        descending=True,
    ),
    TableColumn("w_await", "w await", 8, right=True, help="Mean time of a write, queue included", descending=True),
    TableColumn("f_await", "flush", 8, right=True, help="Mean time of a flush", descending=True, spare=4),
    TableColumn("in_flight", "in fl", 5, right=True, help="Requests in flight now", descending=True, spare=6),
    TableColumn("queue", "queue", 6, right=True, help="Mean requests in flight (aqu-sz)", descending=True, spare=5),
    TableColumn(
        "util",
        "util",
        6,
        right=True,
        help="Time with a request in flight; misleading for parallel devices",
        descending=True,
    ),
    TableColumn("mounts", "mounts", 30, help="Where it is mounted", grow=True, spare=7),
)


def device_table(devices: Sequence[Device]) -> Table:
    rows = tuple(_device_row(device) for device in devices)
    return Table("devices", _DEVICE_COLUMNS, rows, None, "Devices", "no block device in use")


def _device_row(device: Device) -> TableRow:
    holds, mounts = name_of(", ".join(device.holds)), name_of(", ".join(device.mounts), 200)
    return TableRow(
        device.name,
        (
            Cell(name_of(device.name), device.name),
            Cell(holds, holds),
            number_cell(human_count(device.reads_per_s), device.reads_per_s),
            number_cell(human_count(device.writes_per_s), device.writes_per_s),
            number_cell(human_bytes(device.read_bytes_per_s, per_s=True), device.read_bytes_per_s),
            number_cell(human_bytes(device.write_bytes_per_s, per_s=True), device.write_bytes_per_s),
            _await_cell(device.read_await_ms, device.reads_per_s),
            _await_cell(device.write_await_ms, device.writes_per_s),
            _await_cell(device.flush_await_ms, 0 if device.reads_per_s is not None else None),
            number_cell(integer(device.in_flight), device.in_flight),
            number_cell(human_count(device.queue), device.queue),
            number_cell(human_pct(device.util_pct), device.util_pct),
            Cell(mounts, mounts),
        ),
        lambda: (text_line(f"discards {human_count(device.discards_per_s, per_s=True)}"),),
    )


def _await_cell(value: float | None, per_s: float | None) -> Cell:
    return Cell(await_text(value, per_s), value, level_style(value, *AWAIT_MS) if value else "")


def server_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of pg_stat_io with the columns the frame has: names, then numbers; idle rows last."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = tuple(_io_column(rows, index, name) for index, name in enumerate(names))
    table_rows = tuple(
        TableRow(" ".join(str(value) for value in list(row.values())[:3]), tuple(_io_cell(name, row) for name in names))
        for row in sorted(rows, key=_is_idle)
    )
    return Table("pg_stat_io", columns, table_rows, None, "pg_stat_io", "no activity")


def _is_idle(row: dict[str, Any]) -> bool:
    return not any(value for value in row.values() if not isinstance(value, str))


def _io_column(rows: Sequence[dict[str, Any]], index: int, name: str) -> TableColumn:
    number = not _is_text(rows, name)
    title = name.replace("_bytes_per_s", "").replace("_per_s", "/s").replace("_ms", "").replace("_", " ")
    return TableColumn(name, title, 18, right=number, descending=number, spare=max(0, index - 5))


def _is_text(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return any(isinstance(row.get(name), str) for row in rows)


def _io_cell(name: str, row: dict[str, Any]) -> Cell:
    value = row.get(name)
    if isinstance(value, str):
        return Cell(name_of(value), value)
    if value is None:
        # The server has null where a number does not apply; if all are null, the numbers are unknown.
        known = any(isinstance(other, int | float) for other in row.values())
        return Cell("–") if known else Cell(UNKNOWN, None, "stale")
    number = float(value)
    if name.endswith("_ms"):
        return Cell(milliseconds(number), number)
    if name.endswith("_pct"):
        return Cell(human_pct(number), number)
    return Cell(human_bytes(number, per_s=name.endswith("_per_s")) if "bytes" in name else human_count(number), number)


_STALL_WARN, _STALL_CRIT = 10.0, 40.0
_WAIT_WARN, _WAIT_CRIT = 20.0, 50.0
_TREND_S = 300.0


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.io
    devices = sorted(panel.devices, key=_device_order)
    lines = [_stall_line(panel, width)]
    if devices:
        lines.append(_device_line(devices[0], width))
    lines += [_blocked_line(frame, width, history), _throughput(panel)]
    lines += [_device_line(device, width) for device in devices[1:] if not _is_idle_loop(device)]
    return phrases.body(panel, is_known(panel), lines, width, height)


def is_known(panel: Io) -> bool:
    return panel.procs_blocked is not None or panel.psi_some_avg10 is not None or bool(panel.devices)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.io
    if not is_known(panel):
        return Detail("I/O", tuple(phrases.note_lines(panel, width)))
    cpu = join(
        [
            fact("cpu user", human_pct(panel.user_pct)),
            fact("system", human_pct(panel.system_pct)),
            fact("steal", human_pct(panel.steal_pct), level_style(panel.steal_pct, 5, 20)),
            fact("runnable", integer(panel.procs_running)),
            fact("cpu pressure some", human_pct(panel.cpu_psi_some_avg10)),
        ]
    )
    head = [_stall_line(panel, width), _blocked_line(frame, width, history), _throughput(panel), cpu]
    tables = [device_table(sorted(panel.devices, key=_device_order))]
    if panel.server:
        tables.append(server_table(panel.server))
    return Detail("I/O", phrases.head_lines(panel, head, width), tuple(tables))


def _device_order(device: Device) -> tuple[int, float, str]:
    """Sort key: devices of the server first, then the busiest."""
    return (0 if device.holds else 1, -(device.util_pct or 0.0), device.name)


def _is_idle_loop(device: Device) -> bool:
    """True for an idle loop device (a mounted image): not worth a line of the overview."""
    return device.name.startswith("loop") and not device.holds and not (device.util_pct or device.in_flight)


def _stall_line(panel: Io, width: int) -> Line:
    wait = fact("iowait", human_pct(panel.iowait_pct), level_style(panel.iowait_pct, _WAIT_WARN, _WAIT_CRIT))
    some = fact(
        "some", human_pct(panel.psi_some_avg10), level_style(panel.psi_some_avg10, 2 * _STALL_WARN, 2 * _STALL_CRIT)
    )
    full = fact("full", human_pct(panel.psi_full_avg10), level_style(panel.psi_full_avg10, _STALL_WARN, _STALL_CRIT))
    return first_fitting(
        width,
        join([wait, (Span("stalled, 10s avg: ", "dim"), *some, Span(" "), *full)], "  "),
        join([wait, (Span("stalled ", "dim"), *some, Span(" "), *full)], "  "),
        join([wait, (Span("stall ", "dim"), *some, Span(" "), *full)], " "),
        join([wait, (*some, Span(" "), *full)], " "),
    )


def _blocked_line(frame: Frame, width: int, history: ChartHistory) -> Line:
    panel = frame.io
    words = fact("blocked", integer(panel.procs_blocked), level_style(panel.procs_blocked, 5, 20))
    points, label = stall_points(history)
    space = min(40, width - line_width(words) - len(label) - 5)
    if space < 5 or not points:
        return words
    # Scale from 0 to at least 10 %: a smaller stall must not look large.
    top = max(10.0, *(value for _, value in points))
    trend = charts.sparkline(points, frame.at_us, _TREND_S, space, 0, top).rstrip()
    drawn = trend.lstrip()
    # The label is next to its line, not where a longer line would begin.
    return (
        (*words, Span(f"   {' ' * (len(trend) - len(drawn))}{label} ", "dim"), Span(drawn, "bar")) if drawn else words
    )


def stall_points(history: ChartHistory) -> tuple[list[tuple[int, float]], str]:
    """Return the best measure of stalls: time in which all were stalled, else the kernel's average, else iowait."""
    for name, label in (("io.psi_full_pct", "full"), ("io.psi_full_avg10", "full"), ("io.iowait_pct", "iowait")):
        if points := history.series(name):
            return points, label
    return [], "iowait"


def _throughput(panel: Io) -> Line:
    return join(
        [
            fact("read", human_bytes(panel.read_bytes_per_s, per_s=True)),
            fact("write", human_bytes(panel.write_bytes_per_s, per_s=True)),
        ]
    )


def _device_line(device: Device, width: int) -> Line:
    slowest = worst_await(device)
    requests = None if device.reads_per_s is None else device.reads_per_s + (device.writes_per_s or 0)
    facts: Line = (
        *fact("r", human_count(device.reads_per_s, per_s=True)),
        Span(" "),
        *fact("w", human_count(device.writes_per_s, per_s=True)),
        Span(" "),
        Span(await_text(slowest, requests), level_style(slowest, *AWAIT_MS)),
    )
    more: Line = (
        *facts,
        Span(" "),
        *fact("util", human_pct(device.util_pct)),
        Span(" "),
        *fact("queue", human_count(device.queue)),
    )
    name = clean(device.name)
    holds = clean(",".join(device.holds))
    full_name = f"{name} {holds}".rstrip()
    shown = more if line_width(more) + len(full_name) + 1 <= width else facts
    space = max(len(name), width - line_width(shown) - 1)
    return (Span(fit(full_name, min(len(full_name), space)) + " "), *shown)
