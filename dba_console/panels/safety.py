"""Safety: checksums, the distance to transaction id wraparound, and what keeps the horizon back."""

from __future__ import annotations

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame, Safety
from dba_console.panels import status_text
from dba_console.panels.phrases import (
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
from dba_console.panels.safety_tables import (
    HOLDER_XIDS,
    XID_PCT,
    age_table,
    database_table,
    failure_table,
    horizon_table,
)
from dba_console.panels.text_elements import Detail, Line, Span, Style
from dba_console.panels.time_formats import local_date_and_time
from dba_console.units import UNKNOWN, human_count, human_duration, human_pct

_MIN_AGE_SHOWN_S = 5.0
"""Ids are counted every 30 s: from this age on it stands beside their rate."""


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.safety
    first = _checksums(panel, width)
    if height == 1:
        first = join_fitting(width, [first, *_xid_facts(panel)])
    lines = [first, _xids(panel, width), _horizon(panel, width), _freeze(panel, width), _xid_rate(panel)]
    return status_text.body(panel, is_known(panel), lines, width, height)


def is_known(panel: Safety) -> bool:
    return panel.data_checksums is not None or panel.xid_age is not None or bool(panel.horizon)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.safety
    if not is_known(panel):
        return Detail("Safety", tuple(status_text.note_lines(panel, width)))
    head = [
        _checksums(panel, width),
        _xids(panel, width),
        _thresholds(panel),
        _freeze(panel, width),
        _xid_rate(panel),
        _mxids(panel),
    ]
    tables = (horizon_table(panel), database_table(panel), age_table(panel), failure_table(panel))
    return Detail("Safety", status_text.head_lines(panel, head, width), tables)


def _checksums(panel: Safety, width: int) -> Line:
    failures = panel.checksum_failures
    state = panel.data_checksums or UNKNOWN
    style: Style = "stale" if state == UNKNOWN else "warn" if state == "off" else ""
    # With checksums off the server counts nothing, so there is no number to show.
    count = "not counted" if state == "off" else integer(failures)
    facts = [
        fact("checksums", name_of(state), style),
        fact("failures", count, level_style(failures, 1, 1) if failures else ""),
    ]
    if panel.checksum_last_failure:
        facts.append(fact("last", local_date_and_time(panel.checksum_last_failure), "crit"))
    return join_fitting(width, facts)


def _xids(panel: Safety, width: int) -> Line:
    xid, date, mxid = _xid_facts(panel)
    return first_fitting(width, join([xid, date, mxid]), join([xid, mxid]), join([xid, mxid], " "))


def _xid_facts(panel: Safety) -> tuple[Line, Line, Line]:
    """Share of xids used, when it gets dangerous, share of mxids used."""
    xid = fact("xid", human_pct(panel.xid_pct), level_style(panel.xid_pct, *XID_PCT))
    mxid = fact("mxid", human_pct(panel.mxid_pct), level_style(panel.mxid_pct, *XID_PCT))
    if panel.warn_in_s == 0:
        return xid, (Span("stop in ", "crit"), Span(time_ahead(panel.stop_in_s), "crit")), mxid
    return xid, fact("warn in", time_ahead(panel.warn_in_s), time_left_style(panel.warn_in_s)), mxid


def time_left_style(seconds: float | None) -> Style:
    """Emphasis for a date: a week is near, a day is very near."""
    if seconds is None:
        return "stale"
    return "crit" if seconds < 86400 else "warn" if seconds < 7 * 86400 else ""


def _horizon(panel: Safety, width: int) -> Line:
    if not panel.horizon:
        return fact("horizon", UNKNOWN if panel.horizon_unknown else "held by nobody")
    worst = panel.horizon[0]
    age = f"{xids_text(worst.xid_age)} xids"
    style = level_style(worst.xid_age, *HOLDER_XIDS)
    room = max(4, width - len("horizon: , ") - len(age) - len(worst.kind) - 1)
    return (
        Span("horizon: ", "dim"),
        Span(f"{name_of(worst.kind, 20)} {name_of(worst.who, room)}"),
        Span(", ", "dim"),
        Span(age, style),
    )


def _freeze(panel: Safety, width: int) -> Line:
    if panel.autovacuum_freeze_in_s == 0:
        return text_line("autovacuum is forced to freeze now", "warn")
    return first_fitting(
        width,
        fact("autovacuum forced to freeze in", time_ahead(panel.autovacuum_freeze_in_s)),
        fact("forced freeze in", time_ahead(panel.autovacuum_freeze_in_s)),
    )


def _xid_rate(panel: Safety) -> Line:
    age = f"{xids_text(panel.xid_age)} of {xids_text(panel.xid_stop_age)}"
    used = human_count(panel.xids_per_s, per_s=True)
    if panel.xids_per_s is not None and panel.age_s is not None and panel.age_s >= _MIN_AGE_SHOWN_S:
        used += f" ({human_duration(panel.age_s)} old)"
    return join([fact("xids used", used), fact("oldest", age)])


def _thresholds(panel: Safety) -> Line:
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


def _mxids(panel: Safety) -> Line:
    return join(
        [
            fact("mxid age", xids_text(panel.mxid_age)),
            fact("mxids used", human_count(panel.mxids_per_s, per_s=True)),
        ]
    )
