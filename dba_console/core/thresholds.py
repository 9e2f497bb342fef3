"""Thresholds of the rules, declared once: `[findings.FAMILY]` in the configuration.

Plain numbers with their unit in the name. The source of each default is given by the rule that uses it, and in
docs/findings.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from dba_console.core.errors import UsageError


class RuleThresholds(Struct, forbid_unknown_fields=True, frozen=True):
    """The thresholds of a family of rules."""

    @classmethod
    def check_value(cls, name: str, value: Any) -> None:
        """Refuse an impossible threshold: a rule that can never fire would be noticed too late.

        >>> DiskLimits.check_value("full_warning_pct", 180.0)
        Traceback (most recent call last):
        dba_console.core.errors.UsageError: 180.0 is more than 100 %
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if not math.isfinite(value):
            raise UsageError(f"{value} is not a valid threshold", hint="to disable a rule, name it in findings.off")
        if value < 0:
            raise UsageError(f"{value} is negative", hint="to disable a rule, name it in findings.off")
        # Some percentages are of a smaller value, and exceed 100 by default.
        if name.endswith("_pct") and value > 100 >= getattr(cls(), name):
            raise UsageError(f"{value} is more than 100 %")


# Thresholds of the findings about the configured cluster.


class ClusterLimits(RuleThresholds, frozen=True):
    """`[findings.cluster]`."""

    unreachable_s: float = 10.0
    """A node or pooler has not answered for this long; an orderly restart is over by then."""
    follow_s: float = 10.0
    """A standby that could follow the primary's timeline has not done so for this long."""
    paused_s: float = 60.0
    """A pooler's database has been paused for this long; the pause of a cutover is over by then."""


# Thresholds of the findings about connections.


class ConnectionLimits(RuleThresholds, frozen=True):
    """`[findings.connections]`. Percentages are of the usable connections: max_connections minus both reserves."""

    near_pct: float = 85.0
    """Used from this percentage: a warning."""
    critical_pct: float = 95.0
    """Used from this percentage: critical."""
    clear_pct: float = 80.0
    """A finding open because of the percentage clears below this."""
    full_in_s: float = 600.0
    """Full within this time at steady growth: a warning."""
    critical_in_s: float = 90.0
    """Full within this time: critical."""
    date_from_pct: float = 40.0
    """No warning by estimate below this percentage: a starting server fills too."""
    critical_date_from_pct: float = 60.0
    """No critical finding by estimate below this percentage."""
    storm_window_s: float = 15.0
    """Growth within this time is a storm, not a trend."""
    storm_least: int = 30
    """Minimum of new connections within the window for a storm: a pool opens ten or twenty at once."""
    storm_pct: float = 20.0
    """And the minimum percentage of the usable connections."""
    storm_majority_pct: float = 50.0
    """The percentage of the growth that one application, or one user, must account for."""
    storm_warn_pct: float = 50.0
    """A storm is info while a smaller percentage of the usable connections is used, and a warning from there."""
    start_grace_s: float = 120.0
    """After a server start clients reconnect: a storm within this time is info."""
    limit_near_pct: float = 90.0
    """Percentage of a CONNECTION LIMIT of a role or database, or of max_wal_senders: a warning."""
    limit_clear_pct: float = 80.0
    """A finding about such a limit clears below this."""
    limit_least: int = 5
    """Smaller limits are meant to be reached: one job at a time."""
    idle_transaction_s: float = 60.0
    """A session idle in transaction that has held a transaction id or a snapshot for this long is info."""
    idle_transaction_warning_s: float = 300.0
    """And from this time a warning."""
    idle_transaction_bare_s: float = 900.0
    """One that holds neither, only its locks, is info from this time."""
    idle_transaction_blocks_s: float = 2.0
    """Idle for this long while others wait for it: a warning at once."""
    idle_transaction_critical_behind: int = 5
    """This many sessions waiting for it ..."""
    idle_transaction_critical_s: float = 30.0
    """... for this long: critical."""


