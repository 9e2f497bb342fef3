"""Samples and frames made by hand for tests: small builders, and one rich frame of a server in trouble.

`busy_frame` is the incident of the overview in words: connections fill while memory is reclaimed, a dump holds a lock
that a migration waits for, a standby lags. `busy_history` is the ten minutes that led to it. Both are fixed: a golden
text made from them stays.
"""

from __future__ import annotations

import math
from typing import Any

from dba_console.clusters.subject.panel import ClusterPanel, NodeRow, NodeSlot, PoolerRow
from dba_console.watch.block_devices import Device
from dba_console.watch.connections.panel import ConnectionGroup, ConnectionsPanel
from dba_console.watch.console.panel import EventRow, EventsPanel
from dba_console.watch.disks.panel import DatabaseRow, DisksPanel, MountRow
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import (
    Finding,
    Frame,
    SelfFrame,
    TargetFrame,
)
from dba_console.watch.frames.picture import Picture
from dba_console.watch.io.panel import IoPanel, ServerIoRow
from dba_console.watch.locks.panel import BlockedRow, EpisodeRow, LockNode, LocksPanel
from dba_console.watch.memory.panel import MemoryPanel, NumaRow
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.replication.panel import ReplicationPanel, SlotRow, StandbyRow
from dba_console.watch.safety.panel import ChecksumRow, HorizonRow, SafetyPanel, XidRow, XidTable
from dba_console.watch.samples.sample import Part, Sample, Status, make_part
from dba_console.watch.server.panel import AutovacuumRow, BackendIoRow, ServerPanel, SettingRow, SlruRow
from dba_console.watch.sessions.panel import SessionRow, SessionsPanel

GB = 1 << 30
MB = 1 << 20

NOW_US = 1_795_186_649_000_000
"""2026-11-20T14:57:29Z, the moment of `busy_frame`."""


def part(name: str, reading: Any, *, at_s: float = 1.0, status: Status = "ok", note: str | None = None) -> Part:
    """A part read `at_s` seconds after boot."""
    return make_part(name, reading, at_us=int(at_s * 1e6), status=status, note=note)


def sample(*parts: Part, at_s: float = 1.0, seq: int = 0, boot: str = "b1", wall_us: int | None = None) -> Sample:
    """A sample of `at_s` seconds after boot; its wall time follows unless given."""
    wall = NOW_US + int(at_s * 1e6) if wall_us is None else wall_us
    return Sample(seq or int(at_s), wall, int(at_s * 1e6), list(parts), boot)


def picture(*samples: Sample) -> Picture:
    """The picture after these samples."""
    seen = Picture()
    for each in samples:
        seen = seen.with_sample(each)
    return seen


def series(readings: dict[str, list[Any]], *, step_s: float = 1.0, start_s: float = 1.0) -> Picture:
    """The picture after one sample per position of the lists: the n-th reading of each part is read in the n-th."""
    ticks = max(len(values) for values in readings.values())
    samples = []
    for tick in range(ticks):
        at_s = start_s + tick * step_s
        present = [part(name, values[tick], at_s=at_s) for name, values in readings.items() if tick < len(values)]
        samples.append(sample(*present, at_s=at_s, seq=tick + 1))
    return picture(*samples)


def busy_history() -> ChartHistory:
    """Ten minutes at 1 Hz up to `busy_frame`: quiet, then from the sixth on the cache falls and connections rise."""
    history = ChartHistory()
    for tick in range(600):
        history.add(NOW_US - (599 - tick) * 1_000_000, _busy_point(tick))
    return history


