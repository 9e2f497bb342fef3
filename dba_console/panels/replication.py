"""Replication & WAL: how far standbys are behind, what slots keep, whether WAL gets archived."""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.frames.model import Frame, Replication, SlotRow, StandbyRow
from dba_console.panels import states
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Span, Style, Table
from dba_console.panels.phrases import change, fact, integer, join, join_fitting, level, name_of, said
from dba_console.panels.tables import cell_number
from dba_console.panels.times import moment_of
from dba_console.units import human_bytes, human_count, human_duration

_LAG_WARN_S, _LAG_CRIT_S = 10.0, 300.0
_READY_WARN, _READY_CRIT = 10, 100
_RETAINED_WARN, _RETAINED_CRIT = 10 << 30, 100 << 30


def compact(frame: Frame, width: int, height: int, history: History) -> list[Line]:
    panel = frame.replication
    return states.body(panel, known(panel), _facts(panel, width), width, height)


def known(panel: Replication) -> bool:
    return panel.role is not None or panel.wal_bytes_per_s is not None or panel.archive_enabled is not None


def _facts(panel: Replication, width: int) -> list[Line]:
    lines = [_standing(panel, width), _archive(panel, width)]
    slot = worst_slot(panel.slots)
    if slot is not None:
        lines.insert(1, _slot(slot, width))
    lines.append(_wal(panel, width))
    lines += [_standby(row, width) for row in panel.standbys]
    return lines


def detail(frame: Frame, width: int, history: History) -> Detail:
    panel = frame.replication
    if not known(panel):
        return Detail("Replication & WAL", tuple(states.note_lines(panel, width)))
    head = [_standing(panel, 200), _wal(panel, 200), _archive(panel, 200), _names(panel), _checkpoints(panel)]
    tables = (
        Table("standbys", _STANDBY_COLUMNS, tuple(_standby_row(row) for row in panel.standbys), "lag", "Standbys",
              "no standby is connected"),
        Table("slots", _SLOT_COLUMNS, tuple(_slot_row(row) for row in panel.slots), "retained", "Slots", "no slots"),
    )  # fmt: skip
    return Detail("Replication & WAL", states.head_lines(panel, [one for one in head if one], width), tables)


def _lag(panel: Replication) -> Line:
    time = "" if panel.lag_s is None else f" {human_duration(panel.lag_s)}"
    return fact(
        "lag", human_bytes(panel.lag_bytes) + time, level(panel.lag_s, _LAG_WARN_S, _LAG_CRIT_S) if time else ""
    )


def _standing(panel: Replication, width: int) -> Line:
    if panel.role == "standby":
        receiver = panel.receiver_status or "no receiver"
        host = f" from {name_of(panel.receiver_host, 20)}" if panel.receiver_host else ""
        paused = [said("replay paused", "warn")] if panel.replay_paused else []
        return join_fitting(width, [*paused, said(f"{name_of(receiver, 20)}{host}"), _lag(panel)])
    standbys = fact("standbys", str(len(panel.standbys)))
    return join_fitting(width, [fact("wal", human_bytes(panel.wal_bytes_per_s, per_s=True)), standbys,
                                *([_lag(panel)] if panel.standbys else [])])  # fmt: skip


def worst_slot(slots: list[SlotRow]) -> SlotRow | None:
    """The slot to worry about: lost ones first, then the one that keeps most WAL."""
    if not slots:
        return None
    return max(slots, key=lambda slot: (slot.wal_status in ("lost", "unreserved"), slot.retained_bytes or 0))


def _slot_style(slot: SlotRow) -> Style:
    if slot.wal_status in ("lost", "unreserved") or slot.invalidation_reason:
        return "crit"
    return level(slot.retained_bytes, _RETAINED_WARN, _RETAINED_CRIT)


def _slot(slot: SlotRow, width: int) -> Line:
    state = "" if slot.active else " inactive"
    status = f" {name_of(slot.wal_status)}" if slot.wal_status not in (None, "reserved") else ""
    keeps = f" keeps {human_bytes(slot.retained_bytes)}"
    room = max(4, width - len("slot ") - len(state) - len(status) - len(keeps))
    return (
        Span("slot ", "dim"),
        Span(name_of(slot.name, room)),
        Span(keeps + status, _slot_style(slot)),
        Span(state, "warn"),
    )


def _archive(panel: Replication, width: int) -> Line:
    if panel.archive_enabled is False:
        return fact("archiving", "off")
    if panel.archive_enabled is None:
        return fact("archiving", "?")
    # An old failure that archiving has got over is history, a newer one than the last success is not.
    failing = panel.last_failed_age_s is not None and (
        panel.archive_age_s is None or panel.last_failed_age_s < panel.archive_age_s
    )
    age = "never" if panel.archive_age_s is None else f"{human_duration(panel.archive_age_s)} ago"
    facts = [
        fact("archived", age, "crit" if failing else ""),
        fact("ready", integer(panel.archive_ready_count), level(panel.archive_ready_count, _READY_WARN, _READY_CRIT)),
        fact("failed", integer(panel.archive_failed_count), "crit" if failing else ""),
    ]
    return join_fitting(width, [said("archiving fails", "crit"), *facts] if failing else facts)


