"""A source that does not give up where SQLite does: what its trees no longer lead to is looked for page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dba_console.session.backlog import Gap
from dba_console.session.damage import Damaged
from dba_console.session.journal import JournalRow
from dba_console.session.loglines import LogLine
from dba_console.session.source import BlockEntry, Source

T = TypeVar("T")


class FallbackSource:
    """Everything is asked of `first`, and of what `second` makes where that fails."""

    def __init__(self, first: Source, second: Callable[[], Source]) -> None:
        self._first = first
        self._make_second = second
        self._second: Source | None = None
        self.trouble: str | None = None
        """What SQLite could not find, once the pages had to be read."""

    def meta(self) -> dict[str, str]:
        return self._first.meta()

    def blocks(self, after_seq: int = -1) -> list[BlockEntry]:
        return self._first.blocks(after_seq)

    def tail(self, after_seq: int = -1) -> list[bytes]:
        return self._first.tail(after_seq)

    def block(self, first_seq: int) -> bytes:
        return self._with_fallback(lambda source: source.block(first_seq))

    def points(self, first_seq: int) -> bytes:
        return self._with_fallback(lambda source: source.points(first_seq))

    def journal(self, from_us: int | None, to_us: int | None, limit: int | None) -> list[JournalRow]:
        return self._with_fallback(lambda source: source.journal(from_us, to_us, limit))

    def gaps(self) -> list[Gap]:
        return self._with_fallback(lambda source: source.gaps())

    def output(self) -> list[LogLine]:
        return self._first.output()

    def close(self) -> None:
        self._first.close()
        if self._second is not None:
            self._second.close()

    def _with_fallback(self, read: Callable[[Source], T]) -> T:
        try:
            return read(self._first)
        except Damaged as error:
            self.trouble = self.trouble or error.message
            if self._second is None:
                self._second = self._make_second()
            return read(self._second)
