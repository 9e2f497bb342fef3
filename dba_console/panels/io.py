"""I/O: is anybody stalled, on which device, and what does PostgreSQL keep there."""

from __future__ import annotations

from typing import Any

from dba_console.frames.history import History
from dba_console.frames.model import Device, Frame, Io
from dba_console.panels import charts, states
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Span, Table, clean, fit, line_width
from dba_console.panels.phrases import (
    fact, first_fitting, integer, join, level, milliseconds, name_of, said,
)  # fmt: skip
from dba_console.panels.tables import cell_number
from dba_console.units import UNKNOWN, human_bytes, human_count, human_pct

_STALL_WARN, _STALL_CRIT = 10.0, 40.0
_WAIT_WARN, _WAIT_CRIT = 20.0, 50.0
_AWAIT_WARN_MS, _AWAIT_CRIT_MS = 20.0, 100.0
_TREND_S = 300.0


def compact(frame: Frame, width: int, height: int, history: History) -> list[Line]:
    panel = frame.io
    devices = sorted(panel.devices, key=_importance)
    lines = [_stall(panel, width)]
    if devices:
        lines.append(_device(devices[0], width))
    lines += [_blocked(frame, width, history), _throughput(panel)]
    lines += [_device(device, width) for device in devices[1:]]
    return states.body(panel, known(panel), lines, width, height)


def known(panel: Io) -> bool:
    return panel.procs_blocked is not None or panel.psi_some_avg10 is not None or bool(panel.devices)


def detail(frame: Frame, width: int, history: History) -> Detail:
    panel = frame.io
    if not known(panel):
        return Detail("I/O", tuple(states.note_lines(panel, width)))
    cpu = join(
        [
            fact("cpu user", human_pct(panel.user_pct)),
            fact("system", human_pct(panel.system_pct)),
            fact("steal", human_pct(panel.steal_pct), level(panel.steal_pct, 5, 20)),
            fact("runnable", integer(panel.procs_running)),
            fact("cpu pressure some", human_pct(panel.cpu_psi_some_avg10)),
        ]
    )
    head = [_stall(panel, width), _blocked(frame, width, history), _throughput(panel), cpu]
    tables = [Table("devices", _DEVICE_COLUMNS, tuple(_device_row(one) for one in sorted(panel.devices, key=_importance)),
                    None, "Devices", "no block device in use")]  # fmt: skip
    if panel.server:
        tables.append(_server_table(panel.server))
    return Detail("I/O", states.head_lines(panel, head, width), tuple(tables))


def _importance(device: Device) -> tuple[int, float, str]:
    """Devices of the server first, then the busiest."""
    return (0 if device.holds else 1, -(device.util_pct or 0.0), device.name)


def _stall(panel: Io, width: int) -> Line:
    wait = fact("iowait", human_pct(panel.iowait_pct), level(panel.iowait_pct, _WAIT_WARN, _WAIT_CRIT))
    some = fact("some", human_pct(panel.psi_some_avg10), level(panel.psi_some_avg10, 2 * _STALL_WARN, 2 * _STALL_CRIT))
    full = fact("full", human_pct(panel.psi_full_avg10), level(panel.psi_full_avg10, _STALL_WARN, _STALL_CRIT))
    return first_fitting(
        width,
        join([wait, (Span("stalled ", "dim"), *some, Span(" "), *full)], "  "),
        join([wait, (*some, Span(" "), *full)], " "),
    )


def _blocked(frame: Frame, width: int, history: History) -> Line:
    panel = frame.io
    words = fact("blocked", integer(panel.procs_blocked), level(panel.procs_blocked, 5, 20))
    stalls = history.series("io.psi_full_pct")
    points, label = (stalls, "full") if stalls else (history.series("io.iowait_pct"), "iowait")
    room = min(40, width - line_width(words) - len(label) - 5)
    if room < 5 or not points:
        return words
    # From 0 to at least 10 %: below that a stall is not worth a mountain.
    top = max(10.0, *(value for _, value in points))
    trend = charts.sparkline(points, frame.at_us, _TREND_S, room, 0, top)
    return (*words, Span(f"   {label} ", "dim"), Span(trend, "bar"))


def _throughput(panel: Io) -> Line:
    return join(
        [
            fact("read", human_bytes(panel.read_bytes_per_s, per_s=True)),
            fact("write", human_bytes(panel.write_bytes_per_s, per_s=True)),
        ]
    )


def worst_await(device: Device) -> float | None:
    """The larger of both awaits in milliseconds, None where nothing completed."""
    times = [one for one in (device.read_await_ms, device.write_await_ms) if one is not None]
    return max(times) if times else None