# Thresholds of the findings about the console itself.


class ConsoleLimits(RuleThresholds, frozen=True):
    """`[findings.console]`."""

    late_share_pct: float = 50.0
    """A tick is overdue if it starts later by this percentage of the interval."""
    late_ticks: int = 5
    """This many overdue ticks in a row are reported."""
    unanswered_s: float = 30.0
    """A query of the console has had no answer within its time limit for this long."""
    stuck_s: float = 3.0
    """A file system or process has not answered for this long."""
    lagging_s: float = 10.0
    """The recording has been behind for this long."""
    dropped_s: float = 300.0
    """How long dropped samples are reported."""


# Thresholds of the findings about disks.


class DiskLimits(RuleThresholds, frozen=True):
    """`[findings.disks]`."""

    full_warning_pct: float = 80.0
    """Used percentage of a file system, as df shows it."""
    full_critical_pct: float = 90.0
    """The same, with data, WAL, temporary files or a tablespace on it."""
    full_beside_critical_pct: float = 95.0
    """The same, with only archive, log or similar on it."""
    roomy_bytes: float = 50 * 1024.0**3
    """With this much free and no growth, the severity by percentage is one lower."""
    full_in_warning_s: float = 86_400.0
    """Full within this time at a growth that was steady for minutes: a warning."""
    full_in_critical_s: float = 3600.0
    """The same, and a sixth of the free space was used while it was observed: critical."""
    soon_s: float = 300.0
    """Full within this time at the growth of ten seconds, which may stop as fast: a warning."""
    inodes_warning_pct: float = 80.0
    """Used percentage of the inodes."""
    inodes_critical_pct: float = 95.0
    """The same, with data, WAL, temporary files or a tablespace on it."""
    temp_bytes: float = 1024.0**3
    """Temporary files on a disk that they fill within full_in_warning_s, or of unknown free space: a warning."""
    temp_free_pct: float = 20.0
    """Temporary files as a percentage of the space that would be free without them."""
    temp_bytes_per_s: float = 50 * 1024.0**2
    """Written to temporary files, if the disk is full within temp_full_in_critical_s at this rate: a warning."""
    temp_full_in_critical_s: float = 600.0
    """Full within this time at the growth of the temporary files, and temp_free_pct used: critical."""


# Thresholds of the findings about I/O.


class IoLimits(RuleThresholds, frozen=True):
    """`[findings.io]`."""

    stalled_pct: float = 35.0
    """Percentage of `window_s` in which all tasks with work waited for I/O (PSI io full)."""
    stalled_clear_pct: float = 20.0
    """An open finding lasts until the percentage is below this."""
    critical_pct: float = 60.0
    """Most of the time lost, as in story S1 (61 %)."""
    window_s: float = 10.0
    """The kernel's shortest averaging time, but computed from its total, which does not lag."""
    waiting_sessions: int = 2
    """Sessions whose statement waits for I/O and has run for `waiting_s`: without them a busy disk is not a stall."""
    critical_sessions: int = 5
    """This many in three readings within five seconds."""
    waiting_s: float = 1.0
    """A hundred times the duration of a statement of milliseconds; in story S1 it was 30 s."""
    stuck_processes: int = 2
    """Processes of the server that hang in the kernel without progress for `stuck_s`."""
    stuck_s: float = 2.5
    """Slightly less than three readings one second apart: in story S7 it was 28 s."""
    unanswered_s: float = 2.5
    """A device has requests in flight and completes none."""
    blocked_processes: int = 4
    """Without PSI: tasks blocked in every reading of `blocked_s`, with at least blocked_iowait_pct of iowait."""
    blocked_s: float = 2.5
    """As `stuck_s`."""
    blocked_iowait_pct: float = 20.0
    """Percentage of all CPU time: half a CPU of two, and less on more."""
    saturated_pct: float = 95.0
    """Time with a request in flight, %util of `iostat -x`."""
    saturated_clear_pct: float = 80.0
    """An open finding lasts until it is below this."""
    saturated_s: float = 20.0
    """Busy in every reading for this long."""
    saturated_times: float = 2.0
    """Queue or latency relative to typical for this device: utilisation alone means nothing on parallel devices."""
    slow_times: float = 4.0
    """Times the typical latency of this device; half of it keeps the finding open."""
    slow_ms: float = 20.0
    """Milliseconds below which a rotating disk is not slow: a seek and a turn take 5 to 13."""
    slow_flash_ms: float = 10.0
    """For a device that typically answers within 2 ms."""
    slow_requests_per_s: float = 20.0
    """With fewer requests an average is not conclusive."""
    slow_s: float = 30.0
    """A shorter time is a burst: a checkpoint, the start of a dump, a removed file."""
    usual_minutes: int = 3
    """Whole minutes before a typical value is known, without the last one."""


