"""The figures rules conclude by, declared once: `[findings.FAMILY]` in the configuration.

Plain numbers with their unit in the name. Where each default comes from stands at the rule that uses it, and in
docs/findings.md. Nothing here knows of any room.
"""

from __future__ import annotations

from msgspec import Struct, field

# Figures of the findings about the configured cluster.


class ClusterLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.cluster]`."""

    unreachable_s: float = 10.0
    """A node or pooler has not answered for so long; an orderly restart is over by then."""
    follow_s: float = 10.0
    """A standby that could follow the primary's timeline has not done so for so long."""
    paused_s: float = 60.0
    """A pooler's database has been paused for so long; the pause of a cutover is over by then."""


# Figures of the findings about connections.


class ConnectionLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.connections]`. Shares are of the usable connections: max_connections minus both reserves."""

    near_pct: float = 85.0
    """Taken from here on: a warning."""
    critical_pct: float = 95.0
    """Taken from here on: critical."""
    clear_pct: float = 80.0
    """What is open about the share clears below this."""
    full_in_s: float = 600.0
    """Full within this time at a steady growth: a warning."""
    critical_in_s: float = 90.0
    """Full within this time: critical."""
    date_from_pct: float = 40.0
    """No date of a warning is told below this share: a server that starts fills too."""
    critical_date_from_pct: float = 60.0
    """No date is critical below this share."""
    storm_window_s: float = 15.0
    """Growth of so short a time is a storm and no trend."""
    storm_least: int = 30
    """New connections within the window below which nothing is a storm: pools of ten or twenty start as one."""
    storm_pct: float = 20.0
    """And the least share of the usable connections."""
    storm_majority_pct: float = 50.0
    """The share of the growth that one application, or one user, must account for."""
    storm_warn_pct: float = 50.0
    """A storm is a remark while a smaller share of the usable connections is taken, and a warning from there on."""
    start_grace_s: float = 120.0
    """After a start of the server clients come back: what is opened so soon is told, and alarms nobody."""
    limit_near_pct: float = 90.0
    """Of a CONNECTION LIMIT of a role or database, or of max_wal_senders: a warning."""
    limit_clear_pct: float = 80.0
    """What is open about such a limit clears below this."""
    limit_least: int = 5
    """Smaller limits are reached on purpose: one job at a time."""
    idle_transaction_s: float = 60.0
    """A session idle in a transaction that holds a transaction id or a snapshot for so long is told."""
    idle_transaction_warning_s: float = 300.0
    """And from here on a warning."""
    idle_transaction_bare_s: float = 900.0
    """One that holds neither, only its locks, is told from here on."""
    idle_transaction_blocks_s: float = 2.0
    """Idle for so long while others wait behind it: a warning at once."""
    idle_transaction_critical_behind: int = 5
    """So many waiting behind it ..."""
    idle_transaction_critical_s: float = 30.0
    """... for so long: critical."""


# Figures of the findings about the console itself.


class ConsoleLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.console]`."""

    late_share_pct: float = 50.0
    """A tick is late that begins later than its time by this share of the interval."""
    late_ticks: int = 5
    """So many late ones in a row are told."""
    unanswered_s: float = 30.0
    """A query of the console has had no answer within its time limit for so long."""
    stuck_s: float = 3.0
    """A file system or process has not answered for so long."""
    lagging_s: float = 10.0
    """The recording has been behind for so long."""
    dropped_s: float = 300.0
    """How long samples that were not recorded stay on the screen."""


# Figures of the findings about disks.


class DiskLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.disks]`."""

    full_warning_pct: float = 80.0
    """Used share of a file system, as df says it."""
    full_critical_pct: float = 90.0
    """The same, where data, WAL, temporary files or a tablespace lie."""
    full_beside_critical_pct: float = 95.0
    """The same, where only archive, log or the like lie."""
    roomy_bytes: float = 50 * 1024.0**3
    """With so much left and no date of its end, a used share weighs one degree less."""
    full_in_warning_s: float = 86_400.0
    """Full within this time at a growth steady for minutes: a warning."""
    full_in_critical_s: float = 3600.0
    """The same, and a sixth of what was free has been used up while it was watched: critical."""
    soon_s: float = 300.0
    """Full within this time at the growth of ten seconds, which may end as fast: a warning."""
    inodes_warning_pct: float = 80.0
    """Used share of the inodes."""
    inodes_critical_pct: float = 95.0
    """The same, where data, WAL, temporary files or a tablespace lie."""
    temp_bytes: float = 1024.0**3
    """Temporary files on a disk that they fill within full_in_warning_s, or of which nothing is known: a warning."""
    temp_free_pct: float = 20.0
    """Temporary files as a share of what would be free without them."""
    temp_bytes_per_s: float = 50 * 1024.0**2
    """Written into temporary files, where the disk takes that for temp_full_in_critical_s at most: a warning."""
    temp_full_in_critical_s: float = 600.0
    """Full within this time at the growth of the temporary files, and temp_free_pct taken: critical."""


# Figures of the findings about I/O.


class IoLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.io]`."""

    stalled_pct: float = 35.0
    """Share of `window_s` in which every task that had work waited for I/O (PSI io full)."""
    stalled_clear_pct: float = 20.0
    """An open finding lasts until the share is below this."""
    critical_pct: float = 60.0
    """Most of the time lost, as the example of story S1 tells it (61 %)."""
    window_s: float = 10.0
    """As long as the shortest average of the kernel, but taken from its total, which does not lag."""
    waiting_sessions: int = 2
    """Sessions whose statement waits for I/O and has run for `waiting_s`: without them a busy disk is no stall."""
    critical_sessions: int = 5
    """So many in three readings of five seconds."""
    waiting_s: float = 1.0
    """A hundred times what a statement of milliseconds takes; in story S1 it was 30 s."""
    stuck_processes: int = 2
    """Processes of the server that hang in the kernel and make no progress for `stuck_s`."""
    stuck_s: float = 2.5
    """Three readings one second apart, and a little less: in story S7 it was 28 s."""
    unanswered_s: float = 2.5
    """A device has requests in flight and completes none."""
    blocked_processes: int = 4
    """Without PSI: tasks blocked in every reading of `blocked_s`, with so much iowait."""
    blocked_s: float = 2.5
    """As `stuck_s`."""
    blocked_iowait_pct: float = 20.0
    """Of all CPU time: half a CPU of two, and less on more."""
    saturated_pct: float = 95.0
    """Time with a request in flight, %util of `iostat -x`."""
    saturated_clear_pct: float = 80.0
    """An open finding lasts until it is below this."""
    saturated_s: float = 20.0
    """Busy in every reading of so long."""
    saturated_times: float = 2.0
    """Queue or latency against what is usual for this device: utilisation alone means nothing on parallel ones."""
    slow_times: float = 4.0
    """Times the usual latency of this device; half of it keeps the finding open."""
    slow_ms: float = 20.0
    """Milliseconds below which no disk that turns is called slow: a seek and a turn take 5 to 13."""
    slow_flash_ms: float = 10.0
    """For a device that usually answers within 2 ms."""
    slow_requests_per_s: float = 20.0
    """Of fewer requests an average tells nothing."""
    slow_s: float = 30.0
    """Shorter it is a burst: a checkpoint, a dump that begins, a file that is removed."""
    usual_minutes: int = 3
    """What is usual is known after so many whole minutes, the last one left out."""


# Figures of the findings about dumps and restores.


class JobLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.jobs]`."""

    late_factor: float = 1.5
    """A job is late when it takes so many times as long as usual, and"""
    late_over_s: float = 600.0
    """takes so much longer than usual."""
    missing_factor: float = 1.5
    """A dump is missing when none has finished for so many of its usual intervals, and for"""
    missing_longest_factor: float = 1.1
    """so many times the longest distance between two that is usual."""
    missing_runs: int = 4
    """With fewer runs known there is no usual interval."""
    missing_interval_s: float = 3600.0
    """Dumps that follow each other faster are taken by hand or by a test."""
    missing_run_s: float = 5.0
    """Dumps shorter than this may begin and end between two looks, so none of them can be said to be missing."""
    missing_given_up: float = 10.0
    """After so many of its intervals it was given up, and is no longer missing."""


