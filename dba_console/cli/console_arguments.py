"""The console's own command line, read without a parser library: it is the way taken at three in the morning.

dba-console [DSN|NAME] [--mouse|--no-mouse]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from dba_console.core.errors import UsageError

_OPTIONS = ("--mouse", "--no-mouse", "--help", "--version")


@dataclass(frozen=True, slots=True)
class ConsoleArguments:
    target: str | None = None
    """Connection string, URI or name; None: the configuration's default, else libpq's environment."""
    mouse: bool | None = None
    """None: as configured."""


def parse(arguments: Sequence[str]) -> ConsoleArguments:
    """What was asked for. Raises UsageError for what the console does not know.

    >>> parse(["host=db1", "--no-mouse"])
    ConsoleArguments(target='host=db1', mouse=False)
    """
    target: str | None = None
    mouse: bool | None = None
    for argument in arguments:
        if argument in ("--mouse", "--no-mouse"):
            mouse = argument == "--mouse"
        elif argument.startswith("-"):
            near = get_close_matches(argument, _OPTIONS, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"no such option: {argument}", hint=f"{meant}`dba-console --help` lists all commands")
        elif target is None:
            target = argument
        else:
            raise UsageError(
                "one server at a time, but two were named",
                hint="quote a connection string that has blanks: dba-console 'host=db1 dbname=app'",
            )
    return ConsoleArguments(target, mouse)