def _busy_point(tick: int) -> dict[str, float]:
    trouble = max(0, tick - 360)
    wave = math.sin(tick / 7.0)
    used = 153 + trouble * 0.2008 if trouble else 152 + round(wave)
    point = {
        "connections.used": float(int(used)),
        "connections.active": 3.0 if trouble else 18 + round(4 * wave),
        "connections.waiting": 3.0 if trouble > 190 else 0.0,
        "io.iowait_pct": 2.1 + (22.0 if 0 < trouble < 20 else 0.6 * wave),
        "io.procs_blocked": 0.0 if not 0 < trouble < 30 else 11.0,
        "io.read_bytes_per_s": 9.4 * MB if trouble else (180 + 40 * wave) * MB,
        "io.write_bytes_per_s": 2.5 * MB if trouble else (61 + 12 * wave) * MB,
        "io.psi_some_avg10": 14.0 if trouble else 3.0 + wave,
        "io.psi_full_avg10": 3.0 if trouble else 0.4,
        "memory.free_bytes": 0.9 * GB + trouble * 0.079 * GB,
        "memory.cached_bytes": 21.2 * GB - trouble * 0.08 * GB,
        "memory.dirty_bytes": 310.0 * MB,
        "memory.available_bytes": 22.1 * GB,
        "memory.reclaim_kswapd_bytes_per_s": 320.0 * MB if trouble else 0.0,
        "memory.reclaim_direct_bytes_per_s": 0.0,
        "memory.psi_some_avg10": 41.0 if trouble > 10 else 0.0,
        "locks.waiting": 3.0 if trouble > 190 else 0.0,
        "replication.lag_bytes": 41.0 * MB if trouble else 0.2 * MB,
        "replication.wal_bytes_per_s": 3.1 * MB if trouble else 24.0 * MB,
        "device:vda.util_pct": 22.0 if trouble else 71.0,
    }
    if tick % 5 == 0:
        point["mount:/var/lib/postgresql.used_bytes"] = 402.0 * GB + tick * 1.4 * MB
        point["mount:/.used_bytes"] = 11.0 * GB
    return point


def busy_frame() -> Frame:
    """A primary with 201 of 247 usable connections taken, memory being reclaimed, a dump that three wait for."""
    return Frame(
        at_us=NOW_US,
        seq=761,
        mono_us=1_051_200_000_000,
        boot="b1",
        target=_target(),
        panels={
            "connections": _connections(),
            "disks": _disks(),
            "events": _events(),
            "io": _io(),
            "locks": _locks(),
            "memory": _memory(),
            "progress": _progress(),
            "replication": _replication(),
            "safety": _safety(),
            "cluster": _cluster(),
            "server": _server(),
            "sessions": _sessions(),
        },
        findings=_findings(),
        own=_own(),
    )


def empty_frame() -> Frame:
    """Nothing is known yet: every number None."""
    return Frame(at_us=NOW_US)


def _cluster() -> ClusterPanel:
    system = "7431204485839012345"
    return ClusterPanel(
        age_s=0.4,
        name="shop",
        primary="db2",
        nodes=[
            NodeRow(
                name="db2", role="primary", timeline=3, version="15.18", lsn="2A/7F0318C8", archive_ready=2,
                archive_failing=False,
                slots=[
                    NodeSlot(name="to_db3", kind="physical", active=True, wal_status="reserved", retained_bytes=4 * MB),
                    NodeSlot(name="billing", kind="logical", active=False, wal_status="extended", retained_bytes=GB),
                ],
                system_identifier=system, age_s=0.4, archive_age_s=12.0,
            ),
            NodeRow(
                name="db3", role="standby", timeline=3, version="15.17", lsn="2A/7F0318C8", lag_bytes=18 * MB,
                lag_s=12.0, receiver="streaming", sync_state="async", apply_delay_s=5.0,
                system_identifier=system, age_s=0.4, archive_age_s=12.0,
            ),
            NodeRow(
                name="db1", role="primary", timeline=2, version="15.18", lsn="2A/7C000028", age_s=741.0,
                system_identifier=system, since="2026-11-20T14:45:08Z",
                error="connection to server at \"db1\", port 5432 failed: Connection refused",
            ),
        ],
        poolers=[
            PoolerRow(
                name="main", database="shop", mode="transaction", clients_active=18, clients_waiting=2, servers=20,
                longest_wait_s=0.4, paused=False, leads_to="db2:5432", node="db2", age_s=0.4,
            ),
            PoolerRow(
                name="main", database="billing", mode="session", clients_active=0, clients_waiting=7, servers=0,
                longest_wait_s=95.0, paused=True, paused_since="2026-11-20T14:55:54Z", leads_to="10.0.0.9:5432",
                age_s=0.4,
            ),
        ],
        differences=["db3 runs PostgreSQL 15.17, db2 15.18",
                     "max_connections is 200 on db3, 250 on db2: db3 has the lower value"],
    )  # fmt: skip


def _target() -> TargetFrame:
    return TargetFrame(
        name="db2",
        system_identifier="7431204485839012345",
        role="primary",
        timeline=3,
        server_version=150018,
        version="15.18",
        uptime_s=1_051_200.0,
        host="db2",
        local=True,
        clock_offset_s=0.002,
    )


