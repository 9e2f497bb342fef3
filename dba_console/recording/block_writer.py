"""Encode samples into a block of a recording.

Samples are reduced to their changes when they are added, so sealing is only the compression. A sealed block can be read
without earlier blocks, and each of its segments without earlier segments, which halves the time of a seek; because the
block is compressed as a whole, repeating the start of a segment costs almost nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from dba_console.recording import block_format
from dba_console.recording.block_format import LEVEL, SEGMENT_SAMPLES, BlockHead, pack, put, put_signed
from dba_console.watch.samples.sample import Part, Sample

# A column being written: its stream, its child columns, and the base of the next difference.


class ColumnWriter:
    """One stream of values; its children are the fields below it, created on first use."""

    __slots__ = ("children", "data", "ids", "keys", "known", "last", "numbers", "order", "tags")

    def __init__(self) -> None:
        self.tags = bytearray()
        self.data = bytearray()
        self.last = 0
        self.children: dict[object, ColumnWriter] = {}
        self.ids: dict[object, int] = {}
        """Table: identity of a row -> its number in this block."""
        self.keys: list[Any] = []
        self.numbers: list[int] = []
        """Table: first fields and numbers of the rows in the previous reading."""
        self.known: list[Any] = []
        """Table: the last row of each number."""
        self.order: list[int] = []
        """Table: the numbers of the rows in the order of the previous reading."""


# Readings as differences, column by column.
#
# A reading is a tree of plain MessagePack values. Each field of each struct, and each column of each table, has its own
# column with only the changes since the previous reading; similar values are adjacent, so they compress well. The
# meaning of fields is not used: new fields and parts need no change here. Exact for all values, except that numbers
# that compare equal are one number (1 and 1.0, 0.0 and -0.0), and maps that compare equal are one map.

_pack_float = struct.Struct("<d").pack
_encode = msgspec.msgpack.encode


class TreeWriter:
    """Columns of one block. They are numbered in the order of first use, which the reader repeats."""

    def __init__(self) -> None:
        self.columns: list[ColumnWriter] = []
        self.strings: list[bytes] = []
        self._numbers: dict[str | bytes, int] = {}
        self._stamp = 0
        self.root = self._new()

    def _new(self) -> ColumnWriter:
        column = ColumnWriter()
        self.columns.append(column)
        return column

    def child(self, column: ColumnWriter, key: object) -> ColumnWriter:
        """Return the column of a field below `column`."""
        found = column.children.get(key)
        if found is None:
            found = column.children[key] = self._new()
        return found

    def write(self, column: ColumnWriter, old: Any, new: Any, stamp: int) -> None:
        """Append `new`; `old`: the previous value (None at first); `stamp`: the time of the reading."""
        self._stamp = stamp
        if type(old) is type(new) and old == new:
            column.tags.append(block_format.SAME)
        elif type(new) is list:
            self._list(column, old, new)
        else:
            self._value(column, old, new)

    def _value(self, column: ColumnWriter, old: Any, new: Any) -> None:
        kind = type(new)
        if kind is int:
            self._int(column, old, new)
        elif kind is str:
            self._string(column, block_format.TEXT, new)
        elif new is None:
            column.tags.append(block_format.NONE)
        elif kind is bool:
            column.tags.append(block_format.TRUE if new else block_format.FALSE)
        elif kind is float:
            self._float(column, old, new)
        elif kind is list:
            if new and all(type(row) is list for row in new):
                column.tags.append(block_format.TABLE)
                self._table(column, new)
            else:
                self._list(column, old, new)
        elif kind is dict and all(type(key) is str for key in new):
            self._map(column, old, new)
        elif kind is bytes:
            self._string(column, block_format.BLOB, new)
        else:
            self._string(column, block_format.PACKED, _encode(new))

    def _int(self, column: ColumnWriter, old: Any, new: int) -> None:
        tag, delta = block_format.INT_LAST, new - column.last
        if type(old) is int:
            tag, delta = block_format.INT_OLD, new - old
            if -64 < delta < 64 and new < block_format.STAMP_FROM:  # the usual case: one byte
                column.last = new
                column.tags.append(tag)
                column.data.append(delta << 1 if delta >= 0 else (-delta << 1) - 1)
                return
        if tag == block_format.INT_OLD and not delta & 1023 and delta:
            tag, delta = block_format.INT_KB, delta >> 10
        elif abs(delta) > 63:
            near = new - column.last
            if abs(near) < abs(delta):
                tag, delta = block_format.INT_LAST, near
            if new >= block_format.STAMP_FROM and abs(new - self._stamp) < abs(delta):
                tag, delta = block_format.INT_STAMP, new - self._stamp
        if new >= block_format.STAMP_FROM:
            self._stamp = new
        column.last = new
        column.tags.append(tag)
        put_signed(column.data, delta)

    def _float(self, column: ColumnWriter, old: Any, new: float) -> None:
        milli = block_format.milli(new)
        if milli is None:
            column.tags.append(block_format.FLOAT)
            column.data += _pack_float(new)
            return
        reference = block_format.milli(old) if type(old) is float else None
        column.tags.append(block_format.FLOAT_MILLI)
        put_signed(column.data, milli - (reference or 0))

    def _string(self, column: ColumnWriter, tag: int, new: str | bytes) -> None:
        number = self._numbers.get(new)
        if number is None:
            number = self._numbers[new] = len(self.strings)
            self.strings.append(new.encode("utf-8", "surrogatepass") if isinstance(new, str) else new)
        column.tags.append(tag)
        put(column.data, number)

    def _list(self, column: ColumnWriter, old: Any, new: list[Any]) -> None:
        if type(old) is list and len(old) == len(new):
            column.tags.append(block_format.STRUCT)
            self._masked(column, old, new)
        else:
            column.tags.append(block_format.LIST)
            put(column.data, len(new))
            for index, value in enumerate(new):
                self._value(self.child(column, index), None, value)

    def _masked(self, column: ColumnWriter, old: Sequence[Any], new: Sequence[Any]) -> None:
        mask = 0
        changed = []
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            if before is not after and (before != after or type(before) is not type(after)):
                mask |= 1 << index
                changed.append(index)
        put(column.data, mask)
        children = column.children
        for index in changed:
            self._value(children.get(index) or self.child(column, index), old[index], new[index])

    def _map(self, column: ColumnWriter, old: Any, new: dict[str, Any]) -> None:
        keys = list(new)
        if type(old) is dict and list(old) == keys:
            column.tags.append(block_format.MAP)
            self._masked(column, list(old.values()), list(new.values()))
            return
        column.tags.append(block_format.NEW_MAP)
        self._string(self.child(column, "keys"), block_format.BLOB, _encode(keys))
        for index, value in enumerate(new.values()):
            self._value(self.child(column, index), None, value)

    def _table(self, column: ColumnWriter, rows: list[list[Any]]) -> None:
        numbers = self._row_numbers(column, rows)
        self._row_order(self.child(column, "order"), column, numbers)
        places, cells = self.child(column, "places"), self.child(column, "rows")
        known, next_place, stamp = column.known, 0, self._stamp
        known.extend([None] * (len(column.ids) - len(known)))
        changed = [place for place, row in enumerate(rows) if row != known[numbers[place]]]
        put(places.data, len(changed))
        for place in changed:
            put(places.data, place - next_place)
            next_place = place + 1
            self._stamp = stamp
            number = numbers[place]
            self._list(cells, known[number], rows[place])
            known[number] = rows[place]
        self._stamp = stamp

    def _row_numbers(self, column: ColumnWriter, rows: list[list[Any]]) -> list[int]:
        """Return the number of each row: the same key and the same occurrence of it is the same row."""
        keys = [row[0] if row else None for row in rows]
        if keys == column.keys:
            return column.numbers
        ids, numbers = column.ids, []
        counts: dict[object, int] = {}
        for row in rows:
            key: object = row[0] if row and type(row[0]) in (int, str) else None
            if key in counts:
                counts[key] += 1
                key = (key, counts[key])
            else:
                counts[key] = 0
            number = ids.get(key)
            if number is None:
                number = ids[key] = len(ids)
            numbers.append(number)
        column.keys, column.numbers = keys, numbers
        return numbers

    def _row_order(self, column: ColumnWriter, table: ColumnWriter, numbers: list[int]) -> None:
        if numbers == table.order:
            column.tags.append(block_format.SAME)
            return
        column.tags.append(block_format.LIST)
        put(column.data, len(numbers))
        expected = 0
        for number in numbers:
            put_signed(column.data, number - expected)
            expected = number + 1
        table.order = numbers


# A segment: half a minute of samples, reduced to changes and decoded as one.

_decode = msgspec.msgpack.Decoder().decode


class SegmentWriter:
    """The samples of one segment, as columns."""

    def __init__(self) -> None:
        self.samples = 0
        self._tree = TreeWriter()
        self._ticks = self._tree.child(self._tree.root, "ticks")
        self._names = self._tree.child(self._tree.root, "names")
        self._tick: list[Any] | None = None
        self._parts: dict[str, tuple[list[Any], Any]] = {}
        """Name -> last written head and reading."""

    def add(self, sample: Sample) -> None:
        """Append a sample. The caller must keep the order of ticks."""
        self.samples += 1
        tree = self._tree
        tick = [sample.seq, sample.wall_us, sample.wall_us - sample.mono_us, sample.boot]
        tree.write(self._ticks, self._tick, tick, 0)
        self._tick = tick
        tree.write(self._names, None, _encode([part.name for part in sample.parts]), 0)
        for part in sample.parts:
            self._add_part(part, sample)

    def _add_part(self, part: Part, sample: Sample) -> None:
        tree = self._tree
        old_head, old_reading = self._parts.get(part.name, (None, None))
        head = [part.status, part.note, sample.mono_us - part.at_us, part.took_us, part.reading is not None]
        column = tree.child(tree.root, part.name + "/head")
        tree.write(column, old_head, head, 0)
        reading = old_reading
        if part.reading is not None:
            reading = _plain(part.reading)
            tree.write(tree.child(tree.root, part.name + "/reading"), old_reading, reading, sample.wall_us)
        self._parts[part.name] = (head, reading)

    def payload(self) -> bytes:
        """Return the columns as uncompressed bytes."""
        payload = bytearray()
        columns, strings = self._tree.columns, self._tree.strings
        put(payload, len(columns))
        for column in columns:
            put(payload, len(column.tags))
            put(payload, len(column.data))
        put(payload, len(strings))
        for text in strings:
            put(payload, len(text))
        for column in columns:
            payload += column.tags
        for column in columns:
            payload += column.data
        for text in strings:
            payload += text
        return bytes(payload)


def _plain(reading: msgspec.Raw) -> Any:
    """Return the reading as plain values; as bytes if a column cannot hold it."""
    try:
        tree = _decode(reading)
    except msgspec.DecodeError:
        return bytes(reading)
    return tree if _columnar(tree) else bytes(reading)


def _columnar(tree: Any) -> bool:
    """Return False for what our structs never encode to: a top value that is not a list, or bytes."""
    return type(tree) is list


class BlockWriter:
    """The samples of one block. Samples for which `wants_key` is true must be key samples."""

    def __init__(self) -> None:
        self.samples = 0
        self.first_seq = 0
        self.first_us = 0
        self.last_us = 0
        self._segments: list[tuple[int, SegmentWriter]] = []

    @property
    def wants_key(self) -> bool:
        """Return whether the next sample starts a segment."""
        return self.samples % SEGMENT_SAMPLES == 0

    def add(self, sample: Sample) -> None:
        """Append a sample; its wall time must not be before the last one's."""
        if self.samples == 0:
            self.first_seq, self.first_us = sample.seq, sample.wall_us
        if self.wants_key:
            self._segments.append((sample.wall_us, SegmentWriter()))
        self._segments[-1][1].add(sample)
        self.samples += 1
        self.last_us = sample.wall_us

    def seal(self) -> bytes:
        """Return the stored block. The writer must not be used afterwards."""
        head = BlockHead(self.samples, self.first_seq, self.first_us, self.last_us)
        start, body = bytearray(), bytearray()
        put(start, len(self._segments))
        for first_us, segment in self._segments:
            payload = segment.payload()
            put(start, segment.samples)
            put(start, max(0, first_us - self.first_us))
            put(start, len(payload))
            body += payload
        return pack(head, bytes(start + body), LEVEL)
