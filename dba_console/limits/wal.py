"""Figures of the findings about WAL, archiving and replication."""

from __future__ import annotations

from msgspec import Struct

GB = 1 << 30
MB = 1 << 20


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
