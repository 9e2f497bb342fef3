"""The picture: the last two readings of every part, gathered from samples in order.

Live, paused and replayed frames are made from pictures alone, so a screen cannot tell where its samples came from.
Readings are decoded when asked for and kept: a panel that is not drawn costs nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import DecodeError

from dba_console.samples.sample import Part, Sample

T = TypeVar("T")


class PartReading:
    """One reading of a part with its times; decoded once, on demand."""

    __slots__ = ("_decoded", "_value", "boot", "damaged", "part", "wall_us")

    def __init__(self, part: Part, boot: str, wall_us: int) -> None:
        self.part = part
        self.boot = boot
        self.wall_us = wall_us
        """Wall time at which it was read, from the sample's two clocks."""
        self.damaged = False
        """It could not be decoded: another version wrote it, or the file is damaged. Known once it was asked for."""
        self._decoded = False
        self._value: Any = None

    def value(self) -> Any:
        """The reading as its struct; None where there is none or it cannot be decoded."""
        if not self._decoded:
            try:
                self._value = self.part.decode()
            except DecodeError:
                self.damaged = True
            self._decoded = True
        return self._value


class Picture:
    """What is known after a sample. `with_sample` returns a new picture; none is ever changed.

    `latest` is the newest part of each name whatever its status; `current` and `previous` are the last two that carry
    a reading, so one timeout does not lose the rate that follows it.
    """

    __slots__ = ("boot", "current", "latest", "mono_us", "previous", "seq", "settled", "step_us", "tick_us", "wall_us")

    def __init__(self) -> None:
        self.seq = 0
        self.wall_us = 0
        self.mono_us = 0
        self.boot = ""
        self.step_us = 0
        """Distance to the sample before. 0 before the second."""
        self.settled = False
        """Whether two distances were seen."""
        self.tick_us = 0
        """What a tick is here: the shortest two distances that follow each other, the longer of them. A sample has the
        time of its tick's end, so after one that took long the next comes soon. 0 before the second sample."""
        self.latest: dict[str, PartReading] = {}
        self.current: dict[str, PartReading] = {}
        self.previous: dict[str, PartReading] = {}

    def with_sample(self, sample: Sample) -> Picture:
        """The picture after `sample`. Parts older than what is known (a key sample's repeats) change nothing.

        A sample of another agent run (its `boot` differs) starts with no previous readings: counters and clocks of two
        runs are not subtracted from each other.
        """
        picture = Picture()
        picture.seq, picture.wall_us, picture.mono_us = sample.seq, sample.wall_us, sample.mono_us
        picture.boot = sample.boot
        if sample.boot == self.boot:
            picture.step_us = max(0, sample.mono_us - self.mono_us)
            picture.tick_us = self._tick_length(picture.step_us)
            picture.settled = self.settled or bool(picture.step_us and self.step_us)
            picture.latest = dict(self.latest)
            picture.current = dict(self.current)
            picture.previous = dict(self.previous)
        for part in sample.parts:
            picture._add_part(part, sample)
        return picture

    def _tick_length(self, step_us: int) -> int:
        """What a tick is, after one more distance."""
        if not step_us or not self.step_us:
            return self.tick_us or step_us
        longer_us = max(step_us, self.step_us)
        return min(longer_us, self.tick_us) if self.settled else longer_us

    def _add_part(self, part: Part, sample: Sample) -> None:
        known = self.latest.get(part.name)
        if known is not None and known.part.at_us >= part.at_us:
            return
        reading = PartReading(part, sample.boot, sample.wall_us - (sample.mono_us - part.at_us))
        self.latest[part.name] = reading
        if part.reading is not None:
            if part.name in self.current:
                self.previous[part.name] = self.current[part.name]
            self.current[part.name] = reading

    def now(self, name: str, kind: type[T]) -> T | None:
        """The newest reading of the part, None where there is none."""
        reading = self.current.get(name)
        value = None if reading is None else reading.value()
        return value if isinstance(value, kind) else None

    def before(self, name: str, kind: type[T]) -> T | None:
        """The reading before it, None on the first tick."""
        reading = self.previous.get(name)
        value = None if reading is None else reading.value()
        return value if isinstance(value, kind) else None

    def without(self, prefix: str) -> Picture:
        """The picture without the parts whose name begins so."""
        picture = Picture()
        picture.seq, picture.wall_us, picture.mono_us = self.seq, self.wall_us, self.mono_us
        picture.boot, picture.tick_us, picture.step_us = self.boot, self.tick_us, self.step_us
        picture.settled = self.settled
        picture.latest = {name: part for name, part in self.latest.items() if not name.startswith(prefix)}
        picture.current = {name: part for name, part in self.current.items() if not name.startswith(prefix)}
        picture.previous = {name: part for name, part in self.previous.items() if not name.startswith(prefix)}
        return picture

    def elapsed_s(self, name: str) -> float | None:
        """Seconds between the last two readings of the part, None where there are not two."""
        new, old = self.current.get(name), self.previous.get(name)
        if new is None or old is None:
            return None
        return (new.part.at_us - old.part.at_us) / 1e6

    def age_s(self, name: str) -> float | None:
        """How old the newest reading is at the time of the sample, in seconds."""
        reading = self.current.get(name)
        return None if reading is None else max(0.0, (self.mono_us - reading.part.at_us) / 1e6)
