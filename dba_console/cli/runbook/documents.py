"""`dba-console runbook list|show|plan|lint|new`: list runbooks, show, check and create their documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import (
    Inputs,
    Name,
    find_document,
    known_actions,
    parse_inputs,
    runbook_directories,
)
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, RunbookError, UsageError
from dba_console.core.sanitize import clean
from dba_console.recording.plan import plan_hash
from dba_console.runbooks.block_kind_registry import bind_inputs
from dba_console.runbooks.compile import CheckResult
from dba_console.runbooks.library import SUFFIX, ListedRunbook, RunbookDocument, answering, entries, find, listed
from dba_console.runbooks.outline import block_counts, full_lines, plan_lines
from dba_console.runbooks.schema import NAME
from dba_console.runbooks.values import typed


def list_(
    finding: Annotated[
        str | None, typer.Option("--finding", metavar="ID", help="Only runbooks that answer this finding.")
    ] = None,
    json: Json = False,
) -> int:
    """List every runbook: title, findings it answers, origin.

    Runbooks hidden by another one of the same name are listed below.
    """
    rows = listed(runbook_directories(), known_actions())
    if finding is not None:
        rows = answering(finding, rows)
    if json:
        for row in rows:
            print_json(as_json(row))
        return ExitCode.OK
    if not rows:
        put("no runbook" + (f" answers {finding}" if finding else ""))
        return ExitCode.OK
    put(format_columns(["runbook", "title", "answers", "from"], [_cells(row) for row in rows]))
    for row in rows:
        for path in row.entry.shadows:
            put(f"\n{row.entry.id}: {row.entry.path} is used, not {path}")
    return ExitCode.OK


def as_json(row: ListedRunbook) -> dict[str, object]:
    """Return one runbook as an object."""
    return {
        "id": row.entry.id,
        "title": row.title,
        "answers": list(row.answers),
        "from": row.entry.origin,
        "path": str(row.entry.path),
        "shadows": [str(path) for path in row.entry.shadows],
        "problems": len(row.problems),
        "error": row.error or None,
    }


def _cells(row: ListedRunbook) -> list[str]:
    title = f"cannot be run: {row.error}" if row.problems else row.title
    return [row.entry.id, title, ", ".join(row.answers) or "-", row.entry.origin]


# `dba-console runbook show`: the parsed runbook.


def show(
    name: Name,
    text: Annotated[bool, typer.Option("--text", help="The document as it is in its file.")] = False,
    json: Json = False,
) -> int:
    """Show the compiled runbook: prose, inputs, steps, statements. --json: the plan."""
    found = find_document(name)
    if text:
        put("\n".join(clean(line) for line in found.text.splitlines()))
        return ExitCode.OK
    plan = found.plan(known_actions())
    if json:
        print_json(plan)
    else:
        put("\n".join(clean(line) for line in full_lines(plan)))
    return ExitCode.OK


# `dba-console runbook plan`: the plan of a run with these inputs. Changes nothing, needs no server.


def plan(
    name: Name,
    input: Inputs = None,
    dsn: Annotated[
        str | None, typer.Option("--dsn", metavar="DSN", help="Accepted as for `run`; no connection is opened.")
    ] = None,
    json: Json = False,
) -> int:
    """Show the steps in order, with inputs, confirmations and typical durations. Runs nothing and asks nothing."""
    read = find_document(name).plan(known_actions())
    values = typed(read, parse_inputs(input))
    resolved = bind_inputs(read, values)
    secret = {one.name for one in read.inputs if one.secret}
    public_values = {one: None if one in secret else value for one, value in values.items()}
    if json:
        print_json(
            {"hash": plan_hash(read, public_values), "inputs": public_values, "plan": msgspec.to_builtins(resolved)}
        )
        return ExitCode.OK
    put("\n".join(clean(line) for line in plan_lines(resolved, values)))
    put(f"plan {plan_hash(read, public_values)[:16]}; nothing was run")
    return ExitCode.OK


# `dba-console runbook lint`: errors that keep a document from being run, with file, line and hint.


def lint(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE]…", help="Runbooks or files; default: all runbooks."),
    ] = None,
    json: Json = False,
) -> int:
    """Check documents without changing anything. Exit code 2 if one of them cannot be run."""
    configured = runbook_directories()
    wanted = names or [entry.id for entry in entries(configured)]
    worst = ExitCode.OK
    for name in wanted:
        found = find(name, configured)
        checked = found.checked(known_actions())
        if checked.problems:
            worst = ExitCode.USAGE
        _print_problems(found, checked, json)
    return worst


def _print_problems(found: RunbookDocument, checked: CheckResult, json: bool) -> None:
    for problem in checked.problems:
        if json:
            print_json(
                {
                    "file": found.source,
                    "line": problem.line,
                    "text": problem.text,
                    "hint": problem.hint or None,
                    "rule": problem.rule or "format",
                }
            )
        else:
            put("\n".join(clean(line) for line in problem.formatted(found.source).splitlines()))
    if checked.plan is not None and not json:
        put(f"{clean(found.source)}: {block_counts(checked.plan)}")


# The template of a new runbook. It passes lint unchanged.

_DOCUMENT = """\
# {title}

