"""How locks are drawn: who waits for whom, as trees with the root blocker on top; and who blocked whom before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from dba_console.core.units import human_duration
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.phrases import (
    fact,
    integer,
    join,
    level_style,
    name_of,
    query_lines,
    short_state,
    statement,
    text_line,
)
from dba_console.watch.drawing.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Table,
    TableRow,
)
from dba_console.watch.drawing.time_formats import local_date_and_time, local_time_of_day
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.locks.panel import BlockedRow, EpisodeRow, LockNode, LocksPanel
from dba_console.watch.tables import Column, cells

_WAIT_WARN_S, _WAIT_CRIT_S = 1.0, 60.0
_NOTABLE_S = 1.0
"""Time waited for a session that is named when it is over: ordinary contention is shorter."""
_DEPTH_SHOWN = 12
_NODES_SHOWN = 2000


class TreePosition(NamedTuple):
    """A node and its position: its depth, its blocker, and the tree lines in front of it."""

    depth: int
    node: LockNode
    parent: LockNode | None
    prefix: str
    """`├ ` or `└ ` after the tree lines of its ancestors; empty at a root."""
    child_prefix: str
    """Tree lines in front of the branches below it."""


def walk_trees(trees: list[LockNode]) -> Iterator[TreePosition]:
    """Yield every node, top down; without recursion, at most `_NODES_SHOWN`."""
    pending = [TreePosition(0, root, None, "", "") for root in reversed(trees)]
    shown = 0
    while pending and shown < _NODES_SHOWN:
        position = pending.pop()
        yield position
        shown += 1
        pending.extend(reversed(_waiter_positions(position)))


def _waiter_positions(position: TreePosition) -> list[TreePosition]:
    waiters, below = position.node.waiters, position.child_prefix
    # Deeper trees are cut off on the left: who waits matters more than the depth.
    below = below[-2 * _DEPTH_SHOWN :]
    return [
        TreePosition(position.depth + 1, one, position.node, below + "└ ", below + "  ")
        if one is waiters[-1]
        else TreePosition(position.depth + 1, one, position.node, below + "├ ", below + "│ ")
        for one in waiters
    ]


def blocked_elsewhere(trees: list[LockNode]) -> dict[int, list[int]]:
    """Return the blockers of sessions that are listed in another tree: blocker -> those sessions."""
    found: dict[int, list[int]] = {}
    for position in walk_trees(trees):
        for pid in position.node.also_blocked_by:
            found.setdefault(pid, []).append(position.node.pid)
    return found


def pids_text(numbers: list[int]) -> str:
    """Return up to four pids; 0 is a prepared transaction."""
    shown = ", ".join(str(pid) if pid else "a prepared transaction" for pid in numbers[:4])
    return shown if len(numbers) <= 4 else f"{shown}, …"


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    panel = frame.of(LocksPanel)
    lines: list[Line] = []
    if panel.waiting == 0 and not panel.trees:
        known = panel.status == "ok"
        lines = [
            join([text_line("no lock waits" if known else "no lock waits at the last reading", "dim"), _last(panel)])
        ]
    elif panel.waiting is not None or panel.trees:
        lines = [_summary(frame)]
        blocks = blocked_elsewhere(panel.trees)
        lines += [_node_line(position, blocks) for position in islice(walk_trees(panel.trees), max(0, height - 1))]
    return phrases.body(panel, bool(lines), lines, width, height)


def _summary(frame: Frame) -> Line:
    """`3 waiting, 42s: 8123 app alter table orders ← 8001 pg_dump`."""
    panel = frame.of(LocksPanel)
    style = (
        level_style(panel.longest_wait_s, _WAIT_WARN_S, _WAIT_CRIT_S) if panel.longest_wait_s is not None else "stale"
    )
    start = (
        Span(f"{integer(panel.waiting)} waiting", "warn" if panel.waiting else ""),
        Span(", ", "dim"),
        Span(human_duration(panel.longest_wait_s), style),
    )
    waiters = [(node, root) for node, root in _with_roots(panel.trees) if node is not root]
    if not waiters:
        return start
    node, root = max(waiters, key=lambda pair: pair[0].wait_s or 0.0)
    who = f": {_pid_text(node)} {name_of(node.user, 20)} {statement(node.query, 60)}"
    return (*start, Span(who), Span(f" ← {_pid_text(root)} {_client_name(root)}", "key"))


def _last(panel: LocksPanel) -> Line:
    """`8001 web blocked 2 for 1m24s until 14:57:29`: the root blocker of the last minutes with most time waited."""
    if not panel.episodes or panel.episodes[0].waited_s < _NOTABLE_S:
        return ()
    worst = panel.episodes[0]
    many = len(worst.waiters) + worst.other_waiters
    text = f"{_who(worst)} blocked {many} for {human_duration(worst.waited_s)} until {_until_text(worst)}"
    return text_line(text, "dim")


def _who(row: EpisodeRow) -> str:
    name = row.application or row.user
    return " ".join(filter(None, (str(row.pid) if row.pid else "prepared transaction", name and name_of(name, 24))))


def _until_text(row: EpisodeRow | BlockedRow) -> str:
    return "now" if row.until is None else local_time_of_day(row.until)


def _with_roots(trees: list[LockNode]) -> Iterator[tuple[LockNode, LockNode]]:
    root: LockNode | None = None
    for position in walk_trees(trees):
        root = position.node if position.depth == 0 or root is None else root
        yield position.node, root


def _pid_text(node: LockNode) -> str:
    return str(node.pid) if node.pid else "prepared transaction"


def _client_name(node: LockNode) -> str:
    return name_of(node.application or node.user, 24) if (node.application or node.user) else ""


def _node_line(position: TreePosition, also: dict[int, list[int]]) -> Line:
    node = position.node
    who = f"{_pid_text(node)} {_client_name(node)} "
    if position.depth == 0:
        held = join([_held_lock(node), fact("in transaction", human_duration(node.xact_s))])
        blocks: Line = (Span(f", blocks {node.behind}", level_style(node.behind, 1, 10)),) if node.behind else ()
        if others := also.get(node.pid):
            blocks = (*blocks, Span(f", also blocks {pids_text(others)}", "warn"))
        return (Span(who, "key"), *held, *blocks, Span(f": {statement(node.query, 200)}", "dim"))
    waits = Span(f"waits {human_duration(node.wait_s)} ", level_style(node.wait_s, _WAIT_WARN_S, _WAIT_CRIT_S))
    wanted = f"for {name_of(node.mode)} on {name_of(node.relation, 40)}"
    return (
        Span(position.prefix, "dim"),
        Span(who),
        waits,
        Span(wanted),
        Span(f": {statement(node.query, 200)}", "dim"),
    )


def _held_lock(node: LockNode) -> Line:
    return text_line(f"{name_of(node.state)}, holds {name_of(node.mode)} on {name_of(node.relation, 40)}")


def _known_name(field: str) -> Callable[[LockNode], str]:
    """Return what shows a name; blank if there is none, as of a prepared transaction."""

    def text(node: LockNode) -> str:
        name: str | None = getattr(node, field)
        return name_of(name) if name else ""

    return text


_COLUMNS = (
    Column("pid", "pid", 14, help="Root blocker first, its waiters below", text=_pid_text),
    Column("user", "user", 12, help="Role", text=_known_name("user"), spare=5),
    Column("database", "database", 12, text=_known_name("database"), spare=6),
    Column("application", "application", 14, text=_known_name("application")),
    Column(
        "state",
        "state",
        12,
        help="idle in transaction at a root: it waits for its client",
        text=lambda node: short_state(node.state),
    ),
    Column("wait_s", "waits", 7, right=True, help="Time it has waited"),
    Column("xact_s", "xact", 7, right=True, help="Age of its transaction", spare=4),
    Column("behind", "blocks", 6, right=True, help="Sessions below it, all levels", spare=3),
    Column("mode", "mode", 19, help="Mode it waits for; at a root: mode it holds"),
    Column("relation", "relation", 18),
    Column("query", "query", 60, grow=True),
)


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(LocksPanel)
    if panel.waiting is None and not panel.trees and not panel.episodes:
        return Detail("Locks", tuple(phrases.note_lines(panel, width)))
    head = [fact("waiting", integer(panel.waiting))]
    if panel.waiting != 0:
        head = [join([*head, fact("longest", human_duration(panel.longest_wait_s))])]
    blocks = blocked_elsewhere(panel.trees)
    rows = tuple(_node_row(position, blocks) for position in walk_trees(panel.trees))
    tables = [Table("locks", _COLUMNS, rows, None, "Lock waits", "no lock waits")]
    if panel.episodes:
        head.append(_episodes_head(panel))
        tables.append(
            Table(
                "episodes",
                _EPISODES,
                tuple(row for episode in panel.episodes for row in _episode_rows(episode)),
                None,
                "Who blocked whom, last 10 min",
            )
        )
    return Detail("Locks", phrases.head_lines(panel, head, width), tuple(tables))


def _node_row(position: TreePosition, blocks: dict[int, list[int]]) -> TableRow:
    node, parent = position.node, position.parent
    # A session blocked by two roots is listed under each, so its parent is part of the row's identity.
    key = f"{node.pid} {node.backend_start} {parent.pid if parent else ''}"
    query = statement(node.query, 300)
    if others := blocks.get(node.pid):
        # Its waiters are listed under another root: without this it seems to block no session.
        query = f"also blocks {pids_text(others)}: {query}"
    shown = {column.id: cell for column, cell in zip(_COLUMNS, cells(_COLUMNS, node), strict=True)}
    pid = position.prefix + (str(node.pid) if node.pid else "prepared")
    shown["pid"] = Cell(pid, node.pid, "" if position.depth else "key")
    shown["query"] = Cell(query, query)
    if not position.depth:
        shown["wait_s"] = Cell("")
    return TableRow(key, tuple(shown.values()), lambda: _detail_lines(node, blocks), copied=node.query)


def _detail_lines(node: LockNode, blocks: dict[int, list[int]]) -> list[Line]:
    lines = [text_line(f"connected since {local_date_and_time(node.backend_start)}")]
    lines.append(text_line(f"{name_of(node.mode)} on {name_of(node.relation, 120)}"))
    if others := blocks.get(node.pid):
        lines.append(text_line("also blocks " + pids_text(others), "warn"))
    if node.also_blocked_by:
        lines.append(text_line("also blocked by " + pids_text(node.also_blocked_by), "warn"))
    return [*lines, *query_lines(node.query, node.query_bytes)]


# Who blocked whom in the last minutes.


def _name(field: str) -> Callable[[EpisodeRow | BlockedRow], str]:
    return lambda row: name_of(name) if (name := getattr(row, field)) else ""


_EPISODES = (
    Column("pid", "pid", 12, help="Root blocker first, those that waited for it below", text=lambda row: str(row.pid)),
    Column("user", "user", 12, text=_name("user"), spare=5),
    Column("application", "application", 14, text=_name("application")),
    Column(
        "state",
        "state",
        12,
        help="In which it blocked others the longest; its statement is that of this time",
        text=lambda row: short_state(row.state),
    ),
    Column("waited_s", "waited", 7, right=True, help="Time waited, measured between readings; of a blocker: the sum"),
    Column("since", "from", 8, text=lambda row: local_time_of_day(row.since)),
    Column("until", "to", 8, help="now: it still lasts", text=_until_text),
    Column(
        "query",
        "query, or lock waited for",
        60,
        text=lambda row: statement(row.query, 300),
        grow=True,
    ),
)


def _episode_rows(episode: EpisodeRow) -> Iterator[TableRow]:
    who = f"{episode.pid} {episode.backend_start}"
    shown = _episode_cells(episode, "")
    shown["pid"] = Cell(str(episode.pid) if episode.pid else "prepared", episode.pid, "key")
    yield TableRow(who, tuple(shown.values()), lambda: _episode_lines(episode), copied=episode.query)
    for place, row in enumerate(episode.waiters, 1):
        last = place == len(episode.waiters) and not episode.other_waiters
        cells_of_row = tuple(_episode_cells(row, "└ " if last else "├ ").values())
        yield TableRow(f"{row.pid} {row.backend_start} {who}", cells_of_row, partial(_blocked_lines, row))
    if episode.other_waiters:
        others = {column.id: Cell("") for column in _EPISODES}
        others["pid"] = Cell(f"└ {episode.other_waiters} more")
        others["waited_s"] = Cell(human_duration(episode.other_waited_s), episode.other_waited_s)
        yield TableRow(f"0 None {who} others", tuple(others.values()))


def _episode_cells(row: EpisodeRow | BlockedRow, prefix: str) -> dict[str, Cell]:
    """Return the cells by column; those of fields that this row has not are empty."""
    shown = {column.id: column.cell(row) if hasattr(row, column.id) else Cell("") for column in _EPISODES}
    if isinstance(row, BlockedRow):
        shown["query"] = Cell(_lock_text(row))
    return shown | {"pid": Cell(f"{prefix}{row.pid}", row.pid)}


def _lock_text(row: BlockedRow) -> str:
    return f"{name_of(row.mode)} on {name_of(row.relation, 120)}"


def _episode_lines(row: EpisodeRow) -> list[Line]:
    many = len(row.waiters) + row.other_waiters
    lines = [
        text_line(f"connected since {local_date_and_time(row.backend_start)}, {name_of(row.database)}"),
        text_line(
            f"{many} {'session' if many == 1 else 'sessions'} waited for it from {local_date_and_time(row.since)} to "
            f"{_until_text(row)}, {human_duration(row.waited_s)} in all, as far as readings show"
        ),
    ]
    return [*lines, *query_lines(row.query, None)]


def _blocked_lines(row: BlockedRow) -> list[Line]:
    return [
        text_line(f"connected since {local_date_and_time(row.backend_start)}"),
        text_line(f"waited for {_lock_text(row)}"),
    ]


def _episodes_head(panel: LocksPanel) -> Line:
    """`waited in the last 10 min 3m12s · for sessions not listed 4.0s (2) · locks not read for 40s`."""
    total_s = sum(row.waited_s for row in panel.episodes) + (panel.other_waited_s or 0.0)
    facts = [fact("waited in the last 10 min", human_duration(total_s))]
    if panel.other_episodes:
        text = f"{human_duration(panel.other_waited_s)} ({panel.other_episodes})"
        facts.append(fact("for blockers not listed", text))
    if panel.episodes_gap_s:
        facts.append(fact("locks not read for", human_duration(panel.episodes_gap_s), "warn"))
    return join(facts)


LAYOUT = Layout(name="locks", title="Locks", key="6", compact=compact, full=full)
