"""A segment of a block read back: its ticks, and the picture at any of them.

Ticks are decoded from the first onwards as far as asked for and kept; readings stay trees that share what did not
change, and only those a picture needs are encoded again.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from dba_console.decoding import packed_decoder
from dba_console.frames.picture import Picture
from dba_console.samples.sample import Part, Sample
from dba_console.session.damage import Damaged
from dba_console.session.treereader import TreeReader
from dba_console.session.varint import take

_encode = msgspec.msgpack.Encoder().encode
_names = packed_decoder(list[str]).decode


class _Stored(NamedTuple):
    """A part whose reading is still a tree."""

    name: str
    head: list[Any]
    at_us: int
    tree: Any

    def part(self) -> Part:
        status, note, _, took_us, has_reading = self.head
        raw = None
        if has_reading:
            try:
                raw = Raw(self.tree if type(self.tree) is bytes else _encode(self.tree))
            except (OverflowError, RecursionError) as error:
                # Differences that were changed add up to what no reading holds.
                raise Damaged(f"a reading of the recording cannot be made again: {error}") from error
        return Part(self.name, status, note, self.at_us, took_us, raw)


class _Tick(NamedTuple):
    seq: int
    wall_us: int
    mono_us: int
    boot: str
    parts: list[_Stored]

    def sample(self, keep: set[int] | None = None) -> Sample:
        """The tick as a sample, with the parts in `keep` (by identity) or all."""
        parts = [part.part() for part in self.parts if keep is None or id(part) in keep]
        return Sample(self.seq, self.wall_us, self.mono_us, parts, self.boot)


class SegmentReader:
    """One segment; `samples` is how many it holds. Everything may raise Damaged."""

    def __init__(self, payload: bytes, samples: int) -> None:
        self._samples = samples
        try:
            self._tree = TreeReader(*_streams(payload))
            self._ticks_column = self._tree.child(self._tree.root, "ticks")
            self._names_column = self._tree.child(self._tree.root, "names")
        except (IndexError, ValueError, struct.error) as error:
            raise Damaged(f"a block of the recording cannot be read: {error}") from error
        self._tick: Any = None
        self._ticks: list[_Tick] = []
        self._parts: dict[str, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return self._samples

    def sample(self, index: int) -> Sample:
        """The sample as it was recorded."""
        return self._at(index).sample()

    def wall_us(self, index: int) -> int:
        """The wall time of a tick."""
        return self._at(index).wall_us

    def picture(self, index: int) -> Picture:
        """What was known at that tick: the last two readings of every part. Raises Damaged."""
        self._at(index)
        ticks = self._ticks[: index + 1]
        keep = _needed(ticks)
        picture = Picture()
        for tick in ticks[:-1]:
            picture = picture.with_sample(tick.sample(keep))
        return picture.with_sample(ticks[-1].sample(keep))

    def _at(self, index: int) -> _Tick:
        try:
            while len(self._ticks) <= index:
                self._ticks.append(self._next())
        except (LookupError, ValueError, TypeError, AttributeError, struct.error, msgspec.DecodeError) as error:
            raise Damaged(f"a block of the recording cannot be read: {type(error).__name__}") from error
        return self._ticks[index]

    def _next(self) -> _Tick:
        tree = self._tree
        tick = self._tick = tree.read(self._ticks_column, self._tick, 0)
        seq, wall_us, offset, boot = tick
        mono_us = wall_us - offset
        names = _names(tree.read(self._names_column, None, 0))
        return _Tick(seq, wall_us, mono_us, boot, [self._stored(name, wall_us, mono_us) for name in names])

    def _stored(self, name: str, wall_us: int, mono_us: int) -> _Stored:
        tree = self._tree
        head, reading = self._parts.get(name, (None, None))
        head = tree.read(tree.child(tree.root, name + "/head"), head, 0)
        if head[4]:
            reading = tree.read(tree.child(tree.root, name + "/reading"), reading, wall_us)
        self._parts[name] = (head, reading)
        return _Stored(name, head, mono_us - head[2], reading if head[4] else None)


def _needed(ticks: list[_Tick]) -> set[int]:
    """The parts (by identity) that a picture of the last tick is made of: newest of each name, and its two readings."""
    keep: set[int] = set()
    newest: dict[str, int] = {}
    readings: dict[str, list[int]] = {}
    boot = ticks[-1].boot
    for tick in ticks:
        if tick.boot != boot:
            newest, readings = {}, {}
            continue
        for part in tick.parts:
            latest = newest.get(part.name)
            if latest is None or latest < part.at_us:
                newest[part.name] = part.at_us
    for tick in reversed(ticks):
        if tick.boot != boot:
            break
        for part in reversed(tick.parts):
            if part.at_us == newest[part.name]:
                keep.add(id(part))
            if part.head[4]:
                times = readings.setdefault(part.name, [])
                if len(times) < 2 and part.at_us not in times:
                    times.append(part.at_us)
                    keep.add(id(part))
    return keep


def _streams(payload: bytes) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """The columns and the strings of a payload."""
    count, at = take(payload, 0)
    sizes: list[tuple[int, int]] = []
    for _ in range(count):
        tags_size, at = take(payload, at)
        data_size, at = take(payload, at)
        sizes.append((tags_size, data_size))
    count, at = take(payload, at)
    lengths: list[int] = []
    for _ in range(count):
        length, at = take(payload, at)
        lengths.append(length)
    tags_at, data_at = at, at + sum(size for size, _ in sizes)
    columns = []
    for tags_size, data_size in sizes:
        columns.append((payload[tags_at : tags_at + tags_size], payload[data_at : data_at + data_size]))
        tags_at, data_at = tags_at + tags_size, data_at + data_size
    strings = []
    for length in lengths:
        strings.append(payload[data_at : data_at + length])
        data_at += length
    return columns, strings
