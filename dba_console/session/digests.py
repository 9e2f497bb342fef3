"""Digests of what a session holds beside its events: heartbeats and its end carry them into the chain of events.

Blocks are named one by one, with their line of the index and their chart values. Gaps and lines of output are only ever
added to: for each of the two one running digest is carried, with the number of rows it covers. What the session says of
itself is in its first event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

DIGEST_EVENTS = ("heartbeat", "session.end")
START, END = "session.start", "session.end"
_canonical = msgspec.json.Encoder(order="deterministic").encode


class RunningDigest(NamedTuple):
    """The digest of so many rows, in the order they were written."""

    rows: int = 0
    head: str = ""

    def after(self, rows: Iterable[Sequence[object]]) -> RunningDigest:
        """The digest when these are added."""
        count, head = self
        for row in rows:
            count, head = count + 1, hashlib.sha256(head.encode() + _canonical(list(row))).hexdigest()
        return RunningDigest(count, head)


def digest(block: bytes) -> str:
    """What stands for a block in the chain: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(block).hexdigest()[:16]


def index_digest(entry: Sequence[int], points: bytes) -> str:
    """The same for a line of the index of blocks with the chart values of that block."""
    return digest(_canonical(list(entry)) + points)


def meta_digest(values: Mapping[str, object]) -> str:
    """The same for what the session says of itself; the note on its end is not part of it."""
    return digest(
        _canonical({key: str(value) for key, value in values.items() if key != "closed" and value is not None})
    )
