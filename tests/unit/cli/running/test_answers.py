"""What was given beforehand answers what it was given for, and nothing else."""

from __future__ import annotations

import pytest

from dba_console.cli.running.answers import AnswerMismatch, GivenAnswers, parse_confirmations
from dba_console.core.errors import UsageError
from dba_console.recording.plan import Block, Plan, Step
from dba_console.runbooks.run_view import Option, Question, QuestionKind

PLAN = Plan(
    id="cache-drop",
    title="t",
    steps=(
        Step(
            id="drop-it", title="Drop it", line=1,
            blocks=(Block(id="drop-it/action", kind="action", line=2, language="toml", body=""),),
        ),
    ),
)  # fmt: skip
OPTIONS = (Option(key="once", text="once"), Option(key="again", text="again"))


def asked(kind: QuestionKind, expects: str = "", step: str = "drop-it", block: str = "drop-it/action") -> Question:
    return Question(id=1, kind=kind, text="?", step=step, block=block, expects=expects, options=OPTIONS)


def test_a_confirmation_answers_its_step_each_time_it_asks() -> None:
    answers = GivenAnswers([("drop-it", "db2")])
    assert [answers.answer_for(asked("type", "db2")) for _ in range(3)] == ["db2"] * 3


def test_several_answers_of_one_step_are_used_in_their_order() -> None:
    answers = GivenAnswers([("drop-it", "yes"), ("drop-it", "db2")])
    assert answers.answer_for(asked("yes")) == "yes"
    assert answers.answer_for(asked("type", "db2")) == "db2"


def test_a_block_name_is_more_specific_than_its_step() -> None:
    answers = GivenAnswers([("drop-it", "no"), ("drop-it/action", "db2")])
    assert answers.answer_for(asked("type", "db2")) == "db2"


def test_an_answer_for_a_block_answers_no_other_of_its_step() -> None:
    answers = GivenAnswers([("drop-it/action", "db2")])
    assert answers.answer_for(asked("type", "db2", block="drop-it/other")) is None
    with pytest.raises(AnswerMismatch, match="--confirm drop-it/action=db2 does not fit"):
        answers.answer_for(asked("type", "db3"))


@pytest.mark.parametrize("kind", ["yes", "type", "choose", "manual", "input", "failed", "settle", "second", "undo"])
def test_yes_covers_only_what_needs_an_acknowledgement(kind: QuestionKind) -> None:
    answers = GivenAnswers(yes=True)
    assert answers.answer_for(asked("ack")) == "y"
    assert answers.answer_for(asked(kind, "db2")) is None


def test_the_failure_a_run_was_left_with_is_answered_once() -> None:
    answers = GivenAnswers(failed="again")
    assert [answers.answer_for(asked("failed")) for _ in range(2)] == ["again", None]
    with pytest.raises(AnswerMismatch, match="--failed skip does not fit: use one of once, again"):
        GivenAnswers(failed="skip").answer_for(asked("failed"))


@pytest.mark.parametrize("kind", ["failed", "settle", "second"])
def test_a_failure_is_never_decided_in_advance(kind: QuestionKind) -> None:
    assert (
        GivenAnswers([("drop-it", "retry"), ("drop-it/action", "retry")], yes=True).answer_for(asked(kind, "retry"))
        is None
    )


def test_a_confirmation_of_another_step_answers_nothing() -> None:
    assert GivenAnswers([("other", "db2")]).answer_for(asked("type", "db2")) is None


def test_the_start_needs_a_confirmation_of_the_requester() -> None:
    start = asked("start", step="", block="")
    assert GivenAnswers().answer_for(start) is None
    assert GivenAnswers([("start", "yes")]).answer_for(start) == "yes"
    assert GivenAnswers([("drop-it", "db2")]).answer_for(start) == "yes"
    assert GivenAnswers(yes=True).answer_for(start) == "yes"


@pytest.mark.parametrize(
    ("kind", "text", "expects"), [("type", "db1", "db2"), ("yes", "y", ""), ("choose", "twice", ""), ("ack", "no", "")]
)
def test_a_text_that_does_not_match_is_never_sent(kind: QuestionKind, text: str, expects: str) -> None:
    with pytest.raises(AnswerMismatch, match="does not fit"):
        GivenAnswers([("drop-it", text)]).answer_for(asked(kind, expects))


def test_decisions_evidence_and_values_are_given_like_confirmations() -> None:
    answers = GivenAnswers([("drop-it", "again"), ("drop-it", "told anna"), ("drop-it", "7")])
    assert [answers.answer_for(asked(kind)) for kind in ("choose", "manual", "input")] == ["again", "told anna", "7"]


def test_step_and_text_are_split_at_the_first_separator() -> None:
    assert parse_confirmations(["drop-it=a=b", " start = yes "], PLAN) == [("drop-it", "a=b"), ("start", "yes")]
    assert parse_confirmations(["drop-it/action=x"], PLAN) == [("drop-it/action", "x")]


@pytest.mark.parametrize("text", ["drop-it", "=x", "drop-it=", ""])
def test_a_confirmation_without_its_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="STEP=TEXT"):
        parse_confirmations([text], PLAN)


def test_an_unknown_step_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="no step 'dropit'") as error:
        parse_confirmations(["dropit=x"], PLAN)
    assert error.value.hint == "did you mean drop-it?"
