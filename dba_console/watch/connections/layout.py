"""Connections on the screen: how many are free, how fast they are used up, who has them."""

from __future__ import annotations

from dba_console.core.units import UNKNOWN, human_duration, human_pct
from dba_console.watch.connections.panel import ConnectionGroup, ConnectionsPanel
from dba_console.watch.drawing import charts, phrases
from dba_console.watch.drawing.phrases import (
    bar,
    fact,
    first_fitting,
    integer,
    join,
    join_fitting,
    level_style,
    name_of,
    text_line,
)
from dba_console.watch.drawing.text_elements import (
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableRow,
    line_width,
)
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.tables import Column, cells

_FULL_WARN, _FULL_CRIT = 80.0, 95.0
_SOON_WARN_S, _SOON_CRIT_S = 3600.0, 600.0
_TREND_S = 300.0


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(ConnectionsPanel)
    lines = [
        _usage(panel, width),
        _states(panel, width),
        _growth(frame, width, history),
        _top_groups("app", panel.by_application, width),
        _top_groups("user", panel.by_user, width),
        _top_groups("db", panel.by_database, width),
    ]
    return phrases.body(panel, panel.used is not None, [one for one in lines if one], width, height)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(ConnectionsPanel)
    if panel.used is None:
        return Detail("Connections", tuple(phrases.note_lines(panel, width)))
    head = [_usage(panel, width), _states(panel, width), _growth(frame, width, history), _limits(panel), _source(panel)]
    return Detail(
        "Connections",
        phrases.head_lines(panel, [one for one in head if one], width),
        (
            _group_table("by_application", "By application", panel.by_application),
            _group_table("by_user", "By user", panel.by_user),
            _group_table("by_database", "By database", panel.by_database),
        ),
    )


def _usage(panel: ConnectionsPanel, width: int) -> Line:
    if panel.usable is None and panel.max is not None:
        # How many of them are reserved is only known from the server.
        return (
            Span(integer(panel.used)),
            Span(" of ", "dim"),
            Span(integer(panel.max)),
            Span(" max_connections", "dim"),
        )
    style = level_style(panel.used_pct, _FULL_WARN, _FULL_CRIT)
    left = (Span(integer(panel.used), style), Span(" of ", "dim"), Span(integer(panel.usable)), Span(" usable ", "dim"))
    share = Span(f" {human_pct(panel.used_pct)}", style)
    space = min(40, width - line_width(left) - len(share.text))
    return (*left, Span(bar(panel.used_pct, space), style or "bar"), share) if space >= 3 else (*left[:-1], share)


def _states(panel: ConnectionsPanel, width: int) -> Line:
    waiting = level_style(panel.waiting, 1, 10)
    idle_in = level_style(panel.idle_in_transaction, 20, 100)
    common = [fact("active", integer(panel.active)), fact("idle", integer(panel.idle))]
    long = [
        *common,
        fact("idle in transaction", integer(panel.idle_in_transaction), idle_in),
        fact("waiting", integer(panel.waiting), waiting),
    ]
    few = [
        fact("idle in txn", integer(panel.idle_in_transaction), idle_in),
        fact("waiting", integer(panel.waiting), waiting),
    ]
    short = [*common, *few]
    both_idle = (*common[1], Span(f"+{integer(panel.idle_in_transaction)} in txn", idle_in))
    shortest = [common[0], both_idle, few[1]]
    without_idle = [common[0], *few]
    other = [fact("other", integer(panel.other_states))] if panel.other_states else []
    return first_fitting(
        width,
        join([*long, *other]),
        join(long),
        join([*short, *other]),
        join(short),
        join(short, " "),
        join(shortest, " "),
        join(without_idle),
        join(without_idle, " "),
        join(few),
    )


def _growth(frame: Frame, width: int, history: ChartHistory) -> Line:
    panel = frame.of(ConnectionsPanel)
    growth = UNKNOWN if panel.growth_per_min is None else f"{panel.growth_per_min:+.0f}"
    growth = "0" if growth in ("+0", "-0") else growth
    words: Line = (Span(f"{growth}/min", "stale" if growth == UNKNOWN else ""),)
    if panel.full_in_s is None:
        words = (Span("growth ", "dim"), *words)
    if panel.full_in_s == 0:
        words = join([words, (Span("full", "crit"),)], ", ")
    elif panel.full_in_s is not None:
        soon: Style = "crit" if panel.full_in_s < _SOON_CRIT_S else "warn" if panel.full_in_s < _SOON_WARN_S else ""
        words = join([words, (Span("full in ", "dim"), Span(human_duration(panel.full_in_s), soon))], ", ")
    space = min(40, width - line_width(words) - 2)
    if space < 5 or panel.usable is None:
        return words
    trend = charts.sparkline(history.series("connections.used"), frame.at_us, _TREND_S, space, 0, float(panel.usable))
    return (*words, Span("  "), Span(trend, "bar"))


def _top_groups(label: str, groups: list[ConnectionGroup], width: int) -> Line:
    if not groups:
        return ()
    named = [text_line(f"{name_of(group.name, 24) or '(none)'} {group.count}") for group in groups[:6]]
    return (Span(f"{label} ", "dim"), *join_fitting(width - len(label) - 1, named))


def _limits(panel: ConnectionsPanel) -> Line:
    return join(
        [
            fact("max_connections", integer(panel.max)),
            fact("reserved for superusers", integer(panel.reserved_superuser)),
            fact("reserved for a role", integer(panel.reserved_role)),
        ]
    )


def _source(panel: ConnectionsPanel) -> Line:
    sources = {
        "sql": "counted in pg_stat_activity",
        "process_titles": "counted by process titles, without a connection",
    }
    slots = {
        "regular": "the console uses an ordinary slot",
        "reserved_role": "the console uses a reserved_connections slot",
        "superuser": "the console uses a superuser_reserved slot",
    }
    slot = slots.get(panel.seat or "", "the console uses no slot")
    return join(
        [
            text_line(sources.get(panel.source or "", ""), "dim"),
            text_line(slot, "" if panel.seat == "regular" else "warn"),
        ]
    )


def _name_text(group: ConnectionGroup) -> str:
    return name_of(group.name) or "(none)"


def _count_style(group: ConnectionGroup) -> Style:
    return level_style(group.count, 0.8 * group.limit, 0.95 * group.limit) if group.limit else ""


_GROUPS = (
    Column("name", "name", 40, help="Application, user or database", text=_name_text, grow=True),
    Column("count", "count", 6, right=True, help="Connections", style=_count_style, descending=True),
    Column("limit", "limit", 6, right=True, help="CONNECTION LIMIT, blank for none", optional=True, descending=True),
    Column("active", "active", 6, right=True, help="Running a query", descending=True),
    Column("idle_in_transaction", "idle in txn", 11, right=True, help="Idle in transaction", descending=True),
    Column("oldest_idle_s", "oldest idle", 11, right=True, help="Longest idle", optional=True, descending=True),
)


def _group_table(table: str, title: str, groups: list[ConnectionGroup]) -> Table:
    rows = tuple(TableRow(group.name, cells(_GROUPS, group)) for group in groups)
    return Table(table, _GROUPS, rows, "count", title, "no connections")


LAYOUT = Layout(name="connections", title="Connections", key="1", compact=compact, full=full)
