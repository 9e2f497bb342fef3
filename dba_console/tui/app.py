"""The screen's entrance: judges the terminal, starts the feed, and only then loads Textual.

Connecting and loading take about as long as each other, so they go on side by side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dba_console.errors import ConsoleError, ExitCode
from dba_console.fast_start import finish_fast_start
from dba_console.tui.feed import Feed
from dba_console.tui.terminal import ScreenOptions, configure_textual, require_terminal


def live_feed(first_socket: Callable[[], Path], later_socket: Callable[[], Path], name: str = "the target") -> Feed:
    """The feed of an agent: `first` waits for its socket, `again` finds or starts one after it was lost."""
    from dba_console.agent.client import AgentClient
    from dba_console.tui.live_feed import LiveFeed

    sockets = iter((first_socket,))
    return LiveFeed(lambda: AgentClient.connect(next(sockets, later_socket)()), name)


def replay_feed(directory: Path, name: str) -> Feed:
    """The feed of a recording in `directory`; `name` is what the header calls it."""
    from dba_console.tui.replay_feed import ReplayFeed

    return ReplayFeed(directory, name)


def run_console(feed: Feed, options: ScreenOptions) -> int:
    """Show the screen until the operator leaves it. Returns an exit code.

    Raises Unsupported where the terminal cannot hold a screen, and what the feed's first attempt to attach raised.
    """
    colours = require_terminal(options.colours)
    configure_textual(colours)
    feed.start()
    from dba_console.tui.console import ConsoleApp
    from dba_console.tui.terminal_guard import TerminalGuard

    app = ConsoleApp(feed, options, colours)
    guard = app.guard = TerminalGuard(app.end_from_thread)
    guard.start()
    finish_fast_start()
    try:
        code = app.run(mouse=options.mouse)
    finally:
        feed.close()
        guard.finish()
    if isinstance(app.failure, ConsoleError):
        raise app.failure
    if app.failure is not None:
        return _report_crash(app.failure)
    if guard.signal is not None or guard.hung_up:
        return int(ExitCode.INTERRUPTED)
    if code:
        return code
    from dba_console.tui.exit_message import report_exit

    navigator = app.navigator
    return report_exit(
        feed.session if feed.can_go_live else None,
        navigator.runs,
        options.run_request,
        lost=navigator.connection_state == "lost",
    )


def _report_crash(error: BaseException) -> int:
    from dba_console.crash_report import CRASH_EXIT_CODE
    from dba_console.tui.crash_message import crash_message

    print(crash_message(error), file=sys.stderr)
    return CRASH_EXIT_CODE