def _connections() -> ConnectionsPanel:
    return ConnectionsPanel(
        age_s=0.1,
        max=250,
        reserved_superuser=3,
        reserved_role=0,
        usable=247,
        used=201,
        used_pct=81.4,
        active=3,
        idle=197,
        idle_in_transaction=1,
        waiting=3,
        other_states=0,
        growth_per_min=12.0,
        full_in_s=230.0,
        by_application=[
            ConnectionGroup(name="orders-api", count=148, active=2, oldest_idle_s=3720.0),
            ConnectionGroup(name="billing", count=39, idle_in_transaction=1, oldest_idle_s=812.0),
            ConnectionGroup(name="pg_dump", count=5, active=1, oldest_idle_s=41.0),
            ConnectionGroup(name="", count=8, oldest_idle_s=90.0),
            ConnectionGroup(name="psql", count=1, oldest_idle_s=12.0),
        ],
        by_user=[
            ConnectionGroup(name="app", count=187, active=2, idle_in_transaction=1, limit=200, oldest_idle_s=3720.0),
            ConnectionGroup(name="backup", count=5, active=1, oldest_idle_s=41.0),
            ConnectionGroup(name="report", count=9, limit=10, oldest_idle_s=90.0),
        ],
        by_database=[
            ConnectionGroup(name="appdb", count=192, active=3, idle_in_transaction=1, oldest_idle_s=3720.0),
            ConnectionGroup(name="report", count=9, limit=20, oldest_idle_s=90.0),
        ],
        source="sql",
        seat="regular",
    )


def _io() -> IoPanel:
    return IoPanel(
        age_s=0.1,
        iowait_pct=2.1,
        user_pct=6.4,
        system_pct=31.5,
        steal_pct=0.0,
        procs_running=4,
        procs_blocked=0,
        psi_some_avg10=14.0,
        psi_full_avg10=3.0,
        psi_full_pct=3.4,
        cpu_psi_some_avg10=0.5,
        read_bytes_per_s=9.4 * MB,
        write_bytes_per_s=2.5 * MB,
        devices=[
            Device(
                name="vda",
                mounts=["/var/lib/postgresql"],
                holds=["data", "wal"],
                reads_per_s=1203.0,
                writes_per_s=310.0,
                read_bytes_per_s=9.4 * MB,
                write_bytes_per_s=2.5 * MB,
                read_await_ms=0.8,
                write_await_ms=1.9,
                flush_await_ms=2.2,
                discards_per_s=0.0,
                in_flight=2,
                queue=1.6,
                util_pct=22.0,
            ),
            Device(
                name="vdb",
                mounts=["/", "/srv/backup"],
                holds=["archive", "log", "session"],
                reads_per_s=0.0,
                writes_per_s=11.0,
                read_bytes_per_s=0.0,
                write_bytes_per_s=0.3 * MB,
                write_await_ms=3.4,
                in_flight=0,
                queue=0.0,
                util_pct=1.2,
            ),
        ],
        server=[
            ServerIoRow(
                backend_type="client backend",
                object="relation",
                context="normal",
                reads_per_s=1180.0,
                read_bytes_per_s=9.2 * MB,
                read_await_ms=0.9,
                writes_per_s=0.0,
                write_bytes_per_s=0.0,
                hits_per_s=48210.0,
                evictions_per_s=1175.0,
                fsyncs_per_s=0.0,
            ),
        ],
    )


