"""Chart and trend values of one tick, which the chart history stores.

Names are `panel.field` as in the frame, `mount:PATH.used_bytes`, `device:NAME.util_pct`, `slot:NAME.retained_bytes`,
`safety:SYSTEM.next_xid` and `progress:…`. Only known numbers that were read in this tick: a missing name has no point.
"""

from __future__ import annotations

from dba_console.watch import subjects
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.connections import is_blind
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.samples import host
from dba_console.watch.session_states import ACTIVE, CLIENT, DISABLED, IN_TRANSACTION, count_waiting, is_client

Point = dict[str, float | None]

_EMPTY = ChartHistory()


def point_of(picture: Picture) -> dict[str, float]:
    """Return the values of the tick by name, without those that are unknown or were read in an earlier tick."""
    facts = PictureFacts(picture, _EMPTY)
    point: Point = {}
    _connections(point, facts)
    for panel in subjects.panels().values():
        point |= panel.points(facts)
    return {name: float(value) for name, value in point.items() if value is not None}


def _connections(point: Point, facts: PictureFacts) -> None:
    if is_blind(facts):
        titles = facts.picture.now("host.titles", host.ProcessTitles)
        if titles is not None and facts.was_read_now("host.titles"):
            point["connections.used"] = sum(row.kind == CLIENT for row in titles.rows)
        return
    if facts.sessions is None or not facts.was_read_now("pg.activity"):
        return
    rows = [row for row in facts.sessions.rows if row.backend_type == CLIENT or is_client(row)]
    states = [row.state for row in rows]
    point["connections.used"] = len(rows)
    if None in states:
        return
    if DISABLED not in states:
        point["connections.active"] = sum(map(states.count, ACTIVE))
        point["connections.idle"] = states.count("idle")
        point["connections.idle_in_transaction"] = sum(map(states.count, IN_TRANSACTION))
    point["connections.waiting"] = count_waiting(rows)
