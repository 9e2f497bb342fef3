"""How safety is drawn: checksums, the distance to wraparound, and what holds the xmin horizon back."""

from __future__ import annotations

from functools import partial

from dba_console.core.units import UNKNOWN, human_count, human_duration, human_pct
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import (
    fact,
    first_fitting,
    integer,
    join,
    join_fitting,
    level_style,
    name_of,
    text_line,
    time_ahead,
    xids_text,
)
from dba_console.watch.drawing.text_elements import Detail, Line, Span, Style, Table, TableRow, line_width
from dba_console.watch.drawing.time_formats import local_date_and_time
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.safety.panel import ChecksumRow, HorizonRow, SafetyPanel, XidRow, XidTable
from dba_console.watch.tables import Column, cells

# The tables: horizon holders, ages by database and table, checksum failures.

XID_PCT = (40.0, 75.0)
"""Emphasis: 40 % is far beyond a forced freeze at the default 200 M; about 75 % is vacuum_failsafe_age (1.6 G)."""
HOLDER_XIDS = (50_000_000, 500_000_000)


def _who_text(row: HorizonRow) -> str:
    return name_of(row.who, 200)


def _holder_style(row: HorizonRow) -> Style:
    return level_style(row.xid_age, *HOLDER_XIDS)


def _xid_style(row: XidRow) -> Style:
    return level_style(row.xid_pct, *XID_PCT)


def _mxid_style(row: XidRow) -> Style:
    return level_style(row.mxid_pct, *XID_PCT)


def _table_text(row: XidTable) -> str:
    return name_of(row.table, 120)


def _vacuum_text(row: XidTable) -> str:
    return _time_text(row.last_vacuum)


def _autovacuum_text(row: XidTable) -> str:
    return _time_text(row.last_autovacuum)


def _checksum_database_text(row: ChecksumRow) -> str:
    return name_of(row.database or "(shared objects)")


def _failures_style(row: ChecksumRow) -> Style:
    return "crit" if row.failures else "" if row.failures == 0 else "stale"


def _last_failure_text(row: ChecksumRow) -> str:
    return _time_text(row.last_failure)


def _time_text(at: str | None) -> str:
    return local_date_and_time(at) if at else "never"


_HOLDERS = (
    Column("kind", "kind", 10, help="backend, prepared, slot or standby"),
    Column("who", "who", 40, help="Session, prepared transaction, slot or standby", text=_who_text, grow=True),
    Column("pid", "pid", 8, right=True, help="Backend", optional=True, spare=2),
    Column("database", "database", 16, optional=True, spare=3),
    Column("state", "state", 20, optional=True, spare=4),
    Column(
        "xid_age",
        "xids back",
        10,
        right=True,
        help="Transactions since the oldest row version it needs: VACUUM removes none since then",
        style=_holder_style,
        descending=True,
    ),
    Column("since_age_s", "held for", 9, right=True, help="How long", descending=True),
)

_DATABASES = (
    Column("database", "database", 30, grow=True),
    Column("xid_age", "xid age", 9, right=True, help="age(datfrozenxid)", descending=True),
    Column(
        "xid_pct",
        "of stop",
        8,
        right=True,
        help="Share of the age at which the server stops",
        style=_xid_style,
        descending=True,
    ),
    Column("mxid_age", "mxid age", 9, right=True, help="mxid_age(datminmxid)", descending=True, spare=2),
    Column("mxid_pct", "of stop", 8, right=True, style=_mxid_style, descending=True),
)

_TABLES = (
    Column("table", "table", 40, help="With its TOAST table", text=_table_text, grow=True),
    Column("xid_age", "xid age", 9, right=True, descending=True),
    Column("mxid_age", "mxid age", 9, right=True, descending=True),
    Column("bytes", "size", 9, right=True, help="The most a freeze has to read", descending=True),
    Column("last_vacuum", "last vacuum", 19, help="Manual", text=_vacuum_text, spare=3),
    Column("last_autovacuum", "last autovacuum", 19, text=_autovacuum_text),
)

_CHECKSUMS = (
    Column("database", "database", 30, text=_checksum_database_text, grow=True),
    Column(
        "failures",
        "failures",
        9,
        right=True,
        help="checksum_failures of pg_stat_database",
        style=_failures_style,
        descending=True,
    ),
    Column("last_failure", "last failure", 19, text=_last_failure_text),
)


def horizon_table(panel: SafetyPanel) -> Table:
    rows = tuple(
        TableRow(f"{row.kind} {row.who} {row.pid}", cells(_HOLDERS, row), partial(_since_line, row))
        for row in panel.horizon
    )
    empty = "not read yet" if panel.horizon_unknown else "not held back"
    return Table("horizon", _HOLDERS, rows, "xid_age", "What holds the oldest xmin (xid horizon)", empty)


def _since_line(row: HorizonRow) -> tuple[Line]:
    return (text_line(f"since {local_date_and_time(row.since)}"),)


def database_table(panel: SafetyPanel) -> Table:
    rows = tuple(TableRow(row.database, cells(_DATABASES, row)) for row in panel.databases)
    return Table("databases", _DATABASES, rows, "xid_age", "Databases by age", "ages not read yet")


def age_table(panel: SafetyPanel) -> Table:
    rows = tuple(TableRow(row.table, cells(_TABLES, row)) for row in panel.tables)
    return Table("tables", _TABLES, rows, "xid_age", "Oldest tables of the connected database", "ages not read yet")


def failure_table(panel: SafetyPanel) -> Table:
    rows = tuple(TableRow(row.database or "", cells(_CHECKSUMS, row)) for row in panel.checksum_databases)
    empty = "not counted: checksums are off, or not read yet"
    return Table("checksums", _CHECKSUMS, rows, "failures", "Checksum failures", empty)


