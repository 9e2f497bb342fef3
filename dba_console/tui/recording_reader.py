"""Answers queries about the past from a recording, in its own thread.

A disk that does not answer stops the answers, never the screen. If queries come faster than answers, only the newest
is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.tui.feed import (
    AtTime,
    ChartPoint,
    Mailbox,
    MomentArrived,
    NamedTime,
    NextNotable,
    NextSample,
    QueryRefused,
    RecordingEdge,
    RecordingQuery,
    SameMoment,
)
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.tui.recorded_hosts import RecordedHosts

HISTORY_US = 600_000_000
"""Charts cover ten minutes."""
MAX_EVENTS = 200
_NOTABLE_KINDS = ("mark", "note", "finding", "gap", "clock.jump", "server.lost", "server.changed")


class RecordingSource(Protocol):
    """What the reader needs of a recording; implemented in recording/recording.py."""

    @property
    def first_us(self) -> int | None: ...
    @property
    def last_us(self) -> int | None: ...
    @property
    def damage(self) -> str | None: ...
    def refresh(self) -> int | None: ...
    def picture_at(self, wall_us: int) -> Picture | None: ...
    def step(self, wall_us: int, direction: int) -> int | None: ...
    def points(self, from_us: int, to_us: int) -> Sequence[ChartPoint]: ...
    def events(
        self, from_us: int | None = None, to_us: int | None = None, limit: int | None = None
    ) -> Sequence[Event]: ...
    def close(self) -> None: ...


def is_notable(event: Event) -> bool:
    """Check whether `[` and `]` stop at the event: marks, notes, findings, and errors."""
    return event.kind.startswith(_NOTABLE_KINDS) or event.severity != "info"


def next_notable_us(events: Sequence[Event], from_us: int, direction: int) -> int | None:
    """Return the time of the nearest notable event beyond `from_us`; None if not found."""
    times = [event.happened_us for event in events if is_notable(event)]
    beyond = [at for at in times if (at - from_us) * direction > 0]
    return min(beyond, key=lambda at: abs(at - from_us)) if beyond else None


class RecordingReader:
    """A recording behind a thread. `open_source` runs in that thread, on the first question.

    With `hosts`, a question is about one of several recordings, of which `open_source` opens the first.
    """

    def __init__(
        self,
        open_source: Callable[[], RecordingSource],
        mailbox: Mailbox,
        resolve: Callable[[RecordingSource, str, int | None], int],
        hosts: RecordedHosts | None = None,
    ) -> None:
        self._open = open_source
        self._hosts = hosts
        self._mailbox = mailbox
        self._resolve = resolve
        self._source: RecordingSource | None = None
        self._query: tuple[int, RecordingQuery, int] | None = None
        self._serial = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(self, query: RecordingQuery, host: int = 0) -> int:
        """Queue a query, replacing one not started yet; the answer carries the returned number."""
        with self._changed:
            self._serial += 1
            self._query = (self._serial, query, host)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
                self._thread.start()
            return self._serial

    def close(self) -> None:
        """End the thread, without waiting for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._query is not None or self._closed)
                if self._closed:
                    break
                (serial, question, host), self._query = self._query or (0, RecordingEdge(1), 0), None
            self._mailbox.put(self._try_answer(serial, question, host))
        opened = self._hosts or self._source
        if opened is not None:
            opened.close()

    def _try_answer(self, serial: int, query: RecordingQuery, host: int) -> MomentArrived | QueryRefused:
        try:
            return self._answer(self._source_of(host), serial, query, host)
        except ConsoleError as error:
            return QueryRefused(serial, redact("; ".join(filter(None, (error.message, error.hint)))))
        except Exception as error:
            # A damaged file or a failing disk may raise anything: the screen keeps running and shows it.
            return QueryRefused(serial, redact(f"cannot read the recording: {error}"))

    def _source_of(self, host: int) -> RecordingSource:
        if self._source is None:
            self._source = self._open()
        source = self._source if self._hosts is None else self._hosts.recording(host)
        source.refresh()
        return source

    def _answer(
        self, source: RecordingSource, serial: int, query: RecordingQuery, host: int
    ) -> MomentArrived | QueryRefused:
        at_us = self._query_time(source, query, host)
        if isinstance(at_us, str):
            return QueryRefused(serial, at_us)
        picture = source.picture_at(at_us)
        if picture is None and (later_us := source.step(at_us, 1)) is not None:
            # The recording begins later, or this part cannot be read: use the next readable sample.
            at_us, picture = later_us, source.picture_at(later_us)
        if picture is None:
            return QueryRefused(serial, source.damage or "nothing is recorded at that time")
        since_us = query.since_us if isinstance(query, AtTime) else None
        from_us = picture.wall_us - HISTORY_US if since_us is None else since_us + 1
        return MomentArrived(
            serial,
            at_us,
            picture,
            source.points(from_us, picture.wall_us),
            source.events(to_us=max(at_us, picture.wall_us), limit=MAX_EVENTS),
            source.first_us,
            source.last_us,
            damage=source.damage,
            continues=since_us is not None,
            host=host,
            others=() if self._hosts is None else self._hosts.others(host, at_us),
            notice=self._hosts.notice(host if isinstance(query, SameMoment) else None) if self._hosts else "",
        )

    def _query_time(self, source: RecordingSource, query: RecordingQuery, host: int) -> int | str:
        """Return the wall-clock time of a query, or the reason why it is unknown."""
        if source.first_us is None or source.last_us is None:
            return "nothing is recorded yet"
        match query:
            case AtTime(wall_us, _):
                return min(max(wall_us, source.first_us), source.last_us)
            case NextSample(from_us, direction):
                at_us = source.step(from_us, direction)
                return _edge_text(direction) if at_us is None else at_us
            case NextNotable(from_us, direction):
                at_us = next_notable_us(source.events(), from_us, direction)
                return (
                    f"no mark, note or finding {'after' if direction > 0 else 'before'} this"
                    if at_us is None
                    else at_us
                )
            case RecordingEdge(direction):
                return source.last_us if direction > 0 else source.first_us
            case NamedTime(text, now_us):
                return self._resolve(source, text, now_us)
            case SameMoment():
                return "one host is recorded here" if self._hosts is None else self._hosts.same_moment(query, host)


def _edge_text(direction: int) -> str:
    return "this is the end of the recording" if direction > 0 else "this is the start of the recording"


# Opening a recording, and times in it as the contract names them.


def open_recording(directory: Path) -> RecordingSource:
    """Open the recording in `directory`, live or finished. Raises SessionError with what is wrong with it."""
    from dba_console.recording.recording import Recording  # imports SQLite, only when the past is first shown

    return Recording.open(directory)


def resolve_time(source: RecordingSource, text: str, now_us: int | None) -> int:
    """Return the wall-clock time that `text` (a TIME of the contract) names. Raises UsageError."""
    from dba_console.recording.session_lookup import parse_when

    events = source.events() if text.startswith(("finding:", "mark:")) else ()
    last_us = source.last_us if now_us is None else now_us
    return parse_when(text, first_us=source.first_us or 0, last_us=last_us or 0, events=events)
