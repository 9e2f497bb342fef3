"""What is shown of replication: how far standbys are behind, what slots retain, whether WAL gets archived."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import mean_rate, pair, rate, slope
from dba_console.watch.lsn import lsn_distance, lsn_text
from dba_console.watch.panel import Charted, Panel, PanelFrame, Points, charted_points
from dba_console.watch.replication.readings import Archiver, Replication, Slot, Standby, Wal
from dba_console.watch.safety.readings import Horizon


class StandbyRow(Struct, kw_only=True):
    application: str
    client: str | None = None
    user: str | None = None
    pid: int | None = None
    state: str | None = None
    sync_state: str | None = None
    lag_bytes: int | None = None
    sent_lag_bytes: int | None = None
    flush_lag_bytes: int | None = None
    lag_s: float | None = None


class SlotRow(Struct, kw_only=True):
    name: str
    kind: str
    database: str | None = None
    active: bool = False
    retained_bytes: int | None = None
    retained_bytes_per_s: float | None = None
    wal_status: str | None = None
    safe_bytes: int | None = None
    xid_age: int | None = None
    inactive_since: str | None = None
    invalidation_reason: str | None = None
    synced: bool | None = None
    """Standby: a copy of a slot of the primary (17 and later)."""
    unread_s: float | None = None
    """Minimum time without a reader: as the server reports it (17 and later), else since the agent watches it."""


class ReplicationPanel(PanelFrame, kw_only=True):
    role: str | None = None
    """primary or standby."""
    timeline: int | None = None
    lsn: str | None = None
    lag_bytes: Annotated[int | None, Charted("replication lag", "pg.replication")] = None
    """Primary: of the standby furthest behind; standby: received but not replayed."""
    lag_s: Annotated[float | None, Charted("replication lag", "pg.replication")] = None
    """Standby: 0 if everything received from a live stream is replayed; without a stream the age of the last commit."""
    replay_paused: bool | None = None
    receiver_status: str | None = None
    receiver_host: str | None = None
    receiver_pid: int | None = None
    """Standby: the WAL receiver; its status and host are hidden from a role without pg_read_all_stats."""
    apply_delay_s: float | None = None
    """Standby: recovery_min_apply_delay, its intended delay; null if 0 or unknown."""
    standbys: list[StandbyRow] = []
    slots: list[SlotRow] = []
    wal_bytes_per_s: Annotated[float | None, Charted("WAL written", "pg.replication")] = None
    wal_files_bytes: int | None = None
    archive_enabled: bool | None = None
    archive_age_s: float | None = None
    """Since the last file was archived; on an idle server this grows while archive_ready_count stays 0."""
    archive_failed_count: int | None = None
    archive_ready_count: int | None = None
    archive_oldest_s: float | None = None
    """Since the oldest of them became ready."""
    last_archived_wal: str | None = None
    last_failed_wal: str | None = None
    last_failed_age_s: float | None = None
    checkpoints_timed: Annotated[int | None, Charted("timed checkpoints", "pg.wal")] = None
    checkpoints_requested: Annotated[int | None, Charted("requested checkpoints", "pg.wal")] = None
    checkpoints_requested_per_min: float | None = None
    """Mean of the last ten minutes; None if the counter was read for less than one."""
    checkpoint_write_ms: float | None = None


# How they follow from what was read.

CHECKPOINTS_MIN_SPAN_S = 60.0
"""A rate of checkpoints needs a minute of readings: the shortest checkpoint_timeout is half of one."""


def derive_replication(facts: PictureFacts) -> ReplicationPanel:
    """Return the replication panel; its status is that of the positions, what else is missing is in the note."""
    picture = facts.picture
    panel = fill_status(ReplicationPanel(), picture, "pg.replication", "pg.archiver", "pg.wal")
    now = picture.now("pg.replication", Replication)
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
    _wal(panel, picture.now("pg.wal", Wal), facts)
    return panel


def _standby(row: Standby, lsn: int | None) -> StandbyRow:
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


def _fill_primary_lag(panel: ReplicationPanel) -> None:
    """Primary: bytes and time of the standby furthest behind."""
    known = [row for row in panel.standbys if is_standby(row) and row.lag_bytes is not None]
    if known:
        last = max(known, key=lambda row: (row.lag_bytes or 0, row.lag_s or 0.0))
        panel.lag_bytes, panel.lag_s = last.lag_bytes, last.lag_s


def is_standby(row: StandbyRow) -> bool:
    """Check whether it is a standby: a base backup and a plain WAL receiver replay nothing."""
    return row.state != "backup" and (row.lag_bytes is not None or row.state != "streaming")


def _fill_standby_lag(panel: ReplicationPanel, now: Replication) -> None:
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


def _slot(slot: Slot, now: Replication, facts: PictureFacts) -> SlotRow:
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
    horizon = facts.picture.now("pg.horizon", Horizon)
    ages = [row.xid_age for row in horizon.rows if row.kind == "slot" and row.who == name] if horizon else []
    return max((age for age in ages if age is not None), default=None)


def _wal_rate(facts: PictureFacts) -> float | None:
    """Return the rate of WAL written here, or on a standby received (replayed if it comes from an archive)."""
    both = pair(facts.picture, "pg.replication", Replication)
    if both is None:
        return None
    new, old, seconds = both
    if new.in_recovery and new.receive_lsn is not None and old.receive_lsn is not None:
        return rate(new.receive_lsn, old.receive_lsn, seconds)
    return rate(new.lsn, old.lsn, seconds)


def _archiver(panel: ReplicationPanel, facts: PictureFacts) -> None:
    archiver = facts.picture.now("pg.archiver", Archiver)
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


def _wal(panel: ReplicationPanel, wal: Wal | None, facts: PictureFacts) -> None:
    if wal is None:
        return
    panel.wal_files_bytes = wal.wal_files_bytes
    panel.checkpoints_timed, panel.checkpoints_requested = wal.checkpoints_timed, wal.checkpoints_requested
    panel.checkpoint_write_ms = wal.checkpoint_write_ms
    requested = facts.history.series("replication.checkpoints_requested")
    if (per_s := mean_rate(requested, min_span_s=CHECKPOINTS_MIN_SPAN_S)) is not None:
        panel.checkpoints_requested_per_min = per_s * 60


def points(facts: PictureFacts) -> Points:
    """Return the charted fields, and for each slot the WAL it retains as `slot:NAME.retained_bytes`."""
    if not facts.was_read_now("pg.replication"):
        return {}
    panel = derive_replication(facts)
    retained = {f"slot:{slot.name}.retained_bytes": slot.retained_bytes for slot in panel.slots}
    return charted_points("replication", panel, facts) | retained


PANEL = Panel(name="replication", fields=ReplicationPanel, derive=derive_replication, points=points)
