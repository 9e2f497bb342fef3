"""Decodes the rows of the monitor's queries into the readings of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from dba_console.core.redact import normalise, redact
from dba_console.watch.probes.postgres.binary_results import Row, client, decode, decode_beginning, lsn, wall_us
from dba_console.watch.probes.postgres.oid_names import OidNames, decode_name
from dba_console.watch.samples.postgres import (
    WITHHELD,
    Activity,
    Archiver,
    CatalogFaults,
    ChangedCollation,
    DatabaseStat,
    DatabaseStats,
    DatabaseXid,
    DeadRows,
    DeadRowTables,
    HeldLock,
    Horizon,
    HorizonHolder,
    InvalidIndex,
    IoStat,
    IoStats,
    Locks,
    LockWaiter,
    Replication,
    SequenceUsage,
    Sessions,
    Slot,
    Standby,
    Subscription,
    Subscriptions,
    TableXid,
    TempDirectory,
    TempFiles,
    Wal,
    Xids,
)

HIDDEN = b"<insufficient privilege>"
"""What pg_stat_get_activity() returns as the query of a session that is not visible to the role (pgstatfuncs.c)."""


class ActivityDecoder:
    """Decodes pg.activity. Most sessions do not change from one second to the next: an unchanged row keeps its record,
    so that only changed rows are decoded."""

    def __init__(self, names: OidNames, query_texts: str = "full") -> None:
        self._names, self._query_texts = names, query_texts
        self._before: dict[int, tuple[Row, Activity]] = {}
        self._version = -1

    def decode(self, rows: Sequence[Row], now: int) -> Sessions:
        """Return the sessions in `rows`, read at `now` by the server's clock (microseconds since 2000)."""
        before = self._before if self._version == self._names.version else {}
        current: dict[int, tuple[Row, Activity]] = {}
        for row in rows:
            known = before.get(row[0])
            # Compared, not hashed: most rows are equal, and comparing is several times cheaper.
            same = known is not None and known[0] == row
            current[row[0]] = known if known is not None and same else (row, self._record(row, known))
        self._before, self._version = current, self._names.version
        hidden = [row[18] for row in rows].count(HIDDEN)
        return Sessions(wall_us(now) or 0, [record for _, record in current.values()], hidden)

    def _record(self, row: Row, known: tuple[Row, Activity] | None) -> Activity:
        """Return the record of a row. If only its times differ, as after the same statement again, the rest is kept."""
        if known is not None and known[0][12:] == row[12:] and known[0][:9] == row[:9]:
            xact, query_start, changed = row[9:12]
            return structs.replace(
                known[1],
                xact_start=wall_us(xact),
                query_start=wall_us(query_start),
                state_change=wall_us(changed),
            )
        return activity_of(row, self._names, self._query_texts)


def activity_of(row: Row, names: OidNames, query_texts: str) -> Activity:
    """Decode one row; the query's text is in the encoding of its database."""
    (pid, started, kind, database, user, application, address, port, state, xact, query_start, changed,
     wait_type, wait, xid, xmin, leader, query_id, query, query_bytes) = row  # fmt: skip
    cut = query is not None and query_bytes > len(query)
    return Activity(
        pid=pid,
        backend_start=wall_us(started),
        backend_type=text(kind),
        database=names.database(database),
        user=names.role(user),
        application=redact(decode(application or b"", names.codec_of_database(database))),
        client=client(address, port),
        state=text(state),
        xact_start=wall_us(xact),
        query_start=wall_us(query_start),
        state_change=wall_us(changed),
        wait_event_type=text(wait_type),
        wait_event=text(wait),
        backend_xid=xid,
        backend_xmin=xmin,
        leader_pid=leader,
        query_id=query_id,
        query=_query_text(query or b"", cut, names.codec_of_database(database), query_texts, kind),
        query_bytes=query_bytes if cut else None,
    )


