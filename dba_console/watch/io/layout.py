"""I/O on the screen: whether processes are stalled, on which device, and what PostgreSQL stores there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dba_console.core.units import UNKNOWN, human_bytes, human_count, human_pct
from dba_console.watch.block_devices import Device
from dba_console.watch.drawing import charts, phrases
from dba_console.watch.drawing.phrases import (
    fact,
    first_fitting,
    integer,
    join,
    level_style,
    milliseconds,
    name_of,
    text_line,
)
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
)
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.io.panel import IoPanel, ServerIoRow
from dba_console.watch.layout import Layout
from dba_console.watch.tables import Column, cells

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


def _count_text(field: str) -> Callable[[object], str]:
    """Return the text of a number per second where the title of the column has the unit."""
    return lambda row: human_count(getattr(row, field))


def _read_await(device: Device) -> str:
    return await_text(device.read_await_ms, device.reads_per_s)


def _write_await(device: Device) -> str:
    return await_text(device.write_await_ms, device.writes_per_s)


def _flush_await(device: Device) -> str:
    return await_text(device.flush_await_ms, 0 if device.reads_per_s is not None else None)


def _await_style(field: str) -> Callable[[Device], Style]:
    return lambda device: level_style(getattr(device, field) or 0.0, *AWAIT_MS)


def _mounts_text(device: Device) -> str:
    return name_of(", ".join(device.mounts), 200)


_DEVICES = (
    Column("name", "device", 12, help="Block device, as iostat names it"),
    Column("holds", "holds", 20, help="What PostgreSQL stores there"),
    Column(
        "reads_per_s",
        "r/s",
        7,
        right=True,
        help="Reads completed per second",
        text=_count_text("reads_per_s"),
        descending=True,
    ),
    Column(
        "writes_per_s",
        "w/s",
        7,
        right=True,
        help="Writes completed per second",
        text=_count_text("writes_per_s"),
        descending=True,
    ),
    Column("read_bytes_per_s", "read", 9, right=True, help="Bytes read per second", descending=True),
    Column("write_bytes_per_s", "written", 9, right=True, help="Bytes written per second", descending=True),
    Column(
        "read_await_ms",
        "r await",
        8,
        right=True,
        help="Mean time of a read, queue included; – if none completed",
        text=_read_await,
        style=_await_style("read_await_ms"),
        descending=True,
    ),
    Column(
        "write_await_ms",
        "w await",
        8,
        right=True,
        help="Mean time of a write, queue included",
        text=_write_await,
        style=_await_style("write_await_ms"),
        descending=True,
    ),
    Column(
        "flush_await_ms",
        "flush",
        8,
        right=True,
        help="Mean time of a flush",
        text=_flush_await,
        style=_await_style("flush_await_ms"),
        descending=True,
        spare=4,
    ),
    Column("in_flight", "in fl", 5, right=True, help="Requests in flight now", descending=True, spare=6),
    Column(
        "queue",
        "queue",
        6,
        right=True,
        help="Mean requests in flight (aqu-sz)",
        text=_count_text("queue"),
        descending=True,
        spare=5,
    ),
    Column(
        "util_pct",
        "util",
        6,
        right=True,
        help="Time with a request in flight; misleading for parallel devices",
        descending=True,
    ),
    Column("mounts", "mounts", 30, help="Where it is mounted", text=_mounts_text, grow=True, spare=7),
)


def device_table(devices: Sequence[Device]) -> Table:
    rows = tuple(_device_row(device) for device in devices)
    return Table("devices", _DEVICES, rows, None, "Devices", "no block device in use")


def _device_row(device: Device) -> TableRow:
    discards = human_count(device.discards_per_s, per_s=True)
    return TableRow(device.name, cells(_DEVICES, device), lambda: (text_line(f"discards {discards}"),))


def server_table(panel: IoPanel) -> Table:
    """Return the table of pg_stat_io: names, then numbers; idle rows last."""
    columns = _server_columns(panel)
    rows = tuple(
        TableRow(f"{row.backend_type} {row.object} {row.context}", cells(columns, row))
        for row in sorted(panel.server, key=_is_idle)
    )
    return Table("pg_stat_io", columns, rows, None, "pg_stat_io", "no activity")


_TEXTS = ("backend_type", "object", "context")
_NUMBERS = tuple(name for name in ServerIoRow.__struct_fields__ if name not in _TEXTS)


def _is_idle(row: ServerIoRow) -> bool:
    return not any(getattr(row, name) for name in _NUMBERS)


def _server_columns(panel: IoPanel) -> tuple[Column, ...]:
    return (
        *(Column(name, name.replace("_", " "), 18) for name in _TEXTS),
        *(
            Column(
                name,
                name.replace("_bytes_per_s", "").replace("_per_s", "/s").replace("_ms", "").replace("_", " "),
                18,
                right=True,
                text=partial(_server_text, panel, name),
                style=partial(_server_style, panel, name),
                descending=True,
                spare=max(0, at - 2),
            )
            for at, name in enumerate(_NUMBERS)
        ),
    )


_COUNTED_BY = {"read_await_ms": "reads_per_s", "write_await_ms": "writes_per_s", "fsync_await_ms": "fsyncs_per_s"}
"""Times, and the operations they are times of."""


def _is_untimed(panel: IoPanel, name: str, row: ServerIoRow) -> bool:
    """Whether there were such operations, and the server does not time them: WAL has a setting of its own."""
    timing = panel.track_wal_io_timing if row.object == "wal" else panel.track_io_timing
    return timing == "off" and name in _COUNTED_BY and bool(getattr(row, _COUNTED_BY[name]))


def _is_unknown(row: ServerIoRow) -> bool:
    """Whether no number is known; if one is, the server has NULL where a number does not apply."""
    return all(getattr(row, name) is None for name in _NUMBERS)


def _server_text(panel: IoPanel, name: str, row: ServerIoRow) -> str:
    value = getattr(row, name)
    if value is None:
        return "timing is off" if _is_untimed(panel, name, row) else UNKNOWN if _is_unknown(row) else "–"
    if name.endswith("_ms"):
        return milliseconds(value)
    return human_bytes(value, per_s=True) if "bytes" in name else human_count(value)


def _server_style(panel: IoPanel, name: str, row: ServerIoRow) -> Style:
    if getattr(row, name) is not None:
        return ""
    return "dim" if _is_untimed(panel, name, row) else "stale" if _is_unknown(row) else ""


# The short form and the full form.

_STALL_WARN, _STALL_CRIT = 10.0, 40.0
_WAIT_WARN, _WAIT_CRIT = 20.0, 50.0
_TREND_S = 300.0


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(IoPanel)
    devices = sorted(panel.devices, key=_device_order)
    lines = [_stall_line(panel, width)]
    if devices:
        lines.append(_device_line(devices[0], width))
    lines += [_blocked_line(frame, width, history), _throughput(panel)]
    lines += [_device_line(device, width) for device in devices[1:] if not _is_idle_loop(device)]
    return phrases.body(panel, is_known(panel), lines, width, height)


def is_known(panel: IoPanel) -> bool:
    return panel.procs_blocked is not None or panel.psi_some_avg10 is not None or bool(panel.devices)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(IoPanel)
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
        tables.append(server_table(panel))
    return Detail("I/O", phrases.head_lines(panel, head, width), tuple(tables))


def _device_order(device: Device) -> tuple[int, float, str]:
    """Sort key: devices of the server first, then the busiest."""
    return (0 if device.holds else 1, -(device.util_pct or 0.0), device.name)


def _is_idle_loop(device: Device) -> bool:
    """True for an idle loop device (a mounted image): not worth a line of the overview."""
    return device.name.startswith("loop") and not device.holds and not (device.util_pct or device.in_flight)


def _stall_line(panel: IoPanel, width: int) -> Line:
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
    panel = frame.of(IoPanel)
    words = fact("procs blocked", integer(panel.procs_blocked), level_style(panel.procs_blocked, 5, 20))
    points, label = charts.stall_points(history)
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


def _throughput(panel: IoPanel) -> Line:
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


LAYOUT = Layout(name="io", title="I/O", key="2", compact=compact, full=full)
