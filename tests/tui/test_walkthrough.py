"""A run on the screen: what the agent sends is shown, what the operator types is sent, enter alone confirms nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from dba_console.agent.protocol import (
    OpenRun,
    RunAnswer,
    RunBegin,
    RunControl,
    RunLines,
    RunRefused,
    RunResume,
    RunViewMessage,
    RunWatch,
)
from dba_console.core.clock import SYSTEM, Clock
from dba_console.recording.plan import Input, Plan, Prose
from dba_console.runbooks.run_view import Option, OutputLine, Question, RunView
from dba_console.tui.feed import AgentConnectionChanged, EventArrived, Session
from dba_console.tui.terminal import ScreenOptions
from dba_console.watch.samples.event import Event
from tests.clocks import HeldClock
from tests.tui.test_console import Screen, listed_runbook
from tests.tui.test_console import screen as opened
from tests.walkthrough.sample_views import DROP, ENDED, OUTPUT, START_US, TYPED, WAIT

RUN = DROP.run


async def deliver_view(
    screen: Screen, view: RunView, *, yours: bool = True, may_answer: bool | None = None, why: str = ""
) -> None:
    """Deliver a view of a run from the agent."""
    may = yours and view.question is not None if may_answer is None else may_answer
    screen.feed.mailbox.put(RunViewMessage(view=view, yours=yours, may_answer=may, why_not=why))
    await screen.press("f12")  # a key that means nothing: what was put has been taken in then


@asynccontextmanager
async def screen_with_run(view: RunView = DROP, *, yours: bool = True, clock: Clock = SYSTEM) -> AsyncIterator[Screen]:
    """The screen with that run on it; nothing asked of the agent so far."""
    async with opened(given=(0, 1), clock=clock) as screen:
        await deliver_view(screen, view, yours=yours)
        await screen.press("w")
        screen.feed.asked.clear()
        yield screen


async def test_a_click_on_the_header_shows_the_waiting_run_that_the_header_announced() -> None:
    async with opened(given=(0, 1)) as screen:
        await deliver_view(screen, DROP)
        assert "ANSWER NEEDED: w" in screen.lines[0]
        await screen.click(0)
        assert screen.feed.asked == [RunWatch(run=RUN)]
        assert "Drop the page cache of this host?" in screen.text and "Type `db2` to confirm." in screen.text
        assert "Memory:" in screen.text and screen.lines[-1].startswith(" type `db2`:")


async def test_the_typed_text_is_sent_for_the_question_asked() -> None:
    async with screen_with_run() as screen:
        assert "type `db2`" in screen.lines[-1] and "esc close" in screen.lines[-1]
        await screen.type("db2")
        await screen.press("enter")
        assert screen.feed.asked == [RunAnswer(run=RUN, question=TYPED.id, text="db2")]


@pytest.mark.parametrize("kind", ["start", "ack", "yes", "type", "failed", "manual", "second"])
async def test_enter_alone_confirms_nothing(kind: str) -> None:
    question = structs.replace(TYPED, kind=kind)
    async with screen_with_run(structs.replace(DROP, question=question)) as screen:
        await screen.press("enter", "enter", "enter", "enter")
        assert screen.feed.asked == []


CHOICE = Question(
    id=9, kind="choose", text="Which?", options=tuple(Option(key=key, text="") for key in ("ddl", "root", "none"))
)


async def test_on_a_large_screen_findings_and_charts_are_below_the_run() -> None:
    async with opened(given=(0, 1), size=(160, 50)) as screen:
        await deliver_view(screen, DROP)
        await screen.press("w")
        assert "Drop the page cache of this host?" in screen.text and "─ Last 3 minutes" in screen.text
        await screen.resize(80, 24)
        await screen.until(lambda: "─ Last" not in screen.text)
        assert "Drop the page cache of this host?" in screen.text


async def test_escape_returns_to_reading_and_enter_to_the_question() -> None:
    async with screen_with_run() as screen:
        await screen.press("escape")
        assert "enter answer" in screen.lines[-1]
        await deliver_view(screen, structs.replace(DROP, question=structs.replace(TYPED, id=8)))
        assert "enter answer" in screen.lines[-1], "asked again, with other rows for example: the operator reads on"
        await screen.press("enter")
        assert screen.lines[-1].startswith(" type `db2`:")


async def test_the_operator_scrolls_while_the_question_is_open() -> None:
    async with screen_with_run(structs.replace(DROP, step_prose=(Prose("A long word of warning. " * 200),))) as screen:
        before = screen.text
        await screen.press("pageup", "tab")
        assert screen.text != before and screen.lines[-1].startswith(" type `db2`:")


async def test_one_letter_answers_and_the_rest_of_the_word_is_not_a_key() -> None:
    clock = HeldClock()
    async with screen_with_run(clock=clock) as screen:
        await deliver_view(screen, structs.replace(DROP, question=CHOICE))
        clock.advance(0.5)
        assert "d  ddl" in screen.text and "r  root" in screen.text
        await screen.type("ddl")
        await screen.press("enter")
        assert screen.feed.asked == [RunAnswer(run=RUN, question=9, text="ddl")]
        assert screen.app.view_stack.prompt is None and "ANSWER NEEDED" in screen.lines[0]


async def test_enter_right_after_a_letter_does_not_answer_the_next_question_and_says_so() -> None:
    clock = HeldClock()
    async with screen_with_run(clock=clock) as screen:
        await deliver_view(screen, structs.replace(DROP, question=CHOICE))
        clock.advance(0.5)
        await screen.press("d")
        following = structs.replace(DROP, question=structs.replace(CHOICE, id=10, text="Which now?"))
        screen.feed.mailbox.put(RunViewMessage(view=following, yours=True, may_answer=True))
        await screen.until("Which now?")
        await screen.press("enter")
        assert "enter ended the answer before; this question is still open" in screen.text
        await screen.press("enter")
        assert "nothing was sent" in screen.text
        assert screen.feed.asked == [RunAnswer(run=RUN, question=9, text="ddl")]


async def test_a_letter_typed_as_the_question_appears_is_only_text() -> None:
    async with screen_with_run(clock=HeldClock()) as screen:
        await deliver_view(screen, structs.replace(DROP, question=CHOICE))
        await screen.press("r")
        assert screen.feed.asked == [] and "ddl/root/none: r" in screen.lines[-1]
        await screen.press("enter")
        assert screen.feed.asked == [RunAnswer(run=RUN, question=9, text="root")]


async def test_the_prompt_of_a_refused_answer_reopens_with_the_reason() -> None:
    async with screen_with_run() as screen:
        await screen.type("db3")
        await screen.press("enter")
        assert screen.app.view_stack.prompt is None
        screen.feed.mailbox.put(RunRefused(reply_to=RUN, text="'db3' is not 'db2'; nothing was done"))
        await screen.until("nothing was done")
        assert screen.lines[-1].startswith(" type `db2`:")


async def test_a_letter_answers_only_what_needs_an_acknowledgement() -> None:
    clock = HeldClock()
    async with screen_with_run(clock=clock) as screen:
        await screen.press("escape", "y")
        assert screen.feed.asked == [] and "clipboard" in screen.text
        await deliver_view(
            screen, structs.replace(DROP, question=Question(id=9, kind="ack", text="Whoever calls: tell them."))
        )
        clock.advance(0.5)
        await screen.press("y")
        assert screen.feed.asked == [RunAnswer(run=RUN, question=9, text="y")]


async def test_an_answer_started_before_the_question_changed_is_not_sent() -> None:
    async with screen_with_run() as screen:
        await screen.type("db2")
        view = structs.replace(DROP, question=structs.replace(TYPED, id=8, text="Now drop the database?"))
        screen.feed.mailbox.put(RunViewMessage(view=view, yours=True, may_answer=True))
        await screen.until("no longer open")
        await screen.press("enter")
        assert screen.feed.asked == []


async def test_a_secret_is_typed_without_echo_and_kept_as_typed() -> None:
    secret = Question(id=3, kind="input", text="The pool's password", secret=True)
    async with screen_with_run(structs.replace(DROP, question=secret)) as screen:
        await screen.type(" hush ")
        assert "******" in screen.text and "hush" not in screen.text
        await screen.press("enter")
        assert screen.feed.asked == [RunAnswer(run=RUN, question=3, text=" hush ")]


async def test_skipping_and_ending_need_a_reason() -> None:
    async with screen_with_run() as screen:
        await screen.press("escape", "S", "enter")
        await screen.press("E", "enter")
        assert screen.feed.asked == [] and "needs a reason" in screen.text
        await screen.press("S")
        await screen.type("done by hand")
        await screen.press("enter", "E")
        await screen.type("wrong host")
        await screen.press("enter")
        assert screen.feed.asked == [
            RunControl(run=RUN, verb="skip", reason="done by hand"),
            RunControl(run=RUN, verb="abort", reason="wrong host"),
        ]


async def test_a_jump_names_a_step_by_its_number_and_needs_a_reason() -> None:
    async with screen_with_run() as screen:
        await screen.press("escape", "J")
        await screen.type("9 because")
        await screen.press("enter", "J")
        await screen.type("5 dropped by cron")
        await screen.press("enter")
        assert screen.feed.asked == [RunControl(run=RUN, verb="jump", step="after", reason="dropped by cron")]


async def test_hold_pauses_and_again_continues() -> None:
    async with screen_with_run(WAIT) as screen:
        await screen.press("p")
        await deliver_view(screen, structs.replace(WAIT, state="paused"))
        await screen.press("p")
        assert [one.verb for one in screen.feed.asked] == ["pause", "continue"]  # type: ignore[union-attr]


async def test_an_active_block_is_stopped_only_by_the_typed_word_while_it_is_the_same() -> None:
    running = structs.replace(WAIT, can_stop=True, progress="3.1 GB of 8 GB cut")
    async with screen_with_run(running) as screen:
        assert "X stop" in screen.lines[-1] and "3.1 GB of 8 GB cut" in screen.text
        await screen.press("X", "enter", "X")
        await screen.type("stop")
        await deliver_view(screen, structs.replace(running, block="after/other"))
        await screen.press("enter")
        assert screen.feed.asked == []
        await screen.press("X")
        await screen.type("stop")
        await screen.press("enter")
        assert screen.feed.asked == [RunControl(run=RUN, verb="stop")]


async def test_nothing_is_asked_for_a_block_that_cannot_be_stopped() -> None:
    async with screen_with_run(WAIT) as screen:
        await screen.press("X")
        assert screen.feed.asked == [] and "can be stopped" in screen.text


async def test_a_watching_console_sees_the_run_answers_nothing_and_takes_over_by_a_typed_word() -> None:
    async with screen_with_run(yours=False) as screen:
        assert "controlled by ann" in screen.text and "ANSWER NEEDED" not in screen.text
        for key in ("enter", "y", "S", "x", "E", "p", "X", "J"):
            await screen.press(key)
        assert screen.feed.asked == [] and screen.app.view_stack.prompt is None
        await screen.press("T", "enter", "T")
        await screen.type("yes")
        await screen.press("enter")
        assert screen.feed.asked == [RunControl(run=RUN, verb="take")]


async def test_the_second_operator_is_asked_on_the_other_console() -> None:
    second = structs.replace(DROP, question=structs.replace(TYPED, id=11, kind="second", first_by="ann"))
    async with screen_with_run(yours=False) as screen:
        await deliver_view(screen, second, yours=False, may_answer=True)
        assert "ANSWER NEEDED: w" in screen.lines[0] and "ann has confirmed" in screen.text
        await screen.type("db2")
        await screen.press("enter")
        assert screen.feed.asked == [RunAnswer(run=RUN, question=11, text="db2")]


async def test_why_an_operator_cannot_be_the_second_one_is_shown() -> None:
    second = structs.replace(DROP, question=structs.replace(TYPED, id=11, kind="second", first_by="ann"))
    async with screen_with_run() as screen:
        await deliver_view(screen, second, may_answer=False, why="you are ann, who confirmed first")
        await screen.press("enter")
        assert screen.feed.asked == [] and "you are ann, who confirmed first" in screen.lines[-1]


async def test_leaving_stops_nothing_and_returning_shows_the_current_run() -> None:
    async with screen_with_run() as screen:
        await screen.press("escape", "escape")
        assert screen.feed.asked == [] and "the run continues" in screen.text
        await deliver_view(screen, WAIT)
        await screen.press("9", "w")
        assert "waiting until io.read_bytes_per_s > 100MB" in screen.text


async def test_output_is_streamed_with_its_stamps_and_can_fill_the_screen() -> None:
    async with screen_with_run(WAIT) as screen:
        screen.feed.mailbox.put(RunLines(run=RUN, block="drop/run", lines=list(OUTPUT), dropped=7))
        await screen.until("CACHEDROP: line 30 of it")
        await screen.press("tab", "tab")
        assert "30 lines, 7 not shown" in screen.text and "line 12 of it" in screen.text
        await screen.press("home")
        assert "line 1 of it" in screen.text
        await screen.press("tab")
        assert "skipped · nobody to tell at 3 a.m." in screen.text
        await screen.press("tab")
        assert "Reads are back" in screen.text


async def test_returning_requests_the_last_lines_and_shows_none_twice() -> None:
    async with screen_with_run(WAIT) as screen:
        screen.feed.mailbox.put(RunLines(run=RUN, block="drop/run", lines=list(OUTPUT[:20])))
        await screen.until("line 20 of it")
        await screen.press("escape", "w")
        screen.feed.mailbox.put(RunLines(run=RUN, block="drop/run", lines=list(OUTPUT[10:])))
        await screen.until("line 30 of it")
        await screen.press("tab", "tab")
        assert "output, 30 lines" in screen.text


async def test_changes_are_shown_among_the_output() -> None:
    async with screen_with_run(WAIT) as screen:
        for kind, text in (("block.intent", "step drop: intent recorded"), ("block.seen", "cached 18 GB")):
            event = Event(wall_us=START_US, kind=kind, tag="CACHEDROP", text=text, details={"run": RUN})
            screen.feed.mailbox.put(EventArrived(event))
        await screen.until("CACHEDROP: step drop: intent recorded")
        assert "cached 18 GB" not in screen.text


async def test_an_ended_run_shows_its_result_and_asks_nothing() -> None:
    async with screen_with_run() as screen:
        await deliver_view(screen, ENDED)
        assert "Done: I/O came back after 12 s." in screen.text and "execution" in screen.text
        assert "ANSWER" not in screen.text
        await screen.press("p", "S", "x", "E", "J")
        assert screen.feed.asked == []


async def test_an_interrupted_run_is_named_at_attach_and_resumed_by_a_typed_word() -> None:
    async with opened(given=(0, 1)) as screen:
        reported = OpenRun(run=RUN, runbook="cache-drop", title=DROP.title, state="interrupted")
        screen.feed.mailbox.put(AgentConnectionChanged("attached", session=Session("db2", runs=(reported,))))
        await screen.until("RUN INTERRUPTED: w")
        await screen.press("w")
        assert "waiting for the agent" in screen.text
        await deliver_view(screen, structs.replace(DROP, state="interrupted", question=None), yours=False)
        assert "R resume" in screen.lines[-1]
        await screen.press("R", "enter", "R")
        await screen.type("yes")
        await screen.press("enter")
        assert screen.feed.asked == [RunResume(run=RUN)]


async def test_an_interrupted_run_is_ended_with_a_reason_and_no_other_driver_is_shown() -> None:
    async with opened(given=(0, 1)) as screen:
        await deliver_view(screen, structs.replace(DROP, state="interrupted", question=None), yours=False)
        await screen.press("w")
        assert "E end" in screen.lines[-1] and "E ends it" in screen.text
        for key in ("T", "S", "p"):
            await screen.press(key)
            assert "R resumes it, E ends it" in screen.lines[-1]
        await screen.press("E", "enter")
        assert "needs a reason" in screen.text and screen.feed.asked == []
        await screen.press("E")
        await screen.type("not tonight")
        await screen.press("enter")
        assert screen.feed.asked == [RunResume(run=RUN, abort="not tonight")]


async def test_command_output_is_on_the_page_of_an_interrupted_run_once() -> None:
    async with opened(given=(0, 1)) as screen:
        await deliver_view(screen, structs.replace(DROP, state="interrupted", question=None), yours=False)
        await screen.press("w")
        first, then = (OutputLine(START_US + at, "o", "DROP", f"line {at}") for at in (1, 2))
        for lines in ([first], [first, then]):
            screen.feed.mailbox.put(RunLines(run=RUN, block="", lines=lines))
        await screen.until("line 2")
        assert screen.text.count("line 1") == 1
        await deliver_view(screen, DROP)
        screen.feed.mailbox.put(RunLines(run=RUN, block="", lines=[then]))
        await screen.press("f12")
        known = screen.app.navigator.runs.get(RUN)
        assert known is not None and [one.text for one in known.output] == ["line 1", "line 2"]


async def test_secrets_are_asked_for_again_to_resume() -> None:
    secret = Input(name="word", type="secret", secret=True)
    book = listed_runbook("cache-drop.md", "# Drop\n", "Drop", Plan(id="cache-drop", title="Drop", inputs=(secret,)))
    async with opened(given=(0, 1), runbooks=(book,)) as screen:
        await deliver_view(screen, structs.replace(DROP, state="interrupted", question=None), yours=False)
        await screen.press("w", "R")
        await screen.until(lambda: screen.app.navigator.runbooks is not None)
        await screen.type("yes")
        await screen.press("enter")
        await screen.type("hush")
        assert "hush" not in screen.text
        await screen.press("enter")
        assert screen.feed.asked == [RunResume(run=RUN, inputs={"word": "hush"})]


async def test_a_run_unknown_to_the_next_agent_is_not_shown_as_waiting() -> None:
    async with screen_with_run() as screen:
        screen.feed.mailbox.put(AgentConnectionChanged("attached", session=Session("db2")))
        await screen.until("this run is no longer known")
        assert "ANSWER NEEDED" not in screen.text
        await deliver_view(screen, structs.replace(DROP, state="interrupted", question=None), yours=False)
        assert "RUN INTERRUPTED" in screen.lines[0] and "R resumes it" in screen.text


async def test_without_an_agent_nothing_is_shown_of_what_a_run_does() -> None:
    async with screen_with_run() as screen:
        assert "ANSWER NEEDED" in screen.lines[0]
        screen.feed.mailbox.put(AgentConnectionChanged("lost", "the agent is gone"))
        await screen.until("cache-drop: NO AGENT")
        assert "ANSWER NEEDED" not in screen.text


async def test_the_list_shows_runs_first_and_opens_them() -> None:
    async with opened() as screen:
        await deliver_view(screen, structs.replace(DROP, started_us=START_US))
        await screen.press("b")
        await screen.until("needs your answer")
        await screen.press("enter")
        assert "Type `db2` to confirm." in screen.text


async def test_a_run_requested_on_the_command_line_is_started_at_attach_and_shown() -> None:
    begin = RunBegin(text="# x", source="x.md")
    async with opened(options=ScreenOptions(run_request=begin)) as screen:
        await screen.until(lambda: screen.feed.asked == [begin])
        await deliver_view(screen, DROP)
        assert "Type `db2` to confirm." in screen.text
        screen.feed.start()  # attached once more: not begun a second time
        await screen.press("f12")
        assert screen.feed.asked == [begin]


async def test_a_run_to_follow_is_opened_before_the_agent_has_reported_it() -> None:
    async with opened(options=ScreenOptions(run_request=RunWatch(run=RUN))) as screen:
        await screen.until("this run is no longer known")
        await deliver_view(screen, DROP, yours=False)
        assert "controlled by ann" in screen.text and screen.feed.asked == [RunWatch(run=RUN)]
