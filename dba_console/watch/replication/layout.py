"""Replication & WAL on the screen: its lines in the overview, its page with the tables of standbys and slots."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import (
    fact,
    integer,
    join,
    join_fitting,
    level_style,
    name_of,
    rate_change,
    text_line,
)
from dba_console.watch.drawing.text_elements import Detail, Line, Span, Style, Table, TableRow, line_width
from dba_console.watch.drawing.time_formats import local_date_and_time
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.lsn import LAG_LEVELS_S
from dba_console.watch.replication.panel import ReplicationPanel, SlotRow, StandbyRow, is_standby
from dba_console.watch.tables import Column, cells

# The tables.

_RETAINED_LEVELS = (10 << 30, 100 << 30)


def _slot_style(slot: SlotRow) -> Style:
    if slot.wal_status in ("lost", "unreserved") or slot.invalidation_reason:
        return "crit"
    return level_style(slot.retained_bytes, *_RETAINED_LEVELS)


def _lag_style(row: StandbyRow) -> Style:
    return level_style(row.lag_s, *LAG_LEVELS_S)


def _client_text(row: StandbyRow) -> str:
    """Return where it connects from: PostgreSQL has no address for a socket, nor for sessions this role may not see."""
    return "[local]" if row.client is None and row.state is not None else name_of(row.client)


def _state_style(row: StandbyRow) -> Style:
    return "" if row.state in ("streaming", "backup") else "warn"


def _streams(row: StandbyRow) -> bool:
    return row.state != "backup"


def _active_text(slot: SlotRow) -> str:
    return "active" if slot.active else "inactive"


def _active_style(slot: SlotRow) -> Style:
    return "" if slot.active else "warn"


def _growth_text(slot: SlotRow) -> str:
    return rate_change(slot.retained_bytes_per_s)


def _inactive_since_text(slot: SlotRow) -> str:
    return local_date_and_time(slot.inactive_since)


_STANDBYS = (
    Column("application", "standby", 20, help="application_name", grow=True),
    Column("client", "client", 18, text=_client_text, spare=5),
    Column("user", "user", 12, spare=6),
    Column("pid", "pid", 8, right=True, spare=7),
    Column("state", "state", 10, help="streaming, catchup, backup, ...", style=_state_style),
    Column("sync_state", "sync", 9, help="async, potential, sync, quorum"),
    Column(
        "sent_lag_bytes", "unsent", 9, right=True, help="WAL not sent yet", applies=_streams, descending=True, spare=2
    ),
    Column(
        "flush_lag_bytes",
        "unflushed",
        9,
        right=True,
        help="WAL not flushed there yet",
        applies=_streams,
        descending=True,
        spare=3,
    ),
    Column("lag_bytes", "lag", 9, right=True, help="WAL not replayed there yet", applies=is_standby, descending=True),
    Column(
        "lag_s", "lag time", 9, right=True, help="replay_lag", style=_lag_style, applies=is_standby, descending=True
    ),
)

_SLOTS = (
    Column("name", "slot", 24, grow=True),
    Column("kind", "kind", 8, help="physical or logical"),
    Column("database", "database", 14, optional=True, spare=2),
    Column("active", "active", 8, help="A client is connected to it", text=_active_text, style=_active_style),
    Column(
        "retained_bytes", "retained", 9, right=True, help="WAL retained by the slot", style=_slot_style, descending=True
    ),
    Column(
        "retained_bytes_per_s",
        "growth",
        14,
        right=True,
        help="Change of the retained WAL",
        text=_growth_text,
        descending=True,
        spare=3,
    ),
    Column("wal_status", "wal", 10, help="wal_status: reserved, extended, unreserved, lost", style=_slot_style),
    Column(
        "safe_bytes",
        "safe",
        9,
        right=True,
        help="WAL that can be written before the slot is lost",
        optional=True,
        spare=4,
    ),
    Column(
        "xid_age",
        "xids back",
        9,
        right=True,
        help="How many transactions it holds the oldest xmin back",
        optional=True,
        descending=True,
    ),
    Column("inactive_since", "inactive since", 19, help="17+", text=_inactive_since_text, optional=True, spare=7),
    Column("invalidation_reason", "invalidated by", 16, help="16+", optional=True, spare=8),
)


def standby_table(standbys: Sequence[StandbyRow]) -> Table:
    rows = tuple(TableRow(f"{row.application} {row.client} {row.pid}", cells(_STANDBYS, row)) for row in standbys)
    return Table("standbys", _STANDBYS, rows, "lag_bytes", "WAL receivers", "no standby is connected")


def slot_table(slots: Sequence[SlotRow]) -> Table:
    rows = tuple(TableRow(slot.name, cells(_SLOTS, slot)) for slot in slots)
    return Table("slots", _SLOTS, rows, "retained_bytes", "Slots", "no slots")


# The short form and the full form.

_READY_WARN, _READY_CRIT = 10, 100


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """Return lag and WAL, the worst slot, the archive, then a line for each standby."""
    panel = frame.of(ReplicationPanel)
    return phrases.body(panel, is_known(panel), _facts(panel, width), width, height)


def is_known(panel: ReplicationPanel) -> bool:
    return panel.role is not None or panel.wal_bytes_per_s is not None or panel.archive_enabled is not None


def _facts(panel: ReplicationPanel, width: int) -> list[Line]:
    lines = [_role_line(panel, width), _archive_line(panel, width)]
    slot = worst_slot(panel.slots)
    if slot is not None:
        lines.insert(1, _slot_line(slot, width))
    lines.append(_wal_line(panel, width))
    lines += [_standby_line(row, width) for row in panel.standbys]
    return lines


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    """Return everything known, with the tables of standbys and slots."""
    panel = frame.of(ReplicationPanel)
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
    return Detail("Replication & WAL", phrases.head_lines(panel, [line for line in head if line], width), tables)


def _lag_fact(panel: ReplicationPanel) -> Line:
    time = "" if panel.lag_s is None else f" {human_duration(panel.lag_s)}"
    beyond_s = None if panel.lag_s is None else panel.lag_s - (panel.apply_delay_s or 0.0)
    return fact("lag", human_bytes(panel.lag_bytes) + time, level_style(beyond_s, *LAG_LEVELS_S) if time else "")


def _role_line(panel: ReplicationPanel, width: int) -> Line:
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
    words: Line = (Span("slot ", "dim"), Span(name), Span(retained, _slot_style(slot)))
    if not slot.active and line_width(words) + len("inactive ") <= width:
        words = (Span("inactive ", "warn"), *words)
    facts = [words]
    if slot.wal_status in ("lost", "unreserved"):
        facts.append(text_line(name_of(slot.wal_status), "crit"))
    if slot.wal_status == "extended":
        facts.append(text_line("extended", "warn"))
    return join_fitting(width, facts)


def _archive_line(panel: ReplicationPanel, width: int) -> Line:
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


def _wal_line(panel: ReplicationPanel, width: int) -> Line:
    facts = [fact("pg_wal", human_bytes(panel.wal_files_bytes)), fact("timeline", integer(panel.timeline))]
    if panel.lsn:
        facts.append(fact("lsn", name_of(panel.lsn)))
    if panel.role == "standby":
        facts.append(fact("wal", human_bytes(panel.wal_bytes_per_s, per_s=True)))
    return join_fitting(width, facts)


def _archive_names(panel: ReplicationPanel) -> Line:
    facts = []
    if panel.last_archived_wal:
        facts.append(fact("last archived", name_of(panel.last_archived_wal)))
    if panel.last_failed_wal:
        facts.append(
            fact("last failed", f"{name_of(panel.last_failed_wal)} {human_duration(panel.last_failed_age_s)} ago")
        )
    return join(facts)


def _checkpoints(panel: ReplicationPanel) -> Line:
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
        text_line(f"{human_bytes(row.lag_bytes)} {human_duration(row.lag_s)}", level_style(row.lag_s, *LAG_LEVELS_S)),
    ]
    return join_fitting(width, facts)


LAYOUT = Layout(name="replication", title="Replication & WAL", key="7", compact=compact, full=full)
