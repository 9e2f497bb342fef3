"""Runs a command: loads only the module of the requested one, so `--help` and `--version` load no library."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dba_console import __version__
from dba_console.cli.command_table import COMMANDS
from dba_console.cli.error_handling import prepare_streams, run_guarded, run_plugin_guarded
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, UsageError, suggest

if TYPE_CHECKING:
    import typer


_NOT_A_NUMBER = re.compile(r"Input should be a valid (\w+), unable to parse string as an? \w+")
"""The message of newer typer versions for an argument that is not a number."""


def run(argv: Sequence[str]) -> int:
    """Return the exit code of `dba-console ARGV`. Never raises."""
    prepare_streams()
    guard = run_plugin_guarded if argv[:1] == ["check"] else run_guarded
    return guard(lambda: _run(list(argv)), argv)


def _run(argv: list[str]) -> int:
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if name in ("--version", "version"):
        put(f"dba-console {__version__}")
        return ExitCode.OK
    if name in ("--help", "-h", "help"):
        put(help_text())
        return ExitCode.OK
    if name == "stamp":
        from dba_console.cli.stamp.command import run as stamp

        return stamp(rest)
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}", hint=did_you_mean(name))
    module = importlib.import_module(f"dba_console.cli.{COMMANDS[name].module}")
    return _invoke(module.app, name, rest)


def _invoke(app: typer.Typer, name: str, argv: list[str]) -> int:
    import typer

    # The base class of all argument errors; its module differs between typer versions, its subclasses do not.
    argument_error: Any = typer.BadParameter.__mro__[2]
    command = typer.main.get_command(app)
    try:
        code = command.main(args=argv, prog_name=f"dba-console {name}", standalone_mode=False)
    except argument_error as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        message = _NOT_A_NUMBER.sub(r"not a valid \1", message)
        hint = f"see dba-console {name} --help"
        raise UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else ExitCode.OK


def help_text() -> str:
    """Return the top-level help: what the console is, and every command with its summary."""
    lines = [f"  {name + ' ' + command.usage:<24} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "dba-console [DSN]: the console for a PostgreSQL host that is in trouble.",
            "",
            "Opens the console on the server's agent, which samples and records; starts one",
            "if none runs. DSN is a connection string, a URI, service=NAME, or a target of",
            "the configuration; without it, libpq's environment decides (PGHOST …).",
            "",
            "Commands:",
            *lines,
            "",
            "Options:",
            "  -h, --help               show this help; after a command, its help",
            "  -V, --version            show the version",
            "  --mouse, --no-mouse      use the mouse, or leave it to the terminal",
            "",
            "See dba-console COMMAND --help for the options of a command.",
        ]
    )


def did_you_mean(name: str, more: Iterable[str] = ()) -> str:
    """Return the hint for an unknown command: the nearest command or one of `more`."""
    return suggest(name, [*COMMANDS, *more]) or "dba-console --help lists the commands"
