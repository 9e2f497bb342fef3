"""What goes over the wire and what comes back: commands between two syncs, and their answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dba_console.probes.postgres.binary_results import Row


@dataclass(frozen=True, slots=True)
class Command:
    """One statement. `name` is what it is prepared as."""

    name: str
    sql: bytes
    params: tuple[bytes | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """Commands between two syncs: one implicit transaction, one answer. `key` comes back with it."""

    key: str
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class ServerError:
    """What the server said of a failed command."""

    sqlstate: str
    message: str


@dataclass(slots=True)
class SegmentAnswer:
    """The rows of each command of a segment, or the error that ended it."""

    key: str
    rows: list[list[Row]] = field(default_factory=list)
    error: ServerError | None = None
    at_us: int = 0
    took_us: int = 0
    """From the answer before it, or from when it was sent: the server works one after the other."""


def rows_of(answer: SegmentAnswer, index: int = 0) -> Sequence[Row]:
    """The rows of the command at `index`, none where it gave none."""
    return answer.rows[index] if index < len(answer.rows) else ()
