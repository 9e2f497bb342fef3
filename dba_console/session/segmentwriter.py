"""Half a minute of samples, reduced to what changed: the part of a block that is decoded as one."""

from __future__ import annotations

from typing import Any

import msgspec

from dba_console.samples.sample import Part, Sample
from dba_console.session.treewriter import TreeWriter
from dba_console.session.varint import put

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.encode


class SegmentWriter:
    """The samples of one segment, as columns."""

    def __init__(self) -> None:
        self.samples = 0
        self._tree = TreeWriter()
        self._ticks = self._tree.child(self._tree.root, "ticks")
        self._names = self._tree.child(self._tree.root, "names")
        self._tick: list[Any] | None = None
        self._parts: dict[str, tuple[list[Any], Any]] = {}
        """Name -> head and reading last written."""

    def add(self, sample: Sample) -> None:
        """Append a sample. The caller keeps the order of ticks."""
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
        """The columns as bytes, not compressed."""
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
    """The reading as plain values; as its bytes where it is not of the kinds a column can hold."""
    try:
        tree = _decode(reading)
    except msgspec.DecodeError:
        return bytes(reading)
    return tree if _columnar(tree) else bytes(reading)


def _columnar(tree: Any) -> bool:
    """False only for what no struct of ours encodes to: a top that is no list, or bytes."""
    return type(tree) is list
