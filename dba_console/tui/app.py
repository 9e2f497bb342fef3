"""The screen's entrance: judges the terminal, starts the feed, and only then loads Textual.

Connecting and loading take about as long as each other, so they go on side by side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dba_console.errors import ConsoleError, ExitCode
from dba_console.lean import loaded
from dba_console.tui.feed import Feed
from dba_console.tui.runs import KnownRun
from dba_console.tui.terminal import ScreenOptions, prepare, require_terminal


def live_feed(first: Callable[[], Path], again: Callable[[], Path], name: str = "the target") -> Feed:
    """The feed of an agent: `first` waits for its socket, `again` finds or starts one after it was lost."""
    from dba_console.agent.client import AgentClient
    from dba_console.tui.live import LiveFeed

    ways = iter((first,))
    return LiveFeed(lambda: AgentClient.connect(next(ways, again)()), name)


def replay_feed(directory: Path, name: str) -> Feed:
    """The feed of a recording in `directory`; `name` is what the header calls it."""
    from dba_console.tui.replay import ReplayFeed

    return ReplayFeed(directory, name)


def run_console(feed: Feed, options: ScreenOptions) -> int:
    """Show the screen until the operator leaves it. Returns an exit code.

    Raises Unsupported where the terminal cannot hold a screen, and what the feed's first attempt to attach raised.
    """
    colours = require_terminal(options.colours)
    prepare(colours)
    feed.start()
    from dba_console.tui.console import ConsoleApp
    from dba_console.tui.guard import Guard

    app = ConsoleApp(feed, options, colours)
    guard = app.guard = Guard(app.end_from_thread)
    guard.start()
    loaded()
    try:
        code = app.run(mouse=options.mouse)
    finally:
        feed.close()
        guard.finish()
    if isinstance(app.failure, ConsoleError):
        raise app.failure
    if app.failure is not None:
        return _crashed(app.failure)
    if guard.signal is not None or guard.hung_up:
        return int(ExitCode.INTERRUPTED)
    return _left(feed, code, app.navigator.runs.foremost, lost=app.navigator.link == "lost")


def _left(feed: Feed, code: int | None, run: KnownRun | None, *, lost: bool) -> int:
    if run is not None and not run.ended and (lost or run.told.state == "interrupted"):
        print(f"The run of {run.told.runbook} has no agent that is known of; it is left as it is.", file=sys.stderr)
        print("`dba-console attach` or `dba-console runbook resume` takes it up again.", file=sys.stderr)
    elif run is not None and not run.ended:
        print(
            f"The run of {run.told.runbook} goes on until it needs an answer, and then waits for it.", file=sys.stderr
        )
        print("So does the agent; `dba-console attach` shows both again.", file=sys.stderr)
    elif feed.has_present and not lost:
        grace_s = feed.session.grace_s
        how_long = "until it is told to stop" if grace_s is None else f"for {_duration(grace_s)}"
        print(f"The agent goes on recording {how_long}; `dba-console attach` shows it again.", file=sys.stderr)
    return code or 0


def _duration(seconds: float) -> str:
    from dba_console.units import human_duration

    return human_duration(seconds)


def _crashed(error: BaseException) -> int:
    from dba_console.crash import CRASHED
    from dba_console.tui.crash import farewell

    print(farewell(error), file=sys.stderr)
    return CRASHED
