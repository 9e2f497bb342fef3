"""Verify a recording: the hash chain of its events, the digests in it, block checksums, the journals of its runs.

A checksum detects accidental damage. The chain detects changed events and, through the digests in heartbeats and the
end event, changed blocks, index lines, chart values, gaps, lines of output and metadata. Neither detects that the end
was cut off before the session was closed; this, and what was not checked, is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from dba_console.core.decoding import from_json
from dba_console.core.errors import Damaged
from dba_console.core.sanitize import clean
from dba_console.recording.hash_chain import ChainError, ChainHead
from dba_console.recording.journal import (
    DIGEST_EVENTS,
    END,
    LATER_NOTES,
    ROW_CHAINS,
    START,
    JournalRow,
    LaterNotes,
    LogLine,
    block_digest,
    chain_record,
    check_row,
    event_of,
)
from dba_console.recording.recording import Recording
from dba_console.recording.run_verification import RunVerification, verify_runs
from dba_console.recording.sample_block import BlockEntry, SampleBlock, scan_records
from dba_console.recording.source import Source

ALWAYS_UNCHECKED = ("session.log", "out/", "output files and summaries of runs")
"""Copies for other programs, or files of other writers: they have no digest."""

_PAGE = 5_000
_READ_AT_MOST = 20
"""Times that events are read while notes are added."""


class Verification(Struct, frozen=True):
    """What was checked, and the first problem."""

    ok: bool
    events: int
    blocks: int
    first_bad: str | None
    """The first problem: `event 17: ...`, `block 3541: ...`."""
    notes: list[str]
    """Notes, also about what could not be checked."""
    head: str | None
    """Hash of the newest event, to compare with one noted elsewhere."""
    runs: list[RunVerification] = []
    """Each run in the session directory or in its events."""
    checked: list[str] = []
    """What was checked."""
    unchecked: list[str] = []
    """What was not checked."""


def verify(path: str | Path) -> Verification:
    """Verify a session. Raises SessionError if there is nothing to verify."""
    with closing(Recording.open(path)) as recording:
        return _verify(recording)


def _verify(recording: Recording) -> Verification:
    notes: list[str] = []
    problems: list[str] = []
    if recording.damage is not None:
        problems.append(recording.damage)
    rows, later = _events_and_notes(recording, problems)
    start = None if recording.meta is None else ChainHead.of(recording.meta.id)
    problems += _broken_chain(rows, start)
    carried = _CarriedDigests(rows)
    blocks, broken = _check_blocks(recording, carried)
    problems += broken
    checked = [_count(len(rows), "event"), _count(blocks, "block") + " with chart values"]
    unchecked: list[str] = []
    stored = recording.stored
    pages = {"gaps": lambda: iter([stored.gaps()]), "output": lambda: _pages(stored)}
    for what, one in (("gaps", "gap"), ("output", "line of output")):
        read = pages[what]
        found = _check_rows(what, read, carried, one, problems)
        (unchecked if found is None else checked).append(what if found is None else _count(found, one))
        # Fewer rows are missing; more rows in a closed session were added. Both are problems.
        if found and (newer := found - carried.running[what][-1].seq) > 0 and not carried.whole:
            notes.append(f"{_count(newer, one)} written since the last heartbeat could not be checked")
    if carried.meta is None:
        unchecked.append("session metadata")
    else:
        checked.append("session metadata")
        problems += _changed_meta(stored, carried.meta)
    notes += _redaction_note(recording)
    closed = recording.closed
    if isinstance(later, Damaged):
        problems.append(f"session metadata: {later.message}")
    else:
        problems += _check_later_notes(rows, closed, later, notes)
    if closed is not None:
        problems += _cut_end(rows, closed)
        if newer := _after_blocks(stored, problems):
            problems.append(f"{_count(newer, 'sample')} after the last block, although the session was closed")
    elif recording.state == "crashed":
        notes.append("the session was not closed: a removed end cannot be distinguished from a crash")
    runs = verify_runs(recording.directory, (event_of(row) for row in rows))
    problems += [f"run {run.run}: {run.first_bad}" for run in runs if not run.ok]
    checked += [f"{_count(len(runs), 'run')} with journal, document and plan"] if runs else []
    head = rows[-1].hash if rows else None
    unchecked += ALWAYS_UNCHECKED
    answer = Verification(not problems, len(rows), blocks, None, notes + problems[1:], head, runs, checked, unchecked)
    return structs.replace(answer, first_bad=problems[0]) if problems else answer


def _events_and_notes(recording: Recording, problems: list[str]) -> tuple[list[JournalRow], str | Damaged | None]:
    """Return the events and the record of later notes as of one moment: a note may be added meanwhile."""
    for _ in range(_READ_AT_MOST):
        later = _later_notes(recording)
        found: list[str] = []
        rows = _rows(recording, found)
        if isinstance(later, Damaged) or _later_notes(recording) == later:
            break
    problems += found
    return rows, later


def _later_notes(recording: Recording) -> str | Damaged | None:
    try:
        return recording.stored.meta().get(LATER_NOTES)
    except Damaged as error:
        return error


def _redaction_note(recording: Recording) -> Iterator[str]:
    """Return what a shared copy says of its original, which its own chain cannot prove."""
    made = None if recording.meta is None else recording.meta.redacted()
    if made is None:
        return
    state = "which verified" if made.verified else "which did not verify"
    original = f"a session of {made.events} events, {state}; its newest hash: {made.head}"
    yield f"a redacted copy (level {made.level}) of {original}"


def _changed_meta(stored: Source, expected: dict[str, Any]) -> Iterator[str]:
    try:
        values = {key: value for key, value in stored.meta().items() if key not in ("closed", LATER_NOTES)}
    except Damaged as error:
        yield f"session metadata: {error.message}"
        return
    if changed := sorted(key for key in {*values, *expected} if values.get(key) != expected.get(key)):
        yield f"session metadata: changed ({', '.join(map(clean, changed))})"


def _after_blocks(stored: Source, problems: list[str]) -> int:
    """Return the number of samples after the last block."""
    try:
        return len(stored.tail())
    except Damaged as error:
        problems.append(f"samples: {error.message}")
        return 0


def _count(number: int, what: str) -> str:
    """Return `1 gap`, `3 lines of output`."""
    first, _, rest = what.partition(" ")
    return f"{number} {first if number == 1 else first + 's'}{' ' + rest if rest else ''}"


class _CarriedDigests:
    """Digests in heartbeats and the end event."""

    def __init__(self, rows: Iterable[JournalRow]) -> None:
        self.blocks: dict[int, str] = {}
        """First tick of a block -> its digest."""
        self.running: dict[str, list[ChainHead]] = {name: [] for name in ROW_CHAINS}
        self.meta: dict[str, Any] | None = None
        self.whole = False
        """The last one is the end of the session: it covers everything."""
        for event in map(event_of, rows):
            if event.kind == START:
                meta = event.details.get("meta")
                self.meta = meta if isinstance(meta, dict) else None
            elif event.kind in DIGEST_EVENTS:
                self._take(event.details)
                self.whole = event.kind == END and bool(self.running["gaps"])

    def _take(self, details: dict[str, Any]) -> None:
        found = details.get("blocks")
        if isinstance(found, dict):
            self.blocks.update({int(seq): str(value) for seq, value in found.items() if str(seq).isdecimal()})
        for name, running in self.running.items():
            match details.get(name):
                case [int(count), str(head)]:
                    running.append(ChainHead(count, head))


def _pages(stored: Source) -> Iterator[Sequence[LogLine]]:
    """Yield the lines of output, of which a session may have millions, in pages."""
    read = 0
    while page := stored.output(read, _PAGE):
        yield page
        read += len(page)


def _check_rows(
    what: str,
    read: Callable[[], Iterator[Sequence[tuple[Any, ...]]]],
    carried: _CarriedDigests,
    one: str,
    problems: list[str],
) -> int | None:
    """Check append-only rows against their digests; return their number. None: no digest."""
    vouched = carried.running[what]
    if not vouched:
        return None
    at, due, number = ChainHead.of(what), iter(vouched), 0
    head = next(due, None)
    try:
        for page in read():
            number += len(page)
            for row in page:
                while head is not None and head.seq == at.seq:
                    if at != head:
                        problems.append(f"{what}: changed, somewhere up to number {head.seq}")
                        return number
                    head = next(due, None)
                if head is not None:
                    at = at.after(chain_record(row))
    except Damaged as error:
        problems.append(f"{what}: {error.message}")
        return None
    while head is not None and head == at:
        head = next(due, None)
    if head is not None and head.seq > number:
        problems.append(f"{what}: {head.seq - number} of {head.seq} missing")
    elif head is not None:
        problems.append(f"{what}: changed, somewhere up to number {head.seq}")
    elif carried.whole and number > at.seq:
        problems.append(f"{what}: {_count(number - at.seq, one)} added after the session was closed")
    return number


def _rows(recording: Recording, problems: list[str]) -> list[JournalRow]:
    try:
        return recording.stored.journal(None, None, None)
    except Damaged as error:
        problems.append(f"the events: {error.message}")
        return []


def _broken_chain(rows: list[JournalRow], head: ChainHead | None) -> list[str]:
    """Return the first event that does not match the hash of the previous one."""
    for row in rows:
        try:
            if head is None and row.seq == 1:  # the name of the chain is lost with the session's metadata
                head = ChainHead(row.seq, row.hash)
            else:
                head = check_row(row, head or ChainHead.of(""))
        except ChainError as error:
            return [str(error)]
        except ValueError:
            return [f"event {row.seq}: changed"]
    return []


def _check_blocks(recording: Recording, carried: _CarriedDigests) -> tuple[int, list[str]]:
    problems: list[str] = []
    blocks_seen: set[int] = set()
    for entry in recording.stored.blocks():
        blocks_seen.add(entry.first_seq)
        try:
            problem = _check_block(recording, entry, carried)
        except Damaged as error:
            problem = error.message
        if problem is not None:
            problems.append(f"block {entry.first_seq}: {problem}")
    problems += [f"block {seq}: missing" for seq in sorted(set(carried.blocks) - blocks_seen)]
    return len(blocks_seen), problems


def _check_block(recording: Recording, entry: BlockEntry, carried: _CarriedDigests) -> str | None:
    seq = entry.first_seq
    data, points = recording.stored.block(seq), recording.stored.points(seq)
    block = SampleBlock(data)
    if block.damage is not None:
        return block.damage.message
    if entry[:4] != block.span:
        return "its index line does not match the block"
    records = ChainHead.of("block").after_all(data[at : at + record.end] for at, record in scan_records(data))
    if seq in carried.blocks and carried.blocks[seq] != block_digest(entry, records, points):
        return "does not match its digest in the event chain"
    if carried.whole and seq not in carried.blocks:
        return "added after the session was closed"
    return None


def _cut_end(rows: list[JournalRow], closed: str) -> list[str]:
    try:
        closing = json.loads(closed)
        events, head, reason = int(closing["events"]), str(closing["head"]), str(closing["reason"])
    except (ValueError, KeyError, TypeError):
        return ["cannot read the closing note of the session"]
    if len(rows) < events:
        return [f"event {len(rows) + 1}: missing; the session was closed with {events}"]
    if events > 0 and rows[events - 1].hash != head:
        return [f"event {events}: does not match the closing note of the session"]
    if events > 0 and (last := event_of(rows[events - 1])).kind == END and not last.text.endswith(f": {reason}"):
        return ["the closing note of the session does not match its last event"]
    return []


def _check_later_notes(rows: list[JournalRow], closed: str | None, stored: str | None, notes: list[str]) -> list[str]:
    """Check what follows the end of the recording: only notes, as the metadata record them. Reports them in `notes`."""
    ended = _events_at_close(closed)
    if stored is None:
        newer = 0 if ended is None else len(rows) - ended
        return [f"{_count(newer, 'event')} added after the session was closed"] if newer > 0 else []
    try:
        later = from_json(stored, LaterNotes)
    except msgspec.DecodeError:
        return ["cannot read the record of later notes"]
    if len(rows) < later.newest:
        return [f"event {len(rows) + 1}: missing; notes were added up to number {later.newest}"]
    added = [event_of(row) for row in rows[max(0, later.first - 1) :]]
    if foreign := next((event for event in added if event.kind != "note"), None):
        return [f"event {foreign.seq}: added after the recording had ended ({foreign.kind})"]
    if not added or (len(rows), rows[-1].hash) != (later.newest, later.head) or ended not in (None, later.first - 1):
        return ["the record of later notes does not match the events"]
    notes.append(f"{_count(len(added), 'note')} added after the recording had ended, in its chain of events")
    return []


def _events_at_close(closed: str | None) -> int | None:
    try:
        return None if closed is None else int(json.loads(closed)["events"])
    except (ValueError, KeyError, TypeError):
        return None
