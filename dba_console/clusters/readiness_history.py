"""How long a cluster has been ready for a cutover, or since when not: 0600 in the state directory, never trusted.

Kept are changes, not checks: an answer like the one before only moves the time up to which it is known to hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from dba_console.clusters.cluster_check import ClusterCheck
from dba_console.clusters.last_primary import load_file, save_file, state_file
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.survey import Survey

FORMAT = 1
MOST = 200
"""Changes that are kept."""


class ReadinessPeriod(Struct, frozen=True, kw_only=True):
    """A time with one answer. Wall time in microseconds since 1970."""

    from_us: int
    to_us: int
    """When it was seen last."""
    ready: bool
    obstacles: dict[str, str] = {}
    """What stood against it at first: text by the condition's id. A number that moves makes no new spell."""
    changed: tuple[str, ...] = ()
    """What differed between the check before and the first of these: `db2 max_connections 250 → 200`."""


class ReadinessHistory(Struct, frozen=True, kw_only=True):
    """All of one cluster and target node, oldest first."""

    cluster: str
    to: str
    periods: tuple[ReadinessPeriod, ...] = ()
    facts: dict[str, str] = {}
    """What the last check saw, by `facts_of`."""
    version: int = FORMAT


def load_history(cluster: str, to: str) -> ReadinessHistory:
    """What is kept; empty where nothing is, or nothing that can be read."""
    stored = load_file(state_file(cluster, to), ReadinessHistory)
    is_same_target = stored is not None and (stored.version, stored.cluster, stored.to) == (FORMAT, cluster, to)
    return stored if stored is not None and is_same_target else ReadinessHistory(cluster=cluster, to=to)


def comparable_facts(found: Survey) -> dict[str, str]:
    """Return what is kept of each node and pooler to compare the next check with: what changes by hand, no counters."""
    facts: dict[str, str] = {}
    for node in found.nodes:
        facts[f"{node.name} answers"] = "yes" if node.reached else "no"
        if not node.reached:
            continue
        facts |= {f"{node.name} {name}": value for name, value in node.settings.items()}
        facts |= {
            f"{node.name} role": node.role or "",
            f"{node.name} version": node.version,
            f"{node.name} timeline": str(node.timeline),
            f"{node.name} replay": "paused" if node.replay_paused else "running",
            f"{node.name} WAL receiver": str((node.receiver or {}).get("status")),
            f"{node.name} archive": "failing" if (node.archive or {}).get("failing") else "working",
            f"{node.name} logical slots": _slots(node),
        }
    for pooler in found.poolers:
        facts[f"{pooler.name} answers"] = "yes" if pooler.reached else "no"
        for one in pooler.databases:
            facts[f"{pooler.name} {one.name} mode"] = one.mode or ""
            facts[f"{pooler.name} {one.name} paused"] = "yes" if one.paused else "no"
    return facts


def _slots(node: NodeState) -> str:
    return ", ".join(one["name"] for one in node.slots or () if one["kind"] == "logical")


def add_check(
    history: ReadinessHistory, checks: Sequence[ClusterCheck], ready: bool, facts: dict[str, str], at_us: int
) -> ReadinessHistory:
    """The history with one more answer."""
    obstacles = {one.id: one.text for one in checks if one.state in ("failed", "unknown")}
    last = history.periods[-1] if history.periods else None
    if last is not None and last.ready == ready and last.obstacles.keys() == obstacles.keys() and last.to_us <= at_us:
        same = msgspec.structs.replace(last, to_us=at_us)
        return msgspec.structs.replace(history, periods=(*history.periods[:-1], same), facts=facts)
    new = ReadinessPeriod(
        from_us=at_us, to_us=at_us, ready=ready, obstacles=obstacles, changed=tuple(changed_facts(history.facts, facts))
    )
    return msgspec.structs.replace(history, periods=(*history.periods, new)[-MOST:], facts=facts)


def changed_facts(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            yield f"{name} {before[name] or '(none)'} → {now[name] or '(none)'}"


def ready_since(history: ReadinessHistory) -> ReadinessPeriod | None:
    """Return the first answer since which it is as ready, or as little, as now; None where nothing is known."""
    found = None
    for period in reversed(history.periods):
        if period.ready != history.periods[-1].ready:
            break
        found = period
    return found


def save_history(history: ReadinessHistory) -> None:
    """Keep it in place of what was. Raises OSError or ConsoleError; what was is then as it was."""
    save_file(state_file(history.cluster, history.to), history)
