"""Runbooks on the screen: the list, one of them read, its inputs given, a run begun. Keys only ask the agent."""

from __future__ import annotations

import threading

import pytest
from msgspec import structs

from dba_console.agent.protocol import RunBegin, RunRefused, RunViewMessage
from dba_console.recording.plan import Block, Confirmation, Input, Plan, Prose, Step
from dba_console.runbooks.library import ListedRunbook
from dba_console.runbooks.problems import Problem
from dba_console.runbooks.run_view import Question, RunTable
from dba_console.tui.runbooks import values_for_input, values_in_frame
from tests.build import busy_frame
from tests.tui.test_console import Screen, listed_runbook
from tests.tui.test_console import screen as opened
from tests.tui.test_findings import FULL, give_findings, screen_with
from tests.walkthrough.sample_views import DROP

PLAN = Plan(
    id="connection-storm", title="Too many connections",
    prose=(Prose("Why: the house is full."), Prose("When not: a planned load.", gap=True)),
    answers=("connections-filling",), source="/etc/rb/connection-storm.md",
    inputs=(
        Input(name="idle", type="duration", help="how long idle is too long", default=600.0),
        Input(name="ticket", type="text", help="the change it belongs to"),
        Input(name="word", type="secret", help="of the pool's console", secret=True),
    ),
    steps=(
        Step(id="who", title="Who holds them?", line=9,
             blocks=(Block(id="who/check", kind="check", line=10, language="expr", body="a > 1", usual_s=1.0),)),
        Step(id="end", title="End the idle ones", line=20, point_of_no_return=True,
             blocks=(Block(id="end/action", kind="action", action="signal-backend", line=21, language="toml", body="",
                           title="end them", confirm=Confirmation(level="type", text="count")),)),
    ),
)  # fmt: skip
STORM = listed_runbook(PLAN.source, "# Too many connections\n", PLAN.title, PLAN)
PLAIN = listed_runbook("/etc/rb/plain.md", "# No inputs\n", "No inputs", structs.replace(PLAN, id="plain", inputs=()))
BROKEN = structs.replace(
    listed_runbook("/etc/rb/broken.md", "# x\n", "Broken"), problems=(Problem(line=3, text="no such kind: chekc"),)
)
RUNBOOKS = (STORM, PLAIN, BROKEN)


async def choose(screen: Screen, title: str) -> None:
    """Open the runbook of that title from the list."""
    await screen.press("b")
    await screen.until(title)
    await screen.press("/")
    await screen.type(title)
    await screen.press("enter", "enter")


async def test_b_lists_runbooks_even_before_the_first_frame() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await screen.press("b")
        await screen.until("Too many connections")
        assert "connections-filling" in screen.text
        assert "has errors: line 3: no such" in screen.text


async def test_a_runbook_is_shown_with_its_inputs_and_its_plan_before_the_start() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "Too many connections")
        await screen.until("Why: the house is full.")
        assert "idle (duration) 10m (default)" in screen.text and "ticket (text) required" in screen.text
        assert "2 blocks in 2 steps, 1 change" in screen.text
        await screen.press("pagedown")
        assert "action signal-backend: end them, confirm:" in screen.text
        assert screen.feed.asked == []


async def test_a_click_on_the_selected_row_opens_its_runbook() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await screen.press("b")
        await screen.until("No inputs")
        row = next(place for place, text in enumerate(screen.lines) if "plain" in text)
        await screen.click(row)
        assert "purpose" in screen.text
        await screen.click(row)
        await screen.until("s start")
        assert "No inputs" in screen.text


async def test_a_start_before_the_runbooks_are_loaded_waits_for_them() -> None:
    read = threading.Event()

    def slowly() -> tuple[ListedRunbook, ...]:
        read.wait(60)
        return RUNBOOKS

    async with opened(runbooks=slowly) as screen:
        screen.app.view_stack.show_runbook("plain", None)
        screen.app._actions._runbook_loader.request_read()
        await screen.press("s")
        assert "the run starts after that" in screen.text and screen.feed.asked == []
        read.set()
        await screen.until(lambda: len(screen.feed.asked) == 1)
        assert isinstance(screen.feed.asked[0], RunBegin)


async def test_r_on_a_finding_opens_its_runbook() -> None:
    async with screen_with(FULL, runbooks=RUNBOOKS) as screen:
        await screen.press("f", "r")
        await screen.until("Why: the house is full.")
        await screen.press("escape")
        assert "Findings" in screen.text


async def test_the_runbook_of_an_open_finding_is_first_in_the_list_and_has_its_values() -> None:
    async with screen_with(structs.replace(FULL, evidence={"ticket": "OPS-7"}), runbooks=(PLAIN, STORM)) as screen:
        await screen.press("b")
        await screen.until("connection-storm")
        names = [text.split()[:2] for text in screen.lines if "plain" in text or "connection-storm" in text]
        assert names[0][1] == "connection-storm" and names[1][0] == "plain"
        await screen.press("enter")
        assert "ticket (text) OPS-7 (from the finding; confirmed at the start)" in screen.text


async def test_a_start_asks_first_for_required_inputs_and_never_shows_a_secret() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "Too many connections")
        await screen.press("s")
        await screen.type("OPS-1")
        await screen.press("enter")
        await screen.type("hush")
        assert "****" in screen.text and "hush" not in screen.text
        await screen.press("enter")
        begin = RunBegin(text=STORM.text, source=str(STORM.entry.path), inputs={"ticket": "OPS-1", "word": "hush"})
        assert screen.feed.asked == [begin]
        assert "given, not shown" in screen.text and "hush" not in screen.text


