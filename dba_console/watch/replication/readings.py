"""What is read about replication: positions, standbys and slots; archiving; WAL and checkpoints; subscriptions.

Times are microseconds since 1970 by the server's clock, positions in WAL 64-bit byte positions; None is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from dba_console.watch.part import (
    ApplicationName,
    DatabaseName,
    HostName,
    Query,
    ServerPart,
    SlotName,
    SubscriptionName,
    UserName,
)


class Standby(Struct, array_like=True, frozen=True):
    """A row of pg_stat_replication."""

    pid: int
    backend_start: int | None
    user: UserName | None
    application: ApplicationName
    client: HostName | None
    """Address, `[local]` for a unix socket, None if not permitted."""
    state: str | None
    sent_lsn: int | None
    write_lsn: int | None
    flush_lsn: int | None
    replay_lsn: int | None
    write_lag_s: float | None
    flush_lag_s: float | None
    replay_lag_s: float | None
    sync_state: str | None
    backend_xmin: int | None


class Slot(Struct, array_like=True, frozen=True):
    """A row of pg_replication_slots."""

    name: SlotName
    kind: str
    database: DatabaseName | None
    active_pid: int | None
    temporary: bool
    xmin: int | None
    catalog_xmin: int | None
    restart_lsn: int | None
    confirmed_flush_lsn: int | None
    wal_status: str | None
    safe_wal_size: int | None
    inactive_since: int | None = None
    invalidation_reason: str | None = None
    synced: bool | None = None
    """Standby: a copy of a slot of the primary (17 and later)."""
    unread_since: int | None = None
    """Since when it has been without a reader: as the server reports it (17 and later), else since it is watched."""


class Replication(Struct, array_like=True, frozen=True):
    """Positions, standbys, slots. On a primary lsn is the write position, on a standby the last one replayed."""

    now_us: int
    in_recovery: bool
    lsn: int | None
    receive_lsn: int | None
    """Standby: last position received and flushed."""
    replay_at: int | None
    """Standby: commit time of the last transaction replayed."""
    replay_paused: bool | None
    receiver_status: str | None
    receiver_host: HostName | None
    receiver_latest_end_lsn: int | None
    timeline: int | None
    standbys: list[Standby] = []
    slots: list[Slot] = []
    receiver_pid: int | None = None
    """Standby: the WAL receiver, visible to every role; its status and host need pg_read_all_stats."""
    primary_conninfo_set: bool | None = None
    """Standby: it should receive WAL from a primary. None without pg_read_all_settings."""
    restore_command_set: bool | None = None
    """Standby: it may take WAL from an archive."""

    @property
    def has_receiver(self) -> bool:
        """Whether a WAL receiver runs and is registered; one that cannot connect ends before that."""
        return self.receiver_pid is not None or self.receiver_status is not None

    def is_reset(self, before: Replication) -> bool:
        """Whether positions do not continue those of the reading before: a promotion, another timeline."""
        switched = None not in (self.timeline, before.timeline) and self.timeline != before.timeline
        return self.in_recovery != before.in_recovery or switched


class Archiver(Struct, array_like=True, frozen=True):
    """pg_stat_archiver, and the files that wait in archive_status."""

    enabled: bool
    archived_count: int
    last_archived_wal: str | None
    last_archived_at: int | None
    failed_count: int
    last_failed_wal: str | None
    last_failed_at: int | None
    stats_reset: int | None
    ready_count: int | None = None
    """Files .ready in archive_status; None without the right to list it."""
    now_us: int = 0
    oldest_ready_at: int | None = None
    """Time when the oldest of them became ready."""

    def is_reset(self, before: Archiver) -> bool:
        """Whether the counters were reset after the reading before."""
        return self.stats_reset != before.stats_reset


class Wal(Struct, array_like=True, frozen=True):
    """pg_stat_wal (14+) and the checkpointer's counters, from the view of this version."""

    records: int | None = None
    fpi: int | None = None
    bytes: int | None = None
    buffers_full: int | None = None
    checkpoints_timed: int | None = None
    checkpoints_requested: int | None = None
    checkpoint_write_ms: float | None = None
    checkpoint_sync_ms: float | None = None
    buffers_checkpoint: int | None = None
    buffers_backend: int | None = None
    """None from 17 on: pg_stat_io has the writes of backends."""
    stats_reset: int | None = None
    """Of pg_stat_wal, else of the checkpointer's view."""
    wal_files: int | None = None
    """Files in pg_wal and their bytes, from pg_ls_waldir()."""
    wal_files_bytes: int | None = None

    def is_reset(self, before: Wal) -> bool:
        """Whether the counters were reset after the reading before."""
        return self.stats_reset != before.stats_reset