def _await_text(value: float | None, per_s: float | None) -> str:
    """A time, `–` where no request completed, `?` where that is not known."""
    return "–" if value is None and per_s == 0 else milliseconds(value)


def _device(device: Device, width: int) -> Line:
    slowest = worst_await(device)
    requests = None if device.reads_per_s is None else device.reads_per_s + (device.writes_per_s or 0)
    facts: Line = (
        *fact("r", human_count(device.reads_per_s, per_s=True)),
        Span(" "),
        *fact("w", human_count(device.writes_per_s, per_s=True)),
        Span(" "),
        Span(_await_text(slowest, requests), level(slowest, _AWAIT_WARN_MS, _AWAIT_CRIT_MS)),
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


_DEVICE_COLUMNS = (
    Column("name", "device", 12, help="Block device, as iostat names it", sort_key="D"),
    Column("holds", "holds", 20, help="What PostgreSQL keeps there", sort_key="H"),
    Column("reads", "r/s", 7, right=True, help="Reads completed per second", sort_key="R", descending=True),
    Column("writes", "w/s", 7, right=True, help="Writes completed per second", sort_key="W", descending=True),
    Column("read_bytes", "read", 9, right=True, help="Bytes read per second", sort_key="B", descending=True),
    Column("write_bytes", "written", 9, right=True, help="Bytes written per second", sort_key="Y", descending=True),
    Column("r_await", "r await", 8, right=True, help="Mean time of a read, queue included; – where none completed",
           sort_key="A", descending=True),
    Column("w_await", "w await", 8, right=True, help="Mean time of a write, queue included", sort_key="T",
           descending=True),
    Column("f_await", "flush", 8, right=True, help="Mean time of a flush", sort_key="F", descending=True),
    Column("in_flight", "in fl", 5, right=True, help="Requests under way now", sort_key="I", descending=True),
    Column("queue", "queue", 6, right=True, help="Mean requests under way (aqu-sz)", sort_key="Q", descending=True),
    Column("util", "util", 6, right=True, help="Time with a request under way; says little where requests run in parallel",
           sort_key="U", descending=True),
    Column("mounts", "mounts", 30, help="Where it is mounted", grow=True),
)  # fmt: skip


def _device_row(device: Device) -> Row:
    holds, mounts = name_of(", ".join(device.holds)), name_of(", ".join(device.mounts), 200)
    return Row(
        device.name,
        (
            Cell(name_of(device.name), device.name),
            Cell(holds, holds),
            cell_number(human_count(device.reads_per_s), device.reads_per_s),
            cell_number(human_count(device.writes_per_s), device.writes_per_s),
            cell_number(human_bytes(device.read_bytes_per_s, per_s=True), device.read_bytes_per_s),
            cell_number(human_bytes(device.write_bytes_per_s, per_s=True), device.write_bytes_per_s),
            _await_cell(device.read_await_ms, device.reads_per_s),
            _await_cell(device.write_await_ms, device.writes_per_s),
            _await_cell(device.flush_await_ms, 0 if device.reads_per_s is not None else None),
            cell_number(integer(device.in_flight), device.in_flight),
            cell_number(human_count(device.queue), device.queue),
            cell_number(human_pct(device.util_pct), device.util_pct),
            Cell(mounts, mounts),
        ),
        (said(f"discards {human_count(device.discards_per_s, per_s=True)}"),),
    )


def _await_cell(value: float | None, per_s: float | None) -> Cell:
    return Cell(_await_text(value, per_s), value, level(value, _AWAIT_WARN_MS, _AWAIT_CRIT_MS) if value else "")


def _server_table(rows: list[dict[str, Any]]) -> Table:
    """pg_stat_io with whichever columns the frame has: names first, then numbers."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = tuple(
        Column(
            name, name.replace("_per_s", "/s").replace("_", " "), 18, right=not _is_text(rows, name), descending=True
        )
        for name in names
    )
    made = tuple(
        Row(
            " ".join(str(value) for value in list(row.values())[:3]),
            tuple(_io_cell(name, row.get(name)) for name in names),
        )
        for row in rows
    )
    return Table("pg_stat_io", columns, made, None, "pg_stat_io", "no activity")


def _is_text(rows: list[dict[str, Any]], name: str) -> bool:
    return any(isinstance(row.get(name), str) for row in rows)


def _io_cell(name: str, value: Any) -> Cell:
    if isinstance(value, str):
        return Cell(name_of(value), value)
    if value is None:
        return Cell(UNKNOWN, None, "stale")
    number = float(value)
    if name.endswith("_ms"):
        return Cell(milliseconds(number), number)
    if name.endswith("_pct"):
        return Cell(human_pct(number), number)
    return Cell(human_bytes(number) if "bytes" in name else human_count(number), number)
