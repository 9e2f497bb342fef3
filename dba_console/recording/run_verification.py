"""Verify a run's journal: its own hash chain, its document and plan, and the hashes of its records in the session.

The event chain of the session contains number and hash of every record of a run, so a journal that was cut or rewritten
does not match its session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.errors import SessionError
from dba_console.core.paths import trust_problem
from dba_console.recording.layout import parse_name, session_directories
from dba_console.recording.recording import Recording
from dba_console.recording.run_paths import DOCUMENT, JOURNAL, PLAN, RUNS
from dba_console.recording.run_reader import StoredRun, all_run_directories, read_run
from dba_console.watch.samples.event import Event


class RunVerification(Struct, frozen=True):
    """What was checked of a run, and the first problem."""

    run: str
    ok: bool
    records: int
    first_bad: str | None
    """The first problem: `record 17: …`."""
    notes: list[str]
    head: str | None
    """Hash of the newest record."""


def verify_run(directory: Path, session_hashes: Mapping[int, str] | None = None) -> RunVerification:
    """Verify one run. `session_hashes`: number -> hash of its records in the session."""
    try:
        run = read_run(directory)
    except SessionError as error:
        return RunVerification(directory.name, False, 0, error.message, [], None)
    hashes = [_hash_of(raw) for raw in run.lines]
    problem = _first_mismatch(hashes, session_hashes or {}, run.damage)
    notes = list(run.notes)
    if run.ended is None and not run.live:
        notes.append("it has no end record: a removed end is only detected by its records in the session")
    head = run.head if run.lines else None
    return RunVerification(directory.name, problem is None, len(run.records), problem, notes, head)


def verify_runs(session: Path, events: Iterable[Event]) -> list[RunVerification]:
    """Verify every run in the session directory or in its events, oldest first."""
    session_hashes: dict[str, dict[int, str]] = {}
    for event in events:
        run, number = event.details.get("run"), _number(event)
        if isinstance(run, str) and number is not None:
            session_hashes.setdefault(run, {})[number] = str(event.details["hash"])
    present = {path.name: path for path in sorted((session / RUNS).glob("*")) if path.is_dir()}
    elsewhere = (
        {path.name: path for path in all_run_directories(session.parent)} if set(session_hashes) - set(present) else {}
    )
    found = [verify_run(path, session_hashes.get(name)) for name, path in present.items()]
    for name in sorted(set(session_hashes) - set(present)):
        if name in elsewhere:
            found.append(verify_run(elsewhere[name], session_hashes[name]))
        else:
            found.append(RunVerification(name, False, 0, "its directory is missing", [], None))
    return sorted(found, key=lambda one: one.run)


def compare_with_sessions(run: StoredRun) -> StoredRun:
    """Return a stored run that no agent has open; it is damaged if a session has records that the journal does not.

    The opposite is not damage: each record is on disk before the session gets it. Files that others may have written
    are damage too: a plan is code, and a user who can write it can write a hash chain that matches.
    """
    if (foreign := _foreign(run.directory)) is not None:
        return replace(run, damage=foreign)
    session = run.directory.parent.parent
    events = {number: event for event in _events_of(run.directory) if (number := _number(event)) is not None}
    session_hashes = {number: str(event.details.get("hash")) for number, event in events.items()}
    have = len(run.lines)
    if run.damage is not None or _first_mismatch([_hash_of(raw) for raw in run.lines], session_hashes, None) is None:
        return run
    newest = max(events)
    if newest > have:
        text = (
            f"its journal ends with record {have}, but the session {session.name} has {newest}: the end "
            f"was removed. "
            f"Missing: {_first(events[number].text for number in sorted(events) if number > have)}"
        )
    else:
        text = f"its journal does not match the session {session.name}"
    return replace(run, damage=text)


def _foreign(directory: Path) -> str | None:
    """Return why others may have written the run."""
    for path in (directory, directory / JOURNAL, directory / PLAN, directory / DOCUMENT):
        if (why := trust_problem(path)) is not None:
            return f"others may have changed it: {why.text}"
    return None


def _first(texts: Iterable[str]) -> str:
    found = list(texts)
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")


def _events_of(directory: Path) -> Iterator[Event]:
    """Return the events about the run: from its own session and from those of agents that continued it. An unreadable
    session is skipped."""
    own_session = directory.parent.parent
    began = parse_name(own_session.name)
    for session in session_directories(own_session.parent):
        named = parse_name(session.name)
        if session != own_session and (began is None or named is None or named.start_us < began.start_us):
            continue
        try:
            recording = Recording.open(session)
        except SessionError:
            continue
        with closing(recording):
            yield from (event for event in recording.events() if event.details.get("run") == directory.name)


def _number(event: Event) -> int | None:
    """Return the number of the run's record in an event."""
    number, digest = event.details.get("seq"), event.details.get("hash")
    return number if isinstance(number, int) and number > 0 and isinstance(digest, str) else None


def _first_mismatch(hashes: list[str], session_hashes: Mapping[int, str], damage: str | None) -> str | None:
    """Return the first record that does not match the session, or the problem of the journal itself."""
    for seq in sorted(session_hashes):
        if seq > len(hashes):
            return damage or f"record {len(hashes) + 1}: missing; the session has {max(session_hashes)}"
        if hashes[seq - 1] != session_hashes[seq]:
            return f"record {seq}: does not match the session"
    return damage


def _hash_of(raw: bytes) -> str:
    """Return the verified hash of a line."""
    return raw.rstrip(b"\n")[-66:-2].decode()
