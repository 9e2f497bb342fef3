"""Chart and trend values of one tick, which the chart history stores.

Names are `panel.field` as in the frame, `mount:PATH.used_bytes`, `device:NAME.util_pct`, `slot:NAME.retained_bytes`,
`safety:SYSTEM.next_xid` and `progress:…`. Only known numbers that were read in this tick: a missing name has no point.
"""

from __future__ import annotations

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.connections import (
    ACTIVE,
    CLIENT,
    DISABLED,
    IN_TRANSACTION,
    count_waiting,
    is_blind,
    is_client,
)
from dba_console.watch.frames.io import cpu_shares, derive_devices, stall_pct, totals
from dba_console.watch.frames.model import Replication, charts
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.frames.progress import done_pct, phase_key
from dba_console.watch.frames.rates import change, pair, rate
from dba_console.watch.frames.replication import derive_replication
from dba_console.watch.frames.safety import series_name
from dba_console.watch.samples import host, postgres

Point = dict[str, float | None]

_EMPTY = ChartHistory()


def point_of(picture: Picture) -> dict[str, float]:
    """Return the values of the tick by name, without those that are unknown or were read in an earlier tick."""
    facts = PictureFacts(picture, _EMPTY)
    point: Point = {}
    for add in (_connections, _cpu, _pressure, _disks, _memory, _reclaim, _mounts, _replication, _xids, _progress):
        add(point, facts)
    return {name: float(value) for name, value in point.items() if value is not None}


def _was_read_now(facts: PictureFacts, name: str) -> bool:
    """Check whether the part was read for this sample and not for an earlier one."""
    reading = facts.picture.current.get(name)
    if reading is None:
        return False
    picture = facts.picture
    return picture.mono_us - reading.part.at_us < (picture.step_us or picture.tick_us or 1_000_000)


def _connections(point: Point, facts: PictureFacts) -> None:
    if is_blind(facts):
        titles = facts.picture.now("host.titles", host.ProcessTitles)
        if titles is not None and _was_read_now(facts, "host.titles"):
            point["connections.used"] = sum(row.kind == CLIENT for row in titles.rows)
        return
    if facts.sessions is None or not _was_read_now(facts, "pg.activity"):
        return
    rows = [row for row in facts.sessions.rows if row.backend_type == CLIENT or is_client(row)]
    states = [row.state for row in rows]
    point["connections.used"] = len(rows)
    if None in states:
        return
    if DISABLED not in states:
        point["connections.active"] = sum(map(states.count, ACTIVE))
        point["connections.idle"] = states.count("idle")
        point["connections.idle_in_transaction"] = sum(map(states.count, IN_TRANSACTION))
    point["connections.waiting"] = point["locks.waiting"] = count_waiting(rows)


def _cpu(point: Point, facts: PictureFacts) -> None:
    cpu = facts.picture.now("host.cpu", host.Cpu)
    if cpu is None or not _was_read_now(facts, "host.cpu"):
        return
    point["io.procs_blocked"] = cpu.procs_blocked
    shares = cpu_shares(pair(facts.picture, "host.cpu", host.Cpu))
    if shares is not None:
        point["io.user_pct"], point["io.system_pct"], point["io.iowait_pct"], _ = shares


def _pressure(point: Point, facts: PictureFacts) -> None:
    now = facts.picture.now("host.pressure", host.Pressure)
    if now is None or not _was_read_now(facts, "host.pressure"):
        return
    both = pair(facts.picture, "host.pressure", host.Pressure)
    if both is not None:
        point["io.psi_full_pct"] = stall_pct(both.new.io_full, both.old.io_full, both.seconds)
    for name, stall in (
        ("io.psi_some_avg10", now.io_some),
        ("io.psi_full_avg10", now.io_full),
        ("io.cpu_psi_some_avg10", now.cpu_some),
        ("memory.psi_some_avg10", now.memory_some),
        ("memory.psi_full_avg10", now.memory_full),
    ):
        point[name] = None if stall is None else stall.avg10


def _disks(point: Point, facts: PictureFacts) -> None:
    disks = facts.picture.now("host.disks", host.Disks)
    if disks is None or not _was_read_now(facts, "host.disks"):
        return
    rows = derive_devices(disks, pair(facts.picture, "host.disks", host.Disks), None)
    point["io.read_bytes_per_s"], point["io.write_bytes_per_s"] = totals(disks, rows)
    for row in rows:
        if not row.name.startswith("loop"):
            point[f"device:{row.name}.util_pct"] = row.util_pct


def _memory(point: Point, facts: PictureFacts) -> None:
    memory = facts.picture.now("host.memory", host.MemInfo)
    if memory is None or not _was_read_now(facts, "host.memory"):
        return
    point["memory.free_bytes"] = memory.free
    point["memory.available_bytes"] = memory.available
    point["memory.cached_bytes"] = memory.cached
    point["memory.dirty_bytes"] = memory.dirty
    point["memory.swap_used_bytes"] = memory.swap_total - memory.swap_free


def _reclaim(point: Point, facts: PictureFacts) -> None:
    both = pair(facts.picture, "host.vmstat", host.VmStat)
    if both is None or not _was_read_now(facts, "host.vmstat"):
        return
    new, old, seconds = both
    page = float(new.page_size)
    point["memory.reclaim_kswapd_bytes_per_s"] = rate(new.pgsteal_kswapd, old.pgsteal_kswapd, seconds, page)
    point["memory.reclaim_direct_bytes_per_s"] = rate(new.pgsteal_direct, old.pgsteal_direct, seconds, page)
    point["memory.refault_bytes_per_s"] = rate(new.refault_file, old.refault_file, seconds, page)
    point["memory.alloc_stalls_per_s"] = rate(new.allocstall, old.allocstall, seconds)
    point["memory.drop_pagecache_per_s"] = change(new.drop_pagecache, old.drop_pagecache, seconds)


def _mounts(point: Point, facts: PictureFacts) -> None:
    mounts = facts.picture.now("host.mounts", host.Mounts)
    if mounts is not None and _was_read_now(facts, "host.mounts"):
        for mount in mounts.mounts:
            point[f"mount:{mount.path}.used_bytes"] = mount.used


def _replication(point: Point, facts: PictureFacts) -> None:
    if not _was_read_now(facts, "pg.replication"):
        return
    panel = derive_replication(facts)
    for field, chart in charts(Replication).items():
        if _was_read_now(facts, chart.part):
            point[f"replication.{field}"] = getattr(panel, field)
    for slot in panel.slots:
        point[f"slot:{slot.name}.retained_bytes"] = slot.retained_bytes


def _xids(point: Point, facts: PictureFacts) -> None:
    xids = facts.picture.now("pg.xids", postgres.Xids)
    if xids is not None and _was_read_now(facts, "pg.xids"):
        point[series_name(facts, "next_xid")] = xids.next_xid
        point[series_name(facts, "next_mxid")] = xids.next_mxid


def _progress(point: Point, facts: PictureFacts) -> None:
    operations = facts.picture.now("pg.progress", postgres.Operations)
    if operations is None or not _was_read_now(facts, "pg.progress"):
        return
    for row in operations.rows:
        session = facts.by_pid.get(row.pid)
        key = phase_key(row, None if session is None else session.query_start)
        point[f"{key}.done"], point[f"{key}.pct"] = row.done, done_pct(row)
