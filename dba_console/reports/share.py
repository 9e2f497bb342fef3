"""Write a shared copy of a session, one file for other people: names replaced, no data, secrets masked.

Names are learnt from the whole session first, then it is written once more by the recording's own writer, sample by
sample and event by event, so that its chain verifies; the finished file is searched for every original.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from dba_console import __version__
from dba_console.core.errors import Damaged, SessionError
from dba_console.recording.backlog import Batch, BlockEnd, Gap, SampleRow
from dba_console.recording.journal import DIGEST_EVENTS, END, START, LogLine
from dba_console.recording.layout import DATABASE, Redaction, SessionMeta, directory_name, host_word, parse_name
from dba_console.recording.points import pack_points, unpack_points
from dba_console.recording.recording import Recording
from dba_console.recording.sample_block import BlockEntry, BlockWriter, SampleBlock, SampleRecord
from dba_console.recording.shared_file import Manifest, extract, pack
from dba_console.recording.store import Store
from dba_console.recording.verify import verify
from dba_console.reports.share_leak_check import search, tail_blocks
from dba_console.reports.share_names import NameMap
from dba_console.reports.share_records import WRITTEN_BY_PEOPLE, RecordRewriter
from dba_console.reports.share_runs import RunCopier
from dba_console.reports.share_text import Level, TextRewriter
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, encode_sample

T = TypeVar("T", Event, LogLine)
Progress = Callable[[float], None]
_AT_ONCE = 2000
"""Events or lines in one transaction."""


class WrittenNote(NamedTuple):
    """Text that a person wrote, as it will be shared."""

    wall_us: int
    who: str
    text: str


class Shared(Struct, frozen=True):
    """What was done."""

    samples: int
    events: int
    replaced: dict[str, int]
    """Number of originals, by class; statements, paths of secrets and notes."""
    not_searched: list[str]
    """Names that are ordinary words too: replaced only where they stand as names, and not searched for."""
    searched: int
    left_out: list[str]
    """What could not be read of the original."""


class SessionSharer:
    """Shares one session: `learn`, `notes`, `write`."""

    def __init__(self, recording: Recording, names: NameMap, level: Level) -> None:
        """Raises SessionError if the session is a redacted copy already."""
        if level != "none" and recording.meta is not None and recording.meta.redaction is not None:
            raise SessionError(
                f"{recording.directory.name} is a redacted copy already: redacting it again would hide what was done",
                hint="share the original, or the copy with --level none",
            )
        self._recording = recording
        self._names = names
        self._level: Level = level
        self._text = TextRewriter(names, level)
        self._records = RecordRewriter(self._text)
        self._stored = _Stored.read(recording)
        self._left_out: list[str] = []
        self._samples = 0
        self._events = 0

    def learn(self, progress: Progress) -> None:
        """Learn the names of the session, and give them pseudonyms."""
        if self._level in ("names", "all"):
            RunCopier(self._records, None).copy(self._recording.directory)
            self._meta()
            for event in self._stored.events:
                self._records.event(event)
            for line in self._stored.lines:
                self._records.line(line)
            for _ in self._blocks(progress):
                pass
        self._records.end_learning()
        self._left_out = [*self._stored.left_out]

    def notes(self) -> list[WrittenNote]:
        """Return what people wrote, as it will be shared: for review."""
        found = []
        for event in self._stored.events:
            reason = event.details.get("reason")
            texts = [event.text] if event.kind in WRITTEN_BY_PEOPLE else [reason] if isinstance(reason, str) else []
            who = self._text.rewrite("user", event.who or "")
            found += [WrittenNote(event.wall_us, who, self._text.rewrite("note", text)) for text in texts if text]
        return found

    def write(self, file: BinaryIO, directory: Path, progress: Progress) -> Shared:
        """Write the shared file; `directory`: for temporary files, on the same file system.

        Raises SessionError if an original is found in it, or the session cannot be read, OSError.
        """
        with tempfile.TemporaryDirectory(prefix=".dba-console-share-", dir=directory) as place:
            try:
                copy = self._unchanged() or self._copy(Path(place, "1"), lambda share: progress(share * 0.6))
                if self._records.index_late_names():
                    self._left_out = [*self._stored.left_out]
                    copy = self._copy(Path(place, "2"), lambda share: progress(share * 0.6))
            except sqlite3.Error as error:
                raise OSError(str(error)) from error
            replaced = self._replaced()
            manifest = Manifest(
                session=copy.name, level=self._level, program_version=__version__, replaced=replaced,
                left_out=self._left_out,
            )  # fmt: skip
            pack(copy, manifest, file)
            file.flush()
        searched = self._search(
            Path(f"/proc/self/fd/{file.fileno()}"), directory, lambda share: progress(0.6 + share * 0.4)
        )
        ordinary = self._names.ordinary() if self._level in ("names", "all") else []
        return Shared(self._samples, self._events, replaced, ordinary, searched, self._left_out)

    def _search(self, file: Path, directory: Path, progress: Progress) -> int:
        """Search the finished file for every original, and verify it. Raises SessionError."""
        originals = sorted(self._text.secret_paths)
        if self._level in ("names", "all"):
            originals += [name for name, _ in self._names.originals(searched=True)]
        with tempfile.TemporaryDirectory(prefix=".dba-console-share-", dir=directory) as place:
            session = extract(file, Path(place), "the shared file")
            checked = verify(session)
            if not checked.ok and self._level == "none":
                self._left_out.append(f"the session does not verify, nor does this copy: {checked.first_bad}")
            elif not checked.ok and not self._left_out:
                raise SessionError(f"the copy cannot be verified: {checked.first_bad}")
            found = search(session, originals, self._names.inside(), progress) if originals else []
        if found:
            raise SessionError(
                f"not shared: {len(found)} originals are still in the file: {'; '.join(found[:5])}",
                hint="--keep NAME shares a name as it is; a note that contains it can be left out by --level all",
            )
        return len(originals)

    def _unchanged(self) -> Path | None:
        """Return the session itself if nothing is replaced, and it is complete."""
        recording = self._recording
        if self._level != "none" or recording.state != "closed" or parse_name(recording.directory.name) is None:
            return None
        self._samples, self._events = recording.samples, len(self._stored.events)
        return recording.directory

    def _copy(self, place: Path, progress: Progress) -> Path:
        meta = self._meta()
        copy = place / directory_name(meta)
        copy.mkdir(mode=0o700, parents=True)
        self._samples = 0
        runs = RunCopier(self._records, copy)
        runs.copy(self._recording.directory)
        self._left_out += runs.left_out
        store = Store(copy, meta)
        try:
            self._write_all(store, runs, progress)
            if (closed := self._recording.closed) is not None:
                store.finish(self._text.rewrite("text", _reason(closed)))
        finally:
            store.close()
        # One file, also of a session that was not closed: the log beside it would be needed to read it.
        connection = sqlite3.connect(copy / DATABASE, isolation_level=None)
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.close()
        return copy

    def _write_all(self, store: Store, runs: RunCopier, progress: Progress) -> None:
        stored = self._stored
        gaps = [gap._replace(reason=self._text.rewrite("text", gap.reason)) for gap in stored.gaps]
        beside = _Beside(stored.events, stored.lines)
        self._events = len(stored.events)
        writer = BlockWriter()
        for block in self._blocks(progress):
            writer.restart()
            items: list[SampleRow | BlockEnd] = []
            for sample in block.samples:
                data = writer.add(sample.seq, sample.wall_us, encode_sample(sample))
                items.append(SampleRow(sample.seq, writer.base_seq, sample.wall_us, sample.mono_us, data))
            if block.points is not None:
                items.append(BlockEnd(writer.base_seq, block.points))
            self._samples += len(block.samples)
            # After the samples of their time, whose queries they quote.
            store.write(self._batch(items, beside.until(block.last_us), gaps + block.gaps, runs))
            gaps = []
        while any(rest := beside.until(None)) or gaps:
            store.write(self._batch([], rest, gaps, runs))
            gaps = []

    def _batch(
        self, items: list[SampleRow | BlockEnd], beside: tuple[list[Event], list[LogLine]], gaps: list[Gap],
        runs: RunCopier,
    ) -> Batch:  # fmt: skip
        events, lines = beside
        return Batch(items, [self._event(event, runs) for event in events], gaps, [*map(self._records.line, lines)])

    def _meta(self) -> SessionMeta:
        """Return the metadata of the copy."""
        meta = self._recording.meta or _meta_of_name(self._recording.directory)
        text = self._text.rewrite
        redaction = None
        if self._level != "none":
            redaction = msgspec.json.encode(self._redaction()).decode()
        return msgspec.structs.replace(
            meta,
            target=text("target", meta.target),
            target_key=text("key", meta.target_key),
            host=host_word(text("host", meta.host)),
            boot_id=text("identifier", meta.boot_id),
            redaction=redaction or meta.redaction,
        )

    def _redaction(self) -> Redaction:
        if self._text.names.learning:
            return Redaction(level=self._level, program_version=__version__, events=0, head=None, verified=False)
        original = verify(self._recording.directory)
        return Redaction(
            level=self._level, program_version=__version__, events=original.events, head=original.head,
            verified=original.ok,
        )  # fmt: skip

    def _event(self, event: Event, runs: RunCopier) -> Event:
        if event.kind in DIGEST_EVENTS or event.kind == START:
            # Digests and metadata are those of the copy; the writer adds them.
            kept = {name: value for name, value in event.details.items() if name not in _WRITERS_OWN}
            event = msgspec.structs.replace(event, details=kept)
        made = self._records.event(event)
        run, number = event.details.get("run"), event.details.get("seq")
        if isinstance(run, str) and isinstance(number, int) and "hash" in event.details:
            made.details["hash"] = runs.hashes.get((run, number))
            if made.details["hash"] is None:
                del made.details["hash"]  # its journal is in another session
        return made

    def _replaced(self) -> dict[str, int]:
        counts = {**self._names.counts, **self._text.masked} if self._level != "none" else {}
        return {what: count for what, count in sorted(counts.items()) if count}

    def _blocks(self, progress: Progress) -> Iterator[_Block]:
        """Yield the blocks of the copy."""
        entries = self._stored.blocks
        for number, entry in enumerate(entries):
            progress(number / len(entries))
            yield self._block(entry)
        for block in tail_blocks(self._stored.tail):
            samples, damage = self._samples_of(block)
            if damage is not None:
                self._left_out.append(damage)
            if samples:
                yield _Block(samples, None, samples[-1].wall_us, [])

    def _block(self, entry: BlockEntry) -> _Block:
        """Return a block of the index; what of it cannot be read becomes a gap."""
        try:
            block = SampleBlock(self._recording.stored.block(entry.first_seq))
            samples, damage = self._samples_of(block)
        except Damaged as error:
            samples, damage = [], error.message
        points = self._points(entry, samples) if samples and len(samples) == entry.samples else b""
        gaps = []
        if damage is not None or len(samples) < entry.samples:
            self._left_out.append(f"samples from number {entry.first_seq + len(samples)}: {damage or 'missing'}")
            first_us = samples[-1].wall_us if samples else entry.first_us
            gaps = [Gap(first_us, entry.last_us, entry.samples - len(samples), "damaged in the original recording")]
        return _Block(samples, points if samples else None, entry.last_us, gaps)

    def _samples_of(self, block: SampleBlock) -> tuple[list[Sample], str | None]:
        samples: list[Sample] = []
        try:
            for sample in block.readable_samples():
                samples.append(self._records.sample(sample))
        except Damaged as error:
            return samples, error.message
        return samples, None if block.damage is None else block.damage.message

    def _points(self, entry: BlockEntry, samples: Sequence[Sample]) -> bytes:
        """Return the chart values under their new names; none if they cannot be read: a reader derives them."""
        try:
            stored = self._recording.stored.points(entry.first_seq)
            rows = unpack_points(stored) if stored else []
        except Damaged:
            return b""
        if not rows:
            return b""
        text = self._text.rewrite
        renamed = [{text("series", name): value for name, value in point.items()} for _, point in rows]
        return pack_points(samples[0].seq, [wall_us for wall_us, _ in rows], renamed)


_WRITERS_OWN = ("blocks", "gaps", "output", "meta")


class _Stored(NamedTuple):
    """What of a session is copied: a live one grows meanwhile."""

    events: list[Event]
    lines: list[LogLine]
    gaps: list[Gap]
    blocks: list[BlockEntry]
    tail: list[bytes]
    left_out: list[str]

    @classmethod
    def read(cls, recording: Recording) -> _Stored:
        left_out = [] if recording.damage is None else [recording.damage]
        lines = list(recording.output())
        tail = recording.stored.tail()
        blocks = recording.stored.blocks()
        complete = {entry.first_seq for entry in blocks}
        tail = [row for row in tail if SampleRecord.read(row).base_seq not in complete]
        # As they were recorded: a note about an earlier moment is listed there.
        events = sorted(recording.events(), key=lambda event: event.seq)
        return cls(events, lines, recording.gaps(), blocks, tail, left_out)


class _Block(NamedTuple):
    """Rewritten samples, their chart values (None: the block is not full), and what is missing."""

    samples: list[Sample]
    points: bytes | None
    last_us: int
    gaps: list[Gap]


class _Beside:
    """Events and lines that are written with the samples of their time, each in its own order."""

    def __init__(self, events: list[Event], lines: list[LogLine]) -> None:
        self._events, self._lines = events, lines
        self._written = [0, 0]

    def until(self, wall_us: int | None) -> tuple[list[Event], list[LogLine]]:
        """Return the next ones, up to a time."""
        return self._next(0, self._events, wall_us), self._next(1, self._lines, wall_us)

    def _next(self, which: int, rows: list[T], wall_us: int | None) -> list[T]:
        first = last = self._written[which]
        while last < min(len(rows), first + _AT_ONCE) and (wall_us is None or _is_due(rows[last], wall_us)):
            last += 1
        self._written[which] = last
        return rows[first:last]


def _is_due(row: Event | LogLine, wall_us: int) -> bool:
    """Return whether a row is written by that time. The end has the digests of all blocks, also after the clock was set
    back: it is the last."""
    return row.wall_us <= wall_us and not (isinstance(row, Event) and row.kind == END)


def _reason(closed: str) -> str:
    try:
        return str(json.loads(closed)["reason"])
    except (ValueError, KeyError, TypeError):
        return "closed"


def _meta_of_name(directory: Path) -> SessionMeta:
    """Return what the name of a damaged session tells. Raises SessionError."""
    name = parse_name(directory.name)
    if name is None:
        raise SessionError(f"cannot share {directory.name}: its metadata is lost, and its name tells nothing")
    return SessionMeta(
        id=name.id, target="", target_key="", host=name.host, program_version="", start_wall_us=name.start_us,
        start_mono_us=0,
    )  # fmt: skip
