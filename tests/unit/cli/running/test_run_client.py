"""A client without a screen: prints what happens, asks the operator, and answers nothing on its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from dba_console.agent.protocol import (
    EventMessage,
    Notice,
    Request,
    RunAnswer,
    RunControl,
    RunLines,
    RunRefused,
    RunViewMessage,
)
from dba_console.cli.running.answers import GivenAnswers
from dba_console.cli.running.run_client import ExitClient, Reaction, RunClient, SendRequest, ShowChange
from dba_console.runbooks.run_view import Option, OutputLine, Question, RunView
from dba_console.watch.samples.event import Event
from tests.walkthrough.sample_views import DROP, ENDED, FAILED, STEPS, TYPED, WAIT

RUNNING = structs.replace(DROP, state="running", question=None)
START = Question(id=1, kind="start", text="Start?")
SECOND = Question(id=9, kind="second", text="Drop it?", step="drop", block="drop/action", expects="db2", first_by="ann")
NONE = (Option(key="all", text="all"), Option(key="none", text="none"))
UNDO = Question(id=10, kind="undo", text="Take back?", options=NONE)


def view(base: RunView, question: Question | None = None, **fields: object) -> RunView:
    return structs.replace(base, question=question, **fields)


def view_message(
    base: RunView, question: Question | None = None, *, yours: bool = True, may: bool | None = None
) -> RunViewMessage:
    may_answer = yours and question is not None if may is None else may
    return RunViewMessage(view=view(base, question), yours=yours, may_answer=may_answer)


def requests(reactions: list[Reaction]) -> list[Request]:
    return [out.request for out in reactions if isinstance(out, SendRequest)]


def printed(reactions: list[Reaction]) -> list[dict[str, Any]]:
    return [out.change.fields for out in reactions if isinstance(out, ShowChange)]


def printed_lines(reactions: list[Reaction]) -> list[str]:
    return [str(change["event"]) for change in printed(reactions)]


def printed_text(reactions: list[Reaction]) -> str:
    return "\n".join(str(change["text"]) for change in printed(reactions) if "text" in change)


def exit_codes(reactions: list[Reaction]) -> list[int]:
    return [out.code for out in reactions if isinstance(out, ExitClient)]


def interactive_client() -> RunClient:
    return RunClient(GivenAnswers(), can_ask=True)


def headless_client(*confirmed: tuple[str, str], yes: bool = False) -> RunClient:
    return RunClient(GivenAnswers(confirmed, yes=yes), can_ask=False)


# At a terminal


@pytest.fixture
def client() -> RunClient:
    return interactive_client()


def test_a_question_waits_for_typed_input(client: RunClient) -> None:
    reactions = client.receive(view_message(DROP, TYPED))
    assert requests(reactions) == []
    assert "question" in printed_lines(reactions)
    assert client.question == TYPED
    assert requests(client.handle_line("db2\n")) == [RunAnswer(run=DROP.run, question=7, text="db2")]
    assert client.question is None


def test_enter_alone_answers_nothing(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    assert client.handle_line("\n") == [] and client.handle_line("   \n") == []
    assert client.question == TYPED


def test_input_typed_without_a_question_is_ignored(client: RunClient) -> None:
    client.receive(view_message(RUNNING))
    reactions = client.handle_line("yes")
    assert requests(reactions) == []
    assert "no question is open" in printed_text(reactions)


def test_an_answer_is_sent_once(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    client.handle_line("db2")
    assert requests(client.handle_line("db2")) == []


def test_an_answer_that_is_not_accepted_may_be_given_again(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    client.handle_line("db1")
    reactions = client.receive(RunRefused(text="'db1' is not 'db2'; nothing was done", reply_to=DROP.run))
    assert "not 'db2'" in printed_text(reactions)
    assert requests(client.handle_line("db2")) == [RunAnswer(run=DROP.run, question=7, text="db2")]


def test_a_question_that_returns_after_a_pause_is_asked_again(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    assert requests(client.handle_line("/pause look first")) == [
        RunControl(run=DROP.run, verb="pause", reason="look first")
    ]
    paused = Question(id=8, kind="choose", text="Paused", options=(Option(key="continue", text="go on"),))
    client.receive(view_message(view(DROP, state="paused"), paused))
    assert requests(client.handle_line("/continue")) == [RunControl(run=DROP.run, verb="continue")]
    reactions = client.receive(view_message(DROP, structs.replace(TYPED, id=9)))
    assert "question" in printed_lines(reactions)
    assert exit_codes(reactions) == []
    assert requests(client.handle_line("db2")) == [RunAnswer(run=DROP.run, question=9, text="db2")]


def test_commands_report_what_they_need(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    assert requests(client.handle_line("/skip")) == [] and requests(client.handle_line("/jump after")) == []
    assert "is not one of" in printed_text(client.handle_line("/nonsense"))
    assert "/pause" in printed_text(client.handle_line("/help"))
    assert requests(client.handle_line("/skip too late")) == [RunControl(run=DROP.run, verb="skip", reason="too late")]
    assert requests(client.handle_line("/jump after it is gone")) == [
        RunControl(run=DROP.run, verb="jump", step="after", reason="it is gone")
    ]
    client.receive(view_message(DROP, structs.replace(TYPED, id=8)))
    answer = RunAnswer(run=DROP.run, question=8, text="/etc/hosts was read")
    assert requests(client.handle_line("//etc/hosts was read")) == [answer]
    client.receive(view_message(DROP, structs.replace(TYPED, id=9)))
    assert requests(client.handle_line("/etc/hosts")) == [RunAnswer(run=DROP.run, question=9, text="/etc/hosts")]


def test_after_a_detach_it_says_that_the_run_continues_and_how_to_return(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    for reactions in (client.leave(), client.handle_line("/leave")):
        assert requests(reactions) == []
        assert "continues" in printed_text(reactions) and f"runbook resume {DROP.run}" in printed_text(reactions)
        assert exit_codes(reactions) == [130]


def test_another_driving_console_is_named() -> None:
    client = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    reactions = client.receive(view_message(DROP, TYPED, yours=False))
    assert "ann answers it" in printed_text(reactions) and "/take" in printed_text(reactions)
    assert client.question is None


def test_the_second_operator_is_asked_at_their_own_console() -> None:
    first, second = interactive_client(), RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    assert "a second operator" in printed_text(first.receive(view_message(DROP, SECOND, may=False)))
    second.receive(view_message(DROP, SECOND, yours=False, may=True))
    assert requests(second.handle_line("db2")) == [RunAnswer(run=DROP.run, question=9, text="db2")]


def test_the_end_is_reported_and_gives_the_exit_code() -> None:
    for state, code in (("done", 0), ("failed", 7), ("aborted", 7)):
        client = interactive_client()
        client.receive(view_message(RUNNING))
        reactions = client.receive(view_message(view(ENDED, state=state)))
        assert printed_lines(reactions)[-1] == "ended"
        assert exit_codes(reactions) == [code]


def test_an_end_with_an_open_question_is_not_an_end(client: RunClient) -> None:
    client.receive(view_message(RUNNING))
    assert exit_codes(client.receive(view_message(view(ENDED, state="failed"), UNDO))) == []


def test_a_refused_run_ends_the_command_with_its_exit_code() -> None:
    reactions = interactive_client().receive(RunRefused(text="another run is under way", hint="attach", code=8))
    assert "another run" in printed_text(reactions) and "hint: attach" in printed_text(reactions)
    assert exit_codes(reactions) == [8]


def test_an_earlier_run_is_not_the_requested_one() -> None:
    client = RunClient(GivenAnswers(yes=True), can_ask=False, other_runs=[DROP.run])
    assert client.receive(view_message(DROP, TYPED)) == []
    reactions = client.receive(RunRefused(text="another run is under way", code=2))
    assert exit_codes(reactions) == [2]


def test_a_typed_command_counts_as_the_answer_until_it_is_refused(client: RunClient) -> None:
    client.receive(view_message(DROP, TYPED))
    client.handle_line("/abort too late")
    assert client.question is None
    client.receive(RunRefused(text="not now", reply_to=DROP.run))
    assert client.question == TYPED


def test_messages_of_other_runs_are_ignored() -> None:
    client = RunClient(GivenAnswers(), can_ask=True, run="another")
    assert client.receive(view_message(DROP, TYPED)) == []
    assert client.receive(RunLines(run=DROP.run, block="b", lines=[OutputLine(1, "o", "T", "x")])) == []


def test_output_is_printed_line_by_line_and_missing_lines_are_counted() -> None:
    client = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    client.receive(view_message(DROP))
    reactions = client.receive(RunLines(run=DROP.run, block="b", lines=[OutputLine(1, "o", "T", "x")], dropped=5))
    assert printed_lines(reactions) == ["line", "word"]
    assert "5 lines not shown" in printed_text(reactions)


def test_output_of_an_interrupted_run_is_not_printed_before_its_message_returns() -> None:
    client = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    lines = RunLines(run=DROP.run, block="b", lines=[OutputLine(1, "o", "T", "x")])
    assert client.receive(lines) == []
    client.receive(RunViewMessage(view=view(DROP, state="interrupted")))
    assert client.receive(lines) == []


def test_a_wait_is_reported_occasionally_to_operators_and_each_time_to_programs() -> None:
    waits = [view(WAIT, waiting=structs.replace(WAIT.waiting, values=f"io {n} MB/s")) for n in range(21)]  # type: ignore[type-var]
    counts = []
    for every in (False, True):
        client = RunClient(GivenAnswers(), can_ask=True, run=DROP.run, every_change=every)
        reactions = [client.receive(view_message(one), n * 1_000_000) for n, one in enumerate(waits)]
        counts.append(sum(printed_lines(out).count("waiting") for out in reactions))
    assert counts == [3, 21]


# With nobody to ask


def test_a_question_without_an_answer_ends_the_run_as_refused() -> None:
    client = headless_client(yes=True)
    client.receive(view_message(RUNNING))
    reactions = client.receive(view_message(DROP, TYPED))
    assert [type(one) for one in requests(reactions)] == [RunControl]
    assert "--confirm drop=db2" in printed_text(reactions)
    undo = client.receive(view_message(view(DROP, state="running"), UNDO))
    assert requests(undo) == [RunAnswer(run=DROP.run, question=10, text="none")]
    assert exit_codes(client.receive(view_message(view(ENDED, state="aborted")))) == [8]


def test_a_failure_without_a_decision_ends_the_run_as_failed() -> None:
    client = headless_client(("drop", "db2"))
    client.receive(view_message(RUNNING))
    reactions = client.receive(view_message(DROP, FAILED))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"]
    assert exit_codes(client.receive(view_message(view(ENDED, state="failed")))) == [7]


def test_a_half_done_run_waits_if_no_operator_can_decide() -> None:
    for asked, code in ((FAILED, 7), (TYPED, 8)):
        client = headless_client()
        client.receive(view_message(RUNNING))
        reactions = client.receive(view_message(view(DROP, must_finish=True), asked))
        assert (requests(reactions), exit_codes(reactions)) == ([], [code])
        assert "half done" in printed_text(reactions) and "runbook resume" in printed_text(reactions)


def test_an_answer_the_agent_rejects_is_not_repeated_for_ever() -> None:
    client = headless_client(("drop", "db2"))
    client.receive(view_message(RUNNING))
    client.receive(view_message(DROP, TYPED))
    reactions = client.receive(Notice(kind="refused", text="question 7 is not asked any more"))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"]
    reactions = client.receive(view_message(DROP, structs.replace(TYPED, id=8, expects="db3")))
    assert exit_codes(reactions) == [8]


def test_a_run_interrupted_by_an_internal_error_is_not_waited_for() -> None:
    client = headless_client(("drop", "db2"))
    client.receive(view_message(view(RUNNING, state="interrupted")))
    assert exit_codes(client.receive(view_message(RUNNING))) == [], "it was interrupted before, and goes on"
    reactions = client.receive(view_message(view(RUNNING, state="interrupted")))
    assert exit_codes(reactions) == [7] and "runbook resume" in printed_text(reactions)


def test_the_second_operator_is_waited_for() -> None:
    client = headless_client(("drop", "db2"))
    client.receive(view_message(DROP, TYPED))
    reactions = client.receive(view_message(DROP, SECOND, may=False))
    assert (requests(reactions), exit_codes(reactions)) == ([], [])


def come_back(*confirmed: tuple[str, str]) -> RunClient:
    return RunClient(GivenAnswers(confirmed), can_ask=False, run=DROP.run)


def test_a_headless_client_takes_over_an_undriven_run_and_waits_only_a_limited_time() -> None:
    """The first view is the one a console is welcomed with, before it drives anything; it asks the same."""
    client = come_back(("drop", "db2"))
    free = structs.replace(DROP, driver="")
    assert requests(client.receive(view_message(free, TYPED, yours=False))) == [RunControl(run=DROP.run, verb="take")]
    assert requests(client.receive(view_message(DROP, TYPED))) == [RunAnswer(run=DROP.run, question=7, text="db2")]
    assert requests(client.receive(view_message(DROP, TYPED))) == [], "once"
    client = come_back(("watch", "abort"))
    failed = structs.replace(WAIT, driver="", run=DROP.run)
    client.receive(view_message(failed, FAILED, yours=False))
    reactions = client.receive(view_message(failed, FAILED))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"]


def test_a_headless_client_leaves_a_run_that_another_console_drives() -> None:
    reactions = come_back(("drop", "db2")).receive(
        view_message(structs.replace(DROP, driver="eve"), TYPED, yours=False)
    )
    assert (requests(reactions), exit_codes(reactions)) == ([], [130])
    assert "eve controls this run" in printed_text(reactions) and "continues" in printed_text(reactions)


# What is told


def recorded(run: str, seq: int) -> EventMessage:
    details = {"run": run, "seq": seq, "block": "drop/action", "state": "ok"}
    return EventMessage(event=Event(wall_us=seq, kind="block.result", text=f"result {seq}", details=details))


def test_records_are_reported_once_the_run_is_identified(client: RunClient) -> None:
    assert client.receive(recorded(DROP.run, 1)) == [] and client.receive(recorded("another", 2)) == []
    reactions = client.receive(view_message(RUNNING))
    assert printed_lines(reactions)[:2] == ["run", "record"] and printed_lines(reactions).count("record") == 1
    assert printed_text(client.receive(recorded(DROP.run, 3))) == "result 3"
    assert client.receive(recorded("another", 4)) == []


def test_steps_are_reported_on_change_and_their_text_when_they_are_entered(client: RunClient) -> None:
    client.receive(view_message(view(DROP, state="running", current="before", steps=STEPS[:3])))
    reactions = client.receive(view_message(DROP, TYPED))
    steps = [change for change in printed(reactions) if change["event"] == "step"]
    assert [(step["step"], step["state"]) for step in steps] == [("drop", "waiting")]
    assert steps[0]["prose"] == msgspec.to_builtins(DROP.step_prose)
    assert printed_lines(client.receive(view_message(DROP, TYPED))) == []
