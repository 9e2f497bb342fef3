"""The configured cluster on the screen: position and lag of each node, clients of each pooler, differences.

A node that does not answer keeps its last numbers, marked as old.
"""

from __future__ import annotations

from functools import partial

from dba_console.clusters.subject.panel import ClusterPanel, NodeRow, PoolerRow, cutover_text
from dba_console.core.units import UNKNOWN, human_bytes, human_duration
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import fact, integer, join, join_fitting, level_style, name_of, text_line
from dba_console.watch.drawing.text_elements import Detail, Line, Span, Style, Table, TableRow, clean, wrap_words
from dba_console.watch.drawing.time_formats import date_and_time, local_time_of_day
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.lsn import LAG_LEVELS_S
from dba_console.watch.tables import Column, cells

_OLD_S = 6.0
"""Three query intervals."""
_READY_WARN, _READY_CRIT = 16, 128
"""repmgr's archive_ready_warning and archive_ready_critical."""
_WAIT_S = (1.0, 10.0)


# The state of a row in words, and its emphasis.


def _age_style(row: NodeRow | PoolerRow) -> Style:
    return "stale" if row.age_s is None or row.age_s > _OLD_S else ""


def _lag_style(row: NodeRow) -> Style:
    return level_style(None if row.lag_s is None else row.lag_s - (row.apply_delay_s or 0.0), *LAG_LEVELS_S)


def _is_standby(row: NodeRow) -> bool:
    return row.role == "standby"


def _archives(row: NodeRow) -> bool:
    """Return whether the node archives: not a standby, nor with archive_mode off."""
    return row.role != "standby" and (row.archive_age_s is None or row.archive_failing is not None)


def _archive_style(row: NodeRow) -> Style:
    return "crit" if row.archive_failing else level_style(row.archive_ready, _READY_WARN, _READY_CRIT)


def _node_state(row: NodeRow) -> tuple[str, Style]:
    """Return the node's state besides its numbers."""
    if row.error is not None:
        return "no answer", "crit"
    if row.role != "standby":
        return ("archiving fails", "crit") if row.archive_failing else ("", "")
    words = ["replay paused"] if row.replay_paused else []
    if row.apply_delay_s is not None:
        words.append(f"delayed {human_duration(row.apply_delay_s)}")
    words.append(name_of(row.receiver or "no receiver", 20))
    return ", ".join(words), "warn" if row.replay_paused or row.receiver != "streaming" else ""


def _slots_text(row: NodeRow) -> str:
    idle = sum(not one.active for one in row.slots)
    return f"{len(row.slots)}, {idle} idle" if idle else str(len(row.slots))


def _pooler_state(row: PoolerRow) -> tuple[str, Style]:
    if row.error is not None:
        return "no answer" if row.since else clean(row.error), "crit"
    if row.paused:
        return _paused_text(row), "warn"
    return ("", "") if row.paused is False else (UNKNOWN, "stale")


def _paused_text(row: PoolerRow) -> str:
    return f"paused since {local_time_of_day(row.paused_since)}" if row.paused_since else "paused"


def _server_name(row: PoolerRow) -> str:
    return name_of(row.node or row.leads_to)


def _wait_style(row: PoolerRow) -> Style:
    return _age_style(row) or level_style(row.longest_wait_s, *_WAIT_S)


def _mode_style(row: PoolerRow) -> Style:
    return "warn" if row.mode == "session" else ""


# The tables.