def _query_text(raw: bytes, cut: bool, codec: str, query_texts: str, kind: bytes | None) -> str:
    """Apply `agent.query_texts` to a query. An autovacuum worker's text is PostgreSQL's own, and rules depend on it."""
    if query_texts == "none" and raw and raw != HIDDEN and kind != b"autovacuum worker":
        return WITHHELD
    query = decode_beginning(raw, codec) if cut else decode(raw, codec)
    if query_texts == "normalised" and raw != HIDDEN:
        return redact(normalise(query))
    return redact(query, cut=cut)


def text(raw: bytes | None, codec: str = "utf-8") -> str | None:
    """Decode text that may be NULL."""
    return None if raw is None else decode(raw, codec)


# pg.locks: waits for heavyweight locks, their blockers, and what those hold.

_MODES = (
    "AccessShareLock", "RowShareLock", "RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock",
    "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock",
)  # fmt: skip
"""From weak to strong (PostgreSQL documentation, "Explicit Locking")."""


def locks_of(rows: Sequence[Row], names: OidNames) -> Locks:
    """Return the waits and what their blockers hold; of several modes on one object only the strongest."""
    waiters = [_lock(row, names) for row in rows if row[0] == b"waits"]
    held = [
        HeldLock(pid, mode.decode(), names.relation(database, relation), kind.decode())
        for pid, kind, mode, database, relation in _strongest(row for row in rows if row[0] == b"holds")
    ]
    return Locks(waiters, held)


def _lock(row: Row, names: OidNames) -> LockWaiter:
    _, pid, blocked_by, kind, mode, since, database, relation = row
    # pg_blocking_pids() repeats a blocker for each worker of a parallel query.
    blockers = list(dict.fromkeys(blocked_by or ()))
    return LockWaiter(pid, blockers, kind.decode(), mode.decode(), names.relation(database, relation), wall_us(since))


def _strongest(rows: Iterable[Row]) -> list[tuple[int, bytes, bytes, int | None, int | None]]:
    best: dict[tuple[int, bytes, int | None, int | None], bytes] = {}
    for _, pid, _, kind, mode, _, database, relation in rows:
        key = (pid, kind, database, relation)
        if key not in best or _strength(mode) > _strength(best[key]):
            best[key] = mode
    return [(pid, kind, mode, database, relation) for (pid, kind, database, relation), mode in best.items()]


def _strength(mode: bytes) -> int:
    name = mode.decode()
    return _MODES.index(name) if name in _MODES else -1


# pg.databases and pg.sizes: pg_stat_database, and the size of each database.


def database_stats_of(rows: Sequence[Row], names: OidNames) -> DatabaseStats:
    """pg_stat_database. Times in milliseconds; they stay 0 where track_io_timing is off."""
    return DatabaseStats([_stat(row, names) for row in rows])


def _stat(row: Row, names: OidNames) -> DatabaseStat:
    (oid, name, backends, commits, rollbacks, read, hit, returned, fetched, written, conflicts, temp_files, temp_bytes,
     deadlocks, failures, failed_at, read_ms, write_ms, reset, *ended) = row  # fmt: skip
    return DatabaseStat(
        oid, None if name is None else decode_name(name, names.codec), backends, commits, rollbacks, read, hit,
        returned, fetched, written, conflicts, temp_files, temp_bytes, deadlocks, failures, wall_us(failed_at),
        read_ms, write_ms, wall_us(reset), *ended,
    )  # fmt: skip


# pg.temp: temporary files on disk.


def temp_of(rows: Sequence[Row], closed: Sequence[Row], names: OidNames) -> TempFiles:
    """pg_ls_tmpdir() of every tablespace; it does not list the directories with files of parallel workers."""
    return TempFiles(
        [TempDirectory(decode_name(space, names.codec), pid, files, size) for space, pid, files, size in rows],
        int(closed[0][0]) if closed and closed[0][0] is not None else None,
    )


# pg.xids and pg.horizon: distance to wraparound, and what holds back the xmin horizon.


