"""Findings on the screen: opened, acknowledged, silenced by keys; the agent is asked, the screen decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from dba_console.agent.protocol import Acknowledge, Silence
from dba_console.tui.feed import EventArrived
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, FindingsNow
from dba_console.watch.samples.sample import Sample, make_part
from tests.tui.manual_feed import START_US, S, tick
from tests.tui.test_console import Screen
from tests.tui.test_console import screen as opened

FULL = FindingNow(
    "connections-filling", "connections-filling", "critical", "", "Connections fill (97 of 97)", {"used": 97},
    START_US, START_US, ["connections-filling"], ["connections.used"], "connection-storm", "lower the pools",
)  # fmt: skip
DISK = FindingNow(
    "disk-filling:/pg", "disk-filling", "warning", "/pg", "/pg is 83% full", {"used_pct": 83.0}, START_US, START_US,
    ["disk-filling:/pg"], [],
)  # fmt: skip


def frame_with_findings(number: int, *rows: FindingNow) -> Sample:
    sample = tick(number)
    part = make_part("findings", FindingsNow(list(rows)), at_us=sample.mono_us)
    return structs.replace(sample, parts=[*sample.parts, part])


async def give_findings(screen: Screen, *rows: FindingNow, number: int = 3) -> None:
    screen.feed.give(frame_with_findings(number, *rows))
    await screen.press("f12")  # a key that means nothing: what was given has been taken in then


@asynccontextmanager
async def screen_with(*rows: FindingNow, **options: Any) -> AsyncIterator[Screen]:
    """The screen when these findings are open."""
    async with opened(**options) as screen:
        await give_findings(screen, *rows)
        yield screen


async def test_f_opens_the_findings_with_the_most_urgent_one_selected() -> None:
    async with screen_with(DISK, FULL) as screen:
        await screen.press("f")
        assert "Findings" in screen.text
        assert screen.app.view_stack.view.finding == "connections-filling"  # type: ignore[attr-defined]  # the findings view


async def test_enter_opens_the_evidence_and_escape_returns() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "enter")
        assert "around its start" in screen.text and "lower the pools" in screen.text
        await screen.press("escape")
        assert "around its start" not in screen.text
        await screen.press("escape")
        assert "Connections" in screen.text


async def test_a_finding_that_clears_while_shown_stays_and_is_marked_cleared() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "enter")
        await give_findings(screen, number=4)
        assert "cleared" in screen.text and "Connections fill (97 of 97)" in screen.text


async def test_a_acknowledges_the_selected_finding_with_a_note() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "a", "o", "n", "space", "i", "t", "enter")
        assert screen.feed.asked == [Acknowledge(finding="connections-filling", note="on it")]
        message = Event(
            wall_us=START_US + 5 * S, kind="finding.acknowledged", text="finding acknowledged by ann: on it",
            details={"id": "connections-filling"},
        )  # fmt: skip
        screen.feed.mailbox.put(EventArrived(message))
        await screen.until("finding acknowledged by ann: on it")


async def test_escape_leaves_a_finding_as_it_is() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "a", "o", "n", "escape")
        assert screen.feed.asked == []


async def test_z_silences_for_the_typed_time_and_uses_the_rest_as_the_note() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "z", "2", "h", "space", "w", "a", "l", "enter")
        assert screen.feed.asked == [Silence(finding="connections-filling", seconds=7200.0, note="wal")]


async def test_a_silence_without_a_valid_time_sends_nothing_and_says_so() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "z", "s", "o", "o", "n", "enter")
        assert screen.feed.asked == []
        assert "not a duration" in screen.text


async def test_u_reverts_the_acknowledgement_or_silence() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "u")
        assert screen.feed.asked == [Silence(finding="connections-filling", seconds=0)]


async def test_nothing_is_acknowledged_in_the_past() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "space", "a")
        assert screen.feed.asked == []
        assert "this is the past" in screen.text


async def test_r_opens_the_runbook_of_the_most_urgent_finding_on_the_overview() -> None:
    async with screen_with(DISK, FULL) as screen:
        await screen.press("r")
        await screen.until("runbook not found: connection-storm")


async def test_a_finding_without_runbook_says_so() -> None:
    async with screen_with(DISK) as screen:
        await screen.press("r")
        assert "no runbook for disk-filling:/pg" in screen.text


async def test_the_keys_shown_are_those_that_act_on_the_finding_now() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "enter")
        assert "a acknowledge" in screen.text and "u undo" not in screen.text
        await give_findings(screen, structs.replace(FULL, state="acknowledged", who="ann"), number=4)
        assert "u undo" in screen.text and "a acknowledge" not in screen.text
        await screen.press("space")
        assert "u undo" not in screen.text and "live" in screen.text
