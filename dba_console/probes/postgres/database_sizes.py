"""pg.sizes: database sizes, asked a few at a time.

pg_database_size() makes the server look at every file of a database: a moment for most, minutes for some, and there are
servers with thousands. So a round asks as many at once as proved to be cheap, rests after each dear query, and gives
its reading when it is through. What cannot be had stays None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row
from dba_console.probes.postgres.oid_names import decode_name
from dba_console.samples.postgres import DatabaseSize, Sizes

_CHEAP_US = 20_000
_MOST = 64
_REST = 10
"""After a query the round rests this many times as long as it took, where that was more than cheap."""


class SizeRound:
    """One reading of all sizes, in the making. Times are monotonic microseconds."""

    def __init__(self, rows: Sequence[Row], codec: str) -> None:
        self._names = {oid: decode_name(name, codec) for oid, name, _ in rows}
        self._sizes: dict[int, int] = {}
        self._left = deque(oid for oid, _, allowed in rows if allowed)
        self._denied = sum(not allowed for *_, allowed in rows)
        self._batch = 4
        self._rest_until_us = 0
        self.timed_out: list[str] = []
        """Databases whose size could not be had within the time limit."""

    @property
    def done(self) -> bool:
        return not self._left

    def next_batch(self, now_us: int) -> list[int]:
        """Databases to ask now; none while it rests."""
        if now_us < self._rest_until_us:
            return []
        return [self._left[index] for index in range(min(self._batch, len(self._left)))]

    def answered(self, asked: Sequence[int], rows: Sequence[Row], took_us: int, now_us: int) -> None:
        """Take the sizes; a database dropped meanwhile has no row, and none in the reading."""
        self._drop(asked)
        self._sizes.update(dict(rows))
        for oid in set(asked) - self._sizes.keys():
            self._names.pop(oid, None)
        self._batch = min(self._batch * 2, _MOST) if took_us < _CHEAP_US else max(1, self._batch // 4)
        if took_us >= _CHEAP_US:
            self._rest_until_us = now_us + took_us * _REST

    def failed(self, asked: Sequence[int], took_us: int, now_us: int) -> None:
        """The query was ended or refused: next time one database at a time, and one alone that fails is left out."""
        if len(asked) == 1:
            self._drop(asked)
            self.timed_out.append(self._names[asked[0]])
        self._batch = 1
        self._rest_until_us = now_us + max(took_us, _CHEAP_US) * _REST

    def reading(self) -> Sizes:
        return Sizes([DatabaseSize(name, self._sizes.get(oid)) for oid, name in self._names.items()])

    @property
    def note(self) -> str | None:
        """What is missing, where something is."""
        missing = []
        if self._denied:
            missing.append(f"{self._denied} without CONNECT or pg_read_all_stats (in pg_monitor)")
        if self.timed_out:
            missing.append(f"too dear to ask: {', '.join(self.timed_out[:3])}")
        return "sizes unknown: " + "; ".join(missing) if missing else None

    def _drop(self, asked: Sequence[int]) -> None:
        gone = set(asked)
        self._left = deque(oid for oid in self._left if oid not in gone)


def sizes_param(oids: Sequence[int]) -> bytes:
    return ("{" + ",".join(map(str, oids)) + "}").encode()
