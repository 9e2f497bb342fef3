"""Safety: checksums, the distance to transaction id wraparound, and what keeps the horizon back."""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.frames.model import Frame, HorizonRow, Safety
from dba_console.panels import states
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Span, Style, Table
from dba_console.panels.phrases import (
    ahead, fact, first_fitting, integer, join, join_fitting, level, name_of, said,
)  # fmt: skip
from dba_console.panels.tables import cell_number
from dba_console.panels.times import moment_of
from dba_console.units import UNKNOWN, human_bytes, human_count, human_duration, human_pct

_XID_WARN_PCT, _XID_CRIT_PCT = 40.0, 75.0
"""Emphasis: 40 % is far beyond a forced freeze at the default 200 M; about 75 % is vacuum_failsafe_age (1.6 G)."""
_HOLDER_WARN, _HOLDER_CRIT = 50_000_000, 500_000_000


def compact(frame: Frame, width: int, height: int, history: History) -> list[Line]:
    panel = frame.safety
    lines = [_checksums(panel, width), _xids(panel, width), _horizon(panel, width), _freeze(panel, width), _burn(panel)]
    return states.body(panel, known(panel), lines, width, height)


def known(panel: Safety) -> bool:
    return panel.data_checksums is not None or panel.xid_age is not None or bool(panel.horizon)


def detail(frame: Frame, width: int, history: History) -> Detail:
    panel = frame.safety
    if not known(panel):
        return Detail("Safety", tuple(states.note_lines(panel, width)))
    head = [
        _checksums(panel, width),
        _xids(panel, width),
        _thresholds(panel),
        _freeze(panel, width),
        _burn(panel),
        _mxids(panel),
    ]
    tables = (_horizon_table(panel), _databases(panel), _tables(panel), _failures(panel))
    return Detail("Safety", states.head_lines(panel, head, width), tables)


def _checksums(panel: Safety, width: int) -> Line:
    failures = panel.checksum_failures
    state = panel.data_checksums or UNKNOWN
    style: Style = "stale" if state == UNKNOWN else "warn" if state == "off" else ""
    # With checksums off the server counts nothing, so there is no number to show.
    count = "not counted" if state == "off" else integer(failures)
    facts = [
        fact("checksums", name_of(state), style),
        fact("failures", count, level(failures, 1, 1) if failures else ""),
    ]
    if panel.checksum_last_failure:
        facts.append(fact("last", moment_of(panel.checksum_last_failure), "crit"))
    return join_fitting(width, facts)


def _xids(panel: Safety, width: int) -> Line:
    xid = fact("xid", human_pct(panel.xid_pct), level(panel.xid_pct, _XID_WARN_PCT, _XID_CRIT_PCT))
    mxid = fact("mxid", human_pct(panel.mxid_pct), level(panel.mxid_pct, _XID_WARN_PCT, _XID_CRIT_PCT))
    if panel.warn_in_s == 0:
        date: Line = (Span("stop in ", "crit"), Span(ahead(panel.stop_in_s), "crit"))
    else:
        date = fact("warn in", ahead(panel.warn_in_s), level_soon(panel.warn_in_s))
    return first_fitting(width, join([xid, date, mxid]), join([xid, mxid]), join([xid, mxid], " "))


def level_soon(seconds: float | None) -> Style:
    """Emphasis for a date: a week is near, a day is very near."""
    if seconds is None:
        return "stale"
    return "crit" if seconds < 86400 else "warn" if seconds < 7 * 86400 else ""


def _horizon(panel: Safety, width: int) -> Line:
    if not panel.horizon:
        return fact("horizon", "held by nobody")
    worst = max(panel.horizon, key=lambda row: row.xid_age or 0)
    age = f"{human_count(worst.xid_age)} xids"
    style = level(worst.xid_age, _HOLDER_WARN, _HOLDER_CRIT)
    room = max(4, width - len("horizon: , ") - len(age) - len(worst.kind) - 1)
    return (
        Span("horizon: ", "dim"),
        Span(f"{name_of(worst.kind, 20)} {name_of(worst.who, room)}"),
        Span(", ", "dim"),
        Span(age, style),
    )


def _freeze(panel: Safety, width: int) -> Line:
    if panel.autovacuum_freeze_in_s == 0:
        return said("autovacuum is forced to freeze now", "warn")
    return first_fitting(
        width,
        fact("autovacuum forced to freeze in", ahead(panel.autovacuum_freeze_in_s)),
        fact("forced freeze in", ahead(panel.autovacuum_freeze_in_s)),
    )


def _burn(panel: Safety) -> Line:
    age = f"{human_count(panel.xid_age)} of {human_count(panel.xid_stop_age)}"
    return join([fact("xids used", human_count(panel.xids_per_s, per_s=True)), fact("oldest", age)])


def _thresholds(panel: Safety) -> Line:
    return join(
        [
            fact("oldest database", name_of(panel.xid_database)),
            fact("age", human_count(panel.xid_age)),
            fact("freeze at", human_count(panel.freeze_max_age)),
            fact("failsafe at", human_count(panel.failsafe_age)),
            fact("warning at", human_count(panel.xid_warn_age)),
            fact("stop at", human_count(panel.xid_stop_age)),
            fact("stop in", ahead(panel.stop_in_s), level_soon(panel.stop_in_s)),
        ]
    )


