"""Readings written as differences, column by column.

A reading is a tree of plain values (what MessagePack holds). Each field of each struct, and each column of each table,
gets a column of its own that holds only what changed since the reading before; like stands beside like, so that the
compressor that follows finds little left to say. Nothing here knows what a field means: a new field, a new part or
another program's sample passes through unharmed. Exact for all values, but numbers that compare equal are one number
(1 and 1.0, 0.0 and -0.0),
and maps that compare equal are one map.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from dba_console.session import tags
from dba_console.session.column import ColumnWriter
from dba_console.session.varint import put, put_signed

_pack_float = struct.Struct("<d").pack
_encode = msgspec.msgpack.encode


class TreeWriter:
    """The columns of one block while it grows. Columns are numbered as they are first used, which a reader repeats."""

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
        """The column of a field below `column`."""
        found = column.children.get(key)
        if found is None:
            found = column.children[key] = self._new()
        return found

    def write(self, column: ColumnWriter, old: Any, new: Any, stamp: int) -> None:
        """Append `new`, where `old` is what stood there before (None at first) and `stamp` the moment of reading."""
        self._stamp = stamp
        if type(old) is type(new) and old == new:
            column.tags.append(tags.SAME)
        elif type(new) is list:
            self._list(column, old, new)
        else:
            self._value(column, old, new)

    def _value(self, column: ColumnWriter, old: Any, new: Any) -> None:
        kind = type(new)
        if kind is int:
            self._int(column, old, new)
        elif kind is str:
            self._string(column, tags.TEXT, new)
        elif new is None:
            column.tags.append(tags.NONE)
        elif kind is bool:
            column.tags.append(tags.TRUE if new else tags.FALSE)
        elif kind is float:
            self._float(column, old, new)
        elif kind is list:
            if new and all(type(row) is list for row in new):
                column.tags.append(tags.TABLE)
                self._table(column, new)
            else:
                self._list(column, old, new)
        elif kind is dict and all(type(key) is str for key in new):
            self._map(column, old, new)
        elif kind is bytes:
            self._string(column, tags.BLOB, new)
        else:
            self._string(column, tags.PACKED, _encode(new))

    def _int(self, column: ColumnWriter, old: Any, new: int) -> None:
        tag, delta = tags.INT_LAST, new - column.last
        if type(old) is int:
            tag, delta = tags.INT_OLD, new - old
            if -64 < delta < 64 and new < tags.STAMP_FROM:  # the usual case: one byte
                column.last = new
                column.tags.append(tag)
                column.data.append(delta << 1 if delta >= 0 else (-delta << 1) - 1)
                return
        if tag == tags.INT_OLD and not delta & 1023 and delta:
            tag, delta = tags.INT_KB, delta >> 10
        elif abs(delta) > 63:
            near = new - column.last
            if abs(near) < abs(delta):
                tag, delta = tags.INT_LAST, near
            if new >= tags.STAMP_FROM and abs(new - self._stamp) < abs(delta):
                tag, delta = tags.INT_STAMP, new - self._stamp
        if new >= tags.STAMP_FROM:
            self._stamp = new
        column.last = new
        column.tags.append(tag)
        put_signed(column.data, delta)

    def _float(self, column: ColumnWriter, old: Any, new: float) -> None:
        milli = tags.milli(new)
        if milli is None:
            column.tags.append(tags.FLOAT)
            column.data += _pack_float(new)
            return
        reference = tags.milli(old) if type(old) is float else None
        column.tags.append(tags.FLOAT_MILLI)
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
            column.tags.append(tags.STRUCT)
            self._masked(column, old, new)
        else:
            column.tags.append(tags.LIST)
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
            column.tags.append(tags.MAP)
            self._masked(column, list(old.values()), list(new.values()))
            return
        column.tags.append(tags.NEW_MAP)
        self._string(self.child(column, "keys"), tags.BLOB, _encode(keys))
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
        """The number of each row: the same key and the same occurrence of it is the same row."""
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
            column.tags.append(tags.SAME)
            return
        column.tags.append(tags.LIST)
        put(column.data, len(numbers))
        expected = 0
        for number in numbers:
            put_signed(column.data, number - expected)
            expected = number + 1
        table.order = numbers
