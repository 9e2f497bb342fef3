"""What the subcommands share: the library as it is configured, the actions that exist, values given as NAME=VALUE."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from dba_console.cli.config_file import load_config
from dba_console.core.errors import UsageError
from dba_console.runbooks.library import RunbookDocument, find, unreadable

Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A runbook's name, or a file (with a / or .md).")]
Inputs = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME=VALUE", help="The value of an input; may be repeated.")
]


def runbook_directories() -> list[str]:
    """The configured directories; those that cannot be read are told on stderr."""
    configured = load_config().config.runbooks.path
    for sentence in unreadable(configured):
        print(f"dba-console: {sentence}", file=sys.stderr)
    return configured


def known_actions() -> Mapping[str, Any]:
    """Every action there is, for checking what a runbook asks of it."""
    from dba_console.actions.registry import ACTIONS

    return ACTIONS


def find_document(name: str) -> RunbookDocument:
    """The document of a name or file; that it hides another one is told on stderr. Raises RunbookError."""
    found = find(name, runbook_directories())
    if found.entry is not None:
        for path in found.entry.shadows:
            print(f"dba-console: {found.path} is used, not {path}", file=sys.stderr)
    return found


def parse_inputs(inputs: Sequence[str] | None) -> dict[str, str]:
    """`--input NAME=VALUE`, split. Raises UsageError."""
    values: dict[str, str] = {}
    for one in inputs or ():
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise UsageError(f"--input {one!r} names no value", hint="--input NAME=VALUE")
        if name in values:
            raise UsageError(f"--input {name} is given twice")
        values[name] = value
    return values
