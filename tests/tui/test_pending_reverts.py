"""Settings that runs did not revert are shown first, once, and reverted with a key."""

from __future__ import annotations

from msgspec import structs

from dba_console.agent.protocol import RunBegin
from dba_console.runbooks.library import SHIPPED
from dba_console.watch.samples.findings import FindingNow
from tests.tui.manual_feed import START_US
from tests.tui.test_console import listed_runbook
from tests.tui.test_findings import FULL, give_findings, screen_with

NOT_REVERTED = FindingNow(
    "settings-left", "settings-left", "critical", "",
    "fsync (off), work_mem (9MB) still differ from before run r-1",
    {"settings": ["fsync = off in postgresql.auto.conf, was not set", "work_mem = 9MB for role app, was 4MB"],
     "who": ["ann"], "runs": ["r-1"]},
    START_US, START_US, ["settings-left"], [], "put-back", "run the runbook put-back",
)  # fmt: skip
OF_ACTIVE_RUN = structs.replace(
    NOT_REVERTED, severity="info", text="fsync (off) for run r-1: a crash of the host destroys the whole cluster"
)
TITLE = "Settings of a run were not reverted"
RUNBOOK = listed_runbook("put-back.md", (SHIPPED / "put-back.md").read_text(), TITLE)


async def test_a_console_starts_with_the_pending_reverts_of_a_run() -> None:
    async with screen_with(FULL, NOT_REVERTED) as screen:
        assert TITLE in screen.text and "fsync = off in postgresql.auto.conf, was not set" in screen.text
        assert "work_mem = 9MB for role app, was 4MB" in screen.text and "by ann" in screen.text
        assert " P reverts them now (runbook put-back)" in screen.text
        assert screen.lines[-1].split("  ")[0].strip() == "P revert now"


async def test_capital_p_starts_the_runbook_and_its_run_is_shown_instead() -> None:
    async with screen_with(NOT_REVERTED, runbooks=[RUNBOOK]) as screen:
        await screen.press("P")
        await screen.until(lambda: bool(screen.feed.asked))
        [asked] = screen.feed.asked
        assert isinstance(asked, RunBegin) and asked.text == RUNBOOK.text and asked.mode == "run"


async def test_escape_postpones_it_and_it_does_not_return() -> None:
    async with screen_with(NOT_REVERTED) as screen:
        await screen.press("escape")
        assert TITLE not in screen.text and "Connections" in screen.text
        await give_findings(screen, number=4)
        await give_findings(screen, NOT_REVERTED, number=5)
        assert TITLE not in screen.text


async def test_enter_alone_does_nothing() -> None:
    async with screen_with(NOT_REVERTED, runbooks=[RUNBOOK]) as screen:
        await screen.press("enter", "y")
        assert screen.feed.asked == [] and TITLE in screen.text


async def test_during_the_run_nothing_is_offered() -> None:
    async with screen_with(OF_ACTIVE_RUN) as screen:
        assert TITLE not in screen.text


async def test_it_does_not_open_after_the_operator_pressed_a_key() -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f")
        await give_findings(screen, FULL, NOT_REVERTED, number=4)
        assert TITLE not in screen.text


async def test_after_a_minute_it_is_a_finding_like_others() -> None:
    async with screen_with(FULL) as screen:
        await give_findings(screen, FULL, number=70)
        await give_findings(screen, FULL, NOT_REVERTED, number=71)
        assert TITLE not in screen.text


async def test_once_it_is_reverted_the_screen_says_so() -> None:
    async with screen_with(NOT_REVERTED, runbooks=[RUNBOOK]) as screen:
        await give_findings(screen, number=4)
        assert "All settings are reverted" in screen.text
        await screen.press("P")
        assert screen.feed.asked == [] and "no settings left to revert" in screen.text