# Figures of the findings about locks.


class LockLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.locks]`."""

    queue_behind: int = 3
    """Sessions behind one that waits for a lock of DDL: a warning."""
    queue_critical_behind: int = 10
    """So many, behind a wait of `queue_critical_least_s`: critical."""
    queue_critical_least_s: float = 2.0
    """What is over sooner was an ordinary ALTER TABLE that came in between."""
    queue_long_behind: int = 5
    """So many are critical too where the wait they stand behind lasts `queue_long_s`."""
    queue_long_s: float = 10.0
    """That wait."""
    blocker_s: float = 10.0
    """One session that holds up another for so long: a warning."""
    blocker_many: int = 5
    """So many sessions behind it are a warning after `blocker_many_s` already."""
    blocker_many_s: float = 2.0
    """How long they must have waited."""
    blocker_critical_behind: int = 20
    """So many sessions behind it ..."""
    blocker_critical_s: float = 30.0
    """... for so long: critical."""


# Figures of the findings about memory.

MB = 1 << 20
GB = 1 << 30


class MemoryLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.memory]`. Percentages of memory are of MemTotal."""

    fell_pct: float = 3.0
    """Page cache that goes within `window_s` to count, within the two bounds that follow."""
    fell_least_bytes: int = 512 * MB
    """On a small host this much, whatever its share."""
    fell_most_bytes: int = 1 * GB
    """On a big host so much is enough, where I/O stalls at the same time."""
    free_pct: float = 60.0
    """Share of it that free memory must have gained: else somebody needed the memory."""
    window_s: float = 30.0
    """Reclaim that goes on for longer is followed from its newest half minute."""
    reclaim_notice_pct: float = 3.0
    """A fall without a stall is worth a line from here on, and a warning from the next."""
    reclaim_warning_pct: float = 10.0
    """A tenth of memory is gigabytes to be read again on any database host."""
    memory_stalled_pct: float = 20.0
    """Share of the last ten seconds in which everybody waited for memory."""
    standstill_pct: float = 5.0
    """Bytes read and written, of those of the minute before, at which I/O has come to a stop without PSI to say so."""
    standstill_before_bytes_per_s: int = 1 * MB
    """Where so little was read and written before, nothing has come to a stop."""
    reread_bytes_per_s: int = 32 * MB
    """A third of what one disk reads in sequence, several times what it reads at random; below it nothing is told,"""
    reread_busy_pct: float = 20.0
    """nor where it costs the devices a smaller share of their time: of one NVMe's rate 32 MB/s is a fiftieth."""
    reread_s: float = 10.0
    """The mean over so long."""
    swap_pages_per_s: float = 50.0
    """In and out, each, over `swap_s`."""
    swap_s: float = 10.0
    """The mean over so long: a program started again touches pages of its own for a second or two."""
    swap_used_pct: float = 50.0
    """Used without traffic: a line, and no fault."""
    thp_shared_buffers_bytes: int = 1 * GB
    """With smaller shared buffers huge pages on demand are not worth a line."""
    oom_told_s: float = 900.0
    """How long a process killed for lack of memory stays on the screen."""


# Figures of the findings about checksums and transaction ids.


class SafetyLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.safety]`."""

    checksum_critical_s: float = 86_400.0
    """A checksum failure is critical for so long after the last one; then a warning, for corruption does not heal."""
    xid_warn_pct: float = 40.0
    """Share of the ids up to the stop: autovacuum begins to freeze at a tenth of them, so it has failed for long."""
    xid_warn_xids: int = 1_300_000_000
    """Always a warning from here on, however late autovacuum is set to begin (check_postgres txn_wraparound, -w)."""
    xid_critical_xids: int = 1_600_000_000
    """Critical age: the default of vacuum_failsafe_age, where the server itself drops everything else."""
    xid_overdue_pct: float = 125.0
    """Of autovacuum_freeze_max_age: below it, forced vacuums may just be at work, and nothing is warned of."""
    xid_stop_critical_s: float = 86_400.0
    """Critical where the ids last no longer than this at the present rate: what a weekend or a night may be."""
    horizon_warn_xids: int = 50_000_000
    """A holder of the xid horizon so many ids old is a warning: vacuum_freeze_min_age, from where on VACUUM would
    freeze."""
    horizon_old_s: float = 3600.0
    """Also one that has held it for this long,"""
    horizon_old_xids: int = 1_000_000
    """where so many ids were used meanwhile: their dead rows are what bloats."""
    prepared_s: float = 3600.0
    """A prepared transaction this old is forgotten by whoever prepared it, and warned of whatever its age in ids
    (check_postgres prepared_txns warns after a second)."""
    wraparound_wait_s: float = 10.0
    """A vacuum against wraparound is a warning once somebody has waited behind it for so long."""
    invalid_index_s: float = 600.0
    """An invalid index that nobody builds is a warning after this time: whoever builds it may be about to try again."""
    sequence_warn_pct: float = 85.0
    """Used share of the numbers a sequence and its column can hold: a warning (check_postgres sequence, -w)."""
    sequence_critical_pct: float = 95.0
    """The same: critical (check_postgres sequence, -c)."""
    autovacuum_behind_times: float = 2.0
    """Dead rows at this multiple of what autovacuum comes at are too many,"""
    autovacuum_behind_s: float = 3600.0
    """where it stays so for this long: sixty turns of autovacuum_naptime."""
    autovacuum_busy_s: float = 3600.0
    """All autovacuum workers busy at every look for this long: a warning."""


# Figures of the findings about the server.


class ServerLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.server]`."""

    down_warning_s: float = 3.0
    """Nothing listens, or nobody is let in, for so long: a warning."""
    down_critical_s: float = 10.0
    """For so long: critical; an orderly restart is over by then."""
    silent_warning_s: float = 5.0
    """Connected, and no answer for so long: a warning."""
    silent_critical_s: float = 30.0
    """For so long: critical."""
    news_s: float = 900.0
    """How long a restart, a promotion, changed settings stay on the screen."""


# Figures of the findings about WAL, archiving and replication.


class WalLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.wal]`."""

    archive_failures: int = 3
    """Failures in a row that are critical: the archiver tries three times, then pauses for a minute (pgarch.c,
    NUM_ARCHIVE_RETRIES)."""
    backlog_files: int = 16
    """Files of 16 MB waiting to be archived that are a warning, and critical where archiving fails (repmgr,
    archive_ready_warning). Where wal_segment_size is another, as many bytes, but three files at least."""
    backlog_s: float = 900.0
    """A file that waits for so long is a warning, however few they are: so much of the work is in no archive."""
    backlog_critical_s: float = 3600.0
    """The same: critical. How many wait never is: a bulk load outruns an archive that is well for some minutes."""
    full_critical_s: float = 3600.0
    """WAL that fills its disk, or a slot that is lost, within this time is critical: nobody comes in earlier."""
    full_warn_s: float = 86_400.0
    """Within this time it is a warning; minutes of growth say little about what lies beyond a day."""
    full_soon_s: float = 900.0
    """From ten seconds of growth instead of a minute it is told only where this little time is left."""
    slot_retained_bytes: int = 1 * GB
    """An unread slot that keeps so much is a warning,"""
    slot_retained_pct: float = 10.0
    """or so much of what is free on the disk of pg_wal, where that is less."""
    slot_least_bytes: int = 64 * MB
    """Below this nothing is said of a slot: four segments, as a fresh slot or a restarted standby has them."""
    slot_near_pct: float = 80.0
    """Of max_slot_wal_keep_size kept for a slot nobody reads: a warning, as for a disk that fills."""
    slot_near_critical_pct: float = 95.0
    """The same: critical, for the next checkpoint beyond it removes what the slot needs."""
    slot_grace_s: float = 60.0
    """A slot whose reader was seen is given so long to be read again: a standby that restarts comes back."""
    lag_warn_s: float = 60.0
    """A standby so far behind: earlier than repmgr warns (replication_lag_warning, 300), for people read from it."""
    lag_critical_s: float = 600.0
    """As repmgr's replication_lag_critical."""
    lag_bytes: int = 1 * GB
    """A warning also where so much WAL is not replayed,"""
    lag_bytes_s: float = 30.0
    """and it is behind by so long: on a busy server a gigabyte is a few seconds."""
    delayed_standbys: list[str] = []
    """Names (application_name) of standbys with recovery_min_apply_delay, which a primary cannot see: not warned of."""
    standby_known_s: float = 60.0
    """A standby must have streamed for so long before it is missed: tests and base backups come and go."""
    standby_gone_s: float = 10.0
    """It is missed after this time: twice what a restarted receiver waits before it connects
    (wal_retrieve_retry_interval)."""
    standby_forget_s: float = 86_400.0
    """A standby gone for this long was taken away on purpose."""
    subscription_s: float = 60.0
    """An enabled subscription without an apply worker for so long: twelve turns of the launcher, which starts one every
    five seconds (wal_retrieve_retry_interval)."""
    conflicts_window_s: float = 600.0
    """Queries that recovery cancelled on a standby are counted over so long."""
    conflicts_warn: int = 10
    """So many of them: a warning, for one a minute is no accident; below it a line."""