def _wal(panel: Replication, width: int) -> Line:
    facts = [fact("pg_wal", human_bytes(panel.wal_files_bytes)), fact("timeline", integer(panel.timeline))]
    if panel.lsn:
        facts.append(fact("lsn", name_of(panel.lsn)))
    if panel.role == "standby":
        facts.append(fact("wal", human_bytes(panel.wal_bytes_per_s, per_s=True)))
    return join_fitting(width, facts)


def _names(panel: Replication) -> Line:
    facts = []
    if panel.last_archived_wal:
        facts.append(fact("last archived", name_of(panel.last_archived_wal)))
    if panel.last_failed_wal:
        facts.append(
            fact("last failed", f"{name_of(panel.last_failed_wal)} {human_duration(panel.last_failed_age_s)} ago")
        )
    return join(facts)


def _checkpoints(panel: Replication) -> Line:
    write = None if panel.checkpoint_write_ms is None else panel.checkpoint_write_ms / 1000
    return join(
        [
            fact("checkpoints timed", integer(panel.checkpoints_timed)),
            fact("requested", integer(panel.checkpoints_requested)),
            fact("writing in all", human_duration(write)),
        ]
    )


def _standby(row: StandbyRow, width: int) -> Line:
    facts = [
        said(name_of(row.application, 16)),
        said(name_of(row.state, 12), "" if row.state == "streaming" else "warn"),
        said(f"{human_bytes(row.lag_bytes)} {human_duration(row.lag_s)}", level(row.lag_s, _LAG_WARN_S, _LAG_CRIT_S)),
    ]
    return join_fitting(width, facts)


_STANDBY_COLUMNS = (
    Column("application", "standby", 20, help="application_name", grow=True, sort_key="N"),
    Column("client", "client", 18, sort_key="C"),
    Column("user", "user", 12, sort_key="U"),
    Column("pid", "pid", 8, right=True, sort_key="P"),
    Column("state", "state", 10, help="streaming, catchup, backup, ...", sort_key="S"),
    Column("sync", "sync", 9, help="async, potential, sync, quorum", sort_key="Y"),
    Column("sent", "unsent", 9, right=True, help="WAL not sent yet", sort_key="E", descending=True),
    Column("flush", "unflushed", 9, right=True, help="WAL not flushed there yet", sort_key="F", descending=True),
    Column("lag", "lag", 9, right=True, help="WAL not replayed there yet", sort_key="L", descending=True),
    Column("lag_s", "lag time", 9, right=True, help="replay_lag", sort_key="T", descending=True),
)


def _standby_row(row: StandbyRow) -> Row:
    return Row(
        f"{row.application} {row.client} {row.pid}",
        (
            Cell(name_of(row.application), row.application),
            Cell(name_of(row.client), row.client),
            Cell(name_of(row.user), row.user),
            Cell(integer(row.pid), row.pid),
            Cell(name_of(row.state), row.state, "" if row.state == "streaming" else "warn"),
            Cell(name_of(row.sync_state), row.sync_state),
            cell_number(human_bytes(row.sent_lag_bytes), row.sent_lag_bytes),
            cell_number(human_bytes(row.flush_lag_bytes), row.flush_lag_bytes),
            cell_number(human_bytes(row.lag_bytes), row.lag_bytes),
            Cell(human_duration(row.lag_s), row.lag_s, level(row.lag_s, _LAG_WARN_S, _LAG_CRIT_S)),
        ),
    )


_SLOT_COLUMNS = (
    Column("name", "slot", 24, grow=True, sort_key="N"),
    Column("kind", "kind", 8, help="physical or logical", sort_key="K"),
    Column("database", "database", 14, sort_key="D"),
    Column("active", "active", 8, help="Somebody reads from it", sort_key="A"),
    Column(
        "retained", "keeps", 9, right=True, help="WAL the slot keeps from being removed", sort_key="R", descending=True
    ),
    Column("growth", "growth", 14, right=True, help="Change of what it keeps", sort_key="G", descending=True),
    Column("status", "wal", 10, help="wal_status: reserved, extended, unreserved, lost", sort_key="W"),
    Column("safe", "safe", 9, right=True, help="WAL that can be written before the slot is lost", sort_key="S"),
    Column(
        "xids", "xids back", 9, right=True, help="How far it holds the xid horizon back", sort_key="X", descending=True
    ),
    Column("inactive", "inactive since", 19, help="17+", sort_key="I"),
    Column("why", "invalidated by", 16, help="16+"),
)


def _slot_row(slot: SlotRow) -> Row:
    style = _slot_style(slot)
    return Row(
        slot.name,
        (
            Cell(name_of(slot.name), slot.name),
            Cell(name_of(slot.kind), slot.kind),
            Cell(name_of(slot.database) if slot.database else "", slot.database),
            Cell("active" if slot.active else "inactive", slot.active, "" if slot.active else "warn"),
            Cell(human_bytes(slot.retained_bytes), slot.retained_bytes, style),
            cell_number(change(slot.retained_bytes_per_s), slot.retained_bytes_per_s),
            Cell(name_of(slot.wal_status), slot.wal_status, style),
            cell_number("" if slot.safe_bytes is None else human_bytes(slot.safe_bytes), slot.safe_bytes),
            cell_number("" if slot.xid_age is None else human_count(slot.xid_age), slot.xid_age),
            Cell(moment_of(slot.inactive_since) if slot.inactive_since else "", slot.inactive_since),
            Cell(name_of(slot.invalidation_reason) if slot.invalidation_reason else "", slot.invalidation_reason),
        ),
    )
