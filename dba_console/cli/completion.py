"""`dba-console completion`: print the completion script of a shell, and return the words it offers.

The script is typer's: it runs the program with `_DBA_CONSOLE_COMPLETE` set and offers what is printed.
"""

from __future__ import annotations

import importlib
import os
from typing import Annotated, Any, Literal

import typer

from dba_console.cli.command_table import COMMANDS
from dba_console.cli.options import new_app
from dba_console.cli.stdout import put

PROGRAM = "dba-console"
VARIABLE = "_DBA_CONSOLE_COMPLETE"

app = new_app("Print the completion script for a shell.")


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print the completion script; source it in the shell's start file.

    bash: `source <(dba-console completion bash)` in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish: save it
    as ~/.config/fish/completions/dba-console.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # exists, but not declared

    put(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell))
    return 0


def complete(instruction: str) -> int:
    """Print the completions that the script requests (`complete_bash` …)."""
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]  # as above

    completion_init()
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    return int(shell_complete(command_group(words[1] if len(words) > 1 else ""), {}, PROGRAM, VARIABLE, instruction))


def command_group(wanted: str | None) -> Any:
    """Return all commands as one typer group; only `wanted` is fully loaded (None: all)."""
    root = typer.main.get_group(typer.Typer(add_completion=False))
    for name, command in COMMANDS.items():
        click_command = _load_command(name) if wanted in (None, name) else None
        click_command = typer.main.get_command(_empty_app()) if click_command is None else click_command
        click_command.name, click_command.help = name, click_command.help or command.summary
        root.add_command(click_command, name)
    return root


def _load_command(name: str) -> Any:
    """Return the named command, or None for commands without a typer parser (stamp, version)."""
    module = COMMANDS[name].module
    found = getattr(importlib.import_module(f"dba_console.cli.{module}"), "app", None) if module else None
    return None if found is None else typer.main.get_command(found)


def _empty_app() -> typer.Typer:
    empty = new_app("")
    empty.command()(lambda: None)
    return empty
