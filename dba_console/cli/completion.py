"""`dba-console completion`: the script by which a shell completes commands and options, and what that script asks.

typer's own: the script runs the program with `_DBA_CONSOLE_COMPLETE` set, and what it prints is offered.
"""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any, Literal

import typer

from dba_console.cli.app import COMMANDS
from dba_console.cli.options import new_app
from dba_console.cli.stdout import put

PROGRAM = "dba-console"
VARIABLE = "_DBA_CONSOLE_COMPLETE"

app = new_app("Completion of commands and options in a shell.")


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print the script; to be sourced from the start file of the shell.

    bash: `source <(dba-console completion bash)` in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish: save it
    as ~/.config/fish/completions/dba-console.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # there, and not declared

    put(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell))
    return 0


def complete(instruction: str) -> int:
    """Print what may follow, as that script asks for it (`complete_bash` …)."""
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]  # as above

    completion_init()
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    return int(shell_complete(command_group(words[1] if len(words) > 1 else ""), {}, PROGRAM, VARIABLE, instruction))


def command_group(wanted: str | None) -> Any:
    """All commands as one group of typer's; only those of `wanted` are loaded whole (None: all of them)."""
    root = typer.main.get_group(typer.Typer(add_completion=False))
    for name, command in COMMANDS.items():
        click_command = _load_command(name) if wanted in (None, name) else None
        click_command = typer.main.get_command(_empty_app()) if click_command is None else click_command
        click_command.name, click_command.help = name, click_command.help or command.summary
        root.add_command(click_command, name)
    return root


def _load_command(name: str) -> Any:
    """The command of that name, None for those without a parser of typer's (stamp, version)."""
    module = COMMANDS[name].module
    found = getattr(importlib.import_module(f"dba_console.cli.{module}"), "app", None) if module else None
    return None if found is None else typer.main.get_command(found)


def _empty_app() -> typer.Typer:
    empty = new_app("")
    empty.command()(lambda: None)
    return empty
