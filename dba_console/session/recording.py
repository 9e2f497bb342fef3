"""A recording, read: the picture at any moment, steps from one to the next, chart values, events, gaps.

Works on a session being written (`refresh` sees what was committed since), a closed one, one whose agent was killed,
and a damaged one as far as it can be read: `damage` then says what is wrong. Nothing but SessionError is raised.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from dba_console.errors import SessionError
from dba_console.frames.picture import Picture
from dba_console.samples.event import Event
from dba_console.session import tail
from dba_console.session.backlog import Gap
from dba_console.session.blockreader import BlockReader
from dba_console.session.damage import Damaged
from dba_console.session.index import BlockIndex
from dba_console.session.journal import Row, event_of
from dba_console.session.layout import DATABASE
from dba_console.session.liveness import is_live
from dba_console.session.meta import SessionMeta
from dba_console.session.opening import check_header, connect
from dba_console.session.points import Point, unpack_points
from dba_console.session.recorder import default_point_of
from dba_console.session.salvage import PageSource
from dba_console.session.source import BlockEntry, Source, SqlSource, session_meta
from dba_console.session.tailblock import TailBlock

CACHE_BYTES = 12 << 20
"""Decoded blocks kept, by their estimated weight: a console has 60 MB for all it does."""
CACHE_LEAST = 2


class Recording:
    """Use `Recording.open`. For one thread at a time."""

    def __init__(self, directory: Path, source: Source, aside: TemporaryDirectory[str] | None = None) -> None:
        self.directory = directory
        self.damage: str | None = None
        """What is wrong with the files, in one sentence; None where nothing is known to be."""
        self._source = source
        self._aside = aside
        self._values = source.meta()
        self.meta: SessionMeta | None = session_meta(self._values)
        self._index = BlockIndex()
        self._tails: list[TailBlock] = []
        self._cache: OrderedDict[int, BlockReader] = OrderedDict()
        self._bad: set[int] = set()
        self.tail_errors: list[str] = []
        """What is wrong with rows of the newest samples."""
        self._point_of: Callable[[Picture], Point] | None = None
        self.refresh()

    @classmethod
    def open(cls, path: str | Path) -> Recording:
        """Open a session directory (or its session.db). Raises SessionError saying what it is instead."""
        directory = Path(path)
        if directory.name == DATABASE:
            directory = directory.parent
        damage = check_header(directory)
        if damage is None:
            try:
                return cls._through_sqlite(directory)
            except Damaged as error:
                damage = error.message
        return cls._salvage(directory, damage)

    @classmethod
    def _through_sqlite(cls, directory: Path) -> Recording:
        connection, aside = connect(directory)
        try:
            return cls(directory, SqlSource(connection), aside)
        except Damaged:
            connection.close()
            if aside is not None:
                aside.cleanup()
            raise

    @classmethod
    def _salvage(cls, directory: Path, damage: str) -> Recording:
        source = PageSource(directory)
        if not source.found():
            source.close()
            raise SessionError(
                f"nothing can be read of the recording {directory.name}: {damage}",
                hint="session.log beside it may still have the events",
            )
        recording = cls(directory, source)
        recording.damage = f"the recording is damaged ({damage}); {recording.readable()} can still be read"
        return recording

    def readable(self) -> str:
        """How much there is, in words: `3540 samples, 12 events`."""
        return f"{self.samples} samples, {len(self._source.journal(None, None, None))} events"

    @property
    def samples(self) -> int:
        """Samples in the index; those of blocks found damaged later included."""
        return self._index.samples + sum(len(block) for block in self._tails)

    @property
    def first_us(self) -> int:
        """Wall time of the first sample; the start of the session where there is none."""
        if self._index.samples:
            return self._index.first_us[0]
        return self._tails[0].first_us if self._tails else self._start_us

    @property
    def last_us(self) -> int:
        """Wall time of the newest sample."""
        ends = [block.last_us for block in self._tails[-1:]] or list(self._index.last_us[-1:])
        return ends[0] if ends else self._start_us

    @property
    def state(self) -> Literal["live", "closed", "crashed"]:
        """live, closed, or crashed: its agent ended without closing it."""
        if is_live(self.directory):
            return "live"
        return "closed" if "closed" in self._values else "crashed"

    @property
    def closed(self) -> str | None:
        """The note its writer left on closing (JSON: reason, events, head), None where it was not closed."""
        return self._values.get("closed")

    def journal_rows(self) -> list[Row]:
        """Every event as stored, for checking."""
        try:
            return self._source.journal(None, None, None)
        except Damaged as error:
            self._note(error)
            return self._salvaged_rows(None, None, None)

    def block_entries(self) -> list[BlockEntry]:
        """The index of sealed blocks as stored."""
        return self._source.blocks()

    def block_bytes(self, first_seq: int) -> bytes:
        """A sealed block as stored. Raises Damaged."""
        return self._source.block(first_seq)

    def point_bytes(self, first_seq: int) -> bytes:
        """The chart values of a sealed block as stored. Raises Damaged."""
        return self._source.points(first_seq)

    @property
    def _start_us(self) -> int:
        return 0 if self.meta is None else self.meta.start_wall_us

    def refresh(self) -> int:
        """See what was committed since; returns the new `last_us`."""
        for entry in self._source.blocks(self._index.last_seq):
            self._index.append(entry)
            self._tails = [block for block in self._tails if block.base_seq != entry.first_seq]
        newest = self._tails[-1].last_seq if self._tails else -1
        for row in self._source.tail(newest):
            self._take_row(row)
        return self.last_us

    def _take_row(self, row: bytes) -> None:
        try:
            base_seq = tail.read_head(row).base_seq
            if not self._tails or self._tails[-1].base_seq != base_seq:
                block = TailBlock(base_seq)
                block.append(row)
                self._tails.append(block)
            else:
                self._tails[-1].append(row)
        except Damaged as error:
            self.tail_errors.append(error.message)
            self._note(error)

    def picture_at(self, wall_us: int) -> Picture | None:
        """What was known at that time: the picture of the newest readable sample not after it, None without one."""
        for place in range(self._place(wall_us), -1, -1):
            try:
                block = self._block(place)
                index = block.index_at(wall_us)
                if index >= 0:
                    return self._ticked(block.picture(index))
            except Damaged as error:
                self._spoiled(place, error)
        return None

    def step(self, wall_us: int, direction: int) -> int | None:
        """Wall time of the next sample (direction > 0) or the one before, None at the end."""
        began = place = max(0, self._place(wall_us))
        while 0 <= place < self._places:
            try:
                walls = self._block(place).walls()
                if place != began:
                    return walls[0] if direction > 0 else walls[-1]
                at = bisect_right(walls, wall_us) if direction > 0 else bisect_left(walls, wall_us) - 1
                if 0 <= at < len(walls):
                    return walls[at]
            except Damaged as error:
                self._spoiled(place, error)
            place += 1 if direction > 0 else -1
        return None

    def points(self, from_us: int, to_us: int) -> list[tuple[int, Point]]:
        """Chart values of the ticks between two times, both included; no sample of a sealed block is decoded."""
        found: list[tuple[int, Point]] = []
        for place in range(max(0, self._place(from_us)), self._places):
            if self._starts(place) > to_us:
                break
            try:
                found += [(wall, point) for wall, point in self._points(place) if from_us <= wall <= to_us]
            except Damaged as error:
                self._note(error)
        return found

    def events(self, from_us: int | None = None, to_us: int | None = None, limit: int | None = None) -> list[Event]:
        """Events in order; with `limit` the last ones of the span."""
        try:
            rows = self._source.journal(from_us, to_us, limit)
        except Damaged as error:
            self._note(error)
            rows = self._salvaged_rows(from_us, to_us, limit)
        return [event_of(row) for row in rows]

    def gaps(self) -> list[Gap]:
        """Spans without samples, with the reason."""
        try:
            return self._source.gaps()
        except Damaged as error:
            self._note(error)
            return []

    def _salvaged_rows(self, from_us: int | None, to_us: int | None, limit: int | None) -> list[Row]:
        source = PageSource(self.directory)
        try:
            return source.journal(from_us, to_us, limit)
        finally:
            source.close()

    def close(self) -> None:
        self._source.close()
        self._cache.clear()
        if self._aside is not None:
            self._aside.cleanup()
            self._aside = None

    @property
    def _places(self) -> int:
        return len(self._index) + len(self._tails)

    def _starts(self, place: int) -> int:
        sealed = len(self._index)
        return self._index.first_us[place] if place < sealed else self._tails[place - sealed].first_us

    def _place(self, wall_us: int) -> int:
        """The last block that starts at or before that time, -1 where all are later."""
        return self._index.place(wall_us, [(block.first_us, block.last_us) for block in self._tails])

    def _block(self, place: int) -> BlockReader | TailBlock:
        sealed = len(self._index)
        if place >= sealed:
            return self._tails[place - sealed]
        seq = self._index.seqs[place]
        if seq in self._bad:
            raise Damaged("a block of the recording is damaged")
        block = self._cache.get(seq)
        if block is None:
            block = self._cache[seq] = BlockReader(self._source.block(seq))
            self._shrink()
        self._cache.move_to_end(seq)
        return block

    def _shrink(self) -> None:
        while len(self._cache) > CACHE_LEAST and sum(block.weight for block in self._cache.values()) > CACHE_BYTES:
            self._cache.popitem(last=False)

    def _points(self, place: int) -> list[tuple[int, Point]]:
        sealed = len(self._index)
        if place < sealed:
            return unpack_points(self._source.points(self._index.seqs[place]))
        if self._point_of is None:
            self._point_of = default_point_of()
        return self._tails[place - sealed].points(self._point_of)

    def _ticked(self, picture: Picture) -> Picture:
        """At the first tick of a block the picture has seen no other; how long a tick is, the session says."""
        if not picture.tick_us and self.meta is not None:
            picture.tick_us = self.meta.interval_us
        return picture

    def _spoiled(self, place: int, error: Damaged) -> None:
        if place < len(self._index):
            self._bad.add(self._index.seqs[place])
        self._note(error)

    def _note(self, error: Damaged) -> None:
        if self.damage is None:
            self.damage = f"the recording is damaged in places ({error.message}); the rest can be read"