class Limits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Every figure, by family. `off` names rules that are not asked at all."""

    off: list[str] = []
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    locks: LockLimits = field(default_factory=LockLimits)
    io: IoLimits = field(default_factory=IoLimits)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    safety: SafetyLimits = field(default_factory=SafetyLimits)
    jobs: JobLimits = field(default_factory=JobLimits)
    wal: WalLimits = field(default_factory=WalLimits)
    disks: DiskLimits = field(default_factory=DiskLimits)
    server: ServerLimits = field(default_factory=ServerLimits)
    cluster: ClusterLimits = field(default_factory=ClusterLimits)
    console: ConsoleLimits = field(default_factory=ConsoleLimits)


# Figures that only make sense in an order: a warning comes before what is critical, and clearing below raising.

ORDERED_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "connections": (
        ("clear_pct", "near_pct"),
        ("near_pct", "critical_pct"),
        ("storm_warn_pct", "critical_pct"),
        ("critical_in_s", "full_in_s"),
        ("date_from_pct", "critical_date_from_pct"),
        ("limit_clear_pct", "limit_near_pct"),
        ("idle_transaction_s", "idle_transaction_warning_s"),
    ),
    "locks": (("queue_behind", "queue_critical_behind"), ("blocker_s", "blocker_critical_s")),
    "io": (
        ("stalled_clear_pct", "stalled_pct"),
        ("stalled_pct", "critical_pct"),
        ("waiting_sessions", "critical_sessions"),
        ("saturated_clear_pct", "saturated_pct"),
    ),
    "memory": (("fell_least_bytes", "fell_most_bytes"), ("reclaim_notice_pct", "reclaim_warning_pct")),
    "safety": (("xid_warn_xids", "xid_critical_xids"), ("sequence_warn_pct", "sequence_critical_pct")),
    "wal": (
        ("backlog_s", "backlog_critical_s"),
        ("full_critical_s", "full_warn_s"),
        ("lag_warn_s", "lag_critical_s"),
        ("slot_near_pct", "slot_near_critical_pct"),
    ),
    "disks": (
        ("full_warning_pct", "full_critical_pct"),
        ("full_warning_pct", "full_beside_critical_pct"),
        ("full_in_critical_s", "full_in_warning_s"),
        ("inodes_warning_pct", "inodes_critical_pct"),
        ("temp_full_in_critical_s", "full_in_warning_s"),
    ),
    "server": (("down_warning_s", "down_critical_s"), ("silent_warning_s", "silent_critical_s")),
}
"""Family -> pairs of which the first must not be above the second."""