async def begin_from_the_finding(screen: Screen) -> None:
    """Open its runbook, and begin: its first question stands."""
    await give_findings(screen, structs.replace(FULL, evidence={"used": 97, "ticket": "OPS-7"}))
    await screen.press("f", "r")
    await screen.until("Why: the house is full.")
    assert "ticket (text) OPS-7 (from the finding; confirmed at the start)" in screen.text
    await screen.press("s")
    assert screen.lines[-1].startswith(" ticket (text), from the finding: OPS-7")
    assert screen.lines[-2] == " the change it belongs to"


@pytest.mark.parametrize("key", ["enter", "tab"])
async def test_a_value_of_the_finding_is_offered_for_an_input_and_accepted_by_enter_or_tab(key: str) -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await begin_from_the_finding(screen)
        await screen.press(key)
        await screen.type("hush")
        assert screen.feed.asked == []
        await screen.press("enter")
        [begin] = screen.feed.asked
        assert isinstance(begin, RunBegin) and begin.inputs == {"ticket": "OPS-7", "word": "hush"}


async def test_a_value_of_the_finding_can_be_replaced_and_then_tab_accepts_nothing() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await begin_from_the_finding(screen)
        await screen.type("7")
        await screen.press("tab")
        assert screen.lines[-1].startswith(" ticket (text), from the finding: OPS-77")
        await screen.press("escape")
        assert screen.feed.asked == []


async def test_an_invalid_input_is_corrected_where_it_was_typed() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "Too many connections")
        await screen.press("i", "ctrl+u")
        await screen.type("soon")
        await screen.press("enter")
        assert screen.lines[-1].startswith(" idle (duration): soon") and "soon" in screen.lines[-2]
        await screen.press("ctrl+u")
        await screen.type("5m")
        await screen.press("enter", "escape")
        assert "idle (duration) 5m" in screen.text


async def test_enter_alone_gives_no_input_and_starts_nothing() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "Too many connections")
        await screen.press("s", "enter")
        assert screen.feed.asked == [] and "ticket is required" in screen.text


async def test_a_run_started_here_is_shown_as_soon_as_the_agent_has_created_it() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "No inputs")
        await screen.press("t")
        assert screen.feed.asked == [RunBegin(text=PLAIN.text, source=str(PLAIN.entry.path), mode="rehearse")]
        screen.feed.mailbox.put(RunViewMessage(view=DROP, yours=True, may_answer=True))
        await screen.until("Drop the page cache of this host?")
        await screen.press("escape", "escape")
        assert "Runbooks" in screen.text and "the run continues" in screen.text


async def test_a_run_started_elsewhere_does_not_take_over_the_screen() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "No inputs")
        screen.feed.mailbox.put(RunViewMessage(view=DROP, yours=False))
        await screen.until("cache-drop asks")
        assert "Drop the page cache of this host?" not in screen.text


async def test_a_refusal_of_the_agent_is_shown_with_its_hint() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "No inputs")
        await screen.press("s")
        screen.feed.mailbox.put(RunRefused(text="another run is under way", hint="end it first", code=8))
        await screen.until("another run is under way; end it first")
        screen.feed.mailbox.put(RunViewMessage(view=DROP, yours=True))
        await screen.until("cache-drop asks")
        assert "Drop the page cache of this host?" not in screen.text


async def test_a_runbook_that_does_not_compile_shows_why_and_cannot_be_started() -> None:
    async with opened(runbooks=RUNBOOKS) as screen:
        await choose(screen, "has errors")
        assert "no such kind: chekc" in screen.text
        await screen.press("s")
        assert screen.feed.asked == [] and "cannot start" in screen.text


async def test_nothing_is_started_from_the_past_or_from_a_recording() -> None:
    async with opened(given=(0, 1), runbooks=RUNBOOKS) as screen:
        await choose(screen, "No inputs")
        await screen.press("space", "s")
        assert screen.feed.asked == [] and "this is the past" in screen.text
    async with opened(runbooks=RUNBOOKS, can_go_live=False) as screen:
        await choose(screen, "No inputs")
        await screen.press("s")
        assert screen.feed.asked == [] and "this is a recording" in screen.text


async def test_unreadable_runbooks_cost_the_list_and_not_the_screen() -> None:
    def fail() -> tuple[ListedRunbook, ...]:
        raise OSError(116, "Stale file handle")

    async with opened(runbooks=fail) as screen:
        await screen.press("b")
        await screen.until("Stale file handle")
        await screen.press("escape")
        assert "waiting for the first sample" in screen.text


def test_a_role_is_suggested_from_the_shown_rows() -> None:
    role = Block(
        id="limit/input", kind="input", line=1, language="toml", body="", settings={"type": "role"}, name="role"
    )
    plan = structs.replace(PLAN, steps=(Step(id="limit", title="", line=1, blocks=(role,)),))
    rows = RunTable(columns=("usename", "connections"), rows=(("shop_jobs", "163"), ("-", "1"), ("shop_jobs", "2")))
    question = Question(id=1, kind="input", text="the role", block="limit/input")
    view = structs.replace(DROP, table=rows, question=question)
    assert values_for_input(view, plan) == ["shop_jobs"]
    assert values_for_input(structs.replace(view, question=structs.replace(question, secret=True)), plan) == []


def test_values_of_an_input_are_its_choices_or_values_from_the_panels() -> None:
    frame = busy_frame()
    shown = values_in_frame(frame, Input(name="application", type="text"))
    assert shown == [group.name for group in frame.connections.by_application if group.name]
    assert values_in_frame(frame, Input(name="mount", type="path")) == [one.path for one in frame.disks.mounts]
    assert values_in_frame(frame, Input(name="mode", type="text", choices=("a", "b"))) == ["a", "b"]
    assert values_in_frame(frame, Input(name="other", type="text")) == []
