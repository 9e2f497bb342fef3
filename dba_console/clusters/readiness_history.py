"""History of a cluster's readiness for a cutover: since when it has been ready, or not, and what changed.

Mode 0600 in the state directory; the content is never trusted. Only changes are stored: a check with the same result
extends the last period.
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
"""Maximum number of periods."""


class ReadinessPeriod(Struct, frozen=True, kw_only=True):
    """A period with one result. Wall time in microseconds since 1970."""

    from_us: int
    to_us: int
    """Last check with this result."""
    ready: bool
    obstacles: dict[str, str] = {}
    """Check id -> text of the obstacles at the first check. A changed number alone starts no new period."""
    changed: tuple[str, ...] = ()
    """Differences between the previous check and the first of this period: `db2 max_connections 250 → 200`."""


class ReadinessHistory(Struct, frozen=True, kw_only=True):
    """All periods of one cluster and target node, oldest first."""

    cluster: str
    to: str
    periods: tuple[ReadinessPeriod, ...] = ()
    facts: dict[str, str] = {}
    """Facts of the last check, from `comparable_facts`."""
    version: int = FORMAT


def load_history(cluster: str, to: str) -> ReadinessHistory:
    """Return the stored history; empty if missing or unreadable."""
    stored = load_file(state_file(cluster, to), ReadinessHistory)
    is_same_target = stored is not None and (stored.version, stored.cluster, stored.to) == (FORMAT, cluster, to)
    return stored if stored is not None and is_same_target else ReadinessHistory(cluster=cluster, to=to)


def comparable_facts(found: Survey) -> dict[str, str]:
    """Return facts of nodes and pooler to compare with the next check: values that operators change, no counters."""
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
    """Return the history with one more check."""
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
    """Return the first of the latest periods with the current result (ready or not); None: no history."""
    found = None
    for period in reversed(history.periods):
        if period.ready != history.periods[-1].ready:
            break
        found = period
    return found


def save_history(history: ReadinessHistory) -> None:
    """Save it atomically. Raises OSError or ConsoleError."""
    save_file(state_file(history.cluster, history.to), history)