def xids_of(databases: Sequence[Row], tables: Sequence[Row], names: OidNames) -> Xids:
    """Return the ages of every database and of the oldest tables of the connected one."""
    now, next_xid, next_mxid = databases[0][:3] if databases else (None, None, None)
    return Xids(
        now_us=wall_us(now) or 0,
        next_xid=next_xid,
        next_mxid=next_mxid,
        databases=[DatabaseXid(decode_name(name, names.codec), age, mxid_age) for *_, name, age, mxid_age in databases],
        tables=[_table(row, names.codec) for row in tables],
    )


def _table(row: Row, codec: str) -> TableXid:
    schema, name, xid_age, mxid_age, pages, vacuumed, autovacuumed = row
    label = f"{decode(schema, codec)}.{decode(name, codec)}"
    return TableXid(label, xid_age, mxid_age, pages, wall_us(vacuumed), wall_us(autovacuumed))


def horizon_of(rows: Sequence[Row], names: OidNames) -> Horizon:
    """Return the horizon holders, oldest first."""
    return Horizon([_holder(row, names.codec) for row in rows])


def _holder(row: Row, codec: str) -> HorizonHolder:
    kind, who, pid, age, since, database, state = row
    label = redact(text(who, codec) or "")
    return HorizonHolder(kind.decode(), label, pid, age, wall_us(since), text(database, codec), text(state, codec))


# pg.wal, pg.archiver and pg.io: the server's own write counters.


def wal_of(wal: Sequence[Row], checkpoints: Sequence[Row], files: Sequence[Row]) -> Wal:
    """Each source is one row, or empty if this version or role cannot read it."""
    records, fpi, size, buffers_full, wal_reset = wal[0] if wal else (None,) * 5
    timed, requested, write_ms, sync_ms, written, by_backends, reset = checkpoints[0] if checkpoints else (None,) * 7
    count, total = files[0] if files else (None, None)
    return Wal(
        records, fpi, size, buffers_full, timed, requested, write_ms, sync_ms, written, by_backends,
        wall_us(wal_reset or reset), count, total,
    )  # fmt: skip


def archiver_of(archiver: Sequence[Row], ready: Sequence[Row]) -> Archiver:
    (enabled, archived, last, last_at, failed, last_failed, last_failed_at, reset, now) = archiver[0]
    return Archiver(
        enabled, archived, text(last), wall_us(last_at), failed, text(last_failed), wall_us(last_failed_at),
        wall_us(reset), ready[0][0] if ready else None, wall_us(now) or 0, wall_us(ready[0][1]) if ready else None,
    )  # fmt: skip


def io_of(rows: Sequence[Row]) -> IoStats:
    """pg_stat_io. Times in milliseconds, 0 where track_io_timing is off."""
    return IoStats(
        [IoStat(kind.decode(), what.decode(), context.decode(), *counters) for kind, what, context, *counters in rows]
    )


# pg.replication: positions, standbys and slots, of a primary or a standby.

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


def replication_of(
    positions: Sequence[Row], standbys: Sequence[Row], slots: Sequence[Row], names: OidNames, unread: UnreadSlots
) -> Replication:
    """`positions` is one row; the other two are empty if there are none, or if they could not be read."""
    (now, in_recovery, at, received, replay_at, paused, status, host, latest_end, received_tli, own_tli,
     receiver_pid, conninfo_set, restore_set) = positions[0]  # fmt: skip
    return Replication(
        now_us=wall_us(now) or 0,
        in_recovery=in_recovery,
        lsn=lsn(at),
        receive_lsn=lsn(received),
        replay_at=wall_us(replay_at),
        replay_paused=paused,
        receiver_status=text(status),
        receiver_host=text(host),
        receiver_latest_end_lsn=lsn(latest_end),
        timeline=received_tli if in_recovery else own_tli,
        standbys=[_standby(row, names) for row in standbys],
        slots=unread.with_unread_since([_slot(row, names) for row in slots], wall_us(now) or 0),
        receiver_pid=receiver_pid,
        primary_conninfo_set=conninfo_set,
        restore_command_set=restore_set,
    )


