"""Where a run and the people meet: the run's thread puts a question and waits; consoles answer, or want something else.

Waiting has no end of its own: silence never acts. Every method but `ask` and `wait` may be called by any thread, and
returns at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dba_console.agent.runs.operators import ConsoleOperator, difference
from dba_console.core.clock import Clock
from dba_console.runbooks.requests import Answer, AskRequest, OperatorInterrupt, TimePassed
from dba_console.runbooks.run_view import Question, QuestionKind
from dba_console.runbooks.view_builder import question_view

MOOT_CHECK_S = 2.0
"""Between two looks at whether a question has answered itself."""
MAX_INTERRUPTS = 8
"""What was asked for while an act ran; more than one is a person who repeats themselves."""


class RunAbandoned(Exception):
    """The agent ends, or was told to let the run be: whoever waits here waits no longer."""


class OperatorQuestions:
    """One run's place for questions. `changed` is called whenever what a console sees of it changed."""

    def __init__(self, clock: Clock, changed: Callable[[], None], *, first_id: int = 1) -> None:
        self._clock, self._changed = clock, changed
        self._condition = threading.Condition()
        self._next_id = first_id
        self._answer: tuple[str, ConsoleOperator] | None = None
        self._interrupts: deque[OperatorInterrupt] = deque(maxlen=MAX_INTERRUPTS)
        self._abandoned = False
        self._first_operator: ConsoleOperator | None = None
        self.question: Question | None = None
        """What is being asked now."""
        self.operator_wait_s = 0.0
        """Waited for people so far."""

    def ask(self, wanted: AskRequest) -> Answer | OperatorInterrupt:
        """Put the question and wait for its answer, or for somebody who wants something else. Raises Left.

        Where two people are needed the second is asked once the first has typed what is expected.
        """
        begun_us = self._clock.mono_us()
        try:
            first = self._ask_one(wanted, wanted.kind)
            if first is None or isinstance(first, OperatorInterrupt):
                return _require_interrupt(first)
            text, who = first
            if wanted.people < 2 or text.strip() != wanted.expects:
                return Answer(text=text, who=who.name, human_s=self._elapsed_s(begun_us))
            self._first_operator = who
            second = self._ask_one(wanted, "second")
            if second is None or isinstance(second, OperatorInterrupt):
                return _require_interrupt(second)
            said, other = second
            how = difference(who, other).why
            return Answer(text=said, who=who.name, second=f"{other.name} ({how})", human_s=self._elapsed_s(begun_us))
        finally:
            self._first_operator = None
            self.operator_wait_s += self._elapsed_s(begun_us)

    def ask_until(self, wanted: AskRequest, moot: Callable[[], bool]) -> Answer | None:
        """Put a question that may answer itself: `moot` is asked every few seconds, and True makes it one. What
        somebody wants instead has to wait. Raises Left.
        """
        begun_us = self._clock.mono_us()
        try:
            said = self._ask_one(wanted, wanted.kind, heed=False, moot=moot)
        finally:
            self.operator_wait_s += self._elapsed_s(begun_us)
        if said is None or isinstance(said, OperatorInterrupt):
            return None
        return Answer(text=said[0], who=said[1].name, human_s=self._elapsed_s(begun_us))

    def wait(self, seconds: float, until_us: int | None = None) -> TimePassed | OperatorInterrupt:
        """Let time pass; `until_us` is of the wall clock and is looked at again, for it may be set. Raises Left."""
        begun_us = self._clock.mono_us()
        with self._condition:
            while True:
                if self._abandoned:
                    raise RunAbandoned
                if self._interrupts:
                    return self._interrupts.popleft()
                left_s = seconds - self._elapsed_s(begun_us)
                if until_us is not None:
                    left_s = min((until_us - self._clock.wall_us()) / 1e6, 60.0)
                if left_s <= 0:
                    return TimePassed(seconds=self._elapsed_s(begun_us), wall_us=self._clock.wall_us())
                self._condition.wait(left_s)

    def take_interrupt(self) -> OperatorInterrupt | None:
        """What somebody wants instead of what comes next. Raises Left."""
        with self._condition:
            if self._abandoned:
                raise RunAbandoned
            return self._interrupts.popleft() if self._interrupts else None

    def peek_interrupt(self) -> OperatorInterrupt | None:
        """The same, left for the next question, pause or look to take up. Raises Left."""
        with self._condition:
            if self._abandoned:
                raise RunAbandoned
            return self._interrupts[0] if self._interrupts else None

    def abort_asked(self) -> bool:
        """Whether an abort waits to be taken up."""
        with self._condition:
            return any(wish.verb == "abort" for wish in self._interrupts)

    def add_interrupt(self, wish: OperatorInterrupt) -> None:
        """Somebody wants something else: taken up at the next question, pause or look.

        The newest word of a wish counts, so that many of one kind do not push out another.
        """
        with self._condition:
            same = [earlier for earlier in self._interrupts if earlier.verb == wish.verb]
            for earlier in same:
                self._interrupts.remove(earlier)
            self._interrupts.append(wish)
            self._condition.notify_all()

    def drop_interrupts(self, verb: str) -> None:
        """Somebody does not want that any more."""
        with self._condition:
            kept = [wish for wish in self._interrupts if wish.verb != verb]
            self._interrupts.clear()
            self._interrupts.extend(kept)

    def answer(self, question: int, text: str, person: ConsoleOperator, *, drives: bool) -> str | None:
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

    def why_not(self, person: ConsoleOperator, *, drives: bool) -> str | None:
        """Why this person may not answer what is asked now; None where they may."""
        with self._condition:
            if self.question is None:
                return "nothing is asked now"
            return self._why_not(self.question.kind, person, drives)

    def abandon(self) -> None:
        """Let who waits here go, for good."""
        with self._condition:
            self._abandoned = True
            self._condition.notify_all()

    def _why_not(self, kind: QuestionKind, person: ConsoleOperator, drives: bool) -> str | None:
        if kind != "second":
            return None if drives else "another console drives this run"
        if self._first_operator is None:
            return "nothing is asked now"
        two = difference(self._first_operator, person)
        return None if two.two else f"a second person has to confirm: {two.why}"

    def _ask_one(
        self, wanted: AskRequest, kind: QuestionKind, *, heed: bool = True, moot: Callable[[], bool] | None = None
    ) -> tuple[str, ConsoleOperator] | OperatorInterrupt | None:
        """The answer and who gave it; None where the question has become moot."""
        with self._condition:
            if self._abandoned:
                raise RunAbandoned
            if heed and self._interrupts:
                return self._interrupts.popleft()
            self.question = self._question(wanted, kind)
            self._next_id += 1
        self._changed()
        try:
            while True:
                with self._condition:
                    if self._abandoned:
                        raise RunAbandoned
                    if self._answer is not None:
                        return self._answer
                    if heed and self._interrupts:
                        return self._interrupts.popleft()
                    self._condition.wait(None if moot is None else MOOT_CHECK_S)
                    idle = self._answer is None and not self._abandoned
                if moot is not None and idle and moot():
                    return None
        finally:
            with self._condition:
                self.question = self._answer = None
            self._changed()

    def _question(self, wanted: AskRequest, kind: QuestionKind) -> Question:
        first_by = self._first_operator.name if kind == "second" and self._first_operator is not None else ""
        return question_view(wanted, number=self._next_id, since_us=self._clock.wall_us(), first_by=first_by)

    def _elapsed_s(self, begun_us: int) -> float:
        return (self._clock.mono_us() - begun_us) / 1e6


def _require_interrupt(said: OperatorInterrupt | None) -> OperatorInterrupt:
    """Of a question that cannot become moot."""
    if said is None:
        raise AssertionError("a question became moot that has no way to")
    return said
