"""Readings of the host: /proc and /sys, in the kernel's own names and units.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved, given
another meaning, or removed. Counters are raw and cumulative; None means the kernel does not have it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.watch.part import DatabaseName, HostName, NameKind, UserName


class Cpu(Struct, array_like=True, frozen=True, gc=False):
    """/proc/stat. Times in ticks of USER_HZ (1/100 s), summed over all CPUs."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int
    cpus: int
    procs_running: int
    procs_blocked: int
    """Tasks that now wait for I/O right now (state D), as `vmstat` shows them under b."""
    context_switches: int
    boot_wall_s: int
    """btime: when the host was booted, seconds since 1970."""

    def is_reset(self, before: Cpu) -> bool:
        """Whether the host was booted after the reading before."""
        # btime is computed from two clocks and may change by a second without a boot.
        return abs(self.boot_wall_s - before.boot_wall_s) > 5 and self.user + self.system < before.user + before.system


class MemInfo(Struct, array_like=True, frozen=True, gc=False):
    """/proc/meminfo, in bytes (HugePages_* are counts)."""

    total: int
    free: int
    available: int | None
    buffers: int
    cached: int
    swap_cached: int | None
    active_file: int | None
    inactive_file: int | None
    dirty: int
    writeback: int
    anon: int | None
    shmem: int | None
    slab: int | None
    slab_reclaimable: int | None
    swap_total: int
    swap_free: int
    commit_limit: int | None
    committed: int | None
    anon_huge: int | None
    huge_total: int | None
    huge_free: int | None
    huge_reserved: int | None
    huge_page_size: int | None


class VmStat(Struct, array_like=True, frozen=True, gc=False):
    """/proc/vmstat, in pages or events since boot. Names and split differ by kernel: summed by prefix.

    None if this kernel has no counter of that family, which is not 0.
    """

    page_size: int
    pgpgin_kb: int | None
    """Data read from block devices, kB (1024 bytes), as `vmstat` counts bi."""
    pgpgout_kb: int | None
    pswpin: int | None
    pswpout: int | None
    pgfault: int | None
    pgmajfault: int | None
    pgscan_kswapd: int | None
    pgsteal_kswapd: int | None
    pgscan_direct: int | None
    pgsteal_direct: int | None
    pgsteal_khugepaged: int | None
    pgsteal_proactive: int | None
    pgsteal_file: int | None
    """All file pages reclaimed, also for a memory cgroup's limit."""
    pgsteal_anon: int | None
    allocstall: int | None
    """Times a process had to reclaim memory itself before it got a page."""
    kswapd_low_wmark_hit_quickly: int | None
    kswapd_high_wmark_hit_quickly: int | None
    pageoutrun: int | None
    zone_reclaim_success: int | None
    zone_reclaim_failed: int | None
    compact_stall: int | None
    compact_fail: int | None
    compact_success: int | None
    compact_free_scanned: int | None
    compact_migrate_scanned: int | None
    drop_pagecache: int | None
    """Number of writes of 1 or 3 to /proc/sys/vm/drop_caches."""
    drop_slab: int | None
    refault_file: int | None
    """workingset_refault_file: pages read again soon after they were reclaimed."""
    refault_anon: int | None
    thp_fault_alloc: int | None
    thp_fault_fallback: int | None
    thp_collapse_alloc: int | None
    oom_kill: int | None
    """Processes killed for lack of memory, of the host or of a control group (4.13 and later)."""
    numa_miss: int | None
    numa_foreign: int | None


class PressureStall(Struct, array_like=True, frozen=True, gc=False):
    """One line of a /proc/pressure file: share of time in percent over 10, 60, 300 s and microseconds in total."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


class Pressure(Struct, array_like=True, frozen=True):
    """/proc/pressure (PSI). None if the kernel was built or booted without it, or has no such line."""

    cpu_some: PressureStall | None
    io_some: PressureStall | None
    io_full: PressureStall | None
    memory_some: PressureStall | None
    memory_full: PressureStall | None


class Disk(Struct, array_like=True, frozen=True, gc=False):
    """One line of /proc/diskstats for a whole device (not a partition). Sectors are 512 bytes, times milliseconds."""

    name: Annotated[str, NameKind("text")]
    major: int
    minor: int
    reads: int
    read_sectors: int
    read_ms: int
    writes: int
    written_sectors: int
    write_ms: int
    in_flight: int
    io_ms: int
    """Time with at least one request in flight: %util of `iostat -x`."""
    weighted_ms: int
    discards: int | None = None
    discarded_sectors: int | None = None
    discard_ms: int | None = None
    flushes: int | None = None
    flush_ms: int | None = None
    underlying: list[str] = []
    """Underlying devices (of dm, md, loop); empty for a physical device."""


class Disks(Struct, array_like=True, frozen=True):
    """Block devices in use: by a mount, or by I/O since boot."""

    devices: list[Disk]


MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "afs", "lustre", "gpfs")
)
"""File systems whose locks and shared memory are not reliable for SQLite's WAL (sqlite.org, "Write-Ahead Logging")."""

