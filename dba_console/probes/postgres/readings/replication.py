"""pg.replication: positions, standbys and slots, of a primary or a standby."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from dba_console.probes.postgres.binary_results import Row, client, lsn, wall_us
from dba_console.probes.postgres.oid_names import OidNames, decode_name
from dba_console.probes.postgres.readings.activity import text
from dba_console.samples.postgres import Replication, Slot, Standby

MAX_GAP_US = 60_000_000
"""After a break of so long in the readings, what was seen before says nothing: a reader may have come and gone."""


class UnreadSlots:
    """Since when slots have been seen without a reader, by one connection: what servers before 17 do not say.

    One that is read by function, pg_logical_slot_get_changes, is hardly ever seen active: its position tells.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int | None, int | None]] = {}
        self._read_us = 0

    def with_unread_since(self, slots: Sequence[Slot], now_us: int) -> list[Slot]:
        """The slots of a reading at `now_us`, each with since when it has been unread."""
        known = self._since if now_us - self._read_us <= MAX_GAP_US else {}
        self._read_us, self._since = now_us, {}
        return [structs.replace(slot, unread_since=self._unread_since(slot, known, now_us)) for slot in slots]

    def _unread_since(
        self, slot: Slot, known: dict[str, tuple[int, int | None, int | None]], now_us: int
    ) -> int | None:
        if slot.active_pid is not None or slot.inactive_since is not None:
            return slot.inactive_since
        since_us, *place = known.get(slot.name, (now_us, None, None))
        if place != [slot.restart_lsn, slot.confirmed_flush_lsn]:
            since_us = now_us
        self._since[slot.name] = (since_us, slot.restart_lsn, slot.confirmed_flush_lsn)
        return since_us


def replication_of(
    positions: Sequence[Row], standbys: Sequence[Row], slots: Sequence[Row], names: OidNames, unread: UnreadSlots
) -> Replication:
    """`positions` is one row; the other two are empty where there are none, or where they could not be read."""
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
