"""Questions of a run to its operators: the run's thread asks and waits; consoles answer or interrupt.

Waiting has no timeout: silence never acts. All methods except `ask`, `ask_until` and `wait` are thread-safe and return
at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dba_console.agent.runs.operator_identity import ConsoleOperator, difference
from dba_console.core.clock import Clock
from dba_console.runbooks.run_view import Question, QuestionKind
from dba_console.runbooks.view_builder import question_view
from dba_console.runbooks.walk_requests import Answer, AskRequest, OperatorInterrupt, TimePassed

MOOT_CHECK_S = 2.0
"""Interval of checks whether a question has become moot."""
MAX_INTERRUPTS = 8
"""Maximum pending interrupts."""


class RunAbandoned(Exception):
    """The agent ends, or was asked to leave the run: waiting stops."""


class OperatorQuestions:
    """The questions of one run. `changed` is called after each change that consoles are shown."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock, self._changed = clock, changed
        self._condition = threading.Condition()
        self._next_id = 1
        self._answer: tuple[str, ConsoleOperator] | None = None
        self._interrupts: deque[OperatorInterrupt] = deque(maxlen=MAX_INTERRUPTS)
        self._abandoned = False
        self._first_operator: ConsoleOperator | None = None
        self.question: Question | None = None
        """The open question."""

    def ask(self, wanted: AskRequest) -> Answer | OperatorInterrupt:
        """Ask and wait for the answer or an interrupt. Raises RunAbandoned.

        If two operators are required, the second is asked after the first has typed the expected text.
        """
        begun_us = self._clock.mono_us()
        first = self._ask_one(wanted, wanted.kind)
        if first is None or isinstance(first, OperatorInterrupt):
            return _require_interrupt(first)
        text, who = first
        if wanted.people < 2 or text.strip() != wanted.expects:
            return Answer(text=text, who=who.name, human_s=self._elapsed_s(begun_us))
        self._first_operator = who
        try:
            second = self._ask_one(wanted, "second")
        finally:
            self._first_operator = None
        if second is None or isinstance(second, OperatorInterrupt):
            return _require_interrupt(second)
        answer, other = second
        how = difference(who, other).why
        return Answer(text=answer, who=who.name, second=f"{other.name} ({how})", human_s=self._elapsed_s(begun_us))

    def ask_until(self, wanted: AskRequest, moot: Callable[[], bool]) -> Answer | None:
        """Ask a question that may become moot: `moot` is called every few seconds and ends the question when it returns
        True. Interrupts are not handled meanwhile. Raises RunAbandoned.
        """
        begun_us = self._clock.mono_us()
        answer = self._ask_one(wanted, wanted.kind, moot)
        if answer is None or isinstance(answer, OperatorInterrupt):
            return None
        return Answer(text=answer[0], who=answer[1].name, human_s=self._elapsed_s(begun_us))

    def wait(self, seconds: float, until_us: int | None = None) -> TimePassed | OperatorInterrupt:
        """Wait; `until_us` is wall time, checked again because the clock may be set. Raises RunAbandoned."""
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
        """Return and remove the next interrupt. Raises RunAbandoned."""
        with self._condition:
            if self._abandoned:
                raise RunAbandoned
            return self._interrupts.popleft() if self._interrupts else None

    def peek_interrupt(self) -> OperatorInterrupt | None:
        """Return the next interrupt and keep it for the next question, pause or check. Raises RunAbandoned."""
        with self._condition:
            if self._abandoned:
                raise RunAbandoned
            return self._interrupts[0] if self._interrupts else None

    def abort_asked(self) -> bool:
        """Return whether an abort is pending."""
        with self._condition:
            return any(interrupt.verb == "abort" for interrupt in self._interrupts)

    def add_interrupt(self, interrupt: OperatorInterrupt) -> None:
        """Add an interrupt, handled at the next question, pause or check.

        It replaces an earlier one of the same kind, so that repeated ones do not displace others.
        """
        with self._condition:
            self._remove_interrupts(interrupt.verb)
            self._interrupts.append(interrupt)
            self._condition.notify_all()

    def drop_pauses(self) -> None:
        """Remove the pending pauses."""
        with self._condition:
            self._remove_interrupts("pause")

    def _remove_interrupts(self, verb: str) -> None:
        for earlier in [one for one in self._interrupts if one.verb == verb]:
            self._interrupts.remove(earlier)

    def answer(self, question: int, text: str, person: ConsoleOperator, *, drives: bool) -> str | None:
        """Answer the question with this number. Returns None, or why the answer is refused."""
        with self._condition:
            open_question = self.question
            if open_question is None or self._answer is not None:
                return "no question is open"
            if open_question.id != question:
                return f"question {question} is no longer open"
            if (why := self._why_not(open_question.kind, person, drives)) is not None:
                return why
            if open_question.rows and any(interrupt.verb == "choose" for interrupt in self._interrupts):
                return "other rows were chosen meanwhile; check the question again"
            self._answer = (text, person)
            self._condition.notify_all()
        return None

    def why_not(self, person: ConsoleOperator, *, drives: bool) -> str | None:
        """Return why this operator may not answer the open question; None if allowed."""
        with self._condition:
            if self.question is None:
                return "no question is open"
            return self._why_not(self.question.kind, person, drives)

    def abandon(self) -> None:
        """End all waiting permanently."""
        with self._condition:
            self._abandoned = True
            self._condition.notify_all()

    def _why_not(self, kind: QuestionKind, person: ConsoleOperator, drives: bool) -> str | None:
        if kind != "second":
            return None if drives else "another console controls this run"
        if self._first_operator is None:
            return "no question is open"
        two = difference(self._first_operator, person)
        return None if two.two else f"a second operator must confirm: {two.why}"

    def _ask_one(
        self, wanted: AskRequest, kind: QuestionKind, moot: Callable[[], bool] | None = None
    ) -> tuple[str, ConsoleOperator] | OperatorInterrupt | None:
        """Return the answer and its operator; None if the question became moot. With `moot`, interrupts wait."""
        with self._condition:
            if self._abandoned:
                raise RunAbandoned
            if moot is None and self._interrupts:
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
                    if moot is None and self._interrupts:
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


def _require_interrupt(result: OperatorInterrupt | None) -> OperatorInterrupt:
    """Check that a question which cannot become moot did not."""
    if result is None:
        raise AssertionError("a question became moot without a moot check")
    return result
