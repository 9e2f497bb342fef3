"""Safety: checksums, the distance to transaction id wraparound, and what keeps the horizon back."""

from __future__ import annotations

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame, Safety
from dba_console.panels import states
from dba_console.panels.cells import Detail, Line, Span, Style
from dba_console.panels.phrases import (
    ahead,
    fact,
    first_fitting,
    integer,
    join,
    join_fitting,
    level,
    name_of,
    said,
    xids,
)
from dba_console.panels.safety_tables import (
    HOLDER_XIDS,
    XID_PCT,
    database_table,
    failure_table,
    horizon_table,
    table_table,
)
from dba_console.panels.times import moment_of
from dba_console.units import UNKNOWN, human_count, human_duration, human_pct

_AGED_S = 5.0
"""Ids are counted every 30 s: from this age on it stands beside their rate."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.safety
    first = _checksums(panel, width)
    if height == 1:
        first = join_fitting(width, [first, *_xid_facts(panel)])
    lines = [first, _xids(panel, width), _horizon(panel, width), _freeze(panel, width), _burn(panel)]
    return states.body(panel, known(panel), lines, width, height)


def known(panel: Safety) -> bool:
    return panel.data_checksums is not None or panel.xid_age is not None or bool(panel.horizon)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
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
    tables = (horizon_table(panel), database_table(panel), table_table(panel), failure_table(panel))
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
    xid, date, mxid = _xid_facts(panel)
    return first_fitting(width, join([xid, date, mxid]), join([xid, mxid]), join([xid, mxid], " "))


def _xid_facts(panel: Safety) -> tuple[Line, Line, Line]:
    """Share of xids used, when it gets dangerous, share of mxids used."""
    xid = fact("xid", human_pct(panel.xid_pct), level(panel.xid_pct, *XID_PCT))
    mxid = fact("mxid", human_pct(panel.mxid_pct), level(panel.mxid_pct, *XID_PCT))
    if panel.warn_in_s == 0:
        return xid, (Span("stop in ", "crit"), Span(ahead(panel.stop_in_s), "crit")), mxid
    return xid, fact("warn in", ahead(panel.warn_in_s), level_soon(panel.warn_in_s)), mxid


def level_soon(seconds: float | None) -> Style:
    """Emphasis for a date: a week is near, a day is very near."""
    if seconds is None:
        return "stale"
    return "crit" if seconds < 86400 else "warn" if seconds < 7 * 86400 else ""


def _horizon(panel: Safety, width: int) -> Line:
    if not panel.horizon:
        return fact("horizon", UNKNOWN if panel.horizon_unknown else "held by nobody")
    worst = panel.horizon[0]
    age = f"{xids(worst.xid_age)} xids"
    style = level(worst.xid_age, *HOLDER_XIDS)
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
    age = f"{xids(panel.xid_age)} of {xids(panel.xid_stop_age)}"
    used = human_count(panel.xids_per_s, per_s=True)
    if panel.xids_per_s is not None and panel.age_s is not None and panel.age_s >= _AGED_S:
        used += f" ({human_duration(panel.age_s)} old)"
    return join([fact("xids used", used), fact("oldest", age)])


def _thresholds(panel: Safety) -> Line:
    return join(
        [
            fact("oldest database", name_of(panel.xid_database)),
            fact("age", xids(panel.xid_age)),
            fact("freeze at", xids(panel.freeze_max_age)),
            fact("failsafe at", xids(panel.failsafe_age)),
            fact("warning at", xids(panel.xid_warn_age)),
            fact("stop at", xids(panel.xid_stop_age)),
            fact("stop in", ahead(panel.stop_in_s), level_soon(panel.stop_in_s)),
        ]
    )


def _mxids(panel: Safety) -> Line:
    return join(
        [
            fact("mxid age", xids(panel.mxid_age)),
            fact("mxids used", human_count(panel.mxids_per_s, per_s=True)),
        ]
    )
