"""Arguments shared by the runbook subcommands: the configured library, known actions, inputs as NAME=VALUE."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from dba_console.cli.config_file import load_config
from dba_console.core.errors import UsageError
from dba_console.runbooks.library import RunbookDocument, find, unreadable

Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A runbook's name, or a file (with / or .md).")]
Inputs = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME=VALUE", help="Value of an input; may be repeated.")
]


def runbook_directories() -> list[str]:
    """Return the configured directories; unreadable ones are reported on stderr."""
    configured = load_config().config.runbooks.path
    for sentence in unreadable(configured):
        print(f"dba-console: {sentence}", file=sys.stderr)
    return configured


def known_actions() -> Mapping[str, Any]:
    """Return all actions, for checking a runbook's action blocks."""
    from dba_console.actions.registry import ACTIONS

    return ACTIONS


def find_document(name: str) -> RunbookDocument:
    """Return the document of a name or file; hidden ones of that name are reported on stderr. Raises RunbookError."""
    found = find(name, runbook_directories())
    if found.entry is not None:
        for path in found.entry.shadows:
            print(f"dba-console: {found.path} is used, not {path}", file=sys.stderr)
    return found


def parse_inputs(inputs: Sequence[str] | None) -> dict[str, str]:
    """Split `--input NAME=VALUE`. Raises UsageError."""
    values: dict[str, str] = {}
    for one in inputs or ():
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise UsageError(f"--input {one!r} has no value", hint="--input NAME=VALUE")
        if name in values:
            raise UsageError(f"--input {name} is given twice")
        values[name] = value
    return values
