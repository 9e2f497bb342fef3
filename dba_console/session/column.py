"""A column being written: its stream, the columns below it, and what the next difference is taken against."""

from __future__ import annotations

from typing import Any


class ColumnWriter:
    """One stream of values; its children are the fields below it, made when first seen."""

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
        """Table: first fields and numbers of the rows in the reading before."""
        self.known: list[Any] = []
        """Table: the row last seen under each number."""
        self.order: list[int] = []
        """Table: the numbers of the rows as they stood in the reading before."""
