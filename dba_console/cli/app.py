"""The named commands: finds the one asked for and loads that one only.

A command is a module with an `app`; its name and summary stand in the table here, so that `--help` and `--version`
load no library at all.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dba_console import __version__
from dba_console.cli.error_handling import prepare_streams, run_guarded, run_plugin_guarded
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import typer


class CommandEntry(NamedTuple):
    module: str
    usage: str
    summary: str


COMMANDS = {
    "attach": CommandEntry("attach", "[AGENT]", "the console on an agent that runs already"),
    "demo": CommandEntry("demo", "[--incident NAME]", "an embedded server under load, the console on it, incidents"),
    "show": CommandEntry("show", "[PANEL…] [DSN]", "the panels as text or JSON"),
    "record": CommandEntry("record", "[DSN]", "the agent in the foreground, without a terminal"),
    "replay": CommandEntry("replay", "SESSION", "the console on a recording; with --show, text"),
    "session": CommandEntry("session", "list|show|…", "what was recorded: list, show, verify, pin, unpin, prune"),
    "findings": CommandEntry(
        "findings", "list|show|ack|…", "what is wrong: list, show, ack, silence, unsilence, rules"
    ),
    "runbook": CommandEntry("runbook", "list|show|run|…", "runbooks: list, show, lint, plan, new; walk through one"),
    "cluster": CommandEntry(
        "cluster", "show|check NAME", "a configured cluster: its nodes and poolers, ready for a cutover?"
    ),
    "dumps": CommandEntry("dumps", "sweep|verify|…", "dumps: find the right -j, estimate, list, verify"),
    "stamp": CommandEntry(
        "stamp", "-t TAG", "standard input to standard output, each line stamped; like logger and ts"
    ),
    "check": CommandEntry("check", "[DSN]", "the findings as a line for a monitoring system (exit 0 to 3)"),
    "doctor": CommandEntry("doctor.command", "[DSN]", "what will and will not work here, and what mends it"),
    "config": CommandEntry("config_cmd", "show|path", "the configuration in force, and where each value comes from"),
    "completion": CommandEntry("completion", "bash|zsh|fish", "what completes commands and options in that shell"),
    "version": CommandEntry("", "", "the version"),
}


_NOT_A_NUMBER = re.compile(r"Input should be a valid (\w+), unable to parse string as an? \w+")
"""What newer versions of typer say of a text that is no number."""


def run(argv: Sequence[str]) -> int:
    """The exit code of `dba-console ARGV`. Never raises."""
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
        from dba_console.cli.stamp import run as stamp

        return stamp(rest)
    if name not in COMMANDS:
        raise UsageError(f"no command {name!r}", hint=did_you_mean(name))
    module = importlib.import_module(f"dba_console.cli.{COMMANDS[name].module}")
    return _invoke(module.app, name, rest)


def _invoke(app: typer.Typer, name: str, argv: list[str]) -> int:
    import typer

    # The class of every complaint about arguments; its module moved between versions of typer, its heirs did not.
    argument_error: Any = typer.BadParameter.__mro__[2]
    command = typer.main.get_command(app)
    try:
        code = command.main(args=argv, prog_name=f"dba-console {name}", standalone_mode=False)
    except argument_error as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        message = _NOT_A_NUMBER.sub(r"not a valid \1", message)
        hint = f"dba-console {name} --help tells what it takes"
        raise UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else ExitCode.OK


def help_text() -> str:
    """The help of the whole: what the console is, every command with its summary."""
    lines = [f"  {name + ' ' + command.usage:<24} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "dba-console [DSN] [--mouse|--no-mouse]: the console for a PostgreSQL host that is in trouble.",
            "",
            "Attaches to the agent that watches the server, and starts one if none runs. DSN is a connection string,",
            "a URI, service=NAME, or a target named in the configuration; without it, libpq's environment decides.",
            "",
            "Commands:",
            *lines,
            "",
            "Options:",
            "  -h, --help               this text; after a command, that of the command",
            "  -V, --version            the version",
            "  --mouse, --no-mouse      use the mouse, or leave it to the terminal",
            "",
            "dba-console COMMAND --help tells the rest.",
        ]
    )


def did_you_mean(name: str, more: Iterable[str] = ()) -> str:
    """The hint for a word that is no command, nor one of the others that could have been meant."""
    close = difflib.get_close_matches(name, [*COMMANDS, *more], n=1)
    return f"did you mean {close[0]}?" if close else "dba-console --help lists the commands"
