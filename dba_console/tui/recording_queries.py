"""What can be asked of a recording. The answers are moments; archive.py gives them, feed.py carries them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AtTime:
    """The moment at a wall time."""

    wall_us: int
    since_us: int | None = None
    """Playing: points up to here are at hand, only later ones are wanted."""


@dataclass(frozen=True, slots=True)
class NextSample:
    """The sample after (+1) or before (-1)."""

    from_us: int
    direction: int


@dataclass(frozen=True, slots=True)
class NextNotable:
    """The mark, note, finding or trouble after (+1) or before (-1)."""

    from_us: int
    direction: int


@dataclass(frozen=True, slots=True)
class RecordingEdge:
    """The start (-1) or the end (+1) of the recording."""

    direction: int


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A TIME as the operator wrote it."""

    text: str
    now_us: int | None = None
    """What `-10m` counts from; None: the end of the recording."""


RecordingQuery = AtTime | NextSample | NextNotable | RecordingEdge | NamedTime