class Subscription(Struct, array_like=True, frozen=True):
    """A row of pg_subscription, of any database."""

    name: SubscriptionName
    database: DatabaseName | None
    enabled: bool
    has_slot: bool
    worker_pid: int | None
    """Its apply worker; None if none runs."""
    apply_errors: int | None = None
    """Counted since the statistics were reset (15+); None before."""
    sync_errors: int | None = None
    disable_on_error: bool = False


class Subscriptions(Struct, array_like=True, frozen=True):
    rows: list[Subscription]


MAX_GAP_US = 60_000_000
"""After a gap this long in the readings the earlier state is discarded: a reader may have come and gone."""


class UnreadSlots:
    """Tracks since when slots are without a reader, for one connection: servers before 17 do not report it.

    A slot read by function (pg_logical_slot_get_changes) is hardly ever seen active: its position shows that it is
    read.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int | None, int | None]] = {}
        self._read_us = 0

    def __call__(self, reading: Replication) -> Replication:
        """Return the reading, each of its slots with the time since which it is unread."""
        return structs.replace(reading, slots=self.with_unread_since(reading.slots, reading.now_us))

    def with_unread_since(self, slots: Sequence[Slot], now_us: int) -> list[Slot]:
        """Return the slots of a reading at `now_us`, each with the time since which it is unread."""
        known = self._since if now_us - self._read_us <= MAX_GAP_US else {}
        self._read_us, self._since = now_us, {}
        return [structs.replace(slot, unread_since=self._unread_since(slot, known, now_us)) for slot in slots]

    def _unread_since(
        self, slot: Slot, known: dict[str, tuple[int, int | None, int | None]], now_us: int
    ) -> int | None:
        if slot.active_pid is not None or slot.inactive_since is not None:
            return slot.inactive_since
        since_us, *position = known.get(slot.name, (now_us, None, None))
        if position != [slot.restart_lsn, slot.confirmed_flush_lsn]:
            since_us = now_us
        self._since[slot.name] = (since_us, slot.restart_lsn, slot.confirmed_flush_lsn)
        return since_us


PARTS = (
    ServerPart(
        "pg.replication",
        Replication,
        every_s=2,
        meaning="positions, standbys, slots",
        queries=(
            Query("positions"),
            Query("standbys", rows="standbys", missing="standbys"),
            Query("slots", rows="slots", missing="slots"),
        ),
        needs_all_stats=True,
        finish=UnreadSlots,
    ),
    ServerPart(
        "pg.archiver",
        Archiver,
        every_s=3,
        meaning="archiving and its backlog",
        queries=(Query("archiver"), Query("archive_ready", missing="files waiting to be archived")),
    ),
    ServerPart(
        "pg.wal",
        Wal,
        every_s=5,
        meaning="WAL and checkpoints",
        queries=(
            Query("checkpoints"),
            Query("wal", missing="WAL counters"),
            Query("wal_files", missing="size of pg_wal"),
        ),
    ),
    ServerPart(
        "pg.subscriptions",
        Subscriptions,
        every_s=30,
        meaning="pg_subscription and its workers",
        first=False,
        queries=(Query("subscriptions", rows="rows"),),
    ),
)
