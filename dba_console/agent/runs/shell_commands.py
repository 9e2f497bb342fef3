"""The commands of a runbook: their argv, and the environment they are given."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from dba_console.keeping.launch import INHERITED_VARIABLES
from dba_console.safe_environment import python_command

DEFAULT_S = 10.0
"""Where the block names no timeout."""
THIS_PROGRAM = tuple(python_command("dba_console"))
_LOCALE_VARIABLES = {"LC_ALL": "C.UTF-8", "LANGUAGE": "", "PG_COLOR": "never"}
"""LANGUAGE goes before LC_ALL where that is not plain C (gettext, "The LANGUAGE variable"), and what programs print is
read."""
_DIRECTORY_VARIABLES = (
    "XDG_STATE_HOME", "XDG_CONFIG_HOME", "DBA_CONSOLE_CONFIG", "DBA_CONSOLE_SESSIONS", "DBA_CONSOLE_RUNTIME",
    "DBA_CONSOLE_PG_BINDIR",
)  # fmt: skip


def script_argv(body: str) -> list[str]:
    """The argv that runs a shell script which stops at its first error, in a pipeline too."""
    return ["/bin/bash", "-euo", "pipefail", "-c", body, "runbook"]


def command_environment(given: Mapping[str, str]) -> dict[str, str]:
    """A small inherited environment that speaks English without colours and knows this program, and what is given."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED_VARIABLES}
    return {**kept, **_LOCALE_VARIABLES, **own_command_variables(os.environ.get("PATH", os.defpath)), **given}


def own_command_variables(path: str) -> dict[str, str]:
    """By which `dba-console` in a script means this very program, whatever else of that name there is.

    A function that bash takes from its environment; who starts it otherwise (`exec`, `xargs`, `nice`) finds it at the
    end of the path. What names its places goes with it: it reads and keeps where we do.
    """
    own = " ".join(map(shlex.quote, THIS_PROGRAM))
    beside = os.path.dirname(sys.executable)
    places = {name: os.environ[name] for name in _DIRECTORY_VARIABLES if name in os.environ}
    return {"BASH_FUNC_dba-console%%": f'() {{  {own} "$@"\n}}', "PATH": f"{path}:{beside}", **places}


def command_argv(argv: Sequence[str]) -> list[str]:
    """The argv of a command; `dba-console` in its first place is this very program.

    >>> command_argv(["dba-console", "--version"])[1:]
    ['-P', '-s', '-m', 'dba_console', '--version']
    """
    return [*THIS_PROGRAM, *argv[1:]] if argv and argv[0] == "dba-console" else list(argv)