def _memory() -> MemoryPanel:
    return MemoryPanel(
        age_s=0.1,
        total_bytes=128 * GB,
        free_bytes=int(19.9 * GB),
        available_bytes=int(22.1 * GB),
        cached_bytes=int(2.1 * GB),
        buffers_bytes=212 * MB,
        anon_bytes=71 * GB,
        shmem_bytes=33 * GB,
        slab_bytes=int(2.4 * GB),
        dirty_bytes=310 * MB,
        writeback_bytes=4 * MB,
        swap_total_bytes=8 * GB,
        swap_used_bytes=120 * MB,
        swap_in_per_s=0.0,
        swap_out_per_s=0.0,
        cached_change_bytes_per_s=-310.0 * MB,
        free_change_bytes_per_s=305.0 * MB,
        reclaim_kswapd_bytes_per_s=78_000.0 * 4096,
        reclaim_direct_bytes_per_s=0.0,
        reclaim_file_bytes_per_s=78_000.0 * 4096,
        alloc_stalls_per_s=0.0,
        compact_stalls_per_s=2.0,
        drop_pagecache_count=1,
        refault_bytes_per_s=6.2 * MB,
        major_faults_per_s=41.0,
        psi_some_avg10=41.0,
        psi_full_avg10=12.0,
        zone_reclaim_mode=0,
        thp="always",
        thp_defrag="madvise",
        huge_pages_total=0,
        huge_pages_used=0,
        huge_page_bytes=2 * MB,
        shared_buffers_bytes=32 * GB,
        numa_nodes=[
            NumaRow(node=0, total_bytes=64 * GB, free_bytes=17 * GB, numa_miss_per_s=0.0, numa_foreign_per_s=120.0),
            NumaRow(
                node=1, total_bytes=64 * GB, free_bytes=int(2.9 * GB), numa_miss_per_s=120.0, numa_foreign_per_s=0.0
            ),
        ],
        settings={"swappiness": 60, "dirty_ratio": 20, "dirty_background_ratio": 10, "min_free_kbytes": 67584},
    )


def _safety() -> SafetyPanel:
    return SafetyPanel(
        age_s=4.0,
        data_checksums="on",
        checksum_failures=0,
        checksum_databases=[ChecksumRow(database="appdb", failures=0), ChecksumRow(database=None, failures=0)],
        xid_age=257_338_038,
        xid_database="appdb",
        xid_warn_age=2_107_483_647,
        xid_stop_age=2_144_483_647,
        xid_pct=12.0,
        xids_per_s=522.0,
        autovacuum_freeze_in_s=0.0,
        warn_in_s=41 * 86400.0,
        stop_in_s=41.8 * 86400.0,
        mxid_age=21_444_836,
        mxid_pct=1.0,
        mxids_per_s=3.0,
        freeze_max_age=200_000_000,
        failsafe_age=1_600_000_000,
        databases=[
            XidRow(database="appdb", xid_age=257_338_038, xid_pct=12.0, mxid_age=21_444_836, mxid_pct=1.0),
            XidRow(database="template0", xid_age=121_010_404, xid_pct=5.6, mxid_age=0, mxid_pct=0.0),
        ],
        tables=[
            XidTable(
                table="public.orders",
                xid_age=257_338_038,
                mxid_age=21_444_836,
                bytes=212 * GB,
                last_autovacuum="2026-11-02T03:12:44Z",
            ),
            XidTable(table="public.order_lines", xid_age=201_118_007, mxid_age=18_100_200, bytes=388 * GB),
        ],
        horizon=[
            HorizonRow(kind="slot", who="old_sub", xid_age=81_000_000, since="2026-11-08T22:01:10Z"),
            HorizonRow(
                kind="backend",
                who="backup pg_dump",
                pid=8001,
                database="appdb",
                state="active",
                xid_age=1_200_311,
                since="2026-11-20T14:10:02Z",
                since_age_s=2847.0,
            ),
        ],
    )


def _progress() -> ProgressPanel:
    return ProgressPanel(
        age_s=0.1,
        operations=[
            ProgressRow(
                kind="pg_dump",
                pid=8001,
                database="appdb",
                object="public.orders",
                phase="data",
                done=68.0,
                total=100.0,
                unit="percent",
                pct=68.0,
                grade="estimated",
                started="2026-11-20T14:10:02Z",
                elapsed_s=2847.0,
                eta_s=840.0,
                usual_s=3720.0,
                blocks=3,
                user="backup",
                wait="Client:ClientWrite",
                query="COPY public.orders (id, customer, total) TO stdout;",
                scope="whole",
                eta_grade="estimated",
                format="directory",
                jobs=4,
            ),
            ProgressRow(
                kind="create_index",
                pid=8450,
                database="appdb",
                object="orders_pkey",
                phase="building index: loading tuples in tree",
                done=82_000_000.0,
                total=200_000_000.0,
                unit="tuples",
                pct=41.0,
                grade="measured",
                started="2026-11-20T14:50:31Z",
                elapsed_s=418.0,
                eta_s=602.0,
                rate_per_s=196_000.0,
                user="app",
                query="CREATE INDEX orders_pkey ON orders (id)",
            ),
            ProgressRow(
                kind="alter_table",
                pid=8123,
                database="appdb",
                elapsed_s=42.0,
                user="app",
                wait="Lock:relation",
                query="alter table orders add column note text",
            ),
        ],
    )


