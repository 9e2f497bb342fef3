"""What is shown of sessions: pg_stat_activity joined with the host's process data.

Ages use the server's clock, never the host's: the two may differ.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import USER_HZ, pair, rate
from dba_console.watch.panel import Panel, PanelFrame
from dba_console.watch.safety.readings import Xids
from dba_console.watch.samples import host, postgres
from dba_console.watch.session_states import CLIENT, wait_text
from dba_console.watch.sessions.readings import SessionIoStats

PROC = "/proc"
BACKEND_IO = "pg_stat_get_backend_io"
OPEN_S = 0.1
"""A session adds to its counters at the end of a transaction: one open for longer may have read without adding it."""
IDLE_S = 12.0
"""A session that is idle for longer has added all and is not read (session_io_180000.sql)."""


class SessionRow(Struct, kw_only=True):
    pid: int
    backend_start: str | None = None
    backend_type: str | None = None
    database: str | None = None
    user: str | None = None
    application: str | None = None
    client: str | None = None
    state: str | None = None
    wait: str | None = None
    """wait_event_type:wait_event."""
    xact_age_s: float | None = None
    query_age_s: float | None = None
    state_age_s: float | None = None
    xmin_age_xids: int | None = None
    leader_pid: int | None = None
    blocked_by: list[int] = []
    cpu_pct: float | None = None
    read_bytes_per_s: float | None = None
    read_source: str | None = None
    """Who counts the reads: /proc, what the process read from storage; or pg_stat_get_backend_io (18+), what was read
    for the session, also by I/O workers, from storage or the page cache."""
    write_bytes_per_s: float | None = None
    write_source: str | None = None
    wal_bytes_per_s: float | None = None
    """WAL it generated (18+)."""
    rss_bytes: int | None = None
    process_state: str | None = None
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query if `query` is cut."""


class SessionsPanel(PanelFrame, kw_only=True):
    rows: list[SessionRow] = []
    hidden: int = 0
    """Rows whose state and query this role may not see."""


# How they follow from what was read.


class Usage(NamedTuple):
    """What a process used per second between the last two readings that contain it."""

    cpu_pct: float | None
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None


def derive_sessions(facts: PictureFacts) -> SessionsPanel:
    """Return the sessions panel: a row for every row of pg_stat_activity."""
    counts_io = (facts.major or 0) >= 18
    panel = fill_status(
        SessionsPanel(), facts.picture, "pg.activity", "host.processes", *(("pg.session_io",) if counts_io else ())
    )
    sessions = facts.sessions
    if sessions is None:
        return panel
    panel.hidden = sessions.hidden
    processes, usage = _processes(facts)
    xids = facts.picture.now("pg.xids", Xids)
    panel.rows = [
        _row(row, sessions.now_us, facts.blocked_by.get(row.pid), processes.get(row.pid), usage.get(row.pid), xids)
        for row in sessions.rows
    ]
    if counts_io:
        _add_counted_io(facts, panel.rows)
    return panel


def _row(
    row: postgres.Activity,
    now_us: int,
    blocked_by: list[int] | None,
    process: host.Process | None,
    usage: Usage | None,
    xids: Xids | None,
) -> SessionRow:
    session = SessionRow(
        pid=row.pid,
        backend_start=rfc3339(row.backend_start),
        backend_type=row.backend_type,
        database=row.database,
        user=row.user,
        application=row.application,
        client=row.client,
        state=row.state,
        wait=wait_text(row),
        xact_age_s=age_s(now_us, row.xact_start),
        query_age_s=age_s(now_us, row.query_start),
        state_age_s=age_s(now_us, row.state_change),
        xmin_age_xids=None if xids is None else xids.age_of(row.backend_xmin),
        leader_pid=row.leader_pid,
        blocked_by=blocked_by or [],
        query=row.query,
        query_bytes=row.query_bytes,
    )
    if process is not None:
        session.rss_bytes, session.process_state = process.rss, process.state
        session.read_source = None if process.read_bytes is None else PROC
        session.write_source = None if process.write_bytes is None else PROC
    if usage is not None:
        session.cpu_pct, session.read_bytes_per_s, session.write_bytes_per_s = usage
    return session


