"""`dba-console runbook new`: a document to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dba_console.cli.formatting import print_json
from dba_console.cli.options import Json
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode, RunbookError, UsageError
from dba_console.runbook.library import SUFFIX
from dba_console.runbook.template import template_document
from dba_console.runbook.value_readers import NAME


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it will be called: small letters, digits, -.")],
    finding: Annotated[
        str | None, typer.Option("--finding", metavar="RULE", help="The finding it answers.", show_default=False)
    ] = None,
    directory: Annotated[str, typer.Option("--directory", metavar="DIR", help="Where it is written.")] = ".",
    json: Json = False,
) -> int:
    """Write NAME.md with a step of each common kind, ready to be changed. A file that is there is left alone."""
    if not NAME.fullmatch(name):
        raise UsageError(f"a runbook cannot be called {name!r}", hint="small letters, digits and -, as in slot-cleanup")
    path = Path(directory) / f"{name}{SUFFIX}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template_document(name, finding))
    except FileExistsError:
        raise RunbookError(f"{path} is there already", hint="it is left as it is; choose another name") from None
    except OSError as error:
        raise RunbookError(f"cannot write {path}: {error.strerror}") from error
    if json:
        print_json({"id": name, "path": str(path)})
    else:
        put(str(path))
    return ExitCode.OK
