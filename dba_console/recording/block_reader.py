"""Decode a sealed block. Only the segments that are needed are decoded."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from dba_console.core.decoding import packed_decoder
from dba_console.recording import block_format
from dba_console.recording.block_format import Damaged, take, unpack
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.sample import Part, Sample

# The inverse of TreeWriter: decode columns into readings, in the order they were written.
#
# Trees share unchanged parts and are immutable. A damaged block raises IndexError, KeyError, ValueError or TypeError,
# which the block converts to Damaged.

_unpack_float = struct.Struct("<d").unpack_from
_decode = msgspec.msgpack.decode


class ColumnReader:
    """A stream being read."""

    __slots__ = ("at", "children", "data", "known", "last", "order", "tag_at", "tags")

    def __init__(self, tags_: bytes, data: bytes) -> None:
        self.tags = tags_
        self.data = data
        self.tag_at = 0
        self.at = 0
        self.last = 0
        self.children: dict[object, ColumnReader] = {}
        self.known: list[Any] = []
        self.order: list[int] = []

    def tag(self) -> int:
        at = self.tag_at
        self.tag_at = at + 1
        return self.tags[at]

    def number(self) -> int:
        byte = self.data[self.at]
        if byte < 128:  # the usual case, and this is where reading spends its time
            self.at += 1
            return byte
        number, self.at = take(self.data, self.at)
        return number

    def signed(self) -> int:
        folded = self.number()
        return folded >> 1 if not folded & 1 else -((folded + 1) >> 1)


class TreeReader:
    """The columns of one block while they are read from the start."""

    def __init__(self, streams: list[tuple[bytes, bytes]], strings: list[bytes]) -> None:
        self._streams = iter(streams)
        self._strings = strings
        self._texts: dict[int, str] = {}
        self._stamp = 0
        self.root = self._next()

    def _next(self) -> ColumnReader:
        try:
            return ColumnReader(*next(self._streams))
        except StopIteration:
            raise ValueError("a column is missing") from None

    def child(self, column: ColumnReader, key: object) -> ColumnReader:
        found = column.children.get(key)
        if found is None:
            found = column.children[key] = self._next()
        return found

    def read(self, column: ColumnReader, old: Any, stamp: int) -> Any:
        """Return the next value of `column`; `old` is the previous one."""
        self._stamp = stamp
        return self._value(column, old)

    def _value(self, column: ColumnReader, old: Any) -> Any:
        tag = column.tags[column.tag_at]
        column.tag_at += 1
        if block_format.INT_OLD <= tag <= block_format.INT_KB:
            return self._int(column, tag, old)
        if tag <= block_format.TRUE:
            return None if tag == block_format.NONE else tag == block_format.TRUE
        if tag == block_format.TEXT:
            return self._text(column.number())
        if tag == block_format.SAME:
            return old
        if tag == block_format.STRUCT:
            return self._masked(column, list(old))
        if tag == block_format.LIST:
            return [self._value(self.child(column, index), None) for index in range(column.number())]
        if tag == block_format.TABLE:
            return self._table(column)
        if tag == block_format.FLOAT_MILLI:
            return self._milli(column, old)
        if tag == block_format.FLOAT:
            value: float = _unpack_float(column.data, column.at)[0]
            column.at += 8
            return value
        if tag == block_format.BLOB:
            return self._strings[column.number()]
        if tag == block_format.PACKED:
            return _decode(self._strings[column.number()])
        return self._map(column, tag, old)

    def _int(self, column: ColumnReader, tag: int, old: Any) -> int:
        delta = column.signed()
        if tag == block_format.INT_OLD:
            value: int = old + delta
        elif tag == block_format.INT_LAST:
            value = column.last + delta
        elif tag == block_format.INT_STAMP:
            value = self._stamp + delta
        else:
            value = old + (delta << 10)
        if value >= block_format.STAMP_FROM:
            self._stamp = value
        column.last = value
        return value

    def _milli(self, column: ColumnReader, old: Any) -> float:
        milli = column.signed()
        if type(old) is float:
            milli += block_format.milli(old) or 0
        return milli / block_format.THOUSAND

    def _text(self, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = self._strings[number].decode("utf-8", "surrogatepass")
        return text

    def _masked(self, column: ColumnReader, values: list[Any]) -> list[Any]:
        mask, children = column.number(), column.children
        while mask:
            index = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            child = children.get(index) or self.child(column, index)
            if child.tags[child.tag_at] != block_format.INT_OLD:
                values[index] = self._value(child, values[index])
                continue
            # Most changed fields are small number differences: decoded inline to save a call.
            child.tag_at += 1
            folded = child.data[child.at]
            if folded < 128:
                child.at += 1
            else:
                folded = child.number()
            value = values[index] + (folded >> 1 if not folded & 1 else -((folded + 1) >> 1))
            if value >= block_format.STAMP_FROM:
                self._stamp = value
            child.last = values[index] = value
        return values

    def _map(self, column: ColumnReader, tag: int, old: Any) -> dict[str, Any]:
        if tag == block_format.MAP:
            return dict(zip(old, self._masked(column, list(old.values())), strict=True))
        if tag != block_format.NEW_MAP:
            raise ValueError(f"unknown tag {tag}")
        keys = self.child(column, "keys")
        keys.tag()
        names = _decode(self._strings[keys.number()], type=list[str])
        return {name: self._value(self.child(column, index), None) for index, name in enumerate(names)}

    def _table(self, column: ColumnReader) -> list[list[Any]]:
        numbers = self._row_order(self.child(column, "order"), column)
        places, cells = self.child(column, "places"), self.child(column, "rows")
        known, place, stamp = column.known, 0, self._stamp
        for _ in range(places.number()):
            place += places.number()
            self._stamp = stamp
            number = numbers[place]
            known[number] = self._value(cells, known[number])
            place += 1
        self._stamp = stamp
        return [known[number] for number in numbers]

    def _row_order(self, column: ColumnReader, table: ColumnReader) -> list[int]:
        if column.tag() == block_format.SAME:
            return table.order
        numbers, expected = [], 0
        for _ in range(column.number()):
            number = expected + column.signed()
            numbers.append(number)
            expected = number + 1
        if numbers:
            if min(numbers) < 0 or max(numbers) >= len(table.known) + len(numbers):
                raise ValueError("a row has an impossible number")
            table.known.extend([None] * (max(numbers) + 1 - len(table.known)))
        table.order = numbers
        return numbers


# Decode a segment of a block: its ticks, and the picture at any of them.
#
# Ticks are decoded from the first one as far as needed and kept; readings stay trees that share unchanged parts, and
# only those that a picture needs are encoded again.

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
                # Changed differences add up to an invalid reading.
                raise Damaged(f"cannot decode a reading of the recording: {error}") from error
        return Part(self.name, status, note, self.at_us, took_us, raw)


class _Tick(NamedTuple):
    seq: int
    wall_us: int
    mono_us: int
    boot: str
    parts: list[_Stored]

    def sample(self, keep: set[int] | None = None) -> Sample:
        """Return the tick as a sample, with the parts in `keep` (by identity) or all."""
        parts = [part.part() for part in self.parts if keep is None or id(part) in keep]
        return Sample(self.seq, self.wall_us, self.mono_us, parts, self.boot)


class SegmentReader:
    """One segment; `samples` is its number of samples. Every method may raise Damaged."""

    def __init__(self, payload: bytes, samples: int) -> None:
        self._samples = samples
        try:
            self._tree = TreeReader(*_streams(payload))
            self._ticks_column = self._tree.child(self._tree.root, "ticks")
            self._names_column = self._tree.child(self._tree.root, "names")
        except (IndexError, ValueError, struct.error) as error:
            raise Damaged(f"cannot decode a block of the recording: {error}") from error
        self._tick: Any = None
        self._ticks: list[_Tick] = []
        self._parts: dict[str, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return self._samples

    def sample(self, index: int) -> Sample:
        """Return the sample as it was recorded."""
        return self._at(index).sample()

    def wall_us(self, index: int) -> int:
        """Return the wall time of a tick."""
        return self._at(index).wall_us

    def picture(self, index: int) -> Picture:
        """Return the picture at that tick: the last two readings of every part. Raises Damaged."""
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
            raise Damaged(f"cannot decode a block of the recording: {type(error).__name__}") from error
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
    """Return the parts (by identity) of the picture at the last tick: the newest of each name, and its two readings."""
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
    """Return the columns and the strings of a payload."""
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


DECODED = 24
"""Bytes of memory per byte of payload, measured with tracemalloc on a minute of 220 sessions (1.8 MB)."""


class BlockReader:
    """One block. Raises Damaged immediately if its checksum does not match, or later if its content is invalid."""

    def __init__(self, block: bytes) -> None:
        self.head, payload = unpack(block)
        self.weight = DECODED * len(payload)
        """Approximate bytes of memory when all of it is decoded."""
        self._firsts: list[int] = []
        """Wall time of the start of each segment."""
        self._segments: list[SegmentReader] = []
        try:
            self._divide(payload)
        except IndexError as error:
            raise Damaged("cannot decode a block of the recording: truncated segments") from error

    def _divide(self, payload: bytes) -> None:
        count, at = take(payload, 0)
        sizes: list[tuple[int, int]] = []
        for _ in range(count):
            samples, at = take(payload, at)
            offset_us, at = take(payload, at)
            size, at = take(payload, at)
            self._firsts.append(self.head.first_us + offset_us)
            sizes.append((samples, size))
        for samples, size in sizes:
            self._segments.append(SegmentReader(payload[at : at + size], samples))
            at += size
        if sum(samples for samples, _ in sizes) != self.head.samples or not sizes:
            raise Damaged("cannot decode a block of the recording: missing samples")

    def __len__(self) -> int:
        return self.head.samples

    def samples(self) -> list[Sample]:
        """Yield every sample as it was recorded."""
        return [segment.sample(index) for segment in self._segments for index in range(len(segment))]

    def walls(self) -> list[int]:
        """Return the wall time of every tick."""
        return [segment.wall_us(index) for segment in self._segments for index in range(len(segment))]

    def index_at(self, wall_us: int) -> int:
        """Return the last tick not after `wall_us`, -1 if all are. Decodes no further than needed."""
        before = 0
        for number, segment in enumerate(self._segments):
            last = number + 1 == len(self._segments)
            if last or self._firsts[number + 1] > wall_us:
                for index in range(len(segment)):
                    if segment.wall_us(index) > wall_us:
                        return before + index - 1
                return before + len(segment) - 1
            before += len(segment)
        return -1

    def picture(self, index: int) -> Picture:
        """Return the picture at that tick: the last two readings of every part."""
        for segment in self._segments:
            if index < len(segment):
                return segment.picture(index)
            index -= len(segment)
        raise Damaged("a block of the recording has no such sample")
