"""The interface of what the collector reads each tick (server, host, cluster, jobs), and the schedule of its parts.

A source starts its reads and returns what arrived in time; what may hang runs in lanes, so no source blocks the tick.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any

from dba_console.watch.probes.deadline_lane import PolledCall
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import PARTS, Part


class TickSource(ABC):
    """In each tick `begin` is called for all sources in turn, then `finish`. Used by the tick only."""

    def __init__(self, *calls: PolledCall[Any]) -> None:
        """`calls`: its calls in lanes."""
        self._calls = calls

    def begin(self, due: Collection[str]) -> None:  # noqa: B027 - only some sources start their reads here
        """Start to read the parts in `due`, without waiting. A source that depends on the others starts in `finish`."""

    @abstractmethod
    def finish(self, until_us: int) -> list[Part]:
        """Return the parts of this tick. Waits until monotonic `until_us`, or for as long as its own limits say."""

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        return []

    @property
    def stuck(self) -> list[str]:
        """Names of the lanes that hang."""
        return [call.lane.name for call in self._calls if call.stuck]

    def close(self) -> None:
        """Close connections and end idle lanes; a read that hangs ends with the process."""
        for call in self._calls:
            call.close()


# The parts that are due at a tick. Pure arithmetic on tick numbers.


def due_parts(names: Iterable[str], tick: int, interval_s: float) -> list[str]:
    """Return those of `names` to be read at `tick` (counted from 0, where all are).

    Slow parts are spread over the ticks of their period, so that no single tick reads all of them.

    >>> due_parts(["pg.activity", "pg.sizes"], 0, 1.0), due_parts(["pg.activity", "pg.sizes"], 1, 1.0)
    (['pg.activity', 'pg.sizes'], ['pg.activity'])
    """
    if tick == 0:
        return list(names)
    return [name for name in names if (tick + _PHASES[name]) % _period(name, interval_s) == 0]


def _period(name: str, interval_s: float) -> int:
    return max(1, round(PARTS[name].every_s / interval_s))


_PHASES = {name: index for index, name in enumerate(PARTS)}
