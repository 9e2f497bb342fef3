"""Questions about the past, answered from a recording in a thread of its own.

Upheld here: a disk that does not answer stops the answers, never the screen. Of questions that come faster than answers
only the newest is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from dba_console.errors import ConsoleError
from dba_console.frames.picture import Picture
from dba_console.redact import redact
from dba_console.samples.event import Event
from dba_console.tui.feed import Mailbox, MomentArrived, Point, Refused
from dba_console.tui.questions import At, Edge, Named, Question, Sign, Step

HISTORY_US = 600_000_000
"""Charts reach ten minutes back."""
EVENTS = 200
_SIGN_KINDS = ("mark", "note", "finding", "gap", "clock.jump", "server.lost", "server.changed")


class Past(Protocol):
    """What is asked of a recording; session/recording.py has it."""

    @property
    def first_us(self) -> int | None: ...
    @property
    def last_us(self) -> int | None: ...
    @property
    def damage(self) -> str | None: ...
    def refresh(self) -> int | None: ...
    def picture_at(self, wall_us: int) -> Picture | None: ...
    def step(self, wall_us: int, direction: int) -> int | None: ...
    def points(self, from_us: int, to_us: int) -> Sequence[Point]: ...
    def events(
        self, from_us: int | None = None, to_us: int | None = None, limit: int | None = None
    ) -> Sequence[Event]: ...
    def close(self) -> None: ...


def is_sign(event: Event) -> bool:
    """True for what `[` and `]` stop at: marks, notes, findings, and trouble."""
    return event.kind.startswith(_SIGN_KINDS) or event.severity != "info"


def event_us(event: Event) -> int:
    """The moment an event is about."""
    return event.wall_us if event.occurred_us is None else event.occurred_us


def next_sign(events: Sequence[Event], from_us: int, direction: int) -> int | None:
    """The time of the nearest sign beyond `from_us`; None where there is none."""
    times = [event_us(event) for event in events if is_sign(event)]
    beyond = [at for at in times if (at - from_us) * direction > 0]
    return min(beyond, key=lambda at: abs(at - from_us)) if beyond else None


class Archive:
    """A recording behind a thread. `open_past` runs in that thread, on the first question."""

    def __init__(
        self,
        open_past: Callable[[], Past],
        mailbox: Mailbox,
        resolve: Callable[[Past, str, int | None], int],
    ) -> None:
        self._open = open_past
        self._mailbox = mailbox
        self._resolve = resolve
        self._past: Past | None = None
        self._question: tuple[int, Question] | None = None
        self._serial = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(self, question: Question) -> int:
        """Put a question in place of one not begun yet; the answer carries the number returned."""
        with self._changed:
            self._serial += 1
            self._question = (self._serial, question)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
                self._thread.start()
            return self._serial

    def close(self) -> None:
        """Let the thread end when it can; it is not waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._question is not None or self._closed)
                if self._closed:
                    break
                (serial, question), self._question = self._question or (0, Edge(1)), None
            self._mailbox.put(self._answered(serial, question))
        if self._past is not None:
            self._past.close()

    def _answered(self, serial: int, question: Question) -> MomentArrived | Refused:
        try:
            if self._past is None:
                self._past = self._open()
            self._past.refresh()
            return self._answer(self._past, serial, question)
        except ConsoleError as error:
            return Refused(serial, redact("; ".join(filter(None, (error.message, error.hint)))))
        except Exception as error:
            # Whatever a damaged file or a failing disk raises: the screen lives on and says so.
            return Refused(serial, redact(f"the recording cannot be read: {error}"))

    def _answer(self, past: Past, serial: int, question: Question) -> MomentArrived | Refused:
        at_us = self._place(past, question)
        if isinstance(at_us, str):
            return Refused(serial, at_us)
        picture = past.picture_at(at_us)
        if picture is None and (later_us := past.step(at_us, 1)) is not None:
            # The recording begins later, or what lies there cannot be read: the next sample that can.
            at_us, picture = later_us, past.picture_at(later_us)
        if picture is None:
            return Refused(serial, past.damage or "nothing is recorded at that time")
        since_us = question.since_us if isinstance(question, At) else None
        from_us = picture.wall_us - HISTORY_US if since_us is None else since_us + 1
        return MomentArrived(
            serial,
            at_us,
            picture,
            past.points(from_us, picture.wall_us),
            past.events(to_us=max(at_us, picture.wall_us), limit=EVENTS),
            past.first_us,
            past.last_us,
            damage=past.damage,
            continues=since_us is not None,
        )

    def _place(self, past: Past, question: Question) -> int | str:
        """The wall time a question is about, or why there is none."""
        if past.first_us is None or past.last_us is None:
            return "nothing is recorded yet"
        match question:
            case At(wall_us, _):
                return min(max(wall_us, past.first_us), past.last_us)
            case Step(from_us, direction):
                at_us = past.step(from_us, direction)
                return _edge_word(direction) if at_us is None else at_us
            case Sign(from_us, direction):
                at_us = next_sign(past.events(), from_us, direction)
                return (
                    f"no mark, note or finding {'after' if direction > 0 else 'before'} this"
                    if at_us is None
                    else at_us
                )
            case Edge(direction):
                return past.last_us if direction > 0 else past.first_us
            case Named(text, now_us):
                return self._resolve(past, text, now_us)


def _edge_word(direction: int) -> str:
    return "this is the end of the recording" if direction > 0 else "this is the start of the recording"
