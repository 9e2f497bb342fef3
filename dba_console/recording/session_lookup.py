"""List sessions, find a session by name, and parse times within a session."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Literal

from msgspec import Struct

from dba_console.core.errors import SessionError, UsageError
from dba_console.core.units import parse_duration
from dba_console.recording.layout import (
    DATABASE,
    PINNED,
    has_our_header,
    is_live,
    parse_name,
    require_one,
    require_readable,
    session_directories,
)
from dba_console.recording.recording import Recording
from dba_console.recording.shared_file import is_shared_file, open_shared
from dba_console.watch.samples.event import Event

State = Literal["live", "closed", "crashed", "unreadable"]


class ListedSession(Struct, frozen=True, kw_only=True):
    """A line of `session list`. Times in microseconds since 1970; None is unknown."""

    id: str
    path: str
    start_us: int
    end_us: int | None
    duration_s: float | None
    target: str | None
    host: str
    samples: int | None
    bytes: int
    state: State
    pinned: bool
    continues: str | None = None
    note: str | None = None
    """Why it is damaged, if it is."""
    redacted: str | None = None
    """Level of a redacted copy."""


def list_sessions(sessions: Path) -> list[ListedSession]:
    """Return every session in a sessions directory, oldest first, also damaged ones."""
    rows = [row_of(directory) for directory in session_directories(sessions) if _is_session(directory)]
    return sorted(rows, key=lambda row: (row.start_us, row.id))


def row_of(directory: Path) -> ListedSession:
    """Return the line of one session directory (its name must parse)."""
    name = parse_name(directory.name)
    if name is None:
        raise SessionError(f"not the name of a session: {directory}")
    size, pinned = size_of(directory), is_pinned(directory)
    try:
        recording = Recording.open(directory)
    except SessionError as error:
        return ListedSession(
            id=name.id, path=str(directory), start_us=name.start_us, end_us=None, duration_s=None, target=None,
            host=name.host, samples=None, bytes=size, state="live" if is_live(directory) else "unreadable",
            pinned=pinned, note=error.message,
        )  # fmt: skip
    with closing(recording):
        meta = recording.meta
        start_us, end_us = (name.start_us if meta is None else meta.start_wall_us), recording.last_us
        return ListedSession(
            id=name.id, path=str(directory), start_us=start_us, end_us=end_us,
            duration_s=max(0.0, (end_us - start_us) / 1e6), target=None if meta is None else meta.target,
            host=name.host, samples=recording.samples, bytes=size, state=recording.state, pinned=pinned,
            continues=None if meta is None else meta.continues, note=recording.damage,
            redacted=None if meta is None or (made := meta.redacted()) is None else made.level,
        )  # fmt: skip


def size_of(directory: Path) -> int:
    """Return the allocated bytes of all files below."""
    total = 0
    for parent, _, files in os.walk(directory):
        for file in files:
            try:
                total += os.lstat(os.path.join(parent, file)).st_blocks * 512
            except OSError:
                continue  # removed meanwhile
    return total


def is_pinned(directory: Path) -> bool:
    return (directory / PINNED).exists()


def pin(directory: Path, pinned: bool = True) -> None:
    """Pin a session, so that retention does not remove it, or unpin it. Raises SessionError."""
    try:
        if pinned:
            os.close(os.open(directory / PINNED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        else:
            (directory / PINNED).unlink(missing_ok=True)
    except OSError as error:
        raise SessionError(f"cannot {'pin' if pinned else 'unpin'} {directory.name}: {error.strerror}") from error


def continued_by(sessions: Path, target_key: str) -> str | None:
    """Return the id of the newest session of a target if it was not closed: the next one continues it."""
    for directory in reversed(session_directories(sessions)):
        if not _is_session(directory):
            continue
        try:
            recording = Recording.open(directory)
        except SessionError:
            continue
        with closing(recording):
            if recording.meta is not None and recording.meta.target_key == target_key:
                return recording.meta.id if recording.state == "crashed" else None
    return None


def _is_session(directory: Path) -> bool:
    """Return whether a directory has the name and content of a session; session.db may be damaged."""
    return has_our_header(directory / DATABASE) or (directory / "session.lock").exists()


# Find a session by directory, id, unique prefix of an id, or `last`.

_LIST_HINT = "`dba-console session list` lists the sessions"


def resolve(name: str, sessions: Path, *, to_change: bool = False) -> Path:
    """Return the session's directory; of a shared file, a directory with its content until this process ends.

    `to_change`: something will be written there, so a shared file is refused. Raises SessionError if none or several
    match, PermissionDenied if `sessions` cannot be read.
    """
    if not name:
        raise SessionError("no session named", hint=_LIST_HINT)
    named_path = Path(name).expanduser()
    if named_path.name == DATABASE and named_path.is_file():
        return named_path.parent
    if is_shared_file(named_path):
        if to_change:
            raise SessionError(
                f"{name} is a shared file: only a copy of its content would be changed",
                hint="change the session that it was made of, or unzip it and name its directory",
            )
        return open_shared(named_path)
    if "/" in name or name in (".", ".."):
        if (named_path / DATABASE).exists():
            return named_path
        raise SessionError(f"no recording in {named_path}: session.db is missing", hint=_LIST_HINT)
    require_readable(sessions)
    directories = [path for path in session_directories(sessions) if (path / DATABASE).exists()]
    if name == "last":
        if not directories:
            raise SessionError(f"no session in {sessions}", hint="`dba-console record` creates one")
        return directories[-1]
    return _by_beginning(name, named_path, directories, sessions)


def resolve_hosts(name: str, others: Sequence[str], sessions: Path) -> list[Path]:
    """Return the directories of a session and of those of `--with`. Raises as `resolve`; UsageError if two are one."""
    paths = [resolve(one, sessions) for one in (name, *others)]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("--with names a session that is already named")
    return paths


def _by_beginning(name: str, named_path: Path, directories: list[Path], sessions: Path) -> Path:
    found = [path for path in directories if path.name.startswith(name) or _id(path).startswith(name)]
    exact = [path for path in found if name in (path.name, _id(path))]
    if not found and (named_path / DATABASE).exists():
        return named_path
    if not found:
        raise SessionError(f"unknown session {name!r} in {sessions}", hint=_LIST_HINT)
    return require_one(exact or found, name, "sessions")


def _id(path: Path) -> str:
    parsed = parse_name(path.name)
    return "" if parsed is None else parsed.id


# TIME: a point in time of a session.
#
# 2026-11-20T14:53:07.5Z RFC 3339; without a zone it is local time, a blank may stand for the T 14:53:07 14:53 that
# time of day within the session, the last one where it spans several days -10m +90s before the end, after the start
# finding:NAME mark:TEXT when the finding was raised, alone or in another; when the mark was made (the first that fits)

_HINT = "write it as 2026-11-20T14:53:07Z, 14:53:07, -10m, +90s, finding:NAME or mark:TEXT"
_OPEN = ("finding.raised", "finding.changed")
"""Events that report an open finding; it may be silenced before."""
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,6})?)?")


def parse_when(text: str, *, first_us: int, last_us: int, events: Sequence[Event] = ()) -> int:
    """Return the wall time in microseconds of TIME in a session from `first_us` to `last_us`. Raises UsageError.

    >>> parse_when("+90s", first_us=0, last_us=600_000_000), parse_when("-10m", first_us=0, last_us=700_000_000)
    (90000000, 100000000)
    >>> parse_when("1970-01-01T00:00:02.5Z", first_us=0, last_us=0)
    2500000
    """
    text = text.strip()
    kind, colon, rest = text.partition(":")
    if colon and kind in ("finding", "mark"):
        return _of_event(kind, rest, events)
    if text[:1] in ("+", "-"):
        span_us = int(parse_duration(text[1:]) * 1e6)
        return first_us + span_us if text[0] == "+" else last_us - span_us
    if (match := _TIME_OF_DAY.fullmatch(text)) is not None:
        return _time_of_day(text, match, first_us, last_us)
    try:
        moment = datetime.fromisoformat(text)
        return _microseconds(moment)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"not a time: {text!r}", hint=_HINT) from None


def _of_event(kind: str, text: str, events: Sequence[Event]) -> int:
    for event in events:
        if kind == "mark" and event.kind == "mark" and text in event.text:
            return event.happened_us
        if kind == "finding" and event.kind in _OPEN and _names(event, text):
            return event.wall_us
    raise UsageError(f"no {kind} {text!r} in this session", hint="the events panel lists them")


def _names(event: Event, name: str) -> bool:
    """Return whether the name is its id or its rule, or one of its grouped findings."""
    parts = [str(part) for part in (event.details.get("id"), event.details.get("name"), *_component_findings(event))]
    return name in parts or name in {part.partition(":")[0] for part in parts}


def _component_findings(event: Event) -> list[object]:
    return [*(event.details.get("chain") or ()), *(event.details.get("also") or ())]


def _time_of_day(text: str, match: re.Match[str], first_us: int, last_us: int) -> int:
    """Return the last such time within the session; if none, the one on its last day."""
    try:
        fraction = int(float(match[4] or 0) * 1e6)
        of_day = time(int(match[1]), int(match[2]), int(match[3] or 0), fraction)
    except ValueError:
        raise UsageError(f"not a time of day: {text!r}", hint=_HINT) from None
    try:
        day = datetime.fromtimestamp(last_us / 1e6).date()
        on_last_day = _microseconds(datetime.combine(day, of_day))
        if on_last_day <= last_us:
            return on_last_day
        day_before = _microseconds(datetime.combine(day - timedelta(days=1), of_day))
    except (ValueError, OverflowError, OSError) as error:
        raise SessionError(f"invalid times in this recording: {error}") from error
    return day_before if day_before >= first_us else on_last_day


def _microseconds(moment: datetime) -> int:
    """Return the time in microseconds; without a zone it is local time."""
    return round(moment.timestamp() * 1e6)
