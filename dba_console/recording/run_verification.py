"""Whether a run's journal is what was written: its own chain, its snapshot, and what the session says of it.

The chain of the session holds the number and hash of every record of a run. So a journal that was cut at its end, or
made anew from some record on, does not fit the session it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.errors import SessionError
from dba_console.recording.layout import parse_name, session_directories
from dba_console.recording.recording import Recording
from dba_console.recording.run_paths import RUNS
from dba_console.recording.run_reader import StoredRun, all_run_directories, read_run
from dba_console.watch.samples.event import Event


class RunVerification(Struct, frozen=True):
    """What was checked of a run and the first thing found wrong."""

    run: str
    ok: bool
    records: int
    first_bad: str | None
    """Names the first record that is not what was written: `record 17: …`."""
    notes: list[str]
    head: str | None
    """Hash of the newest record."""


def verify_run(directory: Path, session_hashes: Mapping[int, str] | None = None) -> RunVerification:
    """Check one run. `told`: number -> hash of its records, as a session tells them."""
    try:
        run = read_run(directory)
    except SessionError as error:
        return RunVerification(directory.name, False, 0, error.message, [], None)
    hashes = [_hash_of(raw) for raw in run.lines]
    problem = _first_mismatch(hashes, session_hashes or {}, run.damage)
    notes = list(run.notes)
    if run.ended is None and not run.live:
        notes.append("it came to no end: a cut end could not be told from a crash, but by what the session says of it")
    head = run.head if run.lines else None
    return RunVerification(directory.name, problem is None, len(run.records), problem, notes, head)


def verify_runs(session: Path, events: Iterable[Event]) -> list[RunVerification]:
    """Check every run that lies in the session or that its events speak of, oldest first."""
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
            found.append(RunVerification(name, False, 0, "the directory of this run is missing", [], None))
    return sorted(found, key=lambda one: one.run)


def compare_with_sessions(run: StoredRun) -> StoredRun:
    """The papers of a run that no agent has open, damaged where a session knows records the journal does not have.

    A journal that knows more than the session is sound: each record is on the disk before the session hears of it.
    """
    session = run.directory.parent.parent
    events = {number: event for event in _events_of(run.directory) if (number := _number(event)) is not None}
    session_hashes = {number: str(event.details.get("hash")) for number, event in events.items()}
    have = len(run.lines)
    if run.damage is not None or _first_mismatch([_hash_of(raw) for raw in run.lines], session_hashes, None) is None:
        return run
    newest = max(events)
    if newest > have:
        text = (
            f"its journal ends with record {have}, and the session {session.name} knows of {newest}: the end "
            f"was cut off. "
            f"Missing: {_first(events[number].text for number in sorted(events) if number > have)}"
        )
    else:
        text = f"its journal is not the one that the session {session.name} speaks of"
    return replace(run, damage=text)


def _first(texts: Iterable[str]) -> str:
    found = list(texts)
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")


def _events_of(directory: Path) -> Iterator[Event]:
    """What sessions say of the run: its own, and those of agents that went on with it. One that cannot be read says
    nothing."""
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
        try:
            yield from (event for event in recording.events() if event.details.get("run") == directory.name)
        finally:
            recording.close()


def _number(event: Event) -> int | None:
    """Which record of the run an event tells of."""
    number, digest = event.details.get("seq"), event.details.get("hash")
    return number if isinstance(number, int) and number > 0 and isinstance(digest, str) else None


def _first_mismatch(hashes: list[str], session_hashes: Mapping[int, str], damage: str | None) -> str | None:
    """The first record that is not the one the session speaks of, or what is wrong with the journal itself."""
    for seq in sorted(session_hashes):
        if seq > len(hashes):
            return damage or f"record {len(hashes) + 1}: missing; the session knows of {max(session_hashes)}"
        if hashes[seq - 1] != session_hashes[seq]:
            return f"record {seq}: it is not the one the session speaks of"
    return damage


def _hash_of(raw: bytes) -> str:
    """The hash a line carries; it has been checked."""
    return raw.rstrip(b"\n")[-66:-2].decode()
