"""A client without a screen: tells what happens, asks whoever types, and answers nothing by itself."""

from __future__ import annotations

import msgspec
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
from tests.walkthrough.views import DROP, ENDED, FAILED, STEPS, TYPED, WAIT

RUNNING = structs.replace(DROP, state="running", question=None)
START = Question(id=1, kind="start", text="Start?")
SECOND = Question(id=9, kind="second", text="Drop it?", step="drop", block="drop/action", expects="db2", first_by="ann")
NONE = (Option(key="all", text="all"), Option(key="none", text="none"))
UNDO = Question(id=10, kind="undo", text="Take back?", options=NONE)


def view(base: RunView, question: Question | None = None, **fields: object) -> RunView:
    return structs.replace(base, question=question, **fields)


def said(
    base: RunView, question: Question | None = None, *, yours: bool = True, may: bool | None = None
) -> RunViewMessage:
    may_answer = yours and question is not None if may is None else may
    return RunViewMessage(view=view(base, question), yours=yours, may_answer=may_answer)


def sent(outs: list[Reaction]) -> list[Request]:
    return [out.request for out in outs if isinstance(out, SendRequest)]


def told(outs: list[Reaction]) -> list[str]:
    return [str(out.change["event"]) for out in outs if isinstance(out, ShowChange)]


def words(outs: list[Reaction]) -> str:
    return "\n".join(str(out.change["text"]) for out in outs if isinstance(out, ShowChange) and "text" in out.change)


def left(outs: list[Reaction]) -> list[int]:
    return [out.code for out in outs if isinstance(out, ExitClient)]


def at_terminal() -> RunClient:
    return RunClient(GivenAnswers(), can_ask=True)


def headless(*confirmed: tuple[str, str], yes: bool = False) -> RunClient:
    return RunClient(GivenAnswers(confirmed, yes=yes), can_ask=False)


# At a terminal


def test_a_question_waits_for_typed_input() -> None:
    party = at_terminal()
    outs = party.receive(said(DROP, TYPED))
    assert sent(outs) == []
    assert "question" in told(outs)
    assert party.question == TYPED
    assert sent(party.handle_line("db2\n")) == [RunAnswer(run=DROP.run, question=7, text="db2")]
    assert party.question is None


def test_enter_alone_answers_nothing() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    assert party.handle_line("\n") == [] and party.handle_line("   \n") == []
    assert party.question == TYPED


def test_input_typed_without_a_question_is_ignored() -> None:
    party = at_terminal()
    party.receive(said(RUNNING))
    outs = party.handle_line("yes")
    assert sent(outs) == []
    assert "no question is open" in words(outs)


def test_an_answer_is_sent_once() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    party.handle_line("db2")
    assert sent(party.handle_line("db2")) == []


def test_an_answer_that_is_not_accepted_may_be_given_again() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    party.handle_line("db1")
    outs = party.receive(RunRefused(text="'db1' is not 'db2'; nothing was done", reply_to=DROP.run))
    assert "not 'db2'" in words(outs)
    assert sent(party.handle_line("db2")) == [RunAnswer(run=DROP.run, question=7, text="db2")]


def test_a_question_that_returns_after_a_pause_is_asked_again() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    assert sent(party.handle_line("/pause look first")) == [RunControl(run=DROP.run, verb="pause", reason="look first")]
    paused = Question(id=8, kind="choose", text="Paused", options=(Option(key="continue", text="go on"),))
    party.receive(said(view(DROP, state="paused"), paused))
    assert sent(party.handle_line("/continue")) == [RunControl(run=DROP.run, verb="continue")]
    outs = party.receive(said(DROP, structs.replace(TYPED, id=9)))
    assert "question" in told(outs)
    assert left(outs) == []
    assert sent(party.handle_line("db2")) == [RunAnswer(run=DROP.run, question=9, text="db2")]


def test_commands_report_what_they_need() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    assert sent(party.handle_line("/skip")) == [] and sent(party.handle_line("/jump after")) == []
    assert "is not one of" in words(party.handle_line("/nonsense"))
    assert "/pause" in words(party.handle_line("/help"))
    assert sent(party.handle_line("/skip too late")) == [RunControl(run=DROP.run, verb="skip", reason="too late")]
    assert sent(party.handle_line("/jump after it is gone")) == [
        RunControl(run=DROP.run, verb="jump", step="after", reason="it is gone")
    ]
    party.receive(said(DROP, structs.replace(TYPED, id=8)))
    answer = RunAnswer(run=DROP.run, question=8, text="/etc/hosts was read")
    assert sent(party.handle_line("//etc/hosts was read")) == [answer]
    party.receive(said(DROP, structs.replace(TYPED, id=9)))
    assert sent(party.handle_line("/etc/hosts")) == [RunAnswer(run=DROP.run, question=9, text="/etc/hosts")]


