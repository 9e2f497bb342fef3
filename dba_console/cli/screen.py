"""Opens the screen for commands: on a running agent, on a recording. The screen is loaded only here, and only then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dba_console.config import Config


def open_agent(path: Callable[[], Path], config: Config) -> int:
    """The console on the agent whose socket `path` gives, asked again each time the agent is lost."""
    from dba_console.tui.terminal import ScreenOptions, require_terminal

    require_terminal()
    import dba_console.tui.app as screen

    options = ScreenOptions(mouse=config.screen.mouse, colours=config.screen.colours, ascii=config.screen.ascii)
    return screen.run_console(screen.live_feed(path, path), options)


def open_session(directory: Path, at: str | None, config: Config) -> int:
    """The console on a recording, at the TIME `at` or at its start."""
    from dba_console.tui.terminal import ScreenOptions, require_terminal

    require_terminal()
    import dba_console.tui.app as screen
    from dba_console.tui.replay import ReplayFeed

    options = ScreenOptions(mouse=config.screen.mouse, colours=config.screen.colours, ascii=config.screen.ascii, at=at)
    return screen.run_console(ReplayFeed(directory, directory.name), options)
