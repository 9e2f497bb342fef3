"""Where a run and the people meet: the run's thread puts a question and waits; consoles answer, or want something else.

Waiting has no end of its own: silence never acts. Every method but `ask` and `wait` may be called by any thread, and
returns at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dba_console.agent.runs.people import Person, difference
from dba_console.clock import Clock
from dba_console.plans.view import Question, QuestionKind
from dba_console.runbook.requests import Answer, Ask, Interrupt, Passed
from dba_console.runbook.viewing import put

MOOT_S = 2.0
"""Between two looks at whether a question has answered itself."""
INTERRUPTS_KEPT = 8
"""What was asked for while an act ran; more than one is a person who repeats themselves."""


class Left(Exception):
    """The agent ends, or was told to let the run be: whoever waits here waits no longer."""


class Desk:
    """One run's place for questions. `changed` is called whenever what a console sees of it changed."""

    def __init__(self, clock: Clock, changed: Callable[[], None], *, first_id: int = 1) -> None:
        self._clock, self._changed = clock, changed
        self._condition = threading.Condition()
        self._next_id = first_id
        self._answer: tuple[str, Person] | None = None
        self._interrupts: deque[Interrupt] = deque(maxlen=INTERRUPTS_KEPT)
        self._left = False
        self._first: Person | None = None
        self.question: Question | None = None
        """What is being asked now."""
        self.human_s = 0.0
        """Waited for people so far."""

    def ask(self, wanted: Ask) -> Answer | Interrupt:
        """Put the question and wait for its answer, or for somebody who wants something else. Raises Left.

        Where two people are needed the second is asked once the first has typed what is expected.
        """
        begun_us = self._clock.mono_us()
        try:
            first = self._one(wanted, wanted.kind)
            if first is None or isinstance(first, Interrupt):
                return _interrupt(first)
            text, who = first
            if wanted.people < 2 or text.strip() != wanted.expects:
                return Answer(text=text, who=who.name, human_s=self._since(begun_us))
            self._first = who
            second = self._one(wanted, "second")
            if second is None or isinstance(second, Interrupt):
                return _interrupt(second)
            said, other = second
            how = difference(who, other).why
            return Answer(text=said, who=who.name, second=f"{other.name} ({how})", human_s=self._since(begun_us))
        finally:
            self._first = None
            self.human_s += self._since(begun_us)

    def ask_until(self, wanted: Ask, moot: Callable[[], bool]) -> Answer | None:
        """Put a question that may answer itself: `moot` is asked every few seconds, and True makes it one. What
        somebody wants instead has to wait. Raises Left.
        """
        begun_us = self._clock.mono_us()
        try:
            said = self._one(wanted, wanted.kind, heed=False, moot=moot)
        finally:
            self.human_s += self._since(begun_us)
        if said is None or isinstance(said, Interrupt):
            return None
        return Answer(text=said[0], who=said[1].name, human_s=self._since(begun_us))

    def wait(self, seconds: float, until_us: int | None = None) -> Passed | Interrupt:
        """Let time pass; `until_us` is of the wall clock and is looked at again, for it may be set. Raises Left."""
        begun_us = self._clock.mono_us()
        with self._condition:
            while True:
                if self._left:
                    raise Left
                if self._interrupts:
                    return self._interrupts.popleft()
                left_s = seconds - self._since(begun_us)
                if until_us is not None:
                    left_s = min((until_us - self._clock.wall_us()) / 1e6, 60.0)
                if left_s <= 0:
                    return Passed(seconds=self._since(begun_us), wall_us=self._clock.wall_us())
                self._condition.wait(left_s)

    def interrupted(self) -> Interrupt | None:
        """What somebody wants instead of what comes next. Raises Left."""
        with self._condition:
            if self._left:
                raise Left
            return self._interrupts.popleft() if self._interrupts else None

    def wish(self) -> Interrupt | None:
        """The same, left for the next question, pause or look to take up. Raises Left."""
        with self._condition:
            if self._left:
                raise Left
            return self._interrupts[0] if self._interrupts else None

    def abort_asked(self) -> bool:
        """Whether an abort waits to be taken up."""
        with self._condition:
            return any(wish.verb == "abort" for wish in self._interrupts)

    def interrupt(self, wish: Interrupt) -> None:
        """Somebody wants something else: taken up at the next question, pause or look.

        The newest word of a wish counts, so that many of one kind do not push out another.
        """
        with self._condition:
            same = [earlier for earlier in self._interrupts if earlier.verb == wish.verb]
            for earlier in same:
                self._interrupts.remove(earlier)
            self._interrupts.append(wish)
            self._condition.notify_all()

    def forget(self, verb: str) -> None:
        """Somebody does not want that any more."""
        with self._condition:
            kept = [wish for wish in self._interrupts if wish.verb != verb]
            self._interrupts.clear()
            self._interrupts.extend(kept)

    def answer(self, question: int, text: str, person: Person, *, drives: bool) -> str | None:
        """An answer to the question of this number. None, or the sentence why it is not taken."""
        with self._condition:
            asked = self.question
            if asked is None or self._answer is not None:
                return "nothing is asked now"
            if asked.id != question:
                return f"question {question} is not asked any more"
            if (why := self._why_not(asked.kind, person, drives)) is not None:
                return why
            if asked.rows and any(wish.verb == "choose" for wish in self._interrupts):
                return "other rows were chosen meanwhile: look at the question again"
            self._answer = (text, person)
            self._condition.notify_all()
        return None

    def why_not(self, person: Person, *, drives: bool) -> str | None:
        """Why this person may not answer what is asked now; None where they may."""
        with self._condition:
            if self.question is None:
                return "nothing is asked now"
            return self._why_not(self.question.kind, person, drives)

    def leave(self) -> None:
        """Let who waits here go, for good."""
        with self._condition:
            self._left = True
            self._condition.notify_all()

    def _why_not(self, kind: QuestionKind, person: Person, drives: bool) -> str | None:
        if kind != "second":
            return None if drives else "another console drives this run"
        if self._first is None:
            return "nothing is asked now"
        two = difference(self._first, person)
        return None if two.two else f"a second person has to confirm: {two.why}"

    def _one(
        self, wanted: Ask, kind: QuestionKind, *, heed: bool = True, moot: Callable[[], bool] | None = None
    ) -> tuple[str, Person] | Interrupt | None:
        """The answer and who gave it; None where the question has become moot."""
        with self._condition:
            if self._left:
                raise Left
            if heed and self._interrupts:
                return self._interrupts.popleft()
            self.question = self._question(wanted, kind)
            self._next_id += 1
        self._changed()
        try:
            while True:
                with self._condition:
                    if self._left:
                        raise Left
                    if self._answer is not None:
                        return self._answer
                    if heed and self._interrupts:
                        return self._interrupts.popleft()
                    self._condition.wait(None if moot is None else MOOT_S)
                    idle = self._answer is None and not self._left
                if moot is not None and idle and moot():
                    return None
        finally:
            with self._condition:
                self.question = self._answer = None
            self._changed()

    def _question(self, wanted: Ask, kind: QuestionKind) -> Question:
        first_by = self._first.name if kind == "second" and self._first is not None else ""
        return put(wanted, number=self._next_id, since_us=self._clock.wall_us(), first_by=first_by)

    def _since(self, begun_us: int) -> float:
        return (self._clock.mono_us() - begun_us) / 1e6


def _interrupt(said: Interrupt | None) -> Interrupt:
    """Of a question that cannot become moot."""
    if said is None:
        raise AssertionError("a question became moot that has no way to")
    return said
