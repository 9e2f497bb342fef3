"""How long a cluster has been ready for a cutover, or since when not: 0600 in the state directory, never trusted.

Kept are changes, not checks: an answer like the one before only moves the time up to which it is known to hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dba_console.clusters.checks import Check
from dba_console.clusters.seen import load_file, save_file, state_file

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


class History(Struct, frozen=True, kw_only=True):
    """All of one cluster and target node, oldest first."""

    cluster: str
    to: str
    spells: tuple[Spell, ...] = ()
    version: int = FORMAT


def load(cluster: str, to: str) -> History:
    """What is kept; empty where nothing is, or nothing that can be read."""
    kept = load_file(state_file(cluster, to), History)
    good = kept is not None and (kept.version, kept.cluster, kept.to) == (FORMAT, cluster, to)
    return kept if kept is not None and good else History(cluster=cluster, to=to)


def after(known: History, checks: Sequence[Check], ready: bool, at_us: int) -> History:
    """The history with one more answer."""
    why = {one.id: one.text for one in checks if one.state in ("failed", "unknown")}
    last = known.spells[-1] if known.spells else None
    if last is not None and last.ready == ready and last.why.keys() == why.keys() and last.to_us <= at_us:
        same = msgspec.structs.replace(last, to_us=at_us)
        return msgspec.structs.replace(known, spells=(*known.spells[:-1], same))
    new = Spell(from_us=at_us, to_us=at_us, ready=ready, why=why)
    return msgspec.structs.replace(known, spells=(*known.spells, new)[-MOST:])


def since_us(known: History) -> int | None:
    """Since when it has been as ready, or as little, as it was seen last; None where nothing is known."""
    found = None
    for spell in reversed(known.spells):
        if spell.ready != known.spells[-1].ready:
            break
        found = spell.from_us
    return found


def save(known: History) -> None:
    """Keep it in place of what was. Raises OSError or ConsoleError; what was is then as it was."""
    save_file(state_file(known.cluster, known.to), known)
