"""How long a cluster has been ready for a cutover, or since when not: 0600 in the state directory, never trusted.

Kept are changes, not checks: an answer like the one before only moves the time up to which it is known to hold.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from dba_console import paths
from dba_console.clusters.checks import Check
from dba_console.keeping.files import write_whole
from dba_console.records import from_json

FORMAT = 1
MOST = 200
"""Changes that are kept."""
_LIMIT = 1 << 20


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
    try:
        descriptor = os.open(_file(cluster, to), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            kept = from_json(file.read(_LIMIT), History)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return History(cluster=cluster, to=to)
    return kept if (kept.version, kept.cluster, kept.to) == (FORMAT, cluster, to) else History(cluster=cluster, to=to)


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
    path = _file(known.cluster, known.to)
    paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    write_whole(str(path.parent), path.name, msgspec.json.encode(known))


def _file(cluster: str, to: str) -> Path:
    """Names of clusters and nodes are the operator's, and need not be names of files."""
    key = hashlib.sha256(f"{cluster}\0{to}".encode(errors="surrogateescape")).hexdigest()[:16]
    return paths.state_dir() / "clusters" / f"{key}.json"
