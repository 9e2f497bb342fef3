"""Questions and answers between a run and the consoles: nothing is taken that was not meant for what is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dba_console.agent.runs.operator_answers import OperatorQuestions, RunAbandoned
from dba_console.agent.runs.operator_identity import ConsoleOperator
from dba_console.core.clock import SYSTEM
from dba_console.runbooks.view_builder import question_view
from dba_console.runbooks.walk_requests import Answer, AskRequest, OperatorInterrupt, TimePassed

ANNA, BERTHA = ConsoleOperator("anna", 1), ConsoleOperator("bertha", 2)
LIMIT_S = 60.0


class AskingRun:
    """A run thread that asks one question."""

    def __init__(self, wanted: Callable[[OperatorQuestions], object]) -> None:
        self._asked = threading.Semaphore(0)
        self.questions = OperatorQuestions(SYSTEM, self._changed)
        self.result: object = None
        self._thread = threading.Thread(target=self._run, args=(wanted,), daemon=True)
        self._thread.start()

    def _changed(self) -> None:
        if self.questions.question is not None:
            self._asked.release()

    def _run(self, wanted: Callable[[OperatorQuestions], object]) -> None:
        try:
            self.result = wanted(self.questions)
        except RunAbandoned as left:
            self.result = left

    def asked(self) -> int:
        """The number of the next question, waited for."""
        assert self._asked.acquire(timeout=LIMIT_S)
        question = self.questions.question
        assert question is not None
        return question.id

    def end(self) -> object:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return self.result


YES = AskRequest(kind="yes", text="sure?", expects="yes")


def test_an_answer_is_delivered_with_the_name_of_its_operator() -> None:
    run = AskingRun(lambda questions: questions.ask(YES))
    assert run.questions.answer(run.asked(), "yes", ANNA, drives=True) is None
    result = run.end()
    assert isinstance(result, Answer) and (result.text, result.who) == ("yes", "anna")
    assert run.questions.question is None


def test_an_answer_to_another_question_or_by_another_user_is_not_accepted() -> None:
    run = AskingRun(lambda questions: questions.ask(YES))
    number = run.asked()
    assert "no longer open" in str(run.questions.answer(number + 1, "yes", ANNA, drives=True))
    assert "controls" in str(run.questions.answer(number, "yes", BERTHA, drives=False))
    assert run.questions.answer(number, "no", ANNA, drives=True) is None
    assert "no question is open" in str(run.questions.answer(number, "yes", ANNA, drives=True))
    run.end()


def test_an_answer_given_for_an_older_row_selection_is_not_accepted() -> None:
    wanted = AskRequest(kind="type", text="type 3", expects="3", rows="a/preview")
    questions = OperatorQuestions(SYSTEM, lambda: None)
    questions.question = question_view(
        wanted, number=1, since_us=0
    )  # as it stands while the run's thread has not come by
    questions.add_interrupt(OperatorInterrupt(verb="choose", who="anna", block="a/preview", look=1, rows=(0,)))
    assert "other rows were chosen" in str(questions.answer(1, "3", ANNA, drives=True))
    assert questions.peek_interrupt() == OperatorInterrupt(
        verb="choose", who="anna", block="a/preview", look=1, rows=(0,)
    )


def test_of_many_selections_the_newest_counts() -> None:
    questions = OperatorQuestions(SYSTEM, lambda: None)
    for places in ((0, 1), (0,), (1,)):
        questions.add_interrupt(OperatorInterrupt(verb="choose", who="anna", block="a/preview", look=1, rows=places))
    taken = questions.take_interrupt()
    assert taken is not None and taken.rows == (1,) and questions.take_interrupt() is None


def test_two_operators_are_two_or_it_is_not_confirmed() -> None:
    wanted = AskRequest(kind="type", text="type it", expects="db1", people=2)
    run = AskingRun(lambda questions: questions.ask(wanted))
    run.questions.answer(run.asked(), "db1", ANNA, drives=True)
    second = run.asked()
    assert "same console" in str(run.questions.answer(second, "db1", ANNA, drives=True))
    assert "both consoles state" in str(run.questions.answer(second, "db1", ConsoleOperator("anna", 9), drives=False))
    assert run.questions.answer(second, "db1", BERTHA, drives=False) is None
    result = run.end()
    assert isinstance(result, Answer) and result.who == "anna" and result.second.startswith("bertha")


def test_after_a_refused_confirmation_no_second_operator_is_asked() -> None:
    wanted = AskRequest(kind="type", text="type it", expects="db1", people=2)
    run = AskingRun(lambda questions: questions.ask(wanted))
    run.questions.answer(run.asked(), "no", ANNA, drives=True)
    result = run.end()
    assert isinstance(result, Answer) and result.text == "no" and result.second == ""


def test_an_interrupt_is_accepted_in_place_of_an_answer() -> None:
    run = AskingRun(lambda questions: questions.ask(YES))
    run.asked()
    interrupt = OperatorInterrupt(verb="abort", who="anna", reason="enough")
    run.questions.add_interrupt(interrupt)
    assert run.end() is interrupt
    run = AskingRun(lambda questions: questions.wait(3600.0))
    run.questions.add_interrupt(interrupt)
    assert run.end() is interrupt


def test_time_passes_without_any_interrupt() -> None:
    passed = OperatorQuestions(SYSTEM, lambda: None).wait(0.0)
    assert isinstance(passed, TimePassed)


def test_a_withdrawn_pause_is_ignored() -> None:
    questions = OperatorQuestions(SYSTEM, lambda: None)
    questions.add_interrupt(OperatorInterrupt(verb="pause", who="anna"))
    questions.drop_pauses()
    assert questions.take_interrupt() is None


def test_many_interrupts_of_one_kind_do_not_displace_others() -> None:
    questions = OperatorQuestions(SYSTEM, lambda: None)
    questions.add_interrupt(OperatorInterrupt(verb="abort", who="anna", reason="enough"))
    for _ in range(20):
        questions.add_interrupt(OperatorInterrupt(verb="pause", who="bert"))
    heard = [questions.take_interrupt(), questions.take_interrupt(), questions.take_interrupt()]
    assert [interrupt and interrupt.verb for interrupt in heard] == ["abort", "pause", None]


def test_waiting_callers_are_released_when_the_agent_ends() -> None:
    run = AskingRun(lambda questions: questions.ask(YES))
    run.asked()
    run.questions.abandon()
    assert isinstance(run.end(), RunAbandoned)
    with pytest.raises(RunAbandoned):
        run.questions.take_interrupt()


def test_a_question_that_resolves_itself_is_no_longer_asked() -> None:
    run = AskingRun(lambda questions: questions.ask_until(YES, lambda: True))
    run.asked()
    assert run.end() is None and run.questions.question is None
