"""The reverse of the tree writer: columns in, readings out, in the order they were written.

Trees share what did not change and are never edited. What comes from a damaged block ends in IndexError, KeyError,
ValueError or TypeError, which the block turns into its own error.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from dba_console.session import tags
from dba_console.session.varint import take

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
        """The next value of `column`, where `old` is what stood there before."""
        self._stamp = stamp
        return self._value(column, old)

    def _value(self, column: ColumnReader, old: Any) -> Any:
        tag = column.tags[column.tag_at]
        column.tag_at += 1
        if tags.INT_OLD <= tag <= tags.INT_KB:
            return self._int(column, tag, old)
        if tag <= tags.TRUE:
            return None if tag == tags.NONE else tag == tags.TRUE
        if tag == tags.TEXT:
            return self._text(column.number())
        if tag == tags.SAME:
            return old
        if tag == tags.STRUCT:
            return self._masked(column, list(old))
        if tag == tags.LIST:
            return [self._value(self.child(column, index), None) for index in range(column.number())]
        if tag == tags.TABLE:
            return self._table(column)
        if tag == tags.FLOAT_MILLI:
            return self._milli(column, old)
        if tag == tags.FLOAT:
            value: float = _unpack_float(column.data, column.at)[0]
            column.at += 8
            return value
        if tag == tags.BLOB:
            return self._strings[column.number()]
        if tag == tags.PACKED:
            return _decode(self._strings[column.number()])
        return self._map(column, tag, old)

    def _int(self, column: ColumnReader, tag: int, old: Any) -> int:
        delta = column.signed()
        if tag == tags.INT_OLD:
            value: int = old + delta
        elif tag == tags.INT_LAST:
            value = column.last + delta
        elif tag == tags.INT_STAMP:
            value = self._stamp + delta
        else:
            value = old + (delta << 10)
        if value >= tags.STAMP_FROM:
            self._stamp = value
        column.last = value
        return value

    def _milli(self, column: ColumnReader, old: Any) -> float:
        milli = column.signed()
        if type(old) is float:
            milli += tags.milli(old) or 0
        return milli / tags.THOUSAND

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
            if child.tags[child.tag_at] != tags.INT_OLD:
                values[index] = self._value(child, values[index])
                continue
            # Most fields that change are numbers that moved a little: read here, a call saved for each.
            child.tag_at += 1
            folded = child.data[child.at]
            if folded < 128:
                child.at += 1
            else:
                folded = child.number()
            value = values[index] + (folded >> 1 if not folded & 1 else -((folded + 1) >> 1))
            if value >= tags.STAMP_FROM:
                self._stamp = value
            child.last = values[index] = value
        return values

    def _map(self, column: ColumnReader, tag: int, old: Any) -> dict[str, Any]:
        if tag == tags.MAP:
            return dict(zip(old, self._masked(column, list(old.values())), strict=True))
        if tag != tags.NEW_MAP:
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
        if column.tag() == tags.SAME:
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
