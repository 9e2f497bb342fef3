"""Sessions on the screen: every backend, its activity, its waits, and its load on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dba_console.core.units import UNKNOWN, human_bytes, human_count, human_duration
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import fact, join, name_of, query_lines, short_state, statement, text_line
from dba_console.watch.drawing.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    clean,
    fit,
)
from dba_console.watch.drawing.time_formats import local_date_and_time
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.session_states import CLIENT
from dba_console.watch.sessions.panel import BACKEND_IO, SessionRow, SessionsPanel
from dba_console.watch.wait_events import explained_wait

# The table of sessions, designed for a thousand rows every second.
#
# Most texts of a thousand sessions are the same few: their cells are built once and reused.

MAX_QUERY_SHOWN = 400
"""Characters of a query in a row; its detail has all that was read."""
_UNKNOWN = Cell("?", None, "stale")
_BLANK = Cell("")


def activity_age(row: SessionRow) -> float | None:
    """Return the age of the query of an active session, of the transaction if idle in one, else of the state."""
    if row.state == "active":
        return row.query_age_s
    if row.state is not None and row.state.startswith("idle in transaction"):
        return row.xact_age_s
    return row.state_age_s


def is_client(row: SessionRow) -> bool:
    """True for a client backend; if the role may not see the type, for any session with user and database."""
    if row.backend_type is None:
        return row.user is not None and row.leader_pid is None
    return row.backend_type == CLIENT


def age_style(row: SessionRow) -> Style:
    # The age of a walsender or launcher is its uptime, not that of a slow query.
    return _state_age_style(activity_age(row), row.state if is_client(row) else None)


def _state_age_style(age: float | None, state: str | None) -> Style:
    if age is None:
        return "stale"
    if state == "idle" or state is None:
        return ""
    return "crit" if age >= 600 else "warn" if age >= 60 else ""


_COLUMNS = (
    TableColumn("pid", "pid", 8, right=True),
    TableColumn("database", "database", 12, spare=4),
    TableColumn("user", "user", 12, spare=1),
    TableColumn("application", "application", 14),
    TableColumn("client", "client", 15, spare=6),
    TableColumn("state", "state", 12, help="idle in txn: a transaction is open and idle"),
    TableColumn("wait", "waits for", 18, help="wait_event_type:wait_event"),
    TableColumn(
        "age", "age", 7, right=True, help="Of the query, of the open transaction, or of the state", descending=True
    ),
    TableColumn("xact", "xact", 7, right=True, help="Age of its transaction", descending=True, spare=5),
    TableColumn("blocked_by", "blocked by", 12, help="pids it waits for", spare=2),
    TableColumn("cpu", "cpu %", 5, right=True, help="Share of one CPU", descending=True, spare=3),
    TableColumn(
        "read", "read", 9, right=True, help="Read, per second; the detail names who counts", descending=True, spare=7
    ),
    TableColumn("write", "written", 9, right=True, help="Written, per second", descending=True, spare=8),
    TableColumn("wal", "wal", 9, right=True, help="WAL generated, per second (18+)", descending=True, spare=10),
    TableColumn(
        "rss", "rss", 8, right=True, help="Resident, including touched shared buffers", descending=True, spare=9
    ),
    TableColumn("query", "query", 60, help="Last query; for an idle session the previous one", grow=True),
)


def session_table(sessions: Sequence[SessionRow]) -> Table:
    """Return the table in the given order."""
    return Table("sessions", _COLUMNS, tuple([_session_row(row) for row in sessions]), None, "Sessions", "no sessions")


def _session_row(row: SessionRow) -> TableRow:
    """Called for each of a thousand rows every second: plain cells, details only when shown."""
    age = activity_age(row)
    state = row.state
    query = row.query
    return TableRow(
        f"{row.pid} {row.backend_start}",
        (
            Cell(str(row.pid), row.pid),
            _text_cell(row.database),
            _text_cell(row.user),
            _text_cell(row.application),
            _text_cell(row.client),
            _text_cell(row.backend_type) if state is None else _state_cell(state),
            _text_cell(row.wait, "warn" if row.blocked_by else ""),
            _BLANK if age is None else Cell(human_duration(age), age, age_style(row)),
            _BLANK if row.xact_age_s is None else Cell(human_duration(row.xact_age_s), row.xact_age_s),
            _BLANK if not row.blocked_by else Cell(",".join(map(str, row.blocked_by)), row.blocked_by[0], "warn"),
            _UNKNOWN if row.cpu_pct is None else Cell(f"{row.cpu_pct:.0f}", row.cpu_pct),
            _bytes_cell(row.read_bytes_per_s, per_s=True),
            _bytes_cell(row.write_bytes_per_s, per_s=True),
            _BLANK if row.wal_bytes_per_s is None else _bytes_cell(row.wal_bytes_per_s, per_s=True),
            _bytes_cell(row.rss_bytes),
            _BLANK if not query else _query_cell(query),
        ),
        lambda: _detail_lines(row),
        copied=query or None,
    )


@lru_cache(4096)
def _text_cell(value: str | None, style: Style = "") -> Cell:
    if not value:
        return _BLANK
    return Cell(clean(value), value, style)


@lru_cache(64)
def _state_cell(state: str) -> Cell:
    return Cell(short_state(state), state)


@lru_cache(2048)
def _query_cell(query: str) -> Cell:
    return Cell(statement(query, MAX_QUERY_SHOWN), query[:80])


def _bytes_cell(value: float | None, *, per_s: bool = False) -> Cell:
    if value is None:
        return _UNKNOWN
    return Cell(human_bytes(value, per_s=per_s), value) if value else _ZERO_CELLS[per_s]


_ZERO_CELLS = {False: Cell("0 B", 0.0), True: Cell("0 B/s", 0.0)}


def _detail_lines(row: SessionRow) -> list[Line]:
    stateful = is_client(row) or row.state is not None  # a checkpointer has neither state nor query
    who = join(
        [
            fact("pid", str(row.pid)),
            fact("type", name_of(row.backend_type)),
            fact("connected", local_date_and_time(row.backend_start)),
            fact("state", f"{name_of(row.state)} for {human_duration(row.state_age_s)}") if stateful else (),
            fact("query began", f"{human_duration(row.query_age_s)} ago") if stateful else (),
        ]
    )
    host = join(
        [
            fact("waits for", explained_wait(row.wait) if row.wait else "nothing"),
            fact("holds the oldest xmin back", f"{human_count(row.xmin_age_xids)} xids")
            if row.xmin_age_xids is not None
            else (),
            fact("leader", str(row.leader_pid)) if row.leader_pid else (),
            fact("process state", name_of(row.process_state)),
        ]
    )
    return [who, host, _io_line(row), *query_lines(row.query, row.query_bytes)]


def _io_line(row: SessionRow) -> Line:
    """Return what it reads and writes, and who counts it."""
    return join(
        [
            fact("read", _io_text(row, row.read_bytes_per_s, row.read_source)),
            fact("written", _io_text(row, row.write_bytes_per_s, row.write_source)),
            fact("WAL", human_bytes(row.wal_bytes_per_s, per_s=True)) if row.wal_bytes_per_s is not None else (),
            text_line("reads for sessions", "dim") if row.backend_type == "io worker" else (),
        ]
    )


def _io_text(row: SessionRow, per_s: float | None, source: str | None) -> str:
    if per_s is None:
        in_transaction = source == BACKEND_IO and row.xact_age_s is not None
        return "unknown until its transaction ends" if in_transaction else UNKNOWN
    return f"{human_bytes(per_s, per_s=True)} ({name_of(source)})"


_BACKEND_NAMES = {"parallel worker": "parallel worker", "walsender": "walsender"}
_OWN_APPLICATION = "dba-console"
_RANKS = {
    "active": 0, "idle in transaction": 1, "idle in transaction (aborted)": 1, "fastpath function call": 0,
    "disabled": 2, "idle": 3,
}  # fmt: skip


def session_order(row: SessionRow) -> tuple[int, float, int]:
    """Sort key: working sessions first, those waiting for a lock on top, then open transactions, then idle, then the
    server's own processes; within each the oldest first."""
    state = row.state
    rank = 4 if state is None else _RANKS.get(state, 2)
    if rank == 0 and row.wait is not None and row.wait.startswith("Lock:"):
        rank = -1
    age = row.query_age_s if rank <= 0 else row.xact_age_s if rank == 1 else row.state_age_s
    return rank, -(age or 0.0), row.pid


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """Return the working sessions, one line each, with a heading: pid, user, age, CPU, wait, query.

    The console's own session, always active while it reads, appears in the full table only.
    """
    panel = frame.of(SessionsPanel)
    busy = [row for row in panel.rows if row.state not in (None, "idle") and row.application != _OWN_APPLICATION]
    lines: list[Line] = []
    if busy:
        head = f"{'pid':>7} {'user/application':<20} {'age':>6} {'cpu':>5} {'waits for':<18} query"
        lines = [(Span(head, "head"),), *(_line(row) for row in sorted(busy, key=session_order)[: max(0, height - 1)])]
    elif panel.rows:
        lines = [text_line("no session runs a query or has an open transaction", "dim")]
    return phrases.body(panel, bool(lines), lines, width, height)


