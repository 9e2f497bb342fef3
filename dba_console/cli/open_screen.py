"""Opens the screen for commands: on a running agent, on a recording. The screen is loaded only here, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.config import Config
from dba_console.tui.terminal import ScreenOptions, require_terminal

RunRequest = RunBegin | RunResume | RunWatch


def open_agent(
    wait_for_socket: Callable[[], Path],
    reconnect: Callable[[], Path],
    name: str,
    config: Config,
    run_request: RunRequest | None = None,
) -> int:
    """The console on the agent whose socket `wait_for_socket` waits for. `reconnect` finds or starts one each time
    it was lost.

    `run_request`: a run that is asked for at once, and shown.
    """
    require_terminal(config.screen.colours)
    import dba_console.tui.app as screen

    return screen.run_console(
        screen.live_feed(wait_for_socket, reconnect, name),
        replace(_screen_options(config, None), run_request=run_request),
    )


def open_session(directory: Path, name: str, at: str | None, config: Config) -> int:
    """The console on a recording of the target `name`, at the TIME `at` or where the screen begins by itself."""
    require_terminal(config.screen.colours)
    import dba_console.tui.app as screen

    return screen.run_console(screen.replay_feed(directory, name), _screen_options(config, at))


def _screen_options(config: Config, at: str | None) -> ScreenOptions:
    screen = config.screen
    return ScreenOptions(screen.mouse, screen.colours, screen.ascii, at, tuple(config.runbooks.path), config.jobs)