def test_after_a_detach_it_says_that_the_run_continues_and_how_to_return() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    for outs in (party.leave("interrupt"), party.leave("eof"), party.handle_line("/leave")):
        assert sent(outs) == []
        assert "continues" in words(outs) and f"runbook resume {DROP.run}" in words(outs)
        assert left(outs) == [130]


def test_another_driving_console_is_named() -> None:
    party = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    outs = party.receive(said(DROP, TYPED, yours=False))
    assert "ann answers it" in words(outs) and "/take" in words(outs)
    assert party.question is None


def test_the_second_operator_is_asked_at_their_own_console() -> None:
    first, second = at_terminal(), RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    assert "a second operator" in words(first.receive(said(DROP, SECOND, may=False)))
    second.receive(said(DROP, SECOND, yours=False, may=True))
    assert sent(second.handle_line("db2")) == [RunAnswer(run=DROP.run, question=9, text="db2")]


def test_the_end_is_reported_and_gives_the_exit_code() -> None:
    for state, code in (("done", 0), ("failed", 7), ("aborted", 7)):
        party = at_terminal()
        party.receive(said(RUNNING))
        outs = party.receive(said(view(ENDED, state=state)))
        assert told(outs)[-1] == "ended"
        assert left(outs) == [code]


def test_an_end_with_an_open_question_is_not_an_end() -> None:
    party = at_terminal()
    party.receive(said(RUNNING))
    assert left(party.receive(said(view(ENDED, state="failed"), UNDO))) == []


def test_a_refused_run_ends_the_command_with_its_exit_code() -> None:
    outs = at_terminal().receive(RunRefused(text="another run is under way", hint="attach", code=8))
    assert "another run" in words(outs) and "hint: attach" in words(outs)
    assert left(outs) == [8]


def test_an_earlier_run_is_not_the_requested_one() -> None:
    party = RunClient(GivenAnswers(yes=True), can_ask=False, other_runs=[DROP.run])
    assert party.receive(said(DROP, TYPED)) == []
    outs = party.receive(RunRefused(text="another run is under way", code=2))
    assert left(outs) == [2]


def test_a_typed_command_counts_as_the_answer_until_it_is_refused() -> None:
    party = at_terminal()
    party.receive(said(DROP, TYPED))
    party.handle_line("/abort too late")
    assert party.question is None
    party.receive(RunRefused(text="not now", reply_to=DROP.run))
    assert party.question == TYPED


def test_messages_of_other_runs_are_ignored() -> None:
    party = RunClient(GivenAnswers(), can_ask=True, run="another")
    assert party.receive(said(DROP, TYPED)) == []
    assert party.receive(RunLines(run=DROP.run, block="b", lines=[OutputLine(1, "o", "T", "x")])) == []


def test_output_is_printed_line_by_line_and_missing_lines_are_counted() -> None:
    party = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    party.receive(said(DROP))
    outs = party.receive(RunLines(run=DROP.run, block="b", lines=[OutputLine(1, "o", "T", "x")], dropped=5))
    assert told(outs) == ["line", "word"]
    assert "5 lines not shown" in words(outs)


def test_output_of_an_interrupted_run_is_not_printed_before_its_message_returns() -> None:
    party = RunClient(GivenAnswers(), can_ask=True, run=DROP.run)
    lines = RunLines(run=DROP.run, block="b", lines=[OutputLine(1, "o", "T", "x")])
    assert party.receive(lines) == []
    party.receive(RunViewMessage(view=view(DROP, state="interrupted")))
    assert party.receive(lines) == []


def test_a_wait_is_reported_occasionally_to_operators_and_each_time_to_programs() -> None:
    waits = [view(WAIT, waiting=structs.replace(WAIT.waiting, values=f"io {n} MB/s")) for n in range(21)]  # type: ignore[type-var]
    counts = []
    for every in (False, True):
        party = RunClient(GivenAnswers(), can_ask=True, run=DROP.run, every_change=every)
        outs = [party.receive(said(one), n * 1_000_000) for n, one in enumerate(waits)]
        counts.append(sum(told(out).count("waiting") for out in outs))
    assert counts == [3, 21]


# With nobody to ask


def test_an_answer_given_in_advance_is_sent_and_reported() -> None:
    party = headless(("drop", "db2"))
    outs = party.receive(said(view(DROP, state="planned"), START))
    assert sent(outs) == [RunAnswer(run=DROP.run, question=1, text="yes")]
    outs = party.receive(said(DROP, TYPED))
    assert sent(outs) == [RunAnswer(run=DROP.run, question=7, text="db2")]
    assert "answer" in told(outs)
    assert left(party.receive(said(view(ENDED)))) == [0]


def test_a_question_without_an_answer_ends_the_run_as_refused() -> None:
    party = headless(yes=True)
    party.receive(said(RUNNING))
    outs = party.receive(said(DROP, TYPED))
    assert [type(one) for one in sent(outs)] == [RunControl]
    assert "--confirm drop=db2" in words(outs)
    undo = party.receive(said(view(DROP, state="running"), UNDO))
    assert sent(undo) == [RunAnswer(run=DROP.run, question=10, text="none")]
    assert left(party.receive(said(view(ENDED, state="aborted")))) == [8]


