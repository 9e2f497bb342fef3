"""The tables of the safety panel: who holds the horizon, ages by database and table, checksum failures."""

from __future__ import annotations

from dba_console.frames.model import HorizonRow, Safety
from dba_console.panels.phrases import integer, level_style, name_of, text_line, xids_text
from dba_console.panels.table_layout import number_cell
from dba_console.panels.text_elements import Cell, Table, TableColumn, TableRow
from dba_console.panels.time_formats import local_date_and_time
from dba_console.units import human_bytes, human_duration, human_pct

XID_PCT = (40.0, 75.0)
"""Emphasis: 40 % is far beyond a forced freeze at the default 200 M; about 75 % is vacuum_failsafe_age (1.6 G)."""
HOLDER_XIDS = (50_000_000, 500_000_000)

_HORIZON_COLUMNS = (
    TableColumn("kind", "kind", 10, help="backend, prepared, slot or standby", sort_key="K"),
    TableColumn("who", "who", 40, help="Session, prepared transaction, slot or standby", sort_key="W", grow=True),
    TableColumn("pid", "pid", 8, right=True, help="Backend", sort_key="P", spare=2),
    TableColumn("database", "database", 16, sort_key="D", spare=3),
    TableColumn("state", "state", 20, sort_key="S", spare=4),
    TableColumn(
        "xid_age", "xids back", 10, right=True, help="How far it holds the horizon back", sort_key="X", descending=True
    ),
    TableColumn("since", "held for", 9, right=True, help="How long", sort_key="H", descending=True),
)


def horizon_table(panel: Safety) -> Table:
    rows = tuple(_holder_row(row) for row in panel.horizon)
    empty = "not read yet" if panel.horizon_unknown else "nobody holds it back"
    return Table("horizon", _HORIZON_COLUMNS, rows, "xid_age", "Who holds the xid horizon", empty)


def _holder_row(row: HorizonRow) -> TableRow:
    who = name_of(row.who, 200)
    return TableRow(
        f"{row.kind} {row.who} {row.pid}",
        (
            Cell(name_of(row.kind), row.kind),
            Cell(who, who),
            Cell("" if row.pid is None else str(row.pid), row.pid),
            Cell(name_of(row.database) if row.database else "", row.database),
            Cell(name_of(row.state) if row.state else "", row.state),
            Cell(xids_text(row.xid_age), row.xid_age, level_style(row.xid_age, *HOLDER_XIDS)),
            number_cell(human_duration(row.since_age_s), row.since_age_s),
        ),
        (text_line(f"since {local_date_and_time(row.since)}"),),
    )


def database_table(panel: Safety) -> Table:
    columns = (
        TableColumn("database", "database", 30, sort_key="D", grow=True),
        TableColumn("xid_age", "xid age", 9, right=True, help="age(datfrozenxid)", sort_key="X", descending=True),
        TableColumn(
            "xid_pct",
            "of stop",
            8,
            right=True,
            help="Share of the age at which the server stops",
            sort_key="S",
            descending=True,
        ),
        TableColumn(
            "mxid_age", "mxid age", 9, right=True, help="mxid_age(datminmxid)", sort_key="M", descending=True, spare=2
        ),
        TableColumn("mxid_pct", "of stop", 8, right=True, sort_key="T", descending=True),
    )
    rows = tuple(
        TableRow(
            row.database,
            (
                Cell(name_of(row.database), row.database),
                Cell(xids_text(row.xid_age), row.xid_age),
                Cell(human_pct(row.xid_pct), row.xid_pct, level_style(row.xid_pct, *XID_PCT)),
                Cell(xids_text(row.mxid_age), row.mxid_age),
                Cell(human_pct(row.mxid_pct), row.mxid_pct, level_style(row.mxid_pct, *XID_PCT)),
            ),
        )
        for row in panel.databases
    )
    return Table("databases", columns, rows, "xid_age", "Databases by age", "ages not read yet")


def age_table(panel: Safety) -> Table:
    columns = (
        TableColumn("table", "table", 40, help="With its TOAST table", sort_key="T", grow=True),
        TableColumn("xid_age", "xid age", 9, right=True, sort_key="X", descending=True),
        TableColumn("mxid_age", "mxid age", 9, right=True, sort_key="M", descending=True),
        TableColumn(
            "bytes", "size", 9, right=True, help="What a freeze has to read at most", sort_key="B", descending=True
        ),
        TableColumn("vacuum", "last vacuum", 19, help="By hand", sort_key="V", spare=3),
        TableColumn("autovacuum", "last autovacuum", 19, sort_key="A"),
    )
    rows = tuple(
        TableRow(
            row.table,
            (
                Cell(name_of(row.table, 120), row.table),
                Cell(xids_text(row.xid_age), row.xid_age),
                Cell(xids_text(row.mxid_age), row.mxid_age),
                number_cell(human_bytes(row.bytes), row.bytes),
                Cell(local_date_and_time(row.last_vacuum) if row.last_vacuum else "never", row.last_vacuum),
                Cell(local_date_and_time(row.last_autovacuum) if row.last_autovacuum else "never", row.last_autovacuum),
            ),
        )
        for row in panel.tables
    )
    return Table("tables", columns, rows, "xid_age", "Oldest tables of the connected database", "ages not read yet")


def failure_table(panel: Safety) -> Table:
    columns = (
        TableColumn("database", "database", 30, sort_key="D", grow=True),
        TableColumn("failures", "failures", 9, right=True, help="checksum_failures of pg_stat_database", sort_key="F",
               descending=True),
        TableColumn("last", "last failure", 19, sort_key="L"),
    )  # fmt: skip
    rows = tuple(
        TableRow(
            row.database or "",
            (
                Cell(name_of(row.database or "(shared objects)"), row.database or ""),
                Cell(
                    integer(row.failures),
                    row.failures,
                    "crit" if row.failures else "" if row.failures == 0 else "stale",
                ),
                Cell(local_date_and_time(row.last_failure) if row.last_failure else "never", row.last_failure),
            ),
        )
        for row in panel.checksum_databases
    )
    return Table(
        "checksums", columns, rows, "failures", "Checksum failures", "not counted: checksums are off, or not read yet"
    )