```toml {{runbook}}
id = "{name}"
answers = [{answers}]
needs = ["server"]

[inputs.min_age]
type = "duration"
default = "15m"
help = "sessions idle in a transaction for longer than this"
```

Describe the purpose, when not to use it, its cost and duration, and whom to inform before.

## Is this the right place?

Conditions for this runbook. A check with an unknown result fails.

```expr {{check}}
target.role == "primary"
```

## What is there

The next step acts only on the rows below.

```sql {{preview as=idle at_most=50}}
select pid, backend_start, state_change, usename, application_name, now() - xact_start as age,
       left(query, 8000) as query
from pg_stat_activity
where state = 'idle in transaction' and now() - xact_start > make_interval(secs => %(min_age)s)
order by xact_start
```

## End them

Their transactions are rolled back. This cannot be reverted.

```toml {{action signal-backend confirm=type:count undo=none}}
verb = "terminate"
rows = "%(idle)s"
```

## Did it help?

```toml {{wait usual=10s}}
until = "connections.idle_in_transaction < 5"
every = "2s"
timeout = "2m"
```

```toml {{manual}}
text = "Inform the owners of the application which sessions were terminated, and why."
evidence = "who was informed"
```
"""


def template_document(name: str, finding: str | None = None) -> str:
    """Return the text of a new runbook called `name`."""
    title = name.replace("-", " ").capitalize()
    return _DOCUMENT.format(name=name, title=title, answers=f'"{finding}"' if finding else "")


# `dba-console runbook new`: create a document from the template.


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the runbook: lower-case letters, digits, -.")],
    finding: Annotated[
        str | None, typer.Option("--finding", metavar="RULE", help="The finding it answers.", show_default=False)
    ] = None,
    directory: Annotated[str, typer.Option("--directory", metavar="DIR", help="Directory for the file.")] = ".",
    json: Json = False,
) -> int:
    """Write NAME.md with a step of each common kind, as a template. An existing file is not changed."""
    if not NAME.fullmatch(name):
        raise UsageError(f"invalid runbook name {name!r}", hint="lower-case letters, digits and -, as in slot-cleanup")
    path = Path(directory) / f"{name}{SUFFIX}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template_document(name, finding))
    except FileExistsError:
        raise RunbookError(f"{path} already exists", hint="it was not changed; choose another name") from None
    except OSError as error:
        raise RunbookError(f"cannot write {path}: {error.strerror}") from error
    if json:
        print_json({"id": name, "path": str(path)})
    else:
        put(str(path))
    return ExitCode.OK