def _standby(row: Row, names: OidNames) -> Standby:
    (pid, started, user, application, address, port, state, sent, write, flush, replay,
     write_lag, flush_lag, replay_lag, sync, xmin) = row  # fmt: skip
    return Standby(
        pid, wall_us(started), _name(user, names), text(application) or "", client(address, port), text(state),
        lsn(sent), lsn(write), lsn(flush), lsn(replay), write_lag, flush_lag, replay_lag, text(sync), xmin,
    )  # fmt: skip


def _slot(row: Row, names: OidNames) -> Slot:
    (name, kind, database, pid, temporary, xmin, catalog_xmin, restart, confirmed,
     wal_status, safe, inactive_since, reason, synced) = row  # fmt: skip
    return Slot(
        decode_name(name, names.codec), kind.decode(), _name(database, names), pid, temporary, xmin, catalog_xmin,
        lsn(restart), lsn(confirmed), text(wal_status), safe, wall_us(inactive_since), text(reason), synced,
    )  # fmt: skip


def _name(raw: bytes | None, names: OidNames) -> str | None:
    return None if raw is None else decode_name(raw, names.codec)


# pg.catalog, pg.subscriptions, pg.dead_rows: slow problems that the catalogs show before they have an effect.

PROVIDERS = {b"b": "builtin", b"c": "libc", b"d": "default", b"i": "icu"}


def catalog_of(
    collations: Sequence[Row], indexes: Sequence[Row] | None, sequences: Sequence[Row] | None, names: OidNames
) -> CatalogFaults:
    """Return the catalog's faults; None stands for rows that were refused."""
    return CatalogFaults(
        database=names.own_name,
        collations=[_collation(row, names) for row in collations],
        indexes=None if indexes is None else [_index(row, names.codec) for row in indexes],
        sequences=None if sequences is None else [_sequence(row, names.codec) for row in sequences],
    )


def _collation(row: Row, names: OidNames) -> ChangedCollation:
    database, name, provider, recorded, actual = row
    return ChangedCollation(
        None if database is None else decode_name(database, names.codec),
        None if name is None else decode(name, names.codec),
        PROVIDERS.get(provider, decode(provider)),
        decode(recorded, names.codec),
        decode(actual, names.codec),
    )


def _index(row: Row, codec: str) -> InvalidIndex:
    schema, name, table, ready, pages = row
    return InvalidIndex(f"{decode(schema, codec)}.{decode(name, codec)}", decode(table, codec), ready, pages)


def _sequence(row: Row, codec: str) -> SequenceUsage:
    schema, name, table, attribute, *numbers = row
    column = None if table is None else f"{decode(table, codec)}.{decode(attribute, codec)}"
    return SequenceUsage(f"{decode(schema, codec)}.{decode(name, codec)}", column, *numbers)


def subscriptions_of(rows: Sequence[Row], names: OidNames) -> Subscriptions:
    """Return every subscription of the server."""
    return Subscriptions([_subscription(row, names) for row in rows])


def _subscription(row: Row, names: OidNames) -> Subscription:
    name, database, *rest = row
    return Subscription(
        decode(name, names.codec), None if database is None else decode_name(database, names.codec), *rest
    )


def unvacuumed_of(rows: Sequence[Row], names: OidNames) -> DeadRowTables:
    """Return tables of the connected database; none where autovacuum keeps up."""
    return DeadRowTables(names.own_name, [_dead(row, names.codec) for row in rows])


def _dead(row: Row, codec: str) -> DeadRows:
    schema, name, dead, live, trigger, enabled, vacuums, last = row
    label = f"{decode(schema, codec)}.{decode(name, codec)}"
    return DeadRows(label, dead, int(live), int(trigger), enabled, vacuums, wall_us(last))