def _locks() -> LocksPanel:
    waiters = [
        LockNode(
            pid=8200 + step,
            backend_start="2026-11-20T14:41:00Z",
            user="app",
            database="appdb",
            application="orders-api",
            state="active",
            relation="public.orders",
            mode="AccessShareLock",
            wait_s=30.0 - step,
            xact_s=31.0,
            query="select * from orders where id = $1",
        )
        for step in range(2)
    ]
    blocked = LockNode(
        pid=8123,
        backend_start="2026-11-20T14:40:02Z",
        user="app",
        database="appdb",
        application="migrate",
        state="active",
        relation="public.orders",
        mode="AccessExclusiveLock",
        wait_s=42.0,
        xact_s=42.5,
        query="alter table orders add column note text",
        waiters=waiters,
        behind=2,
    )
    root = LockNode(
        pid=8001,
        backend_start="2026-11-20T14:10:02Z",
        user="backup",
        database="appdb",
        application="pg_dump",
        state="active",
        relation="public.orders",
        mode="AccessShareLock",
        xact_s=2847.0,
        query="COPY public.orders (id, customer, total) TO stdout;",
        waiters=[blocked],
        behind=3,
    )
    return LocksPanel(
        age_s=0.1,
        waiting=3,
        longest_wait_s=42.0,
        trees=[root],
        episodes=_episodes(),
        episodes_since="2026-11-20T14:47:29.000000Z",
        episodes_gap_s=12.0,
        other_episodes=2,
        other_waited_s=3.4,
    )


def _episodes() -> list[EpisodeRow]:
    """What was waited for in the last ten minutes: a transaction left open, now over; and the dump."""
    forgotten = EpisodeRow(
        pid=7412,
        backend_start="2026-11-20T14:49:01.000000Z",
        user="app",
        database="shop",
        application="batch",
        state="idle in transaction",
        query="update orders set state = 'paid' where id = 1",
        waited_s=168.0,
        since="2026-11-20T14:49:20.000000Z",
        until="2026-11-20T14:50:44.000000Z",
        waiters=[
            BlockedRow(
                pid=8200, backend_start="2026-11-20T14:49:02.000000Z", user="app", application="orders-api",
                mode="ShareLock", relation="public.orders", waited_s=84.0, since="2026-11-20T14:49:20.000000Z",
                until="2026-11-20T14:50:44.000000Z",
            ),
        ],
        other_waiters=1,
        other_waited_s=84.0,
    )  # fmt: skip
    dump = EpisodeRow(
        pid=8001,
        backend_start="2026-11-20T14:09:00.000000Z",
        user="backup",
        application="pg_dump",
        state="active",
        query="COPY public.orders (id, customer) TO stdout;",
        waited_s=42.0,
        since="2026-11-20T14:56:47.000000Z",
        waiters=[
            BlockedRow(
                pid=8123, backend_start="2026-11-20T14:50:00.000000Z", user="app", application="migrate",
                mode="AccessExclusiveLock", relation="public.orders", waited_s=42.0,
                since="2026-11-20T14:56:47.000000Z",
            ),
        ],
    )  # fmt: skip
    return [forgotten, dump]


def _replication() -> ReplicationPanel:
    return ReplicationPanel(
        age_s=0.8,
        role="primary",
        timeline=3,
        lsn="2A/7F0318C8",
        lag_bytes=41 * MB,
        lag_s=2.4,
        standbys=[
            StandbyRow(
                application="db1",
                client="10.0.0.11",
                user="repl",
                pid=7011,
                state="streaming",
                sync_state="async",
                lag_bytes=41 * MB,
                sent_lag_bytes=0,
                flush_lag_bytes=12 * MB,
                lag_s=2.4,
            )
        ],
        slots=[
            SlotRow(name="db1", kind="physical", active=True, retained_bytes=41 * MB, wal_status="reserved"),
            SlotRow(
                name="old_sub",
                kind="logical",
                database="appdb",
                retained_bytes=96 * GB,
                retained_bytes_per_s=3.1 * MB,
                wal_status="extended",
                xid_age=81_000_000,
            ),
        ],
        wal_bytes_per_s=3.1 * MB,
        wal_files_bytes=97 * GB,
        archive_enabled=True,
        archive_age_s=14.0,
        archive_failed_count=2,
        archive_ready_count=3,
        last_archived_wal="000000030000002A0000007E",
        last_failed_wal="000000030000002A00000011",
        last_failed_age_s=86_400.0,
        checkpoints_timed=3410,
        checkpoints_requested=17,
        checkpoint_write_ms=1_204_001.0,
    )