HeldContent = Annotated[str, NameKind("holds")]


class Mount(Struct, array_like=True, frozen=True):
    """One mounted file system and statvfs of it. Sizes in bytes; None if statvfs did not answer in time."""

    path: str
    source: Annotated[str, NameKind("path")]
    fstype: str
    options: str
    device: str | None
    """Name of the whole block device it is on (as in diskstats), None without one."""
    holds: list[HeldContent]
    """What is stored there: data, wal, temp, archive, log, session, tablespace:NAME."""
    size: int | None = None
    used: int | None = None
    available: int | None = None
    """Space available to an unprivileged writer; `df` computes its percentage from this and used."""
    inodes: int | None = None
    inodes_free: int | None = None
    status: str = "ok"
    """ok, or timeout (statvfs hung: the file system is stalled), or error."""
    note: str | None = None


class Mounts(Struct, array_like=True, frozen=True):
    """Real file systems, and the paths that PostgreSQL uses."""

    mounts: list[Mount]
    paths: dict[HeldContent, Annotated[str, NameKind("path")]]
    """Content -> path as the server names it: data, wal, tablespace:NAME, archive, log, session."""
    note: str | None = None
    """Why PostgreSQL's paths are not known, if they are not."""


class NumaNode(Struct, array_like=True, frozen=True, gc=False):
    """/sys/devices/system/node/nodeN/meminfo and numastat; bytes and pages."""

    node: int
    total: int
    free: int
    file_pages: int | None
    numa_miss: int | None
    numa_foreign: int | None


class HostSettings(Struct, array_like=True, frozen=True):
    """Kernel settings that affect a database; None if absent or not readable."""

    kernel: str
    hostname: str
    zone_reclaim_mode: int | None
    thp: str | None
    """The bracketed word of transparent_hugepage/enabled: always, madvise, never."""
    thp_defrag: str | None
    swappiness: int | None
    dirty_ratio: int | None
    dirty_background_ratio: int | None
    watermark_scale_factor: int | None
    watermark_boost_factor: int | None
    min_free_kbytes: int | None
    overcommit_memory: int | None
    task_delayacct: int | None
    numa: list[NumaNode]
    clock_error_us: int | None = None
    """Maximum error of the host's clock against UTC; None if it is not synchronized, or not known."""


class Process(Struct, array_like=True, frozen=True, gc=False):
    """A process of the postmaster from /proc/PID/stat and /proc/PID/io."""

    pid: int
    state: str
    """R, S, D (uninterruptible, mostly I/O), T (stopped), Z, as in the kernel."""
    start_ticks: int
    """Start in ticks after boot: with pid, its identity."""
    user_ticks: int
    system_ticks: int
    rss: int
    """Bytes resident, including touched shared buffers."""
    read_bytes: int | None
    """Bytes it caused to be read from storage; None without the right to read /proc/PID/io."""
    write_bytes: int | None
    blkio_ticks: int | None
    """Ticks waited for block I/O; None if kernel.task_delayacct is 0 (a false 0)."""


class Processes(Struct, array_like=True, frozen=True):
    """Processes of the postmaster. Idle ones are read in turn, not every second."""

    postmaster: int
    rows: list[Process]
    states: dict[str, int]
    """Number of processes read now, by state."""
    total: int
    """Number of children of the postmaster, read now or not."""

    def is_reset(self, before: Processes) -> bool:
        """Whether the postmaster is another one than in the reading before."""
        return self.postmaster != before.postmaster


class ProcessTitle(Struct, array_like=True, frozen=True, gc=False):
    """A backend from its process title: `postgres: CLUSTER: USER DB HOST(PORT) STATE`."""

    pid: int
    kind: str
    """`client backend`, or as in the title: checkpointer, walwriter, walsender, autovacuum worker, ..."""
    user: UserName | None
    database: DatabaseName | None
    client: HostName | None
    state: str | None
    """idle, idle in transaction, idle in transaction (aborted), waiting, startup, or the command tag."""
    start_ticks: int


class ProcessTitles(Struct, array_like=True, frozen=True):
    """Connections seen without one: process titles of the postmaster's children."""

    postmaster: int
    rows: list[ProcessTitle]
    unreadable: int
    """Children whose title could not be read in time."""
    update_process_title: bool = True
    """False if titles carry no state (update_process_title = off)."""


class ControlFile(Struct, array_like=True, frozen=True):
    """global/pg_control and postmaster.pid, read without the server; None if not readable."""

    system_identifier: str | None
    version_number: int | None
    """pg_control_version, e.g. 1300; the server's major version comes from PG_VERSION."""
    major: int | None
    state: str | None
    timeline: int | None
    data_checksums: bool | None
    next_xid: int | None
    oldest_xid: int | None
    max_connections: int | None
    data_directory: str
    postmaster_pid: int | None
    port: int | None