_NODES = (
    Column("name", "node", 10, keep=True, grow=True),
    Column("role", "role", 7, style=_age_style),
    Column("timeline", "tl", 3, right=True, help="timeline", style=_age_style),
    Column("lsn", "position", 12, help="a primary's written, a standby's received WAL position", style=_age_style),
    Column(
        "lag_bytes",
        "lag",
        7,
        right=True,
        help="WAL not replayed yet",
        style=_age_style,
        applies=_is_standby,
        descending=True,
    ),
    Column(
        "lag_s",
        "time",
        5,
        right=True,
        help="replay delay",
        style=lambda row: _age_style(row) or _lag_style(row),
        applies=_is_standby,
        descending=True,
    ),
    Column("age_s", "age", 6, right=True, help="of these numbers", style=_age_style, descending=True),
    Column(
        "state",
        "state",
        22,
        text=lambda row: _node_state(row)[0],
        style=lambda row: _node_state(row)[1],
        value=lambda row: _node_state(row)[0],
    ),
    Column(
        "sync_state",
        "sync",
        9,
        help="as the primary has it: async, potential, sync, quorum",
        style=_age_style,
        applies=_is_standby,
        spare=2,
    ),
    Column(
        "archive_ready",
        "to archive",
        10,
        right=True,
        help="WAL files waiting to be archived",
        style=_archive_style,
        applies=_archives,
        descending=True,
        spare=3,
    ),
    Column("slots", "slots", 12, text=_slots_text, style=_age_style, value=lambda row: len(row.slots), spare=4),
    Column("version", "version", 8, spare=5),
    Column("system_identifier", "system identifier", 20, spare=6),
)

_POOLERS = (
    Column("name", "pooler", 12, keep=True),
    Column("database", "database", 14, keep=True, grow=True),
    Column("node", "points to", 20, help="the node, else host:port", text=_server_name, style=_age_style),
    Column(
        "clients_active",
        "active",
        6,
        right=True,
        help="clients with a server connection",
        style=_age_style,
        descending=True,
    ),
    Column(
        "clients_waiting",
        "waiting",
        7,
        right=True,
        help="clients waiting for one",
        style=_age_style,
        descending=True,
    ),
    Column("longest_wait_s", "longest", 7, right=True, help="longest wait now", style=_wait_style, descending=True),
    Column("servers", "servers", 7, right=True, help="server connections", style=_age_style, descending=True, spare=2),
    Column("age_s", "age", 6, right=True, help="of these numbers", style=_age_style, descending=True),
    Column(
        "state",
        "state",
        24,
        text=lambda row: _pooler_state(row)[0],
        style=lambda row: _pooler_state(row)[1],
        value=lambda row: _pooler_state(row)[0],
    ),
    Column("mode", "mode", 11, help="pool_mode", style=_mode_style, spare=3),
    Column("leads_to", "host", 22, style=_age_style, spare=4),
)


def _node_table(panel: ClusterPanel) -> Table:
    rows = tuple(TableRow(row.name, cells(_NODES, row), partial(_node_detail, row)) for row in panel.nodes)
    return Table("nodes", _NODES, rows, None, "Nodes", "no node")


def _pooler_table(panel: ClusterPanel) -> Table:
    rows = tuple(TableRow(f"{row.name} {row.database}", cells(_POOLERS, row)) for row in panel.poolers)
    return Table("poolers", _POOLERS, rows, None, "Poolers", "no pooler")


def _node_detail(row: NodeRow) -> tuple[Line, ...]:
    first = [
        text_line(name_of(row.name)),
        text_line(name_of(row.role)),
        fact("timeline", integer(row.timeline)),
        fact("position", name_of(row.lsn)),
        fact("system identifier", name_of(row.system_identifier)),
        fact("version", name_of(row.version)),
    ]
    archive = fact("to archive", f"{integer(row.archive_ready)} files, {human_duration(row.archive_age_s)} ago")
    more = join([text_line(_node_state(row)[0]), archive if _archives(row) else ()])
    return tuple(one for one in (join(first), more, *_slot_lines(row)) if one)


def _slot_lines(row: NodeRow) -> tuple[Line, ...]:
    return tuple(
        join(
            [
                fact("slot", name_of(one.name)),
                text_line(name_of(one.kind)),
                text_line("active" if one.active else "inactive", "" if one.active else "warn"),
                fact("retains", human_bytes(one.retained_bytes)),
                fact("wal", name_of(one.wal_status)),
            ]
        )
        for one in row.slots
    )


