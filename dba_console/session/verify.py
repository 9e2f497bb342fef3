"""Whether a recording is what was written: the chain of event hashes, the checksum and the digest of every block, the
journals of its runs.

A checksum tells accident; the chain tells tampering with events, and, through the digests that heartbeats carry, with
blocks. Neither can tell that the end was cut off before the session was closed; that it was not closed is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, structs

from dba_console.session import blockformat
from dba_console.session.damage import Damaged
from dba_console.session.journal import Row, chained, event_of, first_hash
from dba_console.session.recording import Recording
from dba_console.session.runverify import RunVerification, verify_runs
from dba_console.session.store import digest


class Verification(Struct, frozen=True):
    """What was checked and the first thing found wrong."""

    ok: bool
    events: int
    blocks: int
    first_bad: str | None
    """Names the first record that is not what was written: `event 17: ...`, `block 3541: ...`."""
    notes: list[str]
    """What could not be checked, or is worth knowing."""
    head: str | None
    """Hash of the newest event: compare it with one noted elsewhere."""
    runs: list[RunVerification] = []
    """Each run that lies in the session, or that its events speak of."""


def verify(path: str | Path) -> Verification:
    """Check a session. Raises SessionError where there is nothing to check."""
    recording = Recording.open(path)
    try:
        return _verify(recording)
    finally:
        recording.close()


def _verify(recording: Recording) -> Verification:
    notes: list[str] = []
    problems: list[str] = []
    if recording.damage is not None:
        problems.append(recording.damage)
    rows = _rows(recording, problems)
    start = None if recording.meta is None else first_hash(recording.meta.id)
    problems += _broken_chain(rows, start)
    blocks, broken = _check_blocks(recording, _digests(rows))
    problems += broken
    closed = recording.closed
    if closed is not None:
        problems += _cut_end(rows, closed)
    elif recording.state == "crashed":
        notes.append("the session was not closed: a cut end could not be told from a crash")
    runs = verify_runs(recording.directory, (event_of(row) for row in rows))
    problems += [f"run {run.run}: {run.first_bad}" for run in runs if not run.ok]
    head = rows[-1].hash if rows else None
    found = Verification(not problems, len(rows), blocks, None, notes + problems[1:], head, runs)
    return structs.replace(found, first_bad=problems[0]) if problems else found


def _rows(recording: Recording, problems: list[str]) -> list[Row]:
    try:
        return recording.stored.journal(None, None, None)
    except Damaged as error:
        problems.append(f"the events: {error.message}")
        return []


def _broken_chain(rows: list[Row], head: str | None) -> list[str]:
    """The first event that does not follow from the one before."""
    for number, row in enumerate(rows, start=1):
        if row.seq != number:
            return [f"event {number}: missing"]
        if head is None:
            head = row.hash
            continue
        try:
            expected = chained(head, row)
        except (ValueError, TypeError):
            expected = ""
        if expected != row.hash:
            return [f"event {row.seq}: it was changed, or the one before it was removed ({row.kind})"]
        head = row.hash
    return []


def _digests(rows: Iterable[Row]) -> dict[int, str]:
    """First tick of a block -> its digest, as heartbeats and the end of the session carry them."""
    digests: dict[int, str] = {}
    for row in rows:
        found = event_of(row).details.get("blocks") if row.kind in ("heartbeat", "session.end") else None
        if isinstance(found, dict):
            digests.update({int(seq): str(value) for seq, value in found.items() if str(seq).isdigit()})
    return digests


def _check_blocks(recording: Recording, digests: dict[int, str]) -> tuple[int, list[str]]:
    problems: list[str] = []
    seen: set[int] = set()
    for entry in recording.stored.blocks():
        seen.add(entry.first_seq)
        try:
            data = recording.stored.block(entry.first_seq)
        except Damaged as error:
            problems.append(f"block {entry.first_seq}: {error.message}")
            continue
        if not blockformat.whole(data):
            problems.append(f"block {entry.first_seq}: it does not match its checksum")
        elif entry.first_seq in digests and digests[entry.first_seq] != digest(data):
            problems.append(f"block {entry.first_seq}: it is not the one the chain of events speaks of")
    problems += [f"block {seq}: missing" for seq in sorted(set(digests) - seen)]
    return len(seen), problems


def _cut_end(rows: list[Row], closed: str) -> list[str]:
    try:
        said = json.loads(closed)
        events, head = int(said["events"]), str(said["head"])
    except (ValueError, KeyError, TypeError):
        return ["the note on the end of the session cannot be read"]
    if len(rows) < events:
        return [f"event {len(rows) + 1}: missing; the session was closed with {events}"]
    if events > 0 and rows[events - 1].hash != head:
        return [f"event {events}: not the one the session was closed with"]
    return []
