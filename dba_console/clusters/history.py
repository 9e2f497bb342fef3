"""How long a cluster has been ready for a cutover, or since when not: 0600 in the state directory, never trusted.

Kept are changes, not checks: an answer like the one before only moves the time up to which it is known to hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from dba_console.clusters.checks import Check
from dba_console.clusters.node import NodeState
from dba_console.clusters.seen import load_file, save_file, state_file
from dba_console.clusters.survey import Survey

FORMAT = 1
MOST = 200
"""Changes that are kept."""


class Spell(Struct, frozen=True, kw_only=True):
    """A time with one answer. Wall time in microseconds since 1970."""

    from_us: int
    to_us: int
    """When it was seen last."""
    ready: bool
    why: dict[str, str] = {}
    """What stood against it at first: text by the condition's id. A number that moves makes no new spell."""
    changed: tuple[str, ...] = ()
    """What differed between the check before and the first of these: `db2 max_connections 250 → 200`."""


class History(Struct, frozen=True, kw_only=True):
    """All of one cluster and target node, oldest first."""

    cluster: str
    to: str
    spells: tuple[Spell, ...] = ()
    facts: dict[str, str] = {}
    """What the last check saw, by `facts_of`."""
    version: int = FORMAT


def load(cluster: str, to: str) -> History:
    """What is kept; empty where nothing is, or nothing that can be read."""
    kept = load_file(state_file(cluster, to), History)
    good = kept is not None and (kept.version, kept.cluster, kept.to) == (FORMAT, cluster, to)
    return kept if kept is not None and good else History(cluster=cluster, to=to)


def facts_of(found: Survey) -> dict[str, str]:
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


def after(known: History, checks: Sequence[Check], ready: bool, facts: dict[str, str], at_us: int) -> History:
    """The history with one more answer."""
    why = {one.id: one.text for one in checks if one.state in ("failed", "unknown")}
    last = known.spells[-1] if known.spells else None
    if last is not None and last.ready == ready and last.why.keys() == why.keys() and last.to_us <= at_us:
        same = msgspec.structs.replace(last, to_us=at_us)
        return msgspec.structs.replace(known, spells=(*known.spells[:-1], same), facts=facts)
    new = Spell(from_us=at_us, to_us=at_us, ready=ready, why=why, changed=tuple(_changes(known.facts, facts)))
    return msgspec.structs.replace(known, spells=(*known.spells, new)[-MOST:], facts=facts)


def _changes(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            yield f"{name} {before[name] or '(none)'} → {now[name] or '(none)'}"


def since(known: History) -> Spell | None:
    """Return the first answer since which it is as ready, or as little, as now; None where nothing is known."""
    found = None
    for spell in reversed(known.spells):
        if spell.ready != known.spells[-1].ready:
            break
        found = spell
    return found


def save(known: History) -> None:
    """Keep it in place of what was. Raises OSError or ConsoleError; what was is then as it was."""
    save_file(state_file(known.cluster, known.to), known)