# Thresholds of the findings about dumps and restores.


class JobLimits(RuleThresholds, frozen=True):
    """`[findings.jobs]`."""

    late_factor: float = 1.5
    """A job is overdue when it takes this many times its typical duration, and"""
    late_over_s: float = 600.0
    """this much longer than typical."""
    missing_factor: float = 1.5
    """A dump is missing when none has finished for this many of its typical intervals, and for"""
    missing_longest_factor: float = 1.1
    """this many times the longest typical interval."""
    missing_runs: int = 4
    """With fewer known runs there is no typical interval."""
    missing_interval_s: float = 3600.0
    """Dumps at shorter intervals are manual or tests."""
    missing_run_s: float = 5.0
    """Dumps shorter than this may start and end between two readings, so none of them counts as missing."""
    missing_given_up: float = 10.0
    """After this many intervals it counts as discontinued, not as missing."""


# Thresholds of the findings about locks.


class LockLimits(RuleThresholds, frozen=True):
    """`[findings.locks]`."""

    queue_behind: int = 3
    """Sessions behind one that waits for a DDL lock: a warning."""
    queue_critical_behind: int = 10
    """This many, behind a wait of `queue_critical_least_s`: critical."""
    queue_critical_least_s: float = 2.0
    """A shorter wait is an ordinary ALTER TABLE."""
    queue_long_behind: int = 5
    """This many are also critical if the wait they queue behind lasts `queue_long_s`."""
    queue_long_s: float = 10.0
    """That wait."""
    blocker_s: float = 10.0
    """One session that blocks another for this long: a warning."""
    blocker_many: int = 5
    """With this many sessions behind it already a warning after `blocker_many_s`."""
    blocker_many_s: float = 2.0
    """How long they must have waited."""
    blocker_critical_behind: int = 20
    """This many sessions behind it ..."""
    blocker_critical_s: float = 30.0
    """... for this long: critical."""


# Thresholds of the findings about memory.

MB = 1 << 20
GB = 1 << 30


class MemoryLimits(RuleThresholds, frozen=True):
    """`[findings.memory]`. Percentages of memory are of MemTotal."""

    fell_pct: float = 3.0
    """Loss of page cache within `window_s` that counts as a fall, within the two bounds that follow."""
    fell_least_bytes: int = 512 * MB
    """On a small host at least this much."""
    fell_most_bytes: int = 1 * GB
    """On a big host this much is enough, if I/O stalls at the same time."""
    free_pct: float = 60.0
    """Percentage of the loss that free memory must have gained; otherwise the memory was needed."""
    window_s: float = 30.0
    """Longer reclaim is measured over its last half minute."""
    reclaim_notice_pct: float = 3.0
    """A fall without a stall is info from this percentage, and a warning from the next threshold."""
    reclaim_warning_pct: float = 10.0
    """A tenth of memory is gigabytes to read again on any database host."""
    memory_stalled_pct: float = 20.0
    """Percentage of the last ten seconds in which all tasks waited for memory."""
    standstill_pct: float = 5.0
    """I/O as a percentage of the minute before, at which it counts as stopped on kernels without PSI."""
    standstill_before_bytes_per_s: int = 1 * MB
    """With less I/O before, nothing has stopped."""
    reread_bytes_per_s: int = 32 * MB
    """A third of what one disk reads in sequence, several times what it reads at random; below it nothing is raised,"""
    reread_busy_pct: float = 20.0
    """nor if it takes a smaller percentage of the devices' time: 32 MB/s is a fiftieth of the rate of one NVMe."""
    reread_s: float = 10.0
    """Averaging time."""
    swap_pages_per_s: float = 50.0
    """Swapped in and out, each, over `swap_s`."""
    swap_s: float = 10.0
    """Averaging time: a restarted program touches its swapped pages for a second or two."""
    swap_used_pct: float = 50.0
    """Used without swapping: info."""
    thp_shared_buffers_bytes: int = 1 * GB
    """With smaller shared buffers transparent huge pages are not reported."""
    oom_told_s: float = 900.0
    """How long a process killed for lack of memory is reported."""


