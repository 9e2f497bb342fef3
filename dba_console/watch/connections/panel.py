"""What is shown of connections: against max_connections, by application, user and database, and their growth.

Counts what takes one of max_connections: client backends. Parallel workers, walsenders (a pool of their own since 12)
and background processes do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Struct

from dba_console.core.clock import age_s
from dba_console.watch.connections.growth import estimate_growth, is_still_growing
from dba_console.watch.frames.panel_status import add_note, fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import share_pct
from dba_console.watch.panel import Charted, Panel, PanelFrame, Points
from dba_console.watch.samples import host, postgres
from dba_console.watch.session_states import ACTIVE, CLIENT, DISABLED, IN_TRANSACTION, count_waiting


class ConnectionGroup(Struct, kw_only=True):
    """Connections with one attribute in common."""

    name: str
    count: int
    active: int | None = 0
    """None if the state of a session is hidden or not tracked; idle_in_transaction too."""
    idle_in_transaction: int | None = 0
    limit: int | None = None
    """CONNECTION LIMIT of the role or database; None if it has none."""
    oldest_idle_s: float | None = None


class ConnectionsPanel(PanelFrame, kw_only=True):
    max: int | None = None
    reserved_superuser: int | None = None
    reserved_role: int | None = None
    usable: int | None = None
    """max minus both reserves: available to ordinary roles."""
    used: Annotated[int | None, Charted("connections", "pg.activity")] = None
    """Client backends (walsenders have their own limit since 12 and do not count)."""
    used_pct: float | None = None
    active: Annotated[int | None, Charted("active sessions", "pg.activity")] = None
    idle: Annotated[int | None, Charted("idle sessions", "pg.activity")] = None
    idle_in_transaction: int | None = None
    waiting: Annotated[int | None, Charted("waiting for locks", "pg.activity")] = None
    """Active sessions waiting for a heavyweight lock."""
    other_states: int | None = None
    growth_per_min: float | None = None
    """Steady growth over the last three minutes; 0 without growth, None with less than 25 s of readings."""
    full_in_s: float | None = None
    """Time until `usable` is used up at that growth; None if steady growth does not reach it within a day."""
    by_application: list[ConnectionGroup] = []
    by_user: list[ConnectionGroup] = []
    by_database: list[ConnectionGroup] = []
    source: str | None = None
    """sql or process_titles."""
    seat: str | None = None
    """The slot of the console's own connection: regular, reserved_role, superuser; None in blind mode."""


# How they follow from what was read.


def derive_connections(facts: PictureFacts) -> ConnectionsPanel:
    """Return the connections panel: from pg_stat_activity, in blind mode from process titles."""
    if facts.is_blind:
        panel = _from_titles(facts)
    else:
        panel = _from_activity(facts)
    _limits(panel, facts)
    _growth(panel, facts)
    return panel


def _from_activity(facts: PictureFacts) -> ConnectionsPanel:
    panel = fill_status(ConnectionsPanel(), facts.picture, "pg.activity")
    panel.seat = None if facts.server is None else facts.server.seat
    sessions = facts.sessions
    if sessions is None:
        return panel
    panel.source = "sql"
    rows = facts.clients
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


def _count_states(panel: ConnectionsPanel, rows: list[postgres.Activity]) -> None:
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


def _from_titles(facts: PictureFacts) -> ConnectionsPanel:
    panel = fill_status(ConnectionsPanel(), facts.picture, "host.titles")
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


def _count_titles(panel: ConnectionsPanel, rows: list[host.ProcessTitle]) -> None:
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


def _limits(panel: ConnectionsPanel, facts: PictureFacts) -> None:
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


def _growth(panel: ConnectionsPanel, facts: PictureFacts) -> None:
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


# Chart values, of the readings alone: a panel of hundreds of sessions costs more.


def points(facts: PictureFacts) -> Points:
    """Return the number of connections, and by state if all states are visible."""
    if facts.is_blind:
        titles = facts.picture.now("host.titles", host.ProcessTitles)
        if titles is None or not facts.was_read_now("host.titles"):
            return {}
        return {"connections.used": sum(row.kind == CLIENT for row in titles.rows)}
    if facts.sessions is None or not facts.was_read_now("pg.activity"):
        return {}
    states = [row.state for row in facts.clients]
    found: dict[str, float | None] = {"connections.used": len(states)}
    if None not in states and DISABLED not in states:
        found["connections.active"] = sum(map(states.count, ACTIVE))
        found["connections.idle"] = states.count("idle")
        found["connections.idle_in_transaction"] = sum(map(states.count, IN_TRANSACTION))
    return found | {"connections.waiting": facts.waiting_clients}


PANEL = Panel(name="connections", fields=ConnectionsPanel, derive=derive_connections, points=points)
