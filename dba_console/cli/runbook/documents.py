"""`dba-console runbook list`: which there are, what they answer, where they lie."""

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
from dba_console.runbooks.blocks import NAME
from dba_console.runbooks.compile import CheckResult
from dba_console.runbooks.library import SUFFIX, ListedRunbook, RunbookDocument, answering, entries, find, listed
from dba_console.runbooks.outline import block_counts, full_lines, plan_lines
from dba_console.runbooks.values import bind_inputs, typed


def list_(
    finding: Annotated[
        str | None, typer.Option("--finding", metavar="ID", help="Only those that answer this finding.")
    ] = None,
    json: Json = False,
) -> int:
    """Every runbook: its title, the findings it answers, where it is from. What hides another one is told."""
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
    """One runbook as an object."""
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


# `dba-console runbook show`: a runbook as it was understood.


def show(
    name: Name,
    text: Annotated[bool, typer.Option("--text", help="The document itself, as it stands in its file.")] = False,
    json: Json = False,
) -> int:
    """The compiled runbook: prose, inputs, each step with what would run, verbatim. --json: the plan as an object."""
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


# `dba-console runbook plan`: what a run with these inputs would do. Touches nothing, needs no server.


def plan(
    name: Name,
    input: Inputs = None,
    dsn: Annotated[
        str | None, typer.Option("--dsn", metavar="DSN", help="Taken as for `run`; nothing is connected to.")
    ] = None,
    json: Json = False,
) -> int:
    """The steps in their order, with inputs, confirmations and usual times. Nothing is run and nothing is asked."""
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


# `dba-console runbook lint`: what keeps a document from being run, with file, line and what was meant.


def lint(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE]…", help="Runbooks or files; default: every runbook there is."),
    ] = None,
    json: Json = False,
) -> int:
    """Check documents without touching anything. Exit code 2 where one of them could not be run."""
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


# The document a new runbook begins with. It passes the lint as it stands.

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

Say here why one does this and when not, what it costs, how long it takes, and whom to tell before.

## Is this the right place?

What has to be so, or nothing of this makes sense. A check that cannot be answered fails.

```expr {{check}}
target.role == "primary"
```

## What is there

The rows below are what the next step acts on, and on no others.

```sql {{preview as=idle at_most=50}}
select pid, backend_start, state_change, usename, application_name, now() - xact_start as age,
       left(query, 8000) as query
from pg_stat_activity
where state = 'idle in transaction' and now() - xact_start > make_interval(secs => %(min_age)s)
order by xact_start
```

## End them

Their transactions are rolled back. Nothing takes that back.

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
text = "Tell the owners of the application what was ended, and why."
evidence = "whom you told"
```
"""


def template_document(name: str, finding: str | None = None) -> str:
    """The text of a new runbook called `name`."""
    title = name.replace("-", " ").capitalize()
    return _DOCUMENT.format(name=name, title=title, answers=f'"{finding}"' if finding else "")


# `dba-console runbook new`: a document to begin with.


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
