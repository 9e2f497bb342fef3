"""The entry point: opens the console directly, and passes every other command to cli/.

Every start pays for the imports here, so each branch imports only what it needs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from dba_console.cli.command_table import COMMANDS

if TYPE_CHECKING:
    from dba_console.core.config import Config
    from dba_console.core.target import Target
    from dba_console.tui.terminal import ScreenOptions


def main() -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:]
    # `stamp` must report lines it cannot write; any other command discards the output.
    fill_closed_streams(readable_only=arguments[:1] == ["stamp"])
    if arguments and arguments[0] in ("--version", "-V"):
        from dba_console import __version__

        print(f"dba-console {__version__}")
        return 0
    if arguments and arguments[0] == "stamp":
        from dba_console.cli.stamp.command import run as stamp

        return stamp(arguments[1:])
    from dba_console.core.safe_environment import sanitize_environment

    ignored = sanitize_environment()
    if asked_by_shell := os.environ.pop("_DBA_CONSOLE_COMPLETE", None):
        from dba_console.cli.completion import complete
        from dba_console.cli.error_handling import run_guarded

        return run_guarded(lambda: complete(asked_by_shell), sys.argv)
    if ignored:
        from dba_console.core.sanitize import clean

        print("\n".join(f"warning: {clean(one)}" for one in ignored), file=sys.stderr)
    # Any other first word names a server.
    if arguments and (arguments[0] in COMMANDS or arguments[0] in ("--help", "-h")):
        from dba_console.cli.app import run

        return run(arguments)
    from dba_console.core.fast_start import begin_fast_start

    begin_fast_start()
    from dba_console.cli.error_handling import run_guarded

    return run_guarded(lambda: open_console_from_arguments(arguments), sys.argv)


def fill_closed_streams(*, readable_only: bool = False) -> None:
    """Replace closed standard streams (`>&-`) with /dev/null; with `readable_only`, writing to them fails.

    Python sets a closed stream to None, and the next opened file would get its descriptor and its output.
    """
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDONLY if readable_only else os.O_RDWR), descriptor)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def open_console_from_arguments(arguments: list[str]) -> int:
    from dba_console.cli.config_file import load_config
    from dba_console.cli.console_arguments import parse
    from dba_console.cli.target_resolution import require_server, resolve_target

    loaded = load_config()
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    if (word == "help" and word not in loaded.config.targets) or {"--help", "-h"} & {*arguments}:
        from dba_console.cli.app import help_text
        from dba_console.cli.stdout import put

        put(help_text())
        return 0
    require_server(word, loaded)
    asked = parse(arguments)
    return open_console(resolve_target(asked.target, loaded), loaded.config, mouse=asked.mouse)


def open_console(target: Target, config: Config, *, mouse: bool | None = None) -> int:
    """Open the console on a target: attach to its agent or start one. Returns an exit code."""
    from dba_console.tui.terminal import require_terminal

    require_terminal()
    from dba_console.agent.find_or_start import start_agent

    launch = start_agent(target, config, replace=True)
    # The agent connects and reads while the screen module loads; both take about as long.
    import dba_console.tui.app as screen

    options = screen_options(config, mouse)
    return screen.run_console(screen.live_feed(launch.wait, lambda: start_agent(target, config).wait()), options)


def screen_options(config: Config, mouse: bool | None = None) -> ScreenOptions:
    """Return the screen options of the configuration and the command line."""
    from dba_console.tui.terminal import ScreenOptions

    return ScreenOptions(
        mouse=config.screen.mouse if mouse is None else mouse,
        colours=config.screen.colours,
        ascii=config.screen.ascii,
        runbooks=tuple(config.runbooks.path),
        jobs=config.jobs,
    )


if __name__ == "__main__":
    sys.exit(main())
