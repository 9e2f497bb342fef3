"""The console's own command line, parsed without a library because this is the start that must be fast.

dba-console [DSN|NAME] [--mouse|--no-mouse]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.core.errors import UsageError, suggest

_OPTIONS = ("--mouse", "--no-mouse", "--help", "--version")


@dataclass(frozen=True, slots=True)
class ConsoleArguments:
    target: str | None = None
    """Connection string, URI or name; None: the configuration's default, else libpq's environment."""
    mouse: bool | None = None
    """None: as configured."""


def parse(arguments: Sequence[str]) -> ConsoleArguments:
    """Return the parsed arguments. Raises UsageError for unknown ones.

    >>> parse(["host=db1", "--no-mouse"])
    ConsoleArguments(target='host=db1', mouse=False)
    """
    target: str | None = None
    mouse: bool | None = None
    for argument in arguments:
        if argument in ("--mouse", "--no-mouse"):
            mouse = argument == "--mouse"
        elif argument.startswith("-"):
            suggestion = suggest(argument, _OPTIONS, what="options:")
            raise UsageError(f"no such option: {argument}", hint=f"{suggestion}; see `dba-console --help`")
        elif target is None:
            target = argument
        else:
            raise UsageError(
                "only one server can be named, but two were given",
                hint="quote a connection string that contains blanks: dba-console 'host=db1 dbname=app'",
            )
    return ConsoleArguments(target, mouse)
