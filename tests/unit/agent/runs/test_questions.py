"""Questions and answers between a run and the consoles: nothing is taken that was not meant for what is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dba_console.agent.runs.operators import ConsoleOperator
from dba_console.agent.runs.questions import OperatorQuestions, RunAbandoned
from dba_console.core.clock import SYSTEM
from dba_console.runbooks.requests import Answer, AskRequest, OperatorInterrupt, TimePassed
from dba_console.runbooks.view_builder import question_view

ANNA, BERTHA = ConsoleOperator("anna", 1), ConsoleOperator("bertha", 2)
PATIENCE_S = 60.0


class Room:
    """A desk with a run's thread that asks one thing."""

    def __init__(self, wanted: Callable[[OperatorQuestions], object]) -> None:
        self._asked = threading.Semaphore(0)
        self.desk = OperatorQuestions(SYSTEM, self._changed)
        self.got: object = None
        self._thread = threading.Thread(target=self._run, args=(wanted,), daemon=True)
        self._thread.start()

    def _changed(self) -> None:
        if self.desk.question is not None:
            self._asked.release()

    def _run(self, wanted: Callable[[OperatorQuestions], object]) -> None:
        try:
            self.got = wanted(self.desk)
        except RunAbandoned as left:
            self.got = left

    def asked(self) -> int:
        """The number of the next question, waited for."""
        assert self._asked.acquire(timeout=PATIENCE_S)
        question = self.desk.question
        assert question is not None
        return question.id

    def end(self) -> object:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.got


YES = AskRequest(kind="yes", text="sure?", expects="yes")


def test_an_answer_is_delivered_with_the_name_of_its_operator() -> None:
    room = Room(lambda desk: desk.ask(YES))
    assert room.desk.answer(room.asked(), "yes", ANNA, drives=True) is None
    got = room.end()
    assert isinstance(got, Answer) and (got.text, got.who) == ("yes", "anna")
    assert room.desk.question is None


def test_an_answer_to_another_question_or_by_another_user_is_not_accepted() -> None:
    room = Room(lambda desk: desk.ask(YES))
    number = room.asked()
    assert "no longer open" in str(room.desk.answer(number + 1, "yes", ANNA, drives=True))
    assert "controls" in str(room.desk.answer(number, "yes", BERTHA, drives=False))
    assert room.desk.answer(number, "no", ANNA, drives=True) is None
    assert "no question is open" in str(room.desk.answer(number, "yes", ANNA, drives=True))
    room.end()


def test_an_answer_given_for_an_older_row_selection_is_not_accepted() -> None:
    wanted = AskRequest(kind="type", text="type 3", expects="3", rows="a/preview")
    desk = OperatorQuestions(SYSTEM, lambda: None)
    desk.question = question_view(wanted, number=1, since_us=0)  # as it stands while the run's thread has not come by
    desk.add_interrupt(OperatorInterrupt(verb="choose", who="anna", block="a/preview", look=1, rows=(0,)))
    assert "other rows were chosen" in str(desk.answer(1, "3", ANNA, drives=True))
    assert desk.peek_interrupt() == OperatorInterrupt(verb="choose", who="anna", block="a/preview", look=1, rows=(0,))


def test_of_many_selections_the_newest_counts() -> None:
    desk = OperatorQuestions(SYSTEM, lambda: None)
    for places in ((0, 1), (0,), (1,)):
        desk.add_interrupt(OperatorInterrupt(verb="choose", who="anna", block="a/preview", look=1, rows=places))
    taken = desk.take_interrupt()
    assert taken is not None and taken.rows == (1,) and desk.take_interrupt() is None


def test_two_operators_are_two_or_it_is_not_confirmed() -> None:
    wanted = AskRequest(kind="type", text="type it", expects="db1", people=2)
    room = Room(lambda desk: desk.ask(wanted))
    room.desk.answer(room.asked(), "db1", ANNA, drives=True)
    second = room.asked()
    assert "same console" in str(room.desk.answer(second, "db1", ANNA, drives=True))
    assert "both consoles state" in str(room.desk.answer(second, "db1", ConsoleOperator("anna", 9), drives=False))
    assert room.desk.answer(second, "db1", BERTHA, drives=False) is None
    got = room.end()
    assert isinstance(got, Answer) and got.who == "anna" and got.second.startswith("bertha")


def test_after_a_refused_confirmation_no_second_operator_is_asked() -> None:
    wanted = AskRequest(kind="type", text="type it", expects="db1", people=2)
    room = Room(lambda desk: desk.ask(wanted))
    room.desk.answer(room.asked(), "no", ANNA, drives=True)
    got = room.end()
    assert isinstance(got, Answer) and got.text == "no" and got.second == ""


def test_an_interrupt_is_accepted_in_place_of_an_answer() -> None:
    room = Room(lambda desk: desk.ask(YES))
    room.asked()
    wish = OperatorInterrupt(verb="abort", who="anna", reason="enough")
    room.desk.add_interrupt(wish)
    assert room.end() is wish
    room = Room(lambda desk: desk.wait(3600.0))
    room.desk.add_interrupt(wish)
    assert room.end() is wish


def test_time_passes_without_any_interrupt() -> None:
    passed = OperatorQuestions(SYSTEM, lambda: None).wait(0.0)
    assert isinstance(passed, TimePassed)


def test_a_withdrawn_pause_is_ignored() -> None:
    desk = OperatorQuestions(SYSTEM, lambda: None)
    desk.add_interrupt(OperatorInterrupt(verb="pause", who="anna"))
    desk.drop_interrupts("pause")
    assert desk.take_interrupt() is None


def test_many_interrupts_of_one_kind_do_not_displace_others() -> None:
    desk = OperatorQuestions(SYSTEM, lambda: None)
    desk.add_interrupt(OperatorInterrupt(verb="abort", who="anna", reason="enough"))
    for _ in range(20):
        desk.add_interrupt(OperatorInterrupt(verb="pause", who="bert"))
    heard = [desk.take_interrupt(), desk.take_interrupt(), desk.take_interrupt()]
    assert [wish and wish.verb for wish in heard] == ["abort", "pause", None]


def test_waiting_callers_are_released_when_the_agent_ends() -> None:
    room = Room(lambda desk: desk.ask(YES))
    room.asked()
    room.desk.abandon()
    assert isinstance(room.end(), RunAbandoned)
    with pytest.raises(RunAbandoned):
        room.desk.take_interrupt()


def test_a_question_that_resolves_itself_is_no_longer_asked() -> None:
    room = Room(lambda desk: desk.ask_until(YES, lambda: True))
    room.asked()
    assert room.end() is None and room.desk.question is None
