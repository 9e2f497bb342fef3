"""What is shown of I/O: iowait, blocked processes, pressure, devices, and the server's own statistics."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.watch.block_devices import Device, derive_devices, totals
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import Pair, delta, pair, quotient, rate
from dba_console.watch.io.readings import IoStat, IoStats
from dba_console.watch.panel import Charted, Panel, PanelFrame, Points
from dba_console.watch.samples import host


class ServerIoRow(Struct, kw_only=True):
    """A row of pg_stat_io (16+) with its rates; None is a number that the server does not have for it, or unknown."""

    backend_type: str
    object: str
    context: str
    reads_per_s: float | None = None
    read_bytes_per_s: float | None = None
    read_await_ms: float | None = None
    writes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    write_await_ms: float | None = None
    extends_per_s: float | None = None
    hits_per_s: float | None = None
    evictions_per_s: float | None = None
    fsyncs_per_s: float | None = None
    fsync_await_ms: float | None = None


class IoPanel(PanelFrame, kw_only=True):
    iowait_pct: float | None = None
    user_pct: float | None = None
    system_pct: float | None = None
    steal_pct: float | None = None
    procs_running: int | None = None
    procs_blocked: Annotated[int | None, Charted("blocked processes", "host.cpu")] = None
    psi_some_avg10: Annotated[float | None, Charted("I/O some stall", "host.pressure")] = None
    psi_full_avg10: Annotated[float | None, Charted("I/O full stall", "host.pressure")] = None
    psi_full_pct: Annotated[float | None, Charted("I/O full stall", "host.pressure")] = None
    """Share of the last interval in which all tasks were stalled, from the total counter."""
    cpu_psi_some_avg10: Annotated[float | None, Charted("CPU some stall", "host.pressure")] = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    devices: list[Device] = []
    track_io_timing: str | None = None
    """on or off; with it off the server does not time reads and writes."""
    track_wal_io_timing: str | None = None
    """The same for WAL (14+)."""
    server: list[ServerIoRow] = []


# How they follow from what was read.


def derive_io(facts: PictureFacts) -> IoPanel:
    """Return the I/O panel; its status is that of /proc/stat, what else is missing is in the note."""
    picture = facts.picture
    panel = fill_status(IoPanel(), picture, "host.cpu", "host.disks", "host.pressure")
    _cpu(panel, picture.now("host.cpu", host.Cpu), pair(picture, "host.cpu", host.Cpu))
    _pressure(panel, picture.now("host.pressure", host.Pressure), pair(picture, "host.pressure", host.Pressure))
    disks = picture.now("host.disks", host.Disks)
    if disks is not None:
        mounts = picture.now("host.mounts", host.Mounts)
        panel.devices = derive_devices(disks, pair(picture, "host.disks", host.Disks), mounts)
        panel.read_bytes_per_s, panel.write_bytes_per_s = totals(disks, panel.devices)
    server = pair(picture, "pg.io", IoStats)
    panel.server = [] if server is None else _server_rows(server)
    panel.track_io_timing = facts.setting("track_io_timing")
    panel.track_wal_io_timing = facts.setting("track_wal_io_timing")
    return panel


def cpu_shares(change: Pair[host.Cpu] | None) -> tuple[float, float, float, float] | None:
    """Return (user, system, iowait, steal) in percent of all CPU time of the interval, as `vmstat` computes them.

    user includes nice, system includes interrupts. iowait and idle may decrease a little (proc_stat(5)): that counts as
    0.
    """
    if change is None:
        return None
    new, old = change.new, change.old
    user = delta(new.user + new.nice, old.user + old.nice)
    system = delta(new.system + new.irq + new.softirq, old.system + old.irq + old.softirq)
    if user is None or system is None:
        return None
    idle = max(0, new.idle - old.idle)
    iowait = max(0, new.iowait - old.iowait)
    steal = max(0, new.steal - old.steal)
    whole = user + system + idle + iowait + steal
    if whole <= 0:
        return None
    return 100 * user / whole, 100 * system / whole, 100 * iowait / whole, 100 * steal / whole


def _cpu(panel: IoPanel, cpu: host.Cpu | None, change: Pair[host.Cpu] | None) -> None:
    if cpu is not None:
        panel.procs_running, panel.procs_blocked = cpu.procs_running, cpu.procs_blocked
    shares = cpu_shares(change)
    if shares is not None:
        panel.user_pct, panel.system_pct, panel.iowait_pct, panel.steal_pct = shares


def _pressure(panel: IoPanel, now: host.Pressure | None, change: Pair[host.Pressure] | None) -> None:
    if now is None:
        return
    panel.psi_some_avg10 = None if now.io_some is None else now.io_some.avg10
    panel.psi_full_avg10 = None if now.io_full is None else now.io_full.avg10
    panel.cpu_psi_some_avg10 = None if now.cpu_some is None else now.cpu_some.avg10
    if change is not None:
        panel.psi_full_pct = stall_pct(change.new.io_full, change.old.io_full, change.seconds)


def stall_pct(new: host.PressureStall | None, old: host.PressureStall | None, seconds: float) -> float | None:
    """Return the share of the interval spent stalled, from the total: unlike avg10 it does not lag."""
    if new is None or old is None:
        return None
    stalled = rate(new.total_us, old.total_us, seconds, 1e-4)
    return None if stalled is None else min(100.0, stalled)


def _server_rows(change: Pair[IoStats]) -> list[ServerIoRow]:
    before = {(row.backend_type, row.object, row.context): row for row in change.old.rows}
    rows = []
    for new in change.new.rows:
        old = before.get((new.backend_type, new.object, new.context)) or _idle(new)
        rows.append(_server_row(new, old, change.seconds))
    return rows


def _idle(row: IoStat) -> IoStat:
    # A row appears with its first activity, so all its counters were 0 before.
    counts = [None if getattr(row, name) is None else 0 for name in row.__struct_fields__[3:]]
    return IoStat(row.backend_type, row.object, row.context, *counts)


def _server_row(new: IoStat, old: IoStat, seconds: float) -> ServerIoRow:
    return ServerIoRow(
        backend_type=new.backend_type,
        object=new.object,
        context=new.context,
        reads_per_s=rate(new.reads, old.reads, seconds),
        read_bytes_per_s=rate(new.read_bytes, old.read_bytes, seconds),
        read_await_ms=_await_ms(new.read_ms, old.read_ms, new.reads, old.reads),
        writes_per_s=rate(new.writes, old.writes, seconds),
        write_bytes_per_s=rate(new.write_bytes, old.write_bytes, seconds),
        write_await_ms=_await_ms(new.write_ms, old.write_ms, new.writes, old.writes),
        extends_per_s=rate(new.extends, old.extends, seconds),
        hits_per_s=rate(new.hits, old.hits, seconds),
        evictions_per_s=rate(new.evictions, old.evictions, seconds),
        fsyncs_per_s=rate(new.fsyncs, old.fsyncs, seconds),
        fsync_await_ms=_await_ms(new.fsync_ms, old.fsync_ms, new.fsyncs, old.fsyncs),
    )


def _await_ms(new_ms: float | None, old_ms: float | None, new: int | None, old: int | None) -> float | None:
    # 0 ms in all: timing was on for no operation yet. Unknown, not instant.
    return quotient(delta(new_ms, old_ms), delta(new, old)) if new_ms else None


# The chart values of a tick: of the readings alone, since deriving the panel would cost more.


def points(facts: PictureFacts) -> Points:
    """Return what was read of CPU, pressure and devices; utilisation of a device as `device:NAME.util_pct`."""
    found: dict[str, float | None] = {}
    for add in (_cpu_points, _pressure_points, _device_points):
        add(found, facts)
    return found


def _cpu_points(point: dict[str, float | None], facts: PictureFacts) -> None:
    cpu = facts.picture.now("host.cpu", host.Cpu)
    if cpu is None or not facts.was_read_now("host.cpu"):
        return
    point["io.procs_blocked"] = cpu.procs_blocked
    shares = cpu_shares(pair(facts.picture, "host.cpu", host.Cpu))
    if shares is not None:
        point["io.user_pct"], point["io.system_pct"], point["io.iowait_pct"], _ = shares


def _pressure_points(point: dict[str, float | None], facts: PictureFacts) -> None:
    now = facts.picture.now("host.pressure", host.Pressure)
    if now is None or not facts.was_read_now("host.pressure"):
        return
    both = pair(facts.picture, "host.pressure", host.Pressure)
    if both is not None:
        point["io.psi_full_pct"] = stall_pct(both.new.io_full, both.old.io_full, both.seconds)
    for name, stall in (
        ("io.psi_some_avg10", now.io_some),
        ("io.psi_full_avg10", now.io_full),
        ("io.cpu_psi_some_avg10", now.cpu_some),
    ):
        point[name] = None if stall is None else stall.avg10


def _device_points(point: dict[str, float | None], facts: PictureFacts) -> None:
    disks = facts.picture.now("host.disks", host.Disks)
    if disks is None or not facts.was_read_now("host.disks"):
        return
    rows = derive_devices(disks, pair(facts.picture, "host.disks", host.Disks), None)
    point["io.read_bytes_per_s"], point["io.write_bytes_per_s"] = totals(disks, rows)
    for row in rows:
        if not row.name.startswith("loop"):
            point[f"device:{row.name}.util_pct"] = row.util_pct


PANEL = Panel(name="io", fields=IoPanel, derive=derive_io, points=points)
