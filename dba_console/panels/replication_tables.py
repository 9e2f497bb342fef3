"""The tables of the replication panel: standbys and slots."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.frames.model import SlotRow, StandbyRow
from dba_console.frames.replication import is_standby
from dba_console.panels.phrases import integer, level_style, name_of, rate_change
from dba_console.panels.table_layout import number_cell
from dba_console.panels.text_elements import Cell, Style, Table, TableColumn, TableRow
from dba_console.panels.time_formats import local_date_and_time
from dba_console.units import human_bytes, human_count, human_duration

LAG_S = (10.0, 300.0)
_RETAINED_LEVELS = (10 << 30, 100 << 30)


def slot_style(slot: SlotRow) -> Style:
    if slot.wal_status in ("lost", "unreserved") or slot.invalidation_reason:
        return "crit"
    return level_style(slot.retained_bytes, *_RETAINED_LEVELS)


_STANDBY_COLUMNS = (
    TableColumn("application", "standby", 20, help="application_name", grow=True, sort_key="N"),
    TableColumn("client", "client", 18, sort_key="C", spare=5),
    TableColumn("user", "user", 12, sort_key="U", spare=6),
    TableColumn("pid", "pid", 8, right=True, sort_key="P", spare=7),
    TableColumn("state", "state", 10, help="streaming, catchup, backup, ...", sort_key="S"),
    TableColumn("sync", "sync", 9, help="async, potential, sync, quorum", sort_key="Y"),
    TableColumn("sent", "unsent", 9, right=True, help="WAL not sent yet", sort_key="E", descending=True, spare=2),
    TableColumn(
        "flush", "unflushed", 9, right=True, help="WAL not flushed there yet", sort_key="F", descending=True, spare=3
    ),
    TableColumn("lag", "lag", 9, right=True, help="WAL not replayed there yet", sort_key="L", descending=True),
    TableColumn("lag_s", "lag time", 9, right=True, help="replay_lag", sort_key="T", descending=True),
)


def standby_table(standbys: Sequence[StandbyRow]) -> Table:
    rows = tuple(_standby_row(row) for row in standbys)
    return Table("standbys", _STANDBY_COLUMNS, rows, "lag", "Who receives WAL", "no standby is connected")


_NOT_APPLICABLE = Cell("–")


def _standby_row(row: StandbyRow) -> TableRow:
    standby, backup = is_standby(row), row.state == "backup"
    return TableRow(
        f"{row.application} {row.client} {row.pid}",
        (
            Cell(name_of(row.application), row.application),
            Cell(_client_text(row), row.client),
            Cell(name_of(row.user), row.user),
            Cell(integer(row.pid), row.pid),
            Cell(name_of(row.state), row.state, "" if row.state in ("streaming", "backup") else "warn"),
            Cell(name_of(row.sync_state), row.sync_state),
            _NOT_APPLICABLE if backup else number_cell(human_bytes(row.sent_lag_bytes), row.sent_lag_bytes),
            _NOT_APPLICABLE if backup else number_cell(human_bytes(row.flush_lag_bytes), row.flush_lag_bytes),
            number_cell(human_bytes(row.lag_bytes), row.lag_bytes) if standby else _NOT_APPLICABLE,
            Cell(human_duration(row.lag_s), row.lag_s, level_style(row.lag_s, *LAG_S)) if standby else _NOT_APPLICABLE,
        ),
    )


def _client_text(row: StandbyRow) -> str:
    """Where it connects from: PostgreSQL has no address for a socket, nor for what this role may not see."""
    return "[local]" if row.client is None and row.state is not None else name_of(row.client)


_SLOT_COLUMNS = (
    TableColumn("name", "slot", 24, grow=True, sort_key="N"),
    TableColumn("kind", "kind", 8, help="physical or logical", sort_key="K"),
    TableColumn("database", "database", 14, sort_key="D", spare=2),
    TableColumn("active", "active", 8, help="Somebody reads from it", sort_key="A"),
    TableColumn(
        "retained", "keeps", 9, right=True, help="WAL the slot keeps from being removed", sort_key="R", descending=True
    ),
    TableColumn(
        "growth", "growth", 14, right=True, help="Change of what it keeps", sort_key="G", descending=True, spare=3
    ),
    TableColumn("status", "wal", 10, help="wal_status: reserved, extended, unreserved, lost", sort_key="W"),
    TableColumn(
        "safe", "safe", 9, right=True, help="WAL that can be written before the slot is lost", sort_key="S", spare=4
    ),
    TableColumn(
        "xids", "xids back", 9, right=True, help="How far it holds the xid horizon back", sort_key="X", descending=True
    ),
    TableColumn("inactive", "inactive since", 19, help="17+", sort_key="I", spare=7),
    TableColumn("why", "invalidated by", 16, help="16+", spare=8),
)


def slot_table(slots: Sequence[SlotRow]) -> Table:
    return Table("slots", _SLOT_COLUMNS, tuple(_slot_row(row) for row in slots), "retained", "Slots", "no slots")


def _slot_row(slot: SlotRow) -> TableRow:
    style = slot_style(slot)
    return TableRow(
        slot.name,
        (
            Cell(name_of(slot.name), slot.name),
            Cell(name_of(slot.kind), slot.kind),
            Cell(name_of(slot.database) if slot.database else "", slot.database),
            Cell("active" if slot.active else "inactive", slot.active, "" if slot.active else "warn"),
            Cell(human_bytes(slot.retained_bytes), slot.retained_bytes, style),
            number_cell(rate_change(slot.retained_bytes_per_s), slot.retained_bytes_per_s),
            Cell(name_of(slot.wal_status), slot.wal_status, style),
            number_cell("" if slot.safe_bytes is None else human_bytes(slot.safe_bytes), slot.safe_bytes),
            number_cell("" if slot.xid_age is None else human_count(slot.xid_age), slot.xid_age),
            Cell(local_date_and_time(slot.inactive_since) if slot.inactive_since else "", slot.inactive_since),
            Cell(name_of(slot.invalidation_reason) if slot.invalidation_reason else "", slot.invalidation_reason),
        ),
    )
