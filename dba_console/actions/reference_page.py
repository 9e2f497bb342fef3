"""docs/actions.md, made from the actions: what they say of themselves, and the notes under their settings."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from dba_console.actions.action import acts_on_cluster
from dba_console.actions.registry import ACTIONS
from dba_console.watch.findings.rules_document import field_notes

WIDTH = 120
PAGE_HEAD = """# Actions

Printed by `python -m dba_console.actions`; a test holds it to the code.

An action is what an `{action NAME}` block of a runbook does: the console's own ways of changing something. Each looks
first and says what it would do, measures before and after, and can say what became of it when nobody saw the end.

## The gate

Nothing changes a server or a host but through the gate: an action, a runbook's own SQL (`change`) and, as far as it
concerns them, its commands (`run`). In this order it asks, and refuses (exit code 8) with the first thing that is
wrong:

1. **May it be done here?** `actions.allow`, `actions.deny`, and `read_only` of the target in the
   [configuration](configuration.md). A name in `deny` that no action has forbids everything.
2. **Is it the server?** The connection that acts is asked who it is, in the transaction that changes: system
   identifier, role, timeline, data directory, port, start of the server have to be those the run was planned on. A
   copy, a promoted standby, another host behind the same name are refused; after a restart somebody has to say that
   it was meant. What acts on the host asks for its name and boot, and whether the server is proven to run on it. What
   acts on the nodes of a cluster asks for the name of the host the run was begun on: it is given no server, identifies
   each node itself, and runs also while the target's server is down. `read_only` of any node refuses it.
3. **Is it as it was shown?** The action looks again. Where it would act on anything that was not shown and confirmed,
   or would do something else, it does nothing.
4. **Was it confirmed?** By what the block asks for: a letter, the word `yes`, the name of the target, the number of
   things, a phrase; by two people where it says so. Nothing acts without a confirmation, and silence is none.

The statement that changes runs on a second connection (`application_name` `dba-console:RUN:STEP`), with a lock
time-out of 2 s where nothing else is said. Its transaction id is written to the run's journal before COMMIT: when the
answer to COMMIT is lost, the server's commit log is asked (`pg_xact_status`), and where that cannot tell either, the
end is called unknown and a person decides.

What can cost everything (fsync or full_page_writes off) is not confirmed by a letter or by `yes`: its block has to ask
for words to be typed (`confirm=type:"…"`).

## What is set for a time

A parameter that a run sets with `temporary = true` is owed from before it is set until the server has been seen to be
as it was. Each debt is a file of its own in `debts/` of the state directory, written and synced first: parameter,
place, what was set there exactly (or that nothing was), what is set instead, run, person, time, server. Where that file
cannot be written nothing is set. It is removed only after the old state was read back from the server.

A run that fails or is aborted puts it back without a question. Whatever else ends the run (`kill -9` of the agent, a
reboot, a server that is gone), the next agent on that server finds what is owed without a run that goes on, and says so
until it is put back: finding `settings-left`, runbook and action `put-back`. A console that is started then offers it
first. What somebody else has set in the meantime is not touched; a person decides.

- **Parameters that need a restart** (`restart = true`) are pending until then. Put back, they are owed until the server
  goes by the old value again. `wal_level = minimal` is set only where the server could start with it: max_wal_senders
  0, archive_mode off, no standby and no slot; it is set last and put back first, so that the server would start after
  any of the steps.
- **fsync and full_page_writes off** are refused unless they are temporary and nobody else uses the cluster: no other
  database but `for_database` with sessions or objects in it (postgres: objects). Put back, a checkpoint is made and the
  host's kernel told to write what it holds, which the server does not do by itself. If the server went down meanwhile
  without being shut down in order, finding and action say that the cluster cannot be trusted: its statistics begin anew
  after a crash and after nothing else. Where that cannot be told it is called unknown.
- **autovacuum off** is set for the whole server or not at all. There is no such setting for a database. For each table
  there is a storage parameter, but a restore would have to set it between making a table and filling it, there would be
  as many debts as tables, each to be put back under a lock, and until then it would go into every dump of them. The
  other databases of the server go without meanwhile, which is said; what prevents wraparound runs all the same.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join([PAGE_HEAD, *(line for name in ACTIONS for line in _action_lines(name))]).rstrip() + "\n"


def _action_lines(name: str) -> Iterator[str]:
    found = ACTIONS[name]
    yield f"## `{name}`\n"
    yield from textwrap.wrap(found.summary, WIDTH, break_on_hyphens=False, break_long_words=False)
    needs = ["a server"] * found.needs_server + ["root"] * found.needs_root
    needed = f"Needs {' and '.join(needs)}" if needs else "Needs neither a server nor root"
    if acts_on_cluster(found):
        needed += "; acts on the nodes of a cluster"
    undo = "It has an undo." if found.undoable else "It has no undo."
    yield f"\n{needed}. {undo}\n"
    fields = msgspec.structs.fields(found.Settings)
    if fields:
        yield "| setting | type | default | meaning |"
        yield "|---|---|---|---|"
        notes = field_notes(found.Settings)
        yield from (_setting_row(field, notes.get(field.name, "")) for field in fields)
        yield ""


def _setting_row(field: msgspec.structs.FieldInfo, note: str) -> str:
    return f"| `{field.name}` | {_type_text(field.type)} | {_default_text(field)} | {note} |"


def _type_text(kind: Any) -> str:
    """As one would say it in a runbook.

    >>> _type_text(str | None), _type_text(list[int])
    ('text', 'list of number')
    """
    words = {str: "text", int: "number", float: "number", bool: "true or false", type(None): ""}
    if kind in words:
        return words[kind]
    arguments: tuple[Any, ...] = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) is list:
        inner = _type_text(arguments[0])
        return f"list of {inner}" if inner != "row" else "rows"
    if arguments and all(isinstance(argument, str | int) for argument in arguments):
        return " or ".join(f"`{argument}`" for argument in arguments)
    if arguments:
        return " or ".join(dict.fromkeys(word for argument in arguments if (word := _type_text(argument))))
    return "row" if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) else str(kind)


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is msgspec.NODEFAULT or value is None:
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
