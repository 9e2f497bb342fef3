"""I/O panel: iowait, blocked processes, pressure, devices, and the server's own I/O statistics."""

from __future__ import annotations

from typing import Any

from dba_console.watch.frames.model import Io
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import Pair, delta, pair, quotient, rate
from dba_console.watch.frames.rows import Device
from dba_console.watch.samples import host, postgres

# Block devices as `iostat -x` computes them, and their total. A device on top of others (dm, md, loop) passes the same
# requests on: it has a row, but is not in the total.

SECTOR = 512
"""Bytes of a sector in /proc/diskstats, whatever the device's own (Documentation/admin-guide/iostats.rst)."""
_IN_MEMORY = ("ram", "zram")


def derive_devices(disks: host.Disks, change: Pair[host.Disks] | None, mounts: host.Mounts | None) -> list[Device]:
    """Return a row for each device, those with PostgreSQL's files first; rates None on the first tick."""
    before = {} if change is None else {disk.name: disk for disk in change.old.devices}
    seconds = 0.0 if change is None else change.seconds
    places = _places(disks.devices, mounts)
    rows = [_device(disk, before.get(disk.name), seconds, places.get(disk.name, [])) for disk in disks.devices]
    return sorted(rows, key=lambda row: (not row.holds, not row.mounts, -(row.util_pct or 0.0), row.name))


def _places(disks: list[host.Disk], mounts: host.Mounts | None) -> dict[str, list[host.Mount]]:
    """Return the mounts on each device, including those on devices above it."""
    found: dict[str, list[host.Mount]] = {}
    for mount in mounts.mounts if mounts is not None else ():
        if mount.device is not None:
            found.setdefault(mount.device, []).append(mount)
    below = {disk.name: disk.underlying for disk in disks}
    for name in list(found):
        for under in _all_below(name, below):
            known = found.setdefault(under, [])
            known.extend(mount for mount in found[name] if mount not in known)
    return found