def _add_counted_io(facts: PictureFacts, rows: list[SessionRow]) -> None:
    """Put in what the server counts by session, where /proc does not know it or is wrong.

    With I/O workers or io_uring a process does not read the tables and indexes that its session reads; temporary files
    it reads itself, and the server does not count those. So the larger number counts. It still writes all itself.
    """
    counted = _counted_io(facts, rows)
    reads_itself = facts.setting("io_method") == "sync"
    for row in rows:
        io = counted.get((row.pid, row.backend_start), UNCOUNTED)
        row.wal_bytes_per_s = io.wal_bytes_per_s
        if row.write_source is None and io.write_bytes_per_s is not None:
            row.write_bytes_per_s, row.write_source = io.write_bytes_per_s, BACKEND_IO
        if reads_itself and row.read_source is not None:
            continue
        if io.read_bytes_per_s is None and is_read_for(row):
            row.read_bytes_per_s, row.read_source = None, BACKEND_IO
        elif io.read_bytes_per_s is not None and io.read_bytes_per_s >= (row.read_bytes_per_s or 0.0):
            row.read_bytes_per_s, row.read_source = io.read_bytes_per_s, BACKEND_IO


def is_read_for(row: SessionRow) -> bool:
    """Whether I/O workers read for it now or did so lately, as far as is known. A walsender reads itself."""
    if row.state is None:
        return row.backend_type in (None, CLIENT)
    is_idle = row.state == "idle" and (row.state_age_s or 0.0) > IDLE_S
    return not is_idle and row.backend_type != "walsender"


class CountedIo(NamedTuple):
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    wal_bytes_per_s: float | None


UNCOUNTED = CountedIo(None, None, None)


def _counted_io(facts: PictureFacts, rows: list[SessionRow]) -> dict[tuple[int, str | None], CountedIo]:
    """Return what each session in both of the last two readings read, wrote and added to WAL per second."""
    both = pair(facts.picture, "pg.session_io", SessionIoStats)
    if both is None:
        return {}
    before = {(row.pid, row.backend_start): row for row in both.old.rows}
    # The sessions are read more often: a transaction may be open that was not at the reading of the counters.
    open_s = {row.pid: row.xact_age_s or 0.0 for row in rows}
    counted = {}
    for new in both.new.rows:
        if (old := before.get((new.pid, new.backend_start))) is not None:
            seconds = both.seconds + (old.xact_age_s or 0.0)
            is_open = max(new.xact_age_s or 0.0, open_s.get(new.pid, 0.0)) > OPEN_S
            counted[new.pid, rfc3339(new.backend_start)] = CountedIo(
                reported_rate(new.read_bytes, old.read_bytes, seconds, is_open=is_open),
                reported_rate(new.write_bytes, old.write_bytes, seconds, is_open=is_open),
                reported_rate(new.wal_bytes, old.wal_bytes, seconds, is_open=is_open),
            )
    return counted


def reported_rate(new: int | None, old: int | None, seconds: float, *, is_open: bool) -> float | None:
    """Return the advance per second of a counter that a session adds to at the end of a transaction.

    `seconds`: since the begin of the transaction that was open at the old reading, else since that reading. Nothing
    added while a transaction is open: unknown.

    >>> reported_rate(600, 0, 60.0, is_open=False), reported_rate(0, 0, 2.0, is_open=True)
    (10.0, None)
    """
    return None if is_open and new == old else rate(new, old, seconds)


def _processes(facts: PictureFacts) -> tuple[dict[int, host.Process], dict[int, Usage]]:
    """Return the newest reading of each process by pid, and the usage of those in both of the last two readings."""
    now = facts.picture.now("host.processes", host.Processes)
    both = pair(facts.picture, "host.processes", host.Processes)
    if now is None:
        return {}, {}
    newest = {} if both is None else {row.pid: row for row in both.old.rows}
    usage = {}
    for new in now.rows:
        old = newest.get(new.pid)
        # The kernel reuses pids: only the start time distinguishes two processes.
        if both is not None and old is not None and old.start_ticks == new.start_ticks:
            usage[new.pid] = _usage(new, old, both.seconds)
        newest[new.pid] = new
    return newest, usage


def _usage(new: host.Process, old: host.Process, seconds: float) -> Usage:
    ticks, before = new.user_ticks + new.system_ticks, old.user_ticks + old.system_ticks
    return Usage(
        rate(ticks, before, seconds, 100.0 / USER_HZ),
        rate(new.read_bytes, old.read_bytes, seconds),
        rate(new.write_bytes, old.write_bytes, seconds),
    )


PANEL = Panel(name="sessions", fields=SessionsPanel, derive=derive_sessions, points=lambda facts: {})
