"""Replication panel: lag, replication slots, retained WAL, archiving."""

from __future__ import annotations

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.model import Replication
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import mean_rate, pair, rate, slope
from dba_console.watch.frames.rows import SlotRow, StandbyRow
from dba_console.watch.samples import postgres

CHECKPOINTS_MIN_SPAN_S = 60.0
"""A rate of checkpoints needs a minute of readings: the shortest checkpoint_timeout is half of one."""


def derive_replication(facts: PictureFacts) -> Replication:
    """Return the replication panel; its status is that of the positions, what else is missing is in the note."""
    picture = facts.picture
    panel = fill_status(Replication(), picture, "pg.replication", "pg.archiver", "pg.wal")
    now = picture.now("pg.replication", postgres.Replication)
    if now is not None:
        panel.role = "standby" if now.in_recovery else "primary"
        panel.timeline, panel.lsn = now.timeline, lsn_text(now.lsn)
        panel.slots = [_slot(slot, now, facts) for slot in now.slots]
        panel.standbys = [_standby(row, now.lsn) for row in now.standbys]
        panel.wal_bytes_per_s = _wal_rate(facts)
        if now.in_recovery:
            _fill_standby_lag(panel, now)
            panel.apply_delay_s = apply_delay_s(facts)
        else:
            _fill_primary_lag(panel)
    _archiver(panel, facts)
    _wal(panel, picture.now("pg.wal", postgres.Wal), facts)
    return panel


def lsn_text(lsn: int | None) -> str | None:
    """Return a position as PostgreSQL writes it.

    >>> lsn_text(0x2A_7F03_18C8)
    '2A/7F0318C8'
    """
    return None if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_distance(ahead: int | None, position: int | None) -> int | None:
    """Return the bytes from `position` to `ahead`; never below 0: the two are not read at the same time."""
    return None if ahead is None or position is None else max(0, ahead - position)


def _standby(row: postgres.Standby, lsn: int | None) -> StandbyRow:
    lag = lsn_distance(lsn, row.replay_lsn)
    return StandbyRow(
        application=row.application,
        client=row.client,
        user=row.user,
        pid=row.pid,
        state=row.state,
        sync_state=row.sync_state,
        lag_bytes=lag,
        sent_lag_bytes=lsn_distance(lsn, row.sent_lsn),
        flush_lag_bytes=lsn_distance(lsn, row.flush_lsn),
        # replay_lag is NULL once a standby has caught up and the primary is idle.
        lag_s=0.0 if lag == 0 and row.replay_lag_s is None else row.replay_lag_s,
    )


def _fill_primary_lag(panel: Replication) -> None:
    """Primary: bytes and time of the standby furthest behind."""
    known = [row for row in panel.standbys if is_standby(row) and row.lag_bytes is not None]
    if known:
        last = max(known, key=lambda row: (row.lag_bytes or 0, row.lag_s or 0.0))
        panel.lag_bytes, panel.lag_s = last.lag_bytes, last.lag_s


def is_standby(row: StandbyRow) -> bool:
    """Check whether it is a standby: a base backup and a plain WAL receiver replay nothing."""
    return row.state != "backup" and (row.lag_bytes is not None or row.state != "streaming")


def _fill_standby_lag(panel: Replication, now: postgres.Replication) -> None:
    """Standby: received and not replayed.

    A standby that has replayed everything from a live stream has no lag, however long ago the primary last committed.
    Without a stream it is unknown what the primary has written since: then the age of the last commit is used.
    """
    panel.replay_paused = now.replay_paused
    panel.receiver_status, panel.receiver_host = now.receiver_status, now.receiver_host
    panel.receiver_pid = now.receiver_pid
    # Without a stream it is unknown how far the primary is ahead.
    panel.lag_bytes = lsn_distance(now.receive_lsn, now.lsn) if now.has_receiver else None
    streaming = now.receiver_status == "streaming"
    panel.lag_s = 0.0 if streaming and panel.lag_bytes == 0 else age_s(now.now_us, now.replay_at)


def apply_delay_s(facts: PictureFacts) -> float | None:
    """Return the intended delay of this standby (recovery_min_apply_delay), seconds; None if 0 or unknown."""
    delay_ms = facts.number("recovery_min_apply_delay")
    return delay_ms / 1000 if delay_ms else None


def _slot(slot: postgres.Slot, now: postgres.Replication, facts: PictureFacts) -> SlotRow:
    return SlotRow(
        name=slot.name,
        kind=slot.kind,
        database=slot.database,
        active=slot.active_pid is not None,
        retained_bytes=lsn_distance(now.lsn, slot.restart_lsn),
        retained_bytes_per_s=slope(facts.history.series(f"slot:{slot.name}.retained_bytes")),
        wal_status=slot.wal_status,
        safe_bytes=slot.safe_wal_size,
        xid_age=_slot_age(slot.name, facts),
        inactive_since=rfc3339(slot.inactive_since),
        invalidation_reason=slot.invalidation_reason,
        synced=slot.synced,
        unread_s=age_s(now.now_us, slot.unread_since),
    )


def _slot_age(name: str, facts: PictureFacts) -> int | None:
    horizon = facts.picture.now("pg.horizon", postgres.Horizon)
    ages = [row.xid_age for row in horizon.rows if row.kind == "slot" and row.who == name] if horizon else []
    return max((age for age in ages if age is not None), default=None)


def _wal_rate(facts: PictureFacts) -> float | None:
    """Return the rate of WAL written here, or on a standby received (replayed if it comes from an archive)."""
    both = pair(facts.picture, "pg.replication", postgres.Replication)
    if both is None:
        return None
    new, old, seconds = both
    if new.in_recovery and new.receive_lsn is not None and old.receive_lsn is not None:
        return rate(new.receive_lsn, old.receive_lsn, seconds)
    return rate(new.lsn, old.lsn, seconds)


def _archiver(panel: Replication, facts: PictureFacts) -> None:
    archiver = facts.picture.now("pg.archiver", postgres.Archiver)
    if archiver is None:
        return
    panel.archive_enabled = archiver.enabled
    if not archiver.enabled:
        return
    now_us = facts.server_now_us
    panel.archive_age_s = age_s(now_us, archiver.last_archived_at)
    panel.archive_failed_count, panel.archive_ready_count = archiver.failed_count, archiver.ready_count
    panel.last_archived_wal, panel.last_failed_wal = archiver.last_archived_wal, archiver.last_failed_wal
    panel.last_failed_age_s = age_s(now_us, archiver.last_failed_at)
    panel.archive_oldest_s = age_s(now_us, archiver.oldest_ready_at)


def _wal(panel: Replication, wal: postgres.Wal | None, facts: PictureFacts) -> None:
    if wal is None:
        return
    panel.wal_files_bytes = wal.wal_files_bytes
    panel.checkpoints_timed, panel.checkpoints_requested = wal.checkpoints_timed, wal.checkpoints_requested
    panel.checkpoint_write_ms = wal.checkpoint_write_ms
    requested = facts.history.series("replication.checkpoints_requested")
    if (per_s := mean_rate(requested, min_span_s=CHECKPOINTS_MIN_SPAN_S)) is not None:
        panel.checkpoints_requested_per_min = per_s * 60
