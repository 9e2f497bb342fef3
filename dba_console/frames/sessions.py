"""Sessions: pg_stat_activity joined with what the host knows of the same processes.

Ages are by the server's clock, never by the host's: the two may differ, and second-rounded ones lie.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.frames.facts import PictureFacts
from dba_console.frames.model import SessionRow, Sessions
from dba_console.frames.panel_status import fill_status
from dba_console.frames.rates import USER_HZ, pair, rate
from dba_console.frames.timestamps import age_s, rfc3339
from dba_console.samples import host, postgres

_HALF = 1 << 31


class Usage(NamedTuple):
    """What a process used per second over the last two readings it was in."""

    cpu_pct: float | None
    read_bytes_per_s: float | None
    write_bytes_per_s: float | None


def derive_sessions(facts: PictureFacts) -> Sessions:
    """The sessions panel: a row for every row of pg_stat_activity."""
    panel = fill_status(Sessions(), facts.picture, "pg.activity", "host.processes")
    sessions = facts.sessions
    if sessions is None:
        return panel
    panel.hidden = sessions.hidden
    processes, usage = _processes(facts)
    xids = facts.picture.now("pg.xids", postgres.Xids)
    next_xid = None if xids is None else xids.next_xid
    panel.rows = [
        _row(row, sessions.now_us, facts.blocked_by.get(row.pid), processes.get(row.pid), usage.get(row.pid), next_xid)
        for row in sessions.rows
    ]
    return panel


def _row(
    row: postgres.Activity,
    now_us: int,
    blocked_by: list[int] | None,
    process: host.Process | None,
    usage: Usage | None,
    next_xid: int | None,
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
        xmin_age_xids=xid_age(next_xid, row.backend_xmin),
        leader_pid=row.leader_pid,
        blocked_by=blocked_by or [],
        query=row.query,
        query_bytes=row.query_bytes,
    )
    if process is not None:
        session.rss_bytes, session.process_state = process.rss, process.state
    if usage is not None:
        session.cpu_pct, session.read_bytes_per_s, session.write_bytes_per_s = usage
    return session


def wait_text(row: postgres.Activity) -> str | None:
    """`wait_event_type:wait_event`, None for a session that waits for nothing."""
    return None if row.wait_event_type is None else f"{row.wait_event_type}:{row.wait_event or ''}"


def xid_age(next_xid: int | None, xid: int | None) -> int | None:
    """Transactions begun since `xid`, which has 32 bits; None where it is newer than the last reading of next_xid.

    >>> xid_age((1 << 32) + 10, 4294967290), xid_age(100, 200), xid_age(None, 3)
    (16, None, None)
    """
    if next_xid is None or xid is None:
        return None
    age = (next_xid - xid) & 0xFFFFFFFF
    return age if age < _HALF else None


def _processes(facts: PictureFacts) -> tuple[dict[int, host.Process], dict[int, Usage]]:
    """The newest reading of each process by pid, and what those used that were in both of the last two."""
    now = facts.picture.now("host.processes", host.Processes)
    both = pair(facts.picture, "host.processes", host.Processes)
    if now is None:
        return {}, {}
    newest = {} if both is None else {row.pid: row for row in both.old.rows}
    usage = {}
    for new in now.rows:
        old = newest.get(new.pid)
        # The kernel gives a pid to another process in time: only the start tells two apart.
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
