"""Replication & WAL: how far standbys are behind, what slots retain, whether WAL gets archived."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.core.units import human_bytes, human_count, human_duration
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame, Replication
from dba_console.watch.frames.replication import is_standby
from dba_console.watch.frames.rows import SlotRow, StandbyRow
from dba_console.watch.panels import phrases
from dba_console.watch.panels.phrases import (
    fact,
    integer,
    join,
    join_fitting,
    level_style,
    name_of,
    rate_change,
    text_line,
)
from dba_console.watch.panels.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    line_width,
    number_cell,
)
from dba_console.watch.panels.time_formats import local_date_and_time

# The tables of the replication panel: standbys and slots.

LAG_S = (10.0, 300.0)
_RETAINED_LEVELS = (10 << 30, 100 << 30)


def slot_style(slot: SlotRow) -> Style:
    if slot.wal_status in ("lost", "unreserved") or slot.invalidation_reason:
        return "crit"
    return level_style(slot.retained_bytes, *_RETAINED_LEVELS)


_STANDBY_COLUMNS = (
    TableColumn("application", "standby", 20, help="application_name", grow=True),
    TableColumn("client", "client", 18, spare=5),
    TableColumn("user", "user", 12, spare=6),
    TableColumn("pid", "pid", 8, right=True, spare=7),
    TableColumn("state", "state", 10, help="streaming, catchup, backup, ..."),
    TableColumn("sync", "sync", 9, help="async, potential, sync, quorum"),
    TableColumn("sent", "unsent", 9, right=True, help="WAL not sent yet", descending=True, spare=2),
    TableColumn("flush", "unflushed", 9, right=True, help="WAL not flushed there yet", descending=True, spare=3),
    TableColumn("lag", "lag", 9, right=True, help="WAL not replayed there yet", descending=True),
    TableColumn("lag_s", "lag time", 9, right=True, help="replay_lag", descending=True),
)


def standby_table(standbys: Sequence[StandbyRow]) -> Table:
    rows = tuple(_standby_row(row) for row in standbys)
    return Table("standbys", _STANDBY_COLUMNS, rows, "lag", "WAL receivers", "no standby is connected")


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
    """Return where it connects from: PostgreSQL has no address for a socket, nor for sessions this role may not see."""
    return "[local]" if row.client is None and row.state is not None else name_of(row.client)


_SLOT_COLUMNS = (
    TableColumn("name", "slot", 24, grow=True),
    TableColumn("kind", "kind", 8, help="physical or logical"),
    TableColumn("database", "database", 14, spare=2),
    TableColumn("active", "active", 8, help="A client is connected to it"),
    TableColumn("retained", "retained", 9, right=True, help="WAL retained by the slot", descending=True),
    TableColumn("growth", "growth", 14, right=True, help="Change of the retained WAL", descending=True, spare=3),
    TableColumn("status", "wal", 10, help="wal_status: reserved, extended, unreserved, lost"),
    TableColumn("safe", "safe", 9, right=True, help="WAL that can be written before the slot is lost", spare=4),
    TableColumn("xids", "xids back", 9, right=True, help="How far it holds the xid horizon back", descending=True),
    TableColumn("inactive", "inactive since", 19, help="17+", spare=7),
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


_READY_WARN, _READY_CRIT = 10, 100


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.replication
    return phrases.body(panel, is_known(panel), _facts(panel, width), width, height)


def is_known(panel: Replication) -> bool:
    return panel.role is not None or panel.wal_bytes_per_s is not None or panel.archive_enabled is not None


def _facts(panel: Replication, width: int) -> list[Line]:
    lines = [_role_line(panel, width), _archive_line(panel, width)]
    slot = worst_slot(panel.slots)
    if slot is not None:
        lines.insert(1, _slot_line(slot, width))
    lines.append(_wal_line(panel, width))
    lines += [_standby_line(row, width) for row in panel.standbys]
    return lines


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.replication
    if not is_known(panel):
        return Detail("Replication & WAL", tuple(phrases.note_lines(panel, width)))
    head = [
        _role_line(panel, 200),
        _wal_line(panel, 200),
        _archive_line(panel, 200),
        _archive_names(panel),
        _checkpoints(panel),
    ]
    tables = (standby_table(panel.standbys), slot_table(panel.slots))
    return Detail("Replication & WAL", phrases.head_lines(panel, [one for one in head if one], width), tables)


def _lag_fact(panel: Replication) -> Line:
    time = "" if panel.lag_s is None else f" {human_duration(panel.lag_s)}"
    beyond_s = None if panel.lag_s is None else panel.lag_s - (panel.apply_delay_s or 0.0)
    return fact("lag", human_bytes(panel.lag_bytes) + time, level_style(beyond_s, *LAG_S) if time else "")


def _role_line(panel: Replication, width: int) -> Line:
    if panel.role == "standby":
        receiver = panel.receiver_status or ("no receiver" if panel.receiver_pid is None else "receiver ?")
        host = f" from {name_of(panel.receiver_host, 20)}" if panel.receiver_host else ""
        paused = [text_line("replay paused", "warn")] if panel.replay_paused else []
        delay_s = panel.apply_delay_s
        delay = [] if delay_s is None else [fact("recovery_min_apply_delay", human_duration(delay_s))]
        return join_fitting(width, [*paused, _lag_fact(panel), *delay, text_line(f"{name_of(receiver, 20)}{host}")])
    count = sum(is_standby(row) for row in panel.standbys)
    wal = fact("wal", human_bytes(panel.wal_bytes_per_s, per_s=True))
    facts = [_lag_fact(panel), fact("standbys", str(count)), wal] if count else [wal, text_line("no standby", "dim")]
    if others := len(panel.standbys) - count:
        facts.insert(-1, fact("backups, receivers", str(others)))
    return join_fitting(width, facts)


def worst_slot(slots: list[SlotRow]) -> SlotRow | None:
    """Return the most critical slot: lost ones first, then the one that retains most WAL."""
    if not slots:
        return None
    return max(slots, key=lambda slot: (slot.wal_status in ("lost", "unreserved"), slot.retained_bytes or 0))


def _slot_line(slot: SlotRow, width: int) -> Line:
    retained = f" retains {human_bytes(slot.retained_bytes)}"
    name = name_of(slot.name, max(8, width - len("slot ") - len(retained)))
    words: Line = (Span("slot ", "dim"), Span(name), Span(retained, slot_style(slot)))
    if not slot.active and line_width(words) + len("inactive ") <= width:
        words = (Span("inactive ", "warn"), *words)
    facts = [words]
    if slot.wal_status in ("lost", "unreserved"):
        facts.append(text_line(name_of(slot.wal_status), "crit"))
    if slot.wal_status == "extended":
        facts.append(text_line("extended", "warn"))
    return join_fitting(width, facts)


def _archive_line(panel: Replication, width: int) -> Line:
    if panel.archive_enabled is False:
        return fact("archiving", "off")
    if panel.archive_enabled is None:
        return fact("archiving", "?")
    # A failure before the last success is over; a newer one is not.
    failing = panel.last_failed_age_s is not None and (
        panel.archive_age_s is None or panel.last_failed_age_s < panel.archive_age_s
    )
    age = "never" if panel.archive_age_s is None else f"{human_duration(panel.archive_age_s)} ago"
    facts = [
        fact("archived", age, "crit" if failing else ""),
        fact(
            "ready",
            integer(panel.archive_ready_count),
            level_style(panel.archive_ready_count, _READY_WARN, _READY_CRIT),
        ),
        fact("failed", integer(panel.archive_failed_count), "crit" if failing else ""),
    ]
    return join_fitting(width, [text_line("archiving fails", "crit"), *facts] if failing else facts)


def _wal_line(panel: Replication, width: int) -> Line:
    facts = [fact("pg_wal", human_bytes(panel.wal_files_bytes)), fact("timeline", integer(panel.timeline))]
    if panel.lsn:
        facts.append(fact("lsn", name_of(panel.lsn)))
    if panel.role == "standby":
        facts.append(fact("wal", human_bytes(panel.wal_bytes_per_s, per_s=True)))
    return join_fitting(width, facts)


def _archive_names(panel: Replication) -> Line:
    facts = []
    if panel.last_archived_wal:
        facts.append(fact("last archived", name_of(panel.last_archived_wal)))
    if panel.last_failed_wal:
        facts.append(
            fact("last failed", f"{name_of(panel.last_failed_wal)} {human_duration(panel.last_failed_age_s)} ago")
        )
    return join(facts)


def _checkpoints(panel: Replication) -> Line:
    per_min = panel.checkpoints_requested_per_min
    rate = "" if per_min is None else f" ({per_min:.1f}/min)"
    write = None if panel.checkpoint_write_ms is None else panel.checkpoint_write_ms / 1000
    return join(
        [
            fact("checkpoints timed", integer(panel.checkpoints_timed)),
            fact("requested", integer(panel.checkpoints_requested) + rate),
            fact("write time", human_duration(write)),
        ]
    )


def _standby_line(row: StandbyRow, width: int) -> Line:
    name = text_line(name_of(row.application, 16))
    if not is_standby(row):
        return join_fitting(width, [name, text_line("base backup" if row.state == "backup" else "receives WAL", "dim")])
    facts = [
        name,
        text_line(name_of(row.state, 12), "" if row.state == "streaming" else "warn"),
        text_line(f"{human_bytes(row.lag_bytes)} {human_duration(row.lag_s)}", level_style(row.lag_s, *LAG_S)),
    ]
    return join_fitting(width, facts)