def test_a_start_without_a_request_is_refused() -> None:
    party = headless()
    outs = party.receive(said(view(DROP, state="planned"), START))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]
    assert "--confirm start=yes" in words(outs)


def test_a_wrong_text_is_never_sent() -> None:
    party = headless(("drop", "db1"))
    party.receive(said(RUNNING))
    outs = party.receive(said(DROP, TYPED))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]
    assert "does not fit" in words(outs)


def test_a_failure_without_a_decision_ends_the_run_as_failed() -> None:
    party = headless(("drop", "db2"))
    party.receive(said(RUNNING))
    outs = party.receive(said(DROP, FAILED))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]
    assert left(party.receive(said(view(ENDED, state="failed")))) == [7]


def test_a_half_done_run_waits_if_no_operator_can_decide() -> None:
    for asked, code in ((FAILED, 7), (TYPED, 8)):
        party = headless()
        party.receive(said(RUNNING))
        outs = party.receive(said(view(DROP, must_finish=True), asked))
        assert (sent(outs), left(outs)) == ([], [code])
        assert "half done" in words(outs) and "runbook resume" in words(outs)


def test_an_answer_the_agent_rejects_is_not_repeated_for_ever() -> None:
    party = headless(("drop", "db2"))
    party.receive(said(RUNNING))
    party.receive(said(DROP, TYPED))
    outs = party.receive(Notice(kind="refused", text="question 7 is not asked any more"))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]
    outs = party.receive(said(DROP, structs.replace(TYPED, id=8, expects="db3")))
    assert left(outs) == [8]


def test_a_run_interrupted_by_an_internal_error_is_not_waited_for() -> None:
    party = headless(("drop", "db2"))
    party.receive(said(view(RUNNING, state="interrupted")))
    assert left(party.receive(said(RUNNING))) == [], "it was interrupted before, and goes on"
    outs = party.receive(said(view(RUNNING, state="interrupted")))
    assert left(outs) == [7] and "runbook resume" in words(outs)


def test_the_second_operator_is_waited_for() -> None:
    party = headless(("drop", "db2"))
    party.receive(said(DROP, TYPED))
    outs = party.receive(said(DROP, SECOND, may=False))
    assert (sent(outs), left(outs)) == ([], [])


def come_back(*confirmed: tuple[str, str]) -> RunClient:
    return RunClient(GivenAnswers(confirmed), can_ask=False, run=DROP.run)


def test_a_headless_client_takes_over_an_undriven_run_and_waits_only_a_limited_time() -> None:
    """The first view is the one a console is welcomed with, before it drives anything; it asks the same."""
    party = come_back(("drop", "db2"))
    free = structs.replace(DROP, driver="")
    assert sent(party.receive(said(free, TYPED, yours=False))) == [RunControl(run=DROP.run, verb="take")]
    assert sent(party.receive(said(DROP, TYPED))) == [RunAnswer(run=DROP.run, question=7, text="db2")]
    assert sent(party.receive(said(DROP, TYPED))) == [], "once"
    party = come_back(("watch", "abort"))
    failed = structs.replace(WAIT, driver="", run=DROP.run)
    party.receive(said(failed, FAILED, yours=False))
    outs = party.receive(said(failed, FAILED))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]


def test_a_headless_client_leaves_a_run_that_another_console_drives() -> None:
    outs = come_back(("drop", "db2")).receive(said(structs.replace(DROP, driver="eve"), TYPED, yours=False))
    assert (sent(outs), left(outs)) == ([], [130])
    assert "eve controls this run" in words(outs) and "continues" in words(outs)


# What is told


def recorded(run: str, seq: int) -> EventMessage:
    details = {"run": run, "seq": seq, "block": "drop/action", "state": "ok"}
    return EventMessage(event=Event(wall_us=seq, kind="block.result", text=f"result {seq}", details=details))


def test_records_are_reported_once_the_run_is_identified() -> None:
    party = at_terminal()
    assert party.receive(recorded(DROP.run, 1)) == [] and party.receive(recorded("another", 2)) == []
    outs = party.receive(said(RUNNING))
    assert told(outs)[:2] == ["run", "record"] and told(outs).count("record") == 1
    assert words(party.receive(recorded(DROP.run, 3))) == "result 3"
    assert party.receive(recorded("another", 4)) == []


def test_steps_are_reported_on_change_and_their_text_when_they_are_entered() -> None:
    party = at_terminal()
    party.receive(said(view(DROP, state="running", current="before", steps=STEPS[:3])))
    outs = party.receive(said(DROP, TYPED))
    steps = [out.change for out in outs if isinstance(out, ShowChange) and out.change["event"] == "step"]
    assert [(step["step"], step["state"]) for step in steps] == [("drop", "waiting")]
    assert steps[0]["prose"] == msgspec.to_builtins(DROP.step_prose)
    assert told(party.receive(said(DROP, TYPED))) == []
