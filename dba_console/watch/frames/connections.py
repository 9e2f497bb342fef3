"""Connections panel: connections against max_connections, by application, user and database, and their growth.

Counts what takes one of max_connections: client backends. Parallel workers, walsenders (a pool of their own since 12)
and background processes do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dba_console.core.clock import age_s
from dba_console.watch.frames.model import Connections
from dba_console.watch.frames.panel_status import add_note, fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import Points, fit_trend, share_pct
from dba_console.watch.frames.rows import ConnectionGroup
from dba_console.watch.samples import host, postgres
from dba_console.watch.session_states import ACTIVE, CLIENT, DISABLED, IN_TRANSACTION, count_waiting, is_client

# Growth of the connections over the last minutes, and when they reach the limit, only while growth continues. A trend
# over minutes takes a pool that opened all its connections, in one step or in several, for growth until that step is
# out of the window. Panel and finding both use these functions, so that they agree.

WINDOW_S = 180.0
"""Connections fill in minutes: growth is computed over the last three."""
MIN_SPAN_S = 25.0
"""The shortest span that distinguishes a rise from a burst of three seconds."""
MIN_GROWTH = 3.0
"""Fewer new connections than this over the window predict nothing."""
RECENT_S = 10.0
EXPECTED_CONNECTIONS = 6.0
"""Continued growth is checked over the time in which this many new connections are expected, at least RECENT_S: with
six expected, two or fewer arrive by chance once in sixteen times (Poisson), so less than half means that growth has
ended."""


class ConnectionGrowth(NamedTuple):
    """Steady growth, and the time until the limit; None without a forecast."""

    per_min: float
    full_in_s: float | None


def estimate_growth(counts: Points, usable: int | None) -> ConnectionGrowth | None:
    """Return the growth of the last minutes and the seconds until `usable` is reached; None without enough readings.

    Whether it continues is a separate check: `is_still_growing`.
    """
    found = fit_trend(counts, window_s=WINDOW_S, min_span_s=MIN_SPAN_S)
    if found is None:
        return None
    return ConnectionGrowth(found.per_s * 60, None if usable is None else found.time_to_reach(usable, gate=MIN_GROWTH))


def is_still_growing(counts: Points, per_min: float) -> bool:
    """Check whether the count still rises, at least at half that rate. `counts`: microseconds and count, in order."""
    if not counts or per_min <= 0:
        return False
    window_s = min(WINDOW_S, max(RECENT_S, EXPECTED_CONNECTIONS * 60 / per_min))
    last_us, used = counts[-1]
    first_us, least = last_us, used
    for at_us, value in reversed(counts):
        if at_us < last_us - window_s * 1e6:
            break
        first_us, least = at_us, min(least, value)
    watched_min = (last_us - first_us) / 6e7
    return used - least >= max(1.0, per_min * watched_min / 2)


def derive_connections(facts: PictureFacts) -> Connections:
    """Return the connections panel: from pg_stat_activity, in blind mode from process titles."""
    if is_blind(facts):
        panel = _from_titles(facts)
    else:
        panel = _from_activity(facts)
    _limits(panel, facts)
    _growth(panel, facts)
    return panel


def is_blind(facts: PictureFacts) -> bool:
    """Check whether process titles are newer than any session data of the server."""
    titles = facts.picture.current.get("host.titles")
    activity = facts.picture.current.get("pg.activity")
    return titles is not None and (activity is None or titles.part.at_us > activity.part.at_us)


def _from_activity(facts: PictureFacts) -> Connections:
    panel = fill_status(Connections(), facts.picture, "pg.activity")
    panel.seat = None if facts.server is None else facts.server.seat
    sessions = facts.sessions
    if sessions is None:
        return panel
    panel.source = "sql"
    rows = [row for row in sessions.rows if is_client(row)]
    panel.used = len(rows)
    untracked = sum(row.state == DISABLED for row in rows)
    if any(row.state is None for row in rows):
        # Without pg_monitor other roles' states are NULL: the number of active ones is unknown.
        add_note(panel, _hidden_note(sessions))
    elif untracked:
        panel.waiting = count_waiting(rows)
    else:
        _count_states(panel, rows)
    if untracked:
        add_note(panel, _untracked_note(untracked, len(rows)))
        panel.status = "unsupported" if panel.status == "ok" else panel.status
    panel.by_application = _groups(rows, "application", sessions.now_us, {})
    panel.by_user = _groups(rows, "user", sessions.now_us, _role_limits(facts))
    panel.by_database = _groups(rows, "database", sessions.now_us, _database_limits(facts))
    return panel


def _hidden_note(sessions: postgres.Sessions) -> str:
    hidden = sessions.hidden or sum(row.state is None for row in sessions.rows)
    return f"the states of {hidden} sessions are hidden: GRANT pg_monitor to this role"


def _untracked_note(untracked: int, used: int) -> str:
    of = "all sessions" if untracked == used else f"{untracked} of {used} sessions"
    return f"track_activities is off for {of}: their state and query are unknown"


def _count_states(panel: Connections, rows: list[postgres.Activity]) -> None:
    active = sum(row.state in ACTIVE for row in rows)
    idle = sum(row.state == "idle" for row in rows)
    in_transaction = sum(row.state in IN_TRANSACTION for row in rows)
    panel.active, panel.idle, panel.idle_in_transaction = active, idle, in_transaction
    panel.waiting = count_waiting(rows)
    panel.other_states = len(rows) - active - idle - in_transaction


def _groups(
    rows: Iterable[postgres.Activity], attribute: str, now_us: int, limits: dict[str, int | None]
) -> list[ConnectionGroup]:
    groups: dict[str, ConnectionGroup] = {}
    oldest: dict[str, int] = {}
    for row in rows:
        name = getattr(row, attribute) or ""
        group = groups.get(name)
        if group is None:
            group = groups[name] = ConnectionGroup(name=name, count=0, limit=limits.get(name))
        group.count += 1
        state, since_us = row.state, row.state_change
        if state == "idle":  # first: most sessions are
            if since_us is not None and (name not in oldest or since_us < oldest[name]):
                oldest[name] = since_us
        elif state is None or state == DISABLED:
            group.active = group.idle_in_transaction = None
        elif state in ACTIVE and group.active is not None:
            group.active += 1
        elif state in IN_TRANSACTION and group.idle_in_transaction is not None:
            group.idle_in_transaction += 1
    for name, since_us in oldest.items():
        groups[name].oldest_idle_s = age_s(now_us, since_us)
    return sorted(groups.values(), key=lambda group: (-group.count, group.name))


def _role_limits(facts: PictureFacts) -> dict[str, int | None]:
    roles = [] if facts.server is None else facts.server.roles
    # A superuser's CONNECTION LIMIT is never enforced.
    return {role.name: role.connection_limit for role in roles if role.connection_limit >= 0 and not role.superuser}


def _database_limits(facts: PictureFacts) -> dict[str, int | None]:
    databases = [] if facts.server is None else facts.server.databases
    return {database.name: database.connection_limit for database in databases if database.connection_limit >= 0}


def _from_titles(facts: PictureFacts) -> Connections:
    panel = fill_status(Connections(), facts.picture, "host.titles")
    panel.source = "process_titles"
    titles = facts.picture.now("host.titles", host.ProcessTitles)
    if titles is None:
        return panel
    if panel.status == "unsupported":
        panel.status, panel.age_s = "stale", None  # the server is gone: its last titles are not a count
        return panel
    add_note(panel, "counted from process titles: no connection to the server")
    rows = [row for row in _lasting_processes(facts, titles) if row.kind == CLIENT]
    panel.used = len(rows)
    if titles.unreadable:
        add_note(panel, f"{titles.unreadable} processes could not be read and are not counted")
    if titles.update_process_title:
        _count_titles(panel, rows)
    else:
        add_note(panel, "update_process_title is off: titles carry no state")
    panel.by_user = _title_groups(rows, "user", _role_limits(facts))
    panel.by_database = _title_groups(rows, "database", _database_limits(facts))
    return panel


def _lasting_processes(facts: PictureFacts, titles: host.ProcessTitles) -> list[host.ProcessTitle]:
    """Return processes that were in the previous reading too: a new one may be an attempt being refused."""
    before = facts.picture.before("host.titles", host.ProcessTitles)
    if before is None:
        return titles.rows
    known = {(row.pid, row.start_ticks) for row in before.rows}
    return [row for row in titles.rows if (row.pid, row.start_ticks) in known]


def _title_is_active(row: host.ProcessTitle) -> bool:
    return row.state is not None and row.state not in (*IN_TRANSACTION, "idle", "startup")


def _count_titles(panel: Connections, rows: list[host.ProcessTitle]) -> None:
    panel.active = sum(_title_is_active(row) for row in rows)
    panel.idle = sum(row.state == "idle" for row in rows)
    panel.idle_in_transaction = sum(row.state in IN_TRANSACTION for row in rows)
    # A title has `waiting` only for heavyweight locks (set_ps_display_suffix in ProcSleep).
    panel.waiting = sum(row.state == "waiting" or (row.state or "").endswith(" waiting") for row in rows)
    panel.other_states = len(rows) - panel.active - panel.idle - panel.idle_in_transaction


def _title_groups(
    rows: list[host.ProcessTitle], attribute: str, limits: dict[str, int | None]
) -> list[ConnectionGroup]:
    groups: dict[str, ConnectionGroup] = {}
    for row in rows:
        name = getattr(row, attribute) or ""
        group = groups.setdefault(name, ConnectionGroup(name=name, count=0, limit=limits.get(name)))
        group.count += 1
        group.active = (group.active or 0) + _title_is_active(row)
        group.idle_in_transaction = (group.idle_in_transaction or 0) + (row.state in IN_TRANSACTION)
    return sorted(groups.values(), key=lambda group: (-group.count, group.name))


def _limits(panel: Connections, facts: PictureFacts) -> None:
    control = facts.picture.now("host.control", host.ControlFile)
    panel.max = facts.number("max_connections")
    if panel.max is None and control is not None:
        panel.max = control.max_connections
    panel.reserved_superuser, panel.reserved_role = _reserved(facts)
    panel.usable = usable_of(facts)
    panel.used_pct = share_pct(panel.used, panel.usable)


def _reserved(facts: PictureFacts) -> tuple[int | None, int | None]:
    """Return superuser_reserved_connections and reserved_connections, which came with 16."""
    role = facts.number("reserved_connections")
    before_16 = facts.major is not None and facts.major < 16
    return facts.number("superuser_reserved_connections"), 0 if role is None and before_16 else role


def usable_of(facts: PictureFacts) -> int | None:
    """Return max_connections less both reserves (postinit.c); None if one is unknown."""
    most, (superuser, role) = facts.number("max_connections"), _reserved(facts)
    return None if most is None or superuser is None or role is None else max(0, most - superuser - role)


def _growth(panel: Connections, facts: PictureFacts) -> None:
    if panel.used is None:
        return
    if panel.usable is not None and panel.used >= panel.usable:
        panel.full_in_s = 0.0
    counts = facts.history.series("connections.used")
    found = estimate_growth(counts, panel.usable)
    if found is None:
        return
    if found.per_min > 0 and not is_still_growing(counts, found.per_min):
        panel.growth_per_min = 0.0
        return
    panel.growth_per_min = found.per_min
    if panel.usable is not None and panel.used < panel.usable:
        panel.full_in_s = found.full_in_s