def _disks() -> DisksPanel:
    return DisksPanel(
        age_s=3.0,
        mounts=[
            MountRow(
                path="/var/lib/postgresql",
                device="vda",
                source="/dev/vda1",
                fstype="xfs",
                holds=["data", "wal"],
                size_bytes=480 * GB,
                used_bytes=403 * GB,
                available_bytes=77 * GB,
                used_pct=84.0,
                inodes_pct=0.4,
                growth_bytes_per_s=1.4 * MB,
                full_in_s=56_320.0,
                options="rw,noatime,discard",
            ),
            MountRow(
                path="/",
                device="vdb",
                source="/dev/vdb1",
                fstype="ext4",
                holds=["log", "session"],
                size_bytes=40 * GB,
                used_bytes=11 * GB,
                available_bytes=27 * GB,
                used_pct=29.0,
                inodes_pct=6.0,
                growth_bytes_per_s=0.0,
                options="rw,relatime",
            ),
            MountRow(
                path="/srv/backup",
                source="nfs1:/backup",
                fstype="nfs4",
                holds=["archive"],
                status="timeout",
                note="statvfs did not answer in 1 s: the file system is stalled",
            ),
        ],
        databases=[
            DatabaseRow(
                name="appdb",
                bytes=388 * GB,
                temp_bytes_per_s=0.0,
                commits_per_s=512.0,
                rollbacks_per_s=1.0,
                hit_pct=97.6,
                deadlocks=4,
            ),
            DatabaseRow(name="report", bytes=9 * GB, temp_bytes_per_s=1.2 * MB, commits_per_s=0.4, hit_pct=81.0),
        ],
        warnings=[
            "data and wal share the mount /var/lib/postgresql: if it fills or stalls, both stop",
            "/var/lib/postgresql is mounted with discard: removing a large file can stall the device",
            "/var/lib/postgresql is 84% full",
        ],
    )


def _sessions() -> SessionsPanel:
    rows = [_idle_session(index) for index in range(197)]
    rows.append(
        _session(7900, "billing", "idle in transaction", "Client:ClientRead", "update invoices set paid = true")
    )
    rows.append(_session(8001, "pg_dump", "active", "Client:ClientWrite", "COPY public.orders TO stdout;", cpu=61.0))
    rows.append(_session(8123, "migrate", "active", "Lock:relation", "alter table orders add column note text", [8001]))
    rows.append(_session(8200, "orders-api", "active", "Lock:relation", "select * from orders where id = $1", [8123]))
    for pid, kind in ((611, "checkpointer"), (612, "background writer"), (613, "walwriter"), (7011, "walsender")):
        rows.append(SessionRow(pid=pid, backend_type=kind, cpu_pct=0.4, process_state="S", rss_bytes=40 * MB))
    return SessionsPanel(age_s=0.1, rows=rows)


def _idle_session(index: int) -> SessionRow:
    return SessionRow(
        pid=9000 + index,
        backend_start="2026-11-20T13:55:10Z",
        backend_type="client backend",
        database="appdb",
        user="app",
        application="orders-api" if index % 4 else "billing",
        client=f"10.0.1.{index % 20 + 1}",
        state="idle",
        wait="Client:ClientRead",
        query_age_s=60.0 + index,
        state_age_s=60.0 + index,
        rss_bytes=18 * MB,
        process_state="S",
        query="select id, total from orders where customer = $1",
    )


def _session(
    pid: int, application: str, state: str, wait: str, query: str, blocked_by: list[int] | None = None, cpu: float = 0.0
) -> SessionRow:
    return SessionRow(
        pid=pid,
        backend_start="2026-11-20T14:40:02Z",
        backend_type="client backend",
        database="appdb",
        user="app",
        application=application,
        client="[local]",
        state=state,
        wait=wait,
        xact_age_s=42.5,
        query_age_s=42.0,
        state_age_s=42.0,
        xmin_age_xids=1200,
        blocked_by=blocked_by or [],
        cpu_pct=cpu,
        read_bytes_per_s=cpu * MB,
        write_bytes_per_s=0.0,
        rss_bytes=212 * MB,
        process_state="R" if cpu else "S",
        query=query,
    )


