"""I/O: time the CPUs waited for it, who is blocked, pressure, devices, and what the server itself did."""

from __future__ import annotations

from typing import Any

from dba_console.frames.devices import derive_devices, totals
from dba_console.frames.facts import PictureFacts
from dba_console.frames.model import Io
from dba_console.frames.panel_status import fill_status
from dba_console.frames.rates import Pair, delta, pair, quotient, rate
from dba_console.samples import host, postgres


def derive_io(facts: PictureFacts) -> Io:
    """The I/O panel; its status is that of /proc/stat, what else is missing is in the note."""
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
    """(user, system, iowait, steal) in percent of all CPU time of the interval, as `vmstat` computes them.

    user counts nice, system counts interrupts. iowait and idle may go back a little (proc_stat(5)): that is no time.
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
    """Share of the interval spent stalled, from the total: unlike avg10 it does not lag."""
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
    # A row appears with its first activity, so before it every counter it has was 0.
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
    # With track_io_timing off the view says 0 ms for ever: an unknown time, not an instant one.
    return quotient(delta(new_ms, old_ms), delta(new, old)) if new_ms else None