# The short form and the full form.


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(ClusterPanel)
    lines = [_node_line(row, width) for row in panel.nodes]
    lines += [_pooler_line(row, width) for row in panel.poolers]
    lines += [text_line(f"! {clean(text)}", "warn") for text in panel.differences]
    held = _held_lines(panel, frame)
    lines = [*_cutover_lines(panel, width), *lines]
    if len(held) + len(lines) > height:
        lines.insert(0, _summary(panel))
    lines = [*held, *lines]
    return phrases.body(panel, bool(panel.nodes), lines, width, height)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(ClusterPanel)
    if not panel.nodes:
        return Detail("Cluster", tuple(phrases.note_lines(panel, width)))
    rows: list[NodeRow | PoolerRow] = [*panel.nodes, *panel.poolers]
    errors = {(type(row), row.name): row for row in rows if row.error is not None}
    head = [
        _summary(panel),
        *_held_lines(panel, frame),
        *_cutover_lines(panel, width),
        *(line for row in errors.values() for line in _error_lines(row, width)),
        *(text_line(text, "warn") for words in panel.differences for text in wrap_words(f"! {words}", width)),
    ]
    tables = (_node_table(panel), _pooler_table(panel)) if panel.poolers else (_node_table(panel),)
    return Detail("Cluster", phrases.head_lines(panel, head, width), tables)


def _summary(panel: ClusterPanel) -> Line:
    silent = sum(row.error is not None for row in panel.nodes)
    primaries = [row for row in panel.nodes if row.role == "primary" and row.error is None]
    lead = (
        text_line(f"{len(primaries)} primaries", "crit")
        if len(primaries) > 1
        else fact("primary", name_of(panel.primary), "" if panel.primary else "crit")
    )
    facts = [fact("cluster", name_of(panel.name)), lead, fact("nodes", str(len(panel.nodes)))]
    if silent:
        facts.append(text_line(f"{silent} not answering", "crit"))
    return join([*facts, fact("poolers", str(len({row.name for row in panel.poolers})))])


def _held_lines(panel: ClusterPanel, frame: Frame) -> list[Line]:
    """Return for how long a cutover has held clients. It comes first: a run shows only one line of the panel."""
    if panel.cutover is None or panel.cutover.held_since_us is None:
        return []
    held_s = max(0.0, (frame.at_us - panel.cutover.held_since_us) / 1e6)
    return [text_line(f"! clients held for {human_duration(held_s)}", "crit")]


def _cutover_lines(panel: ClusterPanel, width: int) -> list[Line]:
    """Return the cutover in progress."""
    if (mark := panel.cutover) is None:
        return []
    text = cutover_text(mark, date_and_time(mark.begun_us))
    style: Style = "warn" if mark.held_since_us is None else "crit"
    return [text_line(line, style) for line in wrap_words(f"! {text}", width)]


def _error_lines(row: NodeRow | PoolerRow, width: int) -> list[Line]:
    since = f"no answer since {local_time_of_day(row.since)}: " if row.since else ""
    return [text_line(text, "crit") for text in wrap_words(f"! {row.name}: {since}{row.error}", width)]


def _node_line(row: NodeRow, width: int) -> Line:
    facts: list[Line] = [(Span(name_of(row.name)), Span(f" {name_of(row.role)}", _age_style(row)))]
    facts.append(fact("tl", integer(row.timeline)))
    if row.role == "standby" and row.error is None:
        facts.append(fact("lag", f"{human_bytes(row.lag_bytes)} {human_duration(row.lag_s)}", _lag_style(row)))
    facts.append(text_line(*_node_state(row)))
    if row.error is not None:
        facts.append(text_line(clean(row.error), "crit"))
    return join_fitting(width, [one for one in facts if one])


def _pooler_line(row: PoolerRow, width: int) -> Line:
    name = name_of(row.name) if row.database is None else f"{name_of(row.name)} {name_of(row.database)}"
    if row.error is not None:
        return join_fitting(width, [text_line(name), text_line(clean(row.error), "crit")])
    paused = [text_line(_paused_text(row), "warn")] if row.paused else []
    clients = fact("clients", f"{integer(row.clients_active)} active, {integer(row.clients_waiting)} waiting")
    return join_fitting(width, [text_line(f"{name} → {_server_name(row)}"), *paused, clients])


LAYOUT = Layout(name="cluster", title="Cluster", key="o", compact=compact, full=full)
