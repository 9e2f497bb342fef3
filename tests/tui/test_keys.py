"""One registry of keys: screens, help, palette and documentation cannot disagree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dba_console.jobs.history.duration_trend import NO_WINDOWS
from dba_console.tui.comparison import ComparisonView
from dba_console.tui.findings import EvidenceView, FindingsView
from dba_console.tui.jobs import AllJobsView, JobPage, JobRunsView, JobsView
from dba_console.tui.keys import KEYS, ScreenName, keys_of, markdown, panel_of_key, panel_titles
from dba_console.tui.known_runs import KnownRuns
from dba_console.tui.panel_detail import BackendsView, DetailView
from dba_console.tui.runbooks import RunbookPage, RunbooksView
from dba_console.tui.screen_view import ScreenView
from dba_console.tui.view_stack import HelpView, OverviewView
from dba_console.tui.walkthrough import WalkthroughView
from tests.jobs import dump_row
from tests.tui.test_console import screen as opened

VIEWS: dict[ScreenName, type[ScreenView]] = {
    "overview": OverviewView, "detail": DetailView, "findings": FindingsView, "evidence": EvidenceView,
    "backends": BackendsView, "jobs": JobsView, "job": JobPage, "history": AllJobsView,
    "runbooks": RunbooksView, "runbook": RunbookPage, "walkthrough": WalkthroughView,
    "comparison": ComparisonView,
}  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs" / "keys.md"


async def test_every_key_of_a_screen_has_an_effect_there() -> None:
    async with opened() as screen:
        functions = screen.app._actions.functions
    for where, view in VIEWS.items():
        for key in keys_of(where):
            if key.action.startswith("panel_"):
                assert panel_of_key(key.shown) is not None, key
            else:
                assert hasattr(view, f"do_{key.action}") or key.action in functions, (where, key)


@pytest.mark.parametrize("where", VIEWS)
def test_no_key_has_two_meanings_on_one_screen(where: ScreenName) -> None:
    own = Counter(name for key in keys_of(where) if key.where == where for name in key.keys)
    everywhere = Counter(name for key in KEYS if key.where == "everywhere" for name in key.keys)
    assert [name for name, count in (own + Counter()).items() if count > 1] == []
    assert [name for name, count in everywhere.items() if count > 1] == []


def test_every_offered_action_has_a_help_text() -> None:
    titles = panel_titles()
    assert [key for key in KEYS if not (key.help or titles.get(key.shown))] == []


def test_hints_of_every_view_are_keys_of_that_view() -> None:
    views: list[ScreenView] = [OverviewView(), DetailView("io"), HelpView("overview"), BackendsView("sessions")]
    runs = KnownRuns()
    views += [RunbooksView(lambda: None, runs), RunbookPage("x", lambda: None), WalkthroughView("x", runs)]
    views += [JobsView(), JobPage(dump_row()), AllJobsView(lambda: None, NO_WINDOWS)]
    views += [JobRunsView("x", lambda: None, NO_WINDOWS)]
    for view in views:
        known = {key.action for key in keys_of(view.where)} | {"panel", "time"}
        assert set(view.hints) <= known


def test_the_documented_keys_are_those_of_the_program() -> None:
    assert DOCS.read_text(encoding="utf-8") == markdown(panel_titles())


_NAVIGATION = {"enter", "tab", "shift+tab", "escape", "backspace", "up", "down"}
"""Keys that act on what is selected or shown, on every screen."""


def test_a_letter_has_one_meaning_everywhere() -> None:
    meanings: dict[str, set[str]] = {}
    for key in KEYS:
        for name in key.keys:
            meanings.setdefault(name, set()).add(key.action)
    several = {name: actions for name, actions in meanings.items() if len(actions) > 1 and name not in _NAVIGATION}
    assert several == {}


def test_terminate_cancel_and_skip_are_capital_letters_and_not_for_the_mouse() -> None:
    acting = ("cancel", "terminate", "skip", "jump", "stop", "abort", "undo", "take", "resume", "put_back")
    for key in KEYS:
        assert (key.action in acting) == (key.shown.isalpha() and key.shown.isupper()), key
        assert key.acts or key.action not in acting
