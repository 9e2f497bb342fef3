"""Block devices as `iostat -x` computes them: rates, times and queue of each, and their total."""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.frames.rates import Pair, delta, quotient, rate
from dba_console.watch.samples import host


class Device(Struct, kw_only=True):
    name: str
    mounts: list[str] = []
    holds: list[str] = []
    reads_per_s: float | None = None
    writes_per_s: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    read_await_ms: float | None = None
    """None if no request completed in the interval, which does not mean fast."""
    write_await_ms: float | None = None
    flush_await_ms: float | None = None
    discards_per_s: float | None = None
    in_flight: int | None = None
    queue: float | None = None
    """Average number of requests in the interval (aqu-sz)."""
    util_pct: float | None = None


# A device on top of others (dm, md, loop) passes the same requests on: it has a row, but is not in the total.

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