# The short form and the full form.

_MIN_AGE_SHOWN_S = 5.0
"""Ages are read every 30 s: if older than this, the age is shown beside the rate."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """Return checksums, ages of ids, the worst holder of the horizon, the next forced freeze and the use of ids."""
    panel = frame.of(SafetyPanel)
    first = _checksums(panel, width)
    if height == 1:
        first = join_fitting(width, [first, *_xid_facts(panel)])
    lines = [first, _xids(panel, width), _horizon(panel, width), _freeze(panel, width), _xid_rate(panel)]
    return phrases.body(panel, is_known(panel), lines, width, height)


def is_known(panel: SafetyPanel) -> bool:
    return panel.data_checksums is not None or panel.xid_age is not None or bool(panel.horizon)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    """Return everything known, with the tables of holders, databases, tables and checksum failures."""
    panel = frame.of(SafetyPanel)
    if not is_known(panel):
        return Detail("Safety", tuple(phrases.note_lines(panel, width)))
    head = [
        _checksums(panel, width),
        _xids(panel, width),
        _thresholds(panel),
        _freeze(panel, width),
        _xid_rate(panel),
        _mxids(panel),
    ]
    tables = (horizon_table(panel), database_table(panel), age_table(panel), failure_table(panel))
    return Detail("Safety", phrases.head_lines(panel, head, width), tables)


def _checksums(panel: SafetyPanel, width: int) -> Line:
    failures = panel.checksum_failures
    state = panel.data_checksums or UNKNOWN
    style: Style = "stale" if state == UNKNOWN else "warn" if state == "off" else ""
    # With checksums off the server counts nothing, so its zero would say nothing.
    count = "not counted" if state == "off" else integer(failures)
    facts = [
        fact("checksums", name_of(state), style),
        fact("failures", count, level_style(failures, 1, 1) if failures else ""),
    ]
    if panel.checksum_last_failure:
        facts.append(fact("last", local_date_and_time(panel.checksum_last_failure), "crit"))
    return join_fitting(width, facts)


def _xids(panel: SafetyPanel, width: int) -> Line:
    xid, date, mxid = _xid_facts(panel)
    return first_fitting(width, join([xid, date, mxid]), join([xid, mxid]), join([xid, mxid], " "))


def _xid_facts(panel: SafetyPanel) -> tuple[Line, Line, Line]:
    """Return share of xids used, time until the warning or stop, share of mxids used."""
    xid = fact("xid", human_pct(panel.xid_pct), level_style(panel.xid_pct, *XID_PCT))
    mxid = fact("mxid", human_pct(panel.mxid_pct), level_style(panel.mxid_pct, *XID_PCT))
    if panel.warn_in_s == 0:
        return xid, (Span("stop in ", "crit"), Span(time_ahead(panel.stop_in_s), "crit")), mxid
    return xid, fact("warn in", time_ahead(panel.warn_in_s), time_left_style(panel.warn_in_s)), mxid


def time_left_style(seconds: float | None) -> Style:
    """Return the emphasis for a time left: warn below a week, crit below a day."""
    if seconds is None:
        return "stale"
    return "crit" if seconds < 86400 else "warn" if seconds < 7 * 86400 else ""


def _horizon(panel: SafetyPanel, width: int) -> Line:
    if not panel.horizon:
        return fact("oldest xmin", UNKNOWN if panel.horizon_unknown else "not held back")
    worst = panel.horizon[0]
    age = f"{xids_text(worst.xid_age)} xids"
    style = level_style(worst.xid_age, *HOLDER_XIDS)
    label = "oldest xmin: " if width >= 34 else "xmin: "
    space = max(4, width - len(label) - len(", ") - len(age))
    holder = f"{name_of(worst.kind, 20)} {name_of(worst.who)}"
    if line_width((Span(holder),)) > space:  # its name identifies it, its kind is in the full panel
        holder = name_of(worst.who, space)
    return Span(label, "dim"), Span(holder), Span(", ", "dim"), Span(age, style)


def _freeze(panel: SafetyPanel, width: int) -> Line:
    if panel.autovacuum_freeze_in_s == 0:
        return text_line("autovacuum is forced to freeze now", "warn")
    return first_fitting(
        width,
        fact("autovacuum forced to freeze in", time_ahead(panel.autovacuum_freeze_in_s)),
        fact("forced freeze in", time_ahead(panel.autovacuum_freeze_in_s)),
    )


def _xid_rate(panel: SafetyPanel) -> Line:
    age = f"{xids_text(panel.xid_age)} of {xids_text(panel.xid_stop_age)}"
    used = human_count(panel.xids_per_s, per_s=True)
    if panel.xids_per_s is not None and panel.age_s is not None and panel.age_s >= _MIN_AGE_SHOWN_S:
        used += f" ({human_duration(panel.age_s)} old)"
    return join([fact("xids used", used), fact("oldest", age)])


def _thresholds(panel: SafetyPanel) -> Line:
    return join(
        [
            fact("oldest database", name_of(panel.xid_database)),
            fact("age", xids_text(panel.xid_age)),
            fact("freeze at", xids_text(panel.freeze_max_age)),
            fact("failsafe at", xids_text(panel.failsafe_age)),
            fact("warning at", xids_text(panel.xid_warn_age)),
            fact("stop at", xids_text(panel.xid_stop_age)),
            fact("stop in", time_ahead(panel.stop_in_s), time_left_style(panel.stop_in_s)),
        ]
    )


def _mxids(panel: SafetyPanel) -> Line:
    return join(
        [fact("mxid age", xids_text(panel.mxid_age)), fact("mxids used", human_count(panel.mxids_per_s, per_s=True))]
    )


LAYOUT = Layout(name="safety", title="Safety", key="4", compact=compact, full=full)
