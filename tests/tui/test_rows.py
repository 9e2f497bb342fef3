"""Rows of a preview on the screen: the cursor moves over them, x deselects or selects one, the agent asks again."""

from __future__ import annotations

from msgspec import structs

from dba_console.agent.protocol import RunControl, RunRefused
from dba_console.runbooks.run_view import RunView
from tests.tui.test_walkthrough import RUN, deliver_view, screen_with_run
from tests.walkthrough.sample_views import CHOOSING, CHOSEN, ROWS


def choice(*places: int) -> RunControl:
    return RunControl(run=RUN, verb="choose", block="drop/preview", look=1, rows=places)


def chosen(*places: int, question: int) -> RunView:
    """The run as the agent sends it once these rows are chosen."""
    table = structs.replace(ROWS, chosen=tuple(place in places for place in range(3)))
    text = f"Cancel {len(places)}. Type {len(places)}"
    asked = structs.replace(CHOSEN, id=question, text=text, expects=str(len(places)))
    return structs.replace(CHOOSING, table=table, question=asked)


async def test_x_excludes_the_row_under_the_cursor_and_includes_it_again() -> None:
    async with screen_with_run(CHOOSING) as screen:
        assert "3 of 3 chosen ●" in screen.text and "x choose" in screen.lines[-1]
        await screen.press("x")
        assert screen.feed.asked == [], "nothing is left out that nobody saw selected"
        await screen.press("down", "x")
        assert screen.feed.asked == [choice(0, 2)] and "2 of 3 chosen ●" in screen.text
        await deliver_view(screen, chosen(0, 2, question=12))
        assert "Type 2" in screen.text and "2 of 3 chosen ●" in screen.text
        await screen.press("up", "x")
        assert screen.feed.asked[-1] == choice(0, 1, 2)
        await deliver_view(screen, chosen(0, 1, 2, question=13))
        await screen.press("enter")
        assert "type `3`" in screen.lines[-1]


async def test_x_chooses_the_only_row_without_selecting_it_first() -> None:
    table = structs.replace(ROWS, rows=ROWS.rows[:1], chosen=(False,), total=1)
    async with screen_with_run(structs.replace(CHOOSING, table=table)) as screen:
        await screen.press("x")
        assert screen.feed.asked == [choice(0)] and "1 of 1 chosen ●" in screen.text


async def test_rows_are_excluded_one_after_the_other_without_waiting_for_the_agent() -> None:
    async with screen_with_run(CHOOSING) as screen:
        await screen.press("down", "x", "x")
        await deliver_view(screen, structs.replace(chosen(1, 2, question=12), question=None, state="running"))
        await screen.press("x")
        assert screen.feed.asked == [choice(1, 2), choice(2), choice()]
        await deliver_view(screen, chosen(1, 2, question=12))
        assert "0 of 3 chosen ●" in screen.text, "as this console wants them, until the agent has come by"
        await deliver_view(screen, chosen(question=14))
        await screen.press("x")
        assert screen.feed.asked[-1] == choice(2)


async def test_a_refused_selection_is_not_shown_as_accepted() -> None:
    async with screen_with_run(CHOOSING) as screen:
        await screen.press("down", "x")
        assert "2 of 3 chosen ●" in screen.text
        screen.feed.mailbox.put(RunRefused(text="these rows are not asked about now", reply_to=RUN))
        await screen.until("3 of 3 chosen ●")
        assert "these rows are not asked about now" in screen.text


async def test_rows_are_not_selected_here_for_a_run_driven_elsewhere_or_without_a_question() -> None:
    async with screen_with_run(CHOOSING, yours=False) as screen:
        await screen.press("down", "x", "x")
        assert screen.feed.asked == [] and "no rows to choose now" in screen.text
    async with screen_with_run(structs.replace(CHOOSING, question=None, state="running")) as screen:
        await screen.press("down", "x", "x")
        assert screen.feed.asked == []
