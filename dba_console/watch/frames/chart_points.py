"""Chart and trend values of one tick, which the chart history stores.

Names are `panel.field` as in the frame, `mount:PATH.used_bytes`, `device:NAME.util_pct`, `slot:NAME.retained_bytes`,
`safety:SYSTEM.next_xid` and `progress:…`. Only known numbers that were read in this tick: a missing name has no point.
"""

from __future__ import annotations

from dba_console.watch import subjects
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts

Point = dict[str, float | None]

_EMPTY = ChartHistory()


def point_of(picture: Picture) -> dict[str, float]:
    """Return the values of the tick by name, without those that are unknown or were read in an earlier tick."""
    facts = PictureFacts(picture, _EMPTY)
    point: Point = {}
    for panel in subjects.panels().values():
        point |= panel.points(facts)
    return {name: float(value) for name, value in point.items() if value is not None}