def _mxids(panel: Safety) -> Line:
    return join(
        [
            fact("mxid age", human_count(panel.mxid_age)),
            fact("mxids used", human_count(panel.mxids_per_s, per_s=True)),
        ]
    )


_HORIZON_COLUMNS = (
    Column("kind", "kind", 10, help="backend, prepared, slot or standby", sort_key="K"),
    Column("who", "who", 40, help="Session, prepared transaction, slot or standby", sort_key="W", grow=True),
    Column("pid", "pid", 8, right=True, help="Backend", sort_key="P"),
    Column("database", "database", 16, sort_key="D"),
    Column("state", "state", 20, sort_key="S"),
    Column(
        "xid_age", "xids back", 10, right=True, help="How far it holds the horizon back", sort_key="X", descending=True
    ),
    Column("since", "held for", 9, right=True, help="How long", sort_key="H", descending=True),
)


def _horizon_table(panel: Safety) -> Table:
    rows = tuple(_holder(row) for row in panel.horizon)
    return Table("horizon", _HORIZON_COLUMNS, rows, "xid_age", "Who holds the xid horizon", "nobody holds it back")


def _holder(row: HorizonRow) -> Row:
    who = name_of(row.who, 200)
    return Row(
        f"{row.kind} {row.who} {row.pid}",
        (
            Cell(name_of(row.kind), row.kind),
            Cell(who, who),
            Cell("" if row.pid is None else str(row.pid), row.pid),
            Cell(name_of(row.database) if row.database else "", row.database),
            Cell(name_of(row.state) if row.state else "", row.state),
            Cell(human_count(row.xid_age), row.xid_age, level(row.xid_age, _HOLDER_WARN, _HOLDER_CRIT)),
            cell_number(human_duration(row.since_age_s), row.since_age_s),
        ),
        (said(f"since {moment_of(row.since)}"),),
    )


def _databases(panel: Safety) -> Table:
    columns = (
        Column("database", "database", 30, sort_key="D", grow=True),
        Column("xid_age", "xid age", 9, right=True, help="age(datfrozenxid)", sort_key="X", descending=True),
        Column("xid_pct", "of stop", 8, right=True, help="Share of the age at which the server stops", sort_key="S",
               descending=True),
        Column("mxid_age", "mxid age", 9, right=True, help="mxid_age(datminmxid)", sort_key="M", descending=True),
        Column("mxid_pct", "of stop", 8, right=True, sort_key="T", descending=True),
    )  # fmt: skip
    rows = tuple(
        Row(
            row.database,
            (
                Cell(name_of(row.database), row.database),
                Cell(human_count(row.xid_age), row.xid_age),
                Cell(human_pct(row.xid_pct), row.xid_pct, level(row.xid_pct, _XID_WARN_PCT, _XID_CRIT_PCT)),
                Cell(human_count(row.mxid_age), row.mxid_age),
                Cell(human_pct(row.mxid_pct), row.mxid_pct, level(row.mxid_pct, _XID_WARN_PCT, _XID_CRIT_PCT)),
            ),
        )
        for row in panel.databases
    )
    return Table("databases", columns, rows, "xid_age", "Databases by age", "ages not read yet")


def _tables(panel: Safety) -> Table:
    columns = (
        Column("table", "table", 40, help="With its TOAST table", sort_key="T", grow=True),
        Column("xid_age", "xid age", 9, right=True, sort_key="X", descending=True),
        Column("mxid_age", "mxid age", 9, right=True, sort_key="M", descending=True),
        Column("bytes", "size", 9, right=True, help="What a freeze has to read at most", sort_key="B", descending=True),
        Column("vacuum", "last vacuum", 19, help="By hand", sort_key="V"),
        Column("autovacuum", "last autovacuum", 19, sort_key="A"),
    )
    rows = tuple(
        Row(
            row.table,
            (
                Cell(name_of(row.table, 120), row.table),
                Cell(human_count(row.xid_age), row.xid_age),
                Cell(human_count(row.mxid_age), row.mxid_age),
                cell_number(human_bytes(row.bytes), row.bytes),
                Cell(moment_of(row.last_vacuum) if row.last_vacuum else "never", row.last_vacuum),
                Cell(moment_of(row.last_autovacuum) if row.last_autovacuum else "never", row.last_autovacuum),
            ),
        )
        for row in panel.tables
    )
    return Table("tables", columns, rows, "xid_age", "Oldest tables of the connected database", "ages not read yet")


def _failures(panel: Safety) -> Table:
    columns = (
        Column("database", "database", 30, sort_key="D", grow=True),
        Column("failures", "failures", 9, right=True, help="checksum_failures of pg_stat_database", sort_key="F",
               descending=True),
        Column("last", "last failure", 19, sort_key="L"),
    )  # fmt: skip
    rows = tuple(
        Row(
            row.database or "",
            (
                Cell(name_of(row.database or "(shared objects)"), row.database or ""),
                Cell(
                    integer(row.failures),
                    row.failures,
                    "crit" if row.failures else "" if row.failures == 0 else "stale",
                ),
                Cell(moment_of(row.last_failure) if row.last_failure else "never", row.last_failure),
            ),
        )
        for row in panel.checksum_databases
    )
    return Table(
        "checksums", columns, rows, "failures", "Checksum failures", "not counted: checksums are off, or not read yet"
    )
