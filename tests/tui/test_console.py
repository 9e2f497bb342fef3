"""The screen as a whole, driven by keys: what is pressed does what the registry says, on real frames."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.events import Key
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.pilot import Pilot
from textual.widgets import OptionList

from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.history.duration_trend import TargetJobHistory
from dba_console.recording.plan import Plan
from dba_console.runbooks.library import LibraryEntry, ListedRunbook
from dba_console.tui.console import ConsoleApp
from dba_console.tui.feed import AgentConnectionChanged, EventArrived
from dba_console.tui.loaders import RunbooksArrived
from dba_console.tui.terminal import ScreenOptions
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.samples.event import Event
from tests.clocks import HeldClock
from tests.tui.manual_feed import START_US, ManualFeed, MemoryRecording, tick


class Screen:
    """The running screen: press keys, read lines."""

    def __init__(self, app: ConsoleApp, feed: ManualFeed, pilot: Pilot[int]) -> None:
        self.app = app
        self.feed = feed
        self._pilot = pilot
        self._main = app.screen

    async def press(self, *keys: str) -> None:
        for key in keys:
            if self.app.screen is self._main:
                self.app.post_message(key_of(key))
            else:
                await self._pilot.press(key)
            await self.settled()

    async def settled(self) -> None:
        """Return when all that was sent has been dealt with: a key goes to the app, the canvas, the screen, the app."""
        for _ in range(4):
            await self._pilot.pause(0)

    async def type(self, text: str) -> None:
        """Type a text into the prompt."""
        await self.press(*("space" if sign == " " else sign for sign in text))

    async def give(self, *numbers: int, sessions: int = 3, query: str = "select 1") -> None:
        self.feed.give(*(tick(number, sessions=sessions, query=query) for number in numbers))
        await self.settled()

    async def until(self, wanted: str | Callable[[], bool]) -> None:
        """Wait for a text on the screen, or for something to be true."""
        for _ in range(2000):
            await self.settled()
            if wanted() if callable(wanted) else wanted in self.text:
                return
            await self._pilot.pause(0.01)
        raise AssertionError(f"{wanted!r} never came:\n{self.text}")

    def palette_offers(self, text: str) -> bool:
        found = self.app.screen.query("CommandList")
        return bool(found) and any(text in str(option.prompt) for option in found.first(OptionList)._options)

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)
        await self._pilot.pause()

    async def click(self, row: int, column: int = 3) -> None:
        await self._pilot.click(offset=(column, row))
        await self._pilot.pause()

    @property
    def lines(self) -> list[str]:
        """What the widget was given to show, read back from its strips: what is really painted."""
        canvas = self.app.query_one("Canvas")
        strips = [canvas.render_line(y) for y in range(canvas.size.height)]
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def key_of(word: str) -> Key:
    """What the driver makes of a key, named ("full_stop") or written (".")."""
    name = word if len(word) > 1 or word.isalnum() else _character_to_key(word)
    sign = _get_unicode_name_from_key(REPLACED_KEYS.get(name, name))
    try:
        return Key(name, unicodedata.lookup(sign))
    except KeyError:
        return Key(name, name if len(name) == 1 else None)


def listed_runbook(path: str, text: str, title: str, plan: Plan | None = None) -> ListedRunbook:
    """A runbook as the screen reads it from a directory."""
    entry = LibraryEntry(id=Path(path).stem, path=Path(path), shipped=False)
    answers = () if plan is None else plan.answers
    return ListedRunbook(entry=entry, text=text, title=title, answers=answers, plan=plan)


@asynccontextmanager
async def screen(
    past: MemoryRecording | None = None,
    *,
    can_go_live: bool = True,
    given: Sequence[int] = (),
    size: tuple[int, int] = (80, 24),
    options: ScreenOptions | None = None,
    runbooks: Sequence[ListedRunbook] | Callable[[], Sequence[ListedRunbook]] = (),
    history: Callable[[], TargetJobHistory] = TargetJobHistory,
    clock: Clock = SYSTEM,
) -> AsyncIterator[Screen]:
    feed = ManualFeed(past, can_go_live=can_go_live)
    app = ConsoleApp(
        feed, options or ScreenOptions(), "16", load_job_history=history,
        load_runbooks=lambda: RunbooksArrived(tuple(runbooks() if callable(runbooks) else runbooks)), clock=clock,
    )  # fmt: skip
    feed.start()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        shown = Screen(app, feed, pilot)
        if given:
            await shown.give(*given)
        yield shown
    feed.close()


async def test_before_the_first_sample_the_screen_shows_what_it_waits_for() -> None:
    async with screen() as shown:
        assert "waiting for the first sample" in shown.text


async def test_the_overview_shows_every_arriving_sample() -> None:
    async with screen() as shown:
        await shown.give(0)
        await shown.give(1, sessions=7)
        assert "active 7" in shown.text


async def test_without_an_agent_the_header_shows_the_age_of_the_data_without_a_key() -> None:
    clock = HeldClock()
    async with screen(given=(0, 1), clock=clock) as shown:
        shown.feed.mailbox.put(AgentConnectionChanged("lost", "the agent is gone"))
        await shown.settled()
        clock.advance(12)
        await shown.until("data 12s old")
        clock.advance(35)
        await shown.until("data 47s old")
        assert "NOT LIVE" in shown.lines[0] and "agent lost" in shown.lines[-1]


async def test_only_changed_lines_are_painted_again() -> None:
    async with screen(given=(0, 1)) as shown:
        canvas = shown.app._canvas
        before = canvas.painted
        await shown.give(2)
        assert 0 < canvas.painted - before < 12


async def test_a_number_opens_its_panel_and_escape_returns() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("9")
        assert "psql" in shown.text and "Sessions" in shown.text
        await shown.press("escape")
        assert "─ Connections" in shown.text


async def test_tab_and_enter_open_the_selected_panel() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("enter")
        assert "select a panel with tab" in shown.text
        await shown.press("tab", "tab", "shift+tab", "enter")
        assert shown.app.view_stack.view.where == "detail"
        assert getattr(shown.app.view_stack.view, "name", "") == "connections"


@pytest.mark.parametrize("key", list("1234567890c"))
async def test_every_panel_opens_at_eighty_by_twenty_four_and_accepts_every_table_key(key: str) -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press(key, "down", "down", "enter", "pagedown", "pageup", "v", "greater_than_sign", "tab", "home")
        await shown.press("full_stop", "comma", "less_than_sign", "up", "escape", "escape", "escape", "escape")
        assert "─ Connections" in shown.text


async def test_the_selection_stays_on_its_session_through_updates_and_sort_orders() -> None:
    async with screen() as shown:
        await shown.give(0, 1, sessions=5)
        await shown.press("9", "down", "down")
        grid = shown.app.view_stack._details["sessions"].grid
        assert grid.selected is not None
        chosen = grid.selected
        await shown.give(2, sessions=9)
        await shown.press("equals_sign", "p", "i", "d", "enter", "v")
        assert grid.selected == chosen
        assert "select 1" in shown.text
        await shown.give(3, sessions=1)
        assert ("gone" in shown.text) == (grid.selected not in {row.key for row in grid.table.rows})


async def test_a_filter_is_typed_kept_by_enter_and_removed_by_escape() -> None:
    async with screen() as shown:
        await shown.give(0, 1, sessions=5)
        await shown.press("9", "slash", "1", "0", "3")
        assert "only with “103”" in shown.text
        await shown.press("enter")
        assert "1 of 5" in shown.text
        await shown.press("escape")
        assert "only with" not in shown.text


async def test_keys_typed_into_a_prompt_do_nothing_else() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("n", "q", "9", "space", "x", "enter")
        assert shown.feed.sent == [("note", "q9 x", None)]
        assert "─ Connections" in shown.text


async def test_a_mark_needs_no_text_and_is_confirmed_when_the_agent_reports_it() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("m", "enter")
        assert shown.feed.sent == [("mark", "", None)]
        assert "mark sent" in shown.text
        shown.feed.mailbox.put(EventArrived(Event(wall_us=START_US, kind="mark", text="mark", seq=3)))
        await shown.until("mark recorded")


async def test_a_note_while_paused_is_about_the_time_shown() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("left", "n", "x", "enter")
        assert shown.feed.sent == [("note", "x", START_US)]


async def test_pause_step_and_back_to_live_are_shown_in_the_header() -> None:
    async with screen() as shown:
        await shown.give(*range(10))
        assert "LIVE" in shown.lines[0]
        await shown.press("space")
        assert "PAUSED" in shown.lines[0] and "space live" in shown.lines[-1]
        await shown.press("left", "left")
        assert "00:02" in shown.lines[0] and "space play" in shown.lines[-1]
        await shown.press("end")
        assert "LIVE" in shown.lines[0]


async def test_time_travel_works_in_a_panel_as_in_the_overview() -> None:
    async with screen() as shown:
        for number in range(5):
            await shown.give(number, sessions=number + 1)
        await shown.press("9", "left", "left")
        assert "3 rows" in shown.text and "PAUSED" in shown.lines[0]


async def test_a_kept_moment_is_compared_with_the_one_shown() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("@")
        assert "is kept: @ at another moment" in shown.text
        await shown.give(2, sessions=9)
        await shown.press("@")
        assert "What changed" in shown.text
        assert "6 new: 6 × psql, alice, app" in shown.text
        await shown.press("left")
        assert "no change" in shown.text
        await shown.press("@")
        assert "is kept" in shown.text
        assert "What changed" not in shown.text


async def test_going_to_a_time_queries_the_recording() -> None:
    past = MemoryRecording([tick(number, sessions=number + 1) for number in range(10)])
    async with screen(past, can_go_live=False) as shown:
        await shown.until("REPLAY")
        await shown.press("g", "plus", "6", "s", "enter")
        await shown.until("active 7")


async def test_help_lists_the_keys_of_the_screen_it_was_opened_on() -> None:
    async with screen(size=(120, 40)) as shown:
        await shown.press("question_mark")
        assert "open the selected panel" in shown.text and "the row below" not in shown.text
        await shown.press("escape", "9", "question_mark")
        assert "the row below" in shown.text
        await shown.press("escape", "escape")
        assert shown.app.view_stack.view.where == "overview"


async def test_the_palette_does_what_the_keys_do() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("ctrl+p", *"panel: sess")
        await shown.until(lambda: shown.palette_offers("Panel: Sessions"))
        await shown.press("enter")
        await shown.until(lambda: getattr(shown.app.view_stack.view, "name", "") == "sessions")


async def test_hostile_server_text_is_sanitized() -> None:
    async with screen() as shown:
        hostile = "\x1b[2J[bold red]x[/] \x00 \u202e abc 表 \x9b31m"
        await shown.give(0, 1, query=hostile)
        await shown.press("9", "down", "enter")
        assert "[bold red]x[/]" in shown.text
        assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for line in shown.lines for sign in line)


async def test_a_mouse_click_opens_a_panel_and_selects_a_row() -> None:
    async with screen() as shown:
        await shown.give(0, 1, sessions=5)
        await shown.click(2)
        assert getattr(shown.app.view_stack.view, "name", "") == "connections"
        await shown.press("9")
        first = next(place for place, text in enumerate(shown.lines) if "psql" in text)
        await shown.click(first + 1)
        grid = shown.app.view_stack._details["sessions"].grid
        assert grid.position == 1
        await shown.click(first + 1)
        assert shown.app.view_stack.view.row_open  # type: ignore[attr-defined]
        heading = next(place for place, text in enumerate(shown.lines) if text.lstrip().startswith("pid"))
        await shown.click(heading, shown.lines[heading].index("pid"))
        assert grid.sort == "pid"


async def test_y_copies_the_query_of_the_selected_row() -> None:
    async with screen() as shown:
        await shown.give(0, 1, query="select 1\n\tfrom t\x1b[2J")
        await shown.press("9", "y")
        assert "select a row first" in shown.text and shown.app.clipboard == ""
        await shown.press("down", "y")
        assert shown.app.clipboard == "select 1\n\tfrom t␛[2J" and "clipboard" in shown.text


async def test_a_lower_case_letter_names_the_capital_that_acts() -> None:
    async with screen(given=(0, 1)) as shown:
        await shown.press("9", "down", "k")
        assert shown.feed.asked == [] and "K, the capital letter: terminate" in shown.text


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_a_click_opens_the_panel_under_the_pointer(size: tuple[int, int]) -> None:
    async with screen(given=(0, 1), size=size) as shown:
        titles = {kind.title: name for name, kind in PANELS.items()}
        places = [
            (name, row, text.index(f"─ {title} ") + 2)
            for row, text in enumerate(shown.lines)
            for title, name in titles.items()
            if f"─ {title} " in text
        ]
        assert len(places) >= 8
        for name, row, column in places:
            has_lines = not shown.lines[row + 1].startswith("─")
            for place in ((row, column), (row + 1, column + 8)) if has_lines else ((row, column),):
                await shown.click(*place)
                assert getattr(shown.app.view_stack.view, "name", "overview") == name, place
                await shown.press("escape")


async def test_keys_of_the_footer_can_be_clicked() -> None:
    async with screen(given=(0, 1)) as shown:
        foot = shown.lines[-1]
        await shown.click(23, foot.index("? help"))
        assert "the runbook for the most urgent finding" in shown.text
        await shown.press("escape")
        await shown.click(23, foot.index("1-9"))
        assert shown.lines[-1] == foot
        await shown.click(23, foot.index("q quit") + 3)
        assert shown.app.return_value == 0


async def test_in_ascii_no_other_character_is_drawn() -> None:
    async with screen(options=ScreenOptions(ascii=True)) as shown:
        await shown.give(0, 1, query="表 é")
        await shown.press("9", "down")
        assert shown.text.isascii()


async def test_a_thousand_sessions_are_shown_and_answer_keys() -> None:
    async with screen(size=(160, 50)) as shown:
        await shown.give(0, 1, sessions=1000)
        await shown.press("9", "down", "pagedown")
        assert "of 1000" in shown.text
        assert line_text(shown.app.view_stack.lines(160, 50)[0]).startswith("?") or "LIVE" in shown.lines[0]