def _all_below(name: str, below: dict[str, list[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(below.get(name, ()))
    while todo:
        under = todo.pop()
        if under not in seen and under != name:
            seen.add(under)
            todo.extend(below.get(under, ()))
    return seen


def _device(new: host.Disk, old: host.Disk | None, seconds: float, mounts: list[host.Mount]) -> Device:
    row = Device(
        name=new.name,
        mounts=[mount.path for mount in mounts],
        holds=list(dict.fromkeys(held for mount in mounts for held in mount.holds)),
        in_flight=new.in_flight,
    )
    if old is None or seconds <= 0 or (old.major, old.minor) != (new.major, new.minor):
        return row
    reads, writes = delta(new.reads, old.reads), delta(new.writes, old.writes)
    if reads is None or writes is None:
        return row  # the device was removed and added again: its counters restarted
    row.reads_per_s, row.writes_per_s = reads / seconds, writes / seconds
    row.read_bytes_per_s = rate(new.read_sectors, old.read_sectors, seconds, SECTOR)
    row.write_bytes_per_s = rate(new.written_sectors, old.written_sectors, seconds, SECTOR)
    row.read_await_ms = quotient(delta(new.read_ms, old.read_ms, wraps=True), reads)
    row.write_await_ms = quotient(delta(new.write_ms, old.write_ms, wraps=True), writes)
    row.flush_await_ms = quotient(delta(new.flush_ms, old.flush_ms, wraps=True), delta(new.flushes, old.flushes))
    row.discards_per_s = rate(new.discards, old.discards, seconds)
    row.queue = rate(new.weighted_ms, old.weighted_ms, seconds, 0.001, wraps=True)
    busy = rate(new.io_ms, old.io_ms, seconds, 0.1, wraps=True)
    row.util_pct = None if busy is None else min(100.0, busy)
    return row


def totals(disks: host.Disks, rows: list[Device]) -> tuple[float | None, float | None]:
    """Return bytes read and written per second by the lowest devices; None while no rate is known."""
    names = {disk.name for disk in disks.devices}
    bottom = {
        disk.name
        for disk in disks.devices
        if not names.intersection(disk.underlying) and not disk.name.startswith(_IN_MEMORY)
    }
    return (
        _total([row.read_bytes_per_s for row in rows if row.name in bottom]),
        _total([row.write_bytes_per_s for row in rows if row.name in bottom]),
    )


def _total(rates: list[float | None]) -> float | None:
    known = [value for value in rates if value is not None]
    return sum(known) if known else None


def derive_io(facts: PictureFacts) -> Io:
    """Return the I/O panel; its status is that of /proc/stat, what else is missing is in the note."""
    picture = facts.picture
    panel = fill_status(Io(), picture, "host.cpu", "host.disks", "host.pressure")
    _cpu(panel, picture.now("host.cpu", host.Cpu), pair(picture, "host.cpu", host.Cpu))
    _pressure(panel, picture.now("host.pressure", host.Pressure), pair(picture, "host.pressure", host.Pressure))
    disks = picture.now("host.disks", host.Disks)
    if disks is not None:
        mounts = picture.now("host.mounts", host.Mounts)
        panel.devices = derive_devices(disks, pair(picture, "host.disks", host.Disks), mounts)
        panel.read_bytes_per_s, panel.write_bytes_per_s = totals(disks, panel.devices)
    server = pair(picture, "pg.io", postgres.IoStats)
    panel.server = [] if server is None else _server_rows(server)
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


def _cpu(panel: Io, cpu: host.Cpu | None, change: Pair[host.Cpu] | None) -> None:
    if cpu is not None:
        panel.procs_running, panel.procs_blocked = cpu.procs_running, cpu.procs_blocked
    shares = cpu_shares(change)
    if shares is not None:
        panel.user_pct, panel.system_pct, panel.iowait_pct, panel.steal_pct = shares


def _pressure(panel: Io, now: host.Pressure | None, change: Pair[host.Pressure] | None) -> None:
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


def _server_rows(change: Pair[postgres.IoStats]) -> list[dict[str, Any]]:
    before = {(row.backend_type, row.object, row.context): row for row in change.old.rows}
    rows = []
    for new in change.new.rows:
        old = before.get((new.backend_type, new.object, new.context)) or _idle(new)
        rows.append(_server_row(new, old, change.seconds))
    return rows


def _idle(row: postgres.IoStat) -> postgres.IoStat:
    # A row appears with its first activity, so all its counters were 0 before.
    counts = [None if getattr(row, name) is None else 0 for name in row.__struct_fields__[3:]]
    return postgres.IoStat(row.backend_type, row.object, row.context, *counts)


def _server_row(new: postgres.IoStat, old: postgres.IoStat, seconds: float) -> dict[str, Any]:
    return {
        "backend_type": new.backend_type,
        "object": new.object,
        "context": new.context,
        "reads_per_s": rate(new.reads, old.reads, seconds),
        "read_bytes_per_s": rate(new.read_bytes, old.read_bytes, seconds),
        "read_await_ms": _await_ms(new.read_ms, old.read_ms, new.reads, old.reads),
        "writes_per_s": rate(new.writes, old.writes, seconds),
        "write_bytes_per_s": rate(new.write_bytes, old.write_bytes, seconds),
        "write_await_ms": _await_ms(new.write_ms, old.write_ms, new.writes, old.writes),
        "extends_per_s": rate(new.extends, old.extends, seconds),
        "hits_per_s": rate(new.hits, old.hits, seconds),
        "evictions_per_s": rate(new.evictions, old.evictions, seconds),
        "fsyncs_per_s": rate(new.fsyncs, old.fsyncs, seconds),
        "fsync_await_ms": _await_ms(new.fsync_ms, old.fsync_ms, new.fsyncs, old.fsyncs),
    }


def _await_ms(new_ms: float | None, old_ms: float | None, new: int | None, old: int | None) -> float | None:
    # With track_io_timing off the view shows 0 ms: unknown, not instant.
    return quotient(delta(new_ms, old_ms), delta(new, old)) if new_ms else None
