"""Cancel and terminate from the tables: the rows chosen, by pid and start, and no others."""

from __future__ import annotations

import msgspec

from dba_console.agent.protocol import RunBegin
from dba_console.recording.plan import Plan
from dba_console.tui.panel_detail import parse_backend_key
from tests.tui.test_console import Screen
from tests.tui.test_console import screen as opened


def planned(screen: Screen) -> tuple[str, list[int]]:
    """The verb and the pids of the one run asked for."""
    (begin,) = screen.feed.asked
    assert isinstance(begin, RunBegin) and begin.adhoc is not None and begin.text == ""
    plan = msgspec.json.decode(begin.adhoc, type=Plan)
    ((_, block),) = plan.blocks()
    assert block.action == "signal-backend" and all(row["backend_start"] for row in block.settings["rows"])
    return block.settings["verb"], sorted(row["pid"] for row in block.settings["rows"])


async def test_capital_k_asks_to_terminate_the_selected_session() -> None:
    async with opened(given=(0, 1)) as screen:
        await screen.press("9", "/", "1", "0", "1", "enter", "down", "K")
        assert planned(screen) == ("terminate", [101])


async def test_capital_c_cancels_every_ticked_row_in_any_sort_order() -> None:
    async with opened(given=(0, 1)) as screen:
        await screen.press("9", "down", "x", "x", "equals_sign", "p", "i", "d", "enter", "v")
        assert "2 chosen" in screen.text and screen.text.count("●") == 3
        await screen.press("C")
        verb, pids = planned(screen)
        assert verb == "cancel" and len(pids) == 2


async def test_a_ticked_row_that_is_gone_is_left_out_and_reported() -> None:
    async with opened(given=(0, 1)) as screen:
        await screen.press("9", "equals_sign", "p", "i", "d", "enter", "down", "x", "x", "x")
        await screen.give(2, sessions=2)
        await screen.press("K")
        assert planned(screen) == ("terminate", [100, 101])
        assert "1 of the chosen sessions have ended" in screen.text


async def test_with_nothing_selected_nothing_is_asked() -> None:
    async with opened(given=(0, 1)) as screen:
        await screen.press("9", "K")
        assert screen.feed.asked == [] and "no session selected" in screen.text


async def test_no_session_is_terminated_from_the_past() -> None:
    async with opened(given=(0, 1)) as screen:
        await screen.press("9", "down", "space", "K")
        assert screen.feed.asked == [] and "this is the past" in screen.text


async def test_row_ticks_are_removed_before_the_panel_is_left() -> None:
    async with opened(given=(0, 1)) as screen:
        await screen.press("9", "down", "x", "escape", "escape")
        assert "chosen" not in screen.text and "Sessions" in screen.text
        await screen.press("escape")
        assert "─ Connections" in screen.text


def test_a_prepared_transaction_is_not_a_backend() -> None:
    assert parse_backend_key("0 None ") is None
    assert parse_backend_key("812 None") is None