def _line(row: SessionRow) -> Line:
    who = f"{name_of(row.user, 20)}/{clean((row.application or '')[:40])}"
    cpu = "?" if row.cpu_pct is None else f"{row.cpu_pct:.0f}%"
    waits, style = _wait_text(row)
    return (
        Span(f"{row.pid:>7} "),
        Span(fit(who, 20) + " "),
        Span(fit(human_duration(activity_age(row)), 6, right=True) + " ", age_style(row)),
        Span(f"{cpu:>5} ", "stale" if row.cpu_pct is None else ""),
        Span(fit(waits, 18) + " ", style),
        Span(statement(row.query, MAX_QUERY_SHOWN)),
    )


def _wait_text(row: SessionRow) -> tuple[str, Style]:
    if row.blocked_by:
        return "← " + ",".join(str(pid) if pid else "prepared" for pid in row.blocked_by[:4]), "warn"
    if row.state is not None and row.state.startswith("idle in"):
        return "idle in txn", "warn"
    return (clean(row.wait[:40]), "") if row.wait else ("running", "dim")


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(SessionsPanel)
    if not panel.rows:
        return Detail("Sessions", tuple(phrases.note_lines(panel, width)))
    head = [_summary(panel)]
    if panel.hidden:
        head.append(
            text_line(f"{panel.hidden} sessions hide state and query from this role; hint: GRANT pg_monitor", "warn")
        )
    table = session_table(sorted(panel.rows, key=session_order))
    return Detail("Sessions", phrases.head_lines(panel, head, width), (table,))


def _summary(panel: SessionsPanel) -> Line:
    """Return clients by state, as the connections panel counts them, and other processes by type."""
    counts: dict[str, int] = {}
    for row in panel.rows:
        name = (
            (row.state or "hidden") if is_client(row) else _BACKEND_NAMES.get(row.backend_type or "", "server process")
        )
        counts[name] = counts.get(name, 0) + 1
    return join([fact(name_of(name), str(count)) for name, count in sorted(counts.items(), key=lambda one: -one[1])])


LAYOUT = Layout(name="sessions", title="Sessions", key="9", compact=compact, full=full)
