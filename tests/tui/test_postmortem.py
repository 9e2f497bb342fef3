"""The postmortem of the finding on the screen, written with one key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from tests.tui.test_console import screen as opened
from tests.tui.test_findings import FULL, give_findings, screen_with
from tests.unit.reports.incidents import SHIPPED


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


async def test_e_writes_the_postmortem_of_the_selected_finding(state: Path) -> None:
    async with opened() as screen:
        screen.feed.session = dataclasses.replace(screen.feed.session, directory=SHIPPED)
        await give_findings(screen, FULL)
        await screen.press("f", "e")
        await screen.until("postmortem.md and postmortem.html written to")
    [markdown] = state.glob("dba-console/reports/*/postmortem.md")
    assert markdown.parent.name.startswith("reclaim-stall-connections-filling-")
    assert "finding reclaim-stall" in markdown.read_text()


async def test_without_a_recording_there_is_no_postmortem(state: Path) -> None:
    async with screen_with(FULL) as screen:
        await screen.press("f", "e")
        assert "nothing is recorded" in screen.text


async def test_a_finding_that_the_recording_does_not_have_is_named(state: Path) -> None:
    async with opened() as screen:
        screen.feed.session = dataclasses.replace(screen.feed.session, directory=SHIPPED)
        await give_findings(screen, structs.replace(FULL, id="elsewhere"))
        await screen.press("f", "e")
        await screen.until("no finding 'elsewhere' in this session")