def _events() -> EventsPanel:
    return EventsPanel(
        age_s=0.0,
        rows=[
            EventRow(at="2026-11-20T14:44:48Z", kind="session.start", tag="DBACONSOLE", text="recording db2", seq=1),
            EventRow(at="2026-11-20T14:44:49Z", kind="server.connected", tag="DBACONSOLE", text="connected", seq=2),
            EventRow(at="2026-11-20T14:55:30Z", kind="mark", tag="DBACONSOLE", text="pages are slow", seq=3),
            EventRow(
                at="2026-11-20T14:57:01Z",
                kind="lane.stuck",
                tag="DBACONSOLE",
                text="the file system /srv/backup does not answer",
                seq=4,
                severity="warning",
            ),
        ],
    )


def _findings() -> list[Finding]:
    return [
        Finding(
            id="reclaim-stall",
            severity="critical",
            subject="memory",
            text="Connections fill because I/O is stalled by memory reclaim",
            evidence={"memory.cached_change_bytes_per_s": -310.0 * MB},
            runbook="reclaim-stall",
            since="2026-11-20T14:55:02Z",
        ),
    ]


def _server() -> ServerPanel:
    return ServerPanel(
        age_s=12.0, version="15.18", system_identifier="7431204485839012345", data_directory="/var/lib/postgresql/15",
        port=5432, started="2026-11-08T10:57:29Z", uptime_s=12 * 86400.0 + 4 * 3600,
        config_loaded="2026-11-18T08:12:40Z", restarted="2026-11-20T12:31:07Z", restarted_age_s=8782.0,
        settings=[
            SettingRow(name="shared_buffers", value="16384 x 8kB", file_value="8GB", problem="needs a restart",
                       place="/etc/postgresql/15/main/postgresql.conf:127"),
            SettingRow(name="work_mem", problem='invalid value for parameter "work_mem": "64 MByte"',
                       place="/etc/postgresql/15/main/conf.d/app.conf:3"),
        ],
        config_errors_known=True,
        io=[
            BackendIoRow(backend_type="client backend", reads_per_s=1180.0, read_bytes_per_s=9.2 * MB, writes_per_s=3.0,
                         write_bytes_per_s=24_576.0, extends_per_s=12.0, fsyncs_per_s=0.0, hit_pct=98.2),
            BackendIoRow(backend_type="checkpointer", reads_per_s=0.0, read_bytes_per_s=0.0, writes_per_s=310.0,
                         write_bytes_per_s=2.4 * MB, extends_per_s=0.0, fsyncs_per_s=4.0),
        ],
        checkpoints_timed=3411, checkpoints_requested=88, checkpoint_write_pct=81.0, checkpoint_buffers_per_s=310.0,
        slrus=[
            SlruRow(name="MultiXactMember", hit_pct=71.0, reads_per_s=420.0, writes_per_s=0.0, zeroed_per_s=0.1),
            SlruRow(name="Xact", hit_pct=100.0, reads_per_s=0.0, writes_per_s=0.3, zeroed_per_s=0.0),
        ],
        sessions_per_s=14.2, sessions_total=1_204_113, sessions_abandoned=311, sessions_fatal=4, sessions_killed=2,
        active_sessions=3.4, autovacuum_workers=1, autovacuum_max_workers=3,
        autovacuum=[
            AutovacuumRow(table="public.order_lines", database="appdb", state="running", why="vacuum", pid=7711,
                          elapsed_s=912.0, pct=41.0),
            AutovacuumRow(table="public.orders", database="appdb", state="due", why="vacuum, analyze", times=3.4,
                          bytes=388 * GB),
        ],
    )  # fmt: skip


def _own() -> SelfFrame:
    return SelfFrame(
        cpu_pct=0.7,
        backend_cpu_pct=0.3,
        rss_bytes=41 * MB,
        queries=2204,
        query_ms=2.9,
        recorder_lag_s=0.0,
        dropped=0,
        stuck_lanes=1,
        lanes=["mount /srv/backup"],
        consoles=1,
        late_s=0.001,
        recording="ok",
    )