# Thresholds of the findings about checksums and transaction ids.


class SafetyLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`."""

    checksum_critical_s: float = 86_400.0
    """A checksum failure is critical for this long after the last one; then a warning: corruption does not heal."""
    xid_warn_pct: float = 40.0
    """Percentage of the ids up to the stop: autovacuum freezes from a tenth of them, so it has long failed."""
    xid_warn_xids: int = 1_300_000_000
    """Always a warning from this age, whatever the autovacuum settings (check_postgres txn_wraparound, -w)."""
    xid_critical_xids: int = 1_600_000_000
    """Critical age: the default of vacuum_failsafe_age, where the server itself drops everything else."""
    xid_overdue_pct: float = 125.0
    """Percentage of autovacuum_freeze_max_age: below it forced vacuums may still be running, and nothing is raised."""
    xid_stop_critical_s: float = 86_400.0
    """Critical if the ids last at most this long at the current rate: a night, or a weekend."""
    horizon_warn_xids: int = 50_000_000
    """A holder of the xid horizon this many ids old is a warning: vacuum_freeze_min_age, from which VACUUM would
    freeze."""
    horizon_old_s: float = 3600.0
    """Also one that has held it for this long,"""
    horizon_old_xids: int = 1_000_000
    """if this many ids were used meanwhile: their dead rows cause bloat."""
    prepared_s: float = 3600.0
    """A prepared transaction this old was probably forgotten, and is a warning whatever its age in ids (check_postgres
    prepared_txns warns after a second)."""
    wraparound_wait_s: float = 10.0
    """A vacuum against wraparound is a warning once a session has waited for it for this long."""
    invalid_index_s: float = 600.0
    """An invalid index that is not being built is a warning after this time: the build may be retried."""
    sequence_warn_pct: float = 85.0
    """Used percentage of the values a sequence and its column can hold: a warning (check_postgres sequence, -w)."""
    sequence_critical_pct: float = 95.0
    """The same: critical (check_postgres sequence, -c)."""
    autovacuum_behind_times: float = 2.0
    """Dead rows at this multiple of autovacuum's trigger are too many,"""
    autovacuum_behind_s: float = 3600.0
    """if it lasts this long: sixty times autovacuum_naptime."""
    autovacuum_busy_s: float = 3600.0
    """All autovacuum workers busy at every check for this long: a warning."""


# Thresholds of the findings about the server.


class ServerLimits(RuleThresholds, frozen=True):
    """`[findings.server]`."""

    down_warning_s: float = 3.0
    """Unreachable, or no connections accepted, for this long: a warning."""
    down_critical_s: float = 10.0
    """For this long: critical; an orderly restart is over by then."""
    silent_warning_s: float = 5.0
    """Connected without an answer for this long: a warning."""
    silent_critical_s: float = 30.0
    """For this long: critical."""
    news_s: float = 900.0
    """How long a restart, a promotion or changed settings are reported."""


# Thresholds of the findings about WAL, archiving and replication.


class WalLimits(RuleThresholds, frozen=True):
    """`[findings.wal]`."""

    archive_failures: int = 3
    """Consecutive failures that are critical: the archiver tries three times, then pauses for a minute (pgarch.c,
    NUM_ARCHIVE_RETRIES)."""
    backlog_files: int = 16
    """Files of 16 MB waiting to be archived that are a warning, and critical if archiving fails (repmgr,
    archive_ready_warning). For another wal_segment_size the same bytes, but at least three files."""
    backlog_s: float = 900.0
    """A file that waits this long is a warning, however few they are: that much work is not archived."""
    backlog_critical_s: float = 3600.0
    """The same: critical. The number of files never is: a bulk load outruns a healthy archive for some minutes."""
    full_critical_s: float = 3600.0
    """WAL that fills its disk, or a slot lost, within this time is critical: an operator rarely arrives earlier."""
    full_warn_s: float = 86_400.0
    """Within this time it is a warning; minutes of growth say little about more than a day."""
    full_soon_s: float = 900.0
    """Ten seconds of growth instead of a minute count only if less than this is left."""
    slot_retained_bytes: int = 1 * GB
    """A slot that is not read and retains this much is a warning,"""
    slot_retained_pct: float = 10.0
    """or this percentage of the free space on the disk of pg_wal, if that is less."""
    slot_least_bytes: int = 64 * MB
    """Below this a slot raises nothing: four segments, as with a new slot or a restarted standby."""
    slot_near_pct: float = 80.0
    """Percentage of max_slot_wal_keep_size retained by a slot that is not read: a warning, as for a disk that fills."""
    slot_near_critical_pct: float = 95.0
    """The same: critical, since the next checkpoint beyond it removes WAL the slot needs."""
    slot_grace_s: float = 60.0
    """Grace time for a slot whose reader was seen: a standby that restarts returns."""
    lag_warn_s: float = 60.0
    """A standby lags this much: earlier than repmgr warns (replication_lag_warning, 300), as clients read from it."""
    lag_critical_s: float = 600.0
    """As repmgr's replication_lag_critical."""
    lag_bytes: int = 1 * GB
    """Also a warning if this much WAL is not replayed,"""
    lag_bytes_s: float = 30.0
    """and it lags by this long: on a busy server a gigabyte is a few seconds."""
    delayed_standbys: list[str] = []
    """Names (application_name) of standbys with recovery_min_apply_delay, which a primary cannot see: no warning."""
    standby_known_s: float = 60.0
    """A standby must have streamed for this long before it is missed, unlike tests and base backups."""
    standby_gone_s: float = 10.0
    """It is missed after this time: twice the wait of a restarted receiver before it connects
    (wal_retrieve_retry_interval)."""
    standby_forget_s: float = 86_400.0
    """A standby gone for this long was removed on purpose."""
    subscription_s: float = 60.0
    """An enabled subscription without an apply worker for this long: twelve attempts of the launcher, one every
    five seconds (wal_retrieve_retry_interval)."""
    conflicts_window_s: float = 600.0
    """Time over which queries cancelled by recovery on a standby are counted."""
    conflicts_warn: int = 10
    """This many of them: a warning, since one a minute is not an accident; below it info."""


class Limits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """All thresholds, by family."""

    off: list[str] = []
    """Names of rules that are not evaluated."""
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


# Thresholds that must be in order: warning before critical, clearing below raising.

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
"""Family -> pairs whose first value must be at most the second."""


def find_order_conflict(thresholds: Mapping[str, Any]) -> tuple[tuple[str, str], str] | None:
    """Return the first threshold that contradicts another, as (family, name) and a message."""
    defaults = Limits()
    for family, pairs in ORDERED_PAIRS.items():
        given = thresholds.get(family, {})
        for lower, upper in pairs:
            low, high = (given.get(name, getattr(getattr(defaults, family), name)) for name in (lower, upper))
            if low > high:
                at = lower if lower in given else upper
                text = f"findings.{family}.{lower} ({low}) must be at most findings.{family}.{upper} ({high})"
                return (family, at), text
    return None
