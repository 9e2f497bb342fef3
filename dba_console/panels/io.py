"""I/O: is anybody stalled, on which device, and what does PostgreSQL keep there."""

from __future__ import annotations

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Device, Frame, Io
from dba_console.panels import charts, status_text
from dba_console.panels.io_tables import AWAIT_MS, await_text, device_table, server_table, worst_await
from dba_console.panels.phrases import (
    fact,
    first_fitting,
    integer,
    join,
    level_style,
)
from dba_console.panels.text_elements import Detail, Line, Span, clean, fit, line_width
from dba_console.units import human_bytes, human_count, human_pct

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
    return status_text.body(panel, is_known(panel), lines, width, height)


def is_known(panel: Io) -> bool:
    return panel.procs_blocked is not None or panel.psi_some_avg10 is not None or bool(panel.devices)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.io
    if not is_known(panel):
        return Detail("I/O", tuple(status_text.note_lines(panel, width)))
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
    return Detail("I/O", status_text.head_lines(panel, head, width), tuple(tables))


def _device_order(device: Device) -> tuple[int, float, str]:
    """Devices of the server first, then the busiest."""
    return (0 if device.holds else 1, -(device.util_pct or 0.0), device.name)


def _is_idle_loop(device: Device) -> bool:
    """An image somebody mounted and nobody reads: not worth a line of the overview."""
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
    room = min(40, width - line_width(words) - len(label) - 5)
    if room < 5 or not points:
        return words
    # From 0 to at least 10 %: below that a stall is not worth a mountain.
    top = max(10.0, *(value for _, value in points))
    trend = charts.sparkline(points, frame.at_us, _TREND_S, room, 0, top).rstrip()
    drawn = trend.lstrip()
    # The label stands at the line it names, not at where a longer one would begin.
    return (
        (*words, Span(f"   {' ' * (len(trend) - len(drawn))}{label} ", "dim"), Span(drawn, "bar")) if drawn else words
    )


def stall_points(history: ChartHistory) -> tuple[list[tuple[int, float]], str]:
    """What tells best that nobody gets on: time in which all were stalled, else the kernel's average, else iowait."""
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
    wanted = f"{name} {holds}".rstrip()
    shown = more if line_width(more) + len(wanted) + 1 <= width else facts
    room = max(len(name), width - line_width(shown) - 1)
    return (Span(fit(wanted, min(len(wanted), room)) + " "), *shown)
