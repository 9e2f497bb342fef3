"""Print docs/actions.md: summaries of the actions, docstrings of their settings.

`python -m dba_console.actions > docs/actions.md`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from dba_console.actions.registry import ACTIONS
from dba_console.core.declarations import declared_fields, table_lines

WIDTH = 120
PAGE_HEAD = """# Actions

Printed by `python -m dba_console.actions`; a test compares it with the code.

An `{action NAME}` block of a runbook runs an action: a change that the console implements itself. Each action first
shows a preview of what it would do, measures before and after, and can find out its outcome after an interruption.

## The permission gate

Every change to a server or a host passes the permission gate: actions, a runbook's own SQL (`change`) and, as far as
the checks apply, its commands (`run`). It checks in this order, and refuses (exit code 8) at the first failure:

1. **Is it allowed here?** `actions.allow`, `actions.deny`, and `read_only` of the target in the
   [configuration](configuration.md). An unknown name in `deny` forbids everything.
2. **Is it the right server?** The acting connection identifies the server in the transaction that changes: system
   identifier, role, timeline, data directory, port and start time must be those the run was planned on. A copy, a
   promoted standby, another host behind the same name are refused; after a restart the operator must confirm that it
   was intentional. Actions on the host check its name and boot, and that the server is proven to run on it. Actions on
   the nodes of a cluster check the name of the host the run was started on: they get no server, identify each node
   themselves, and also run while the target's server is down. `read_only` of any node refuses them.
3. **Is it as shown?** The action makes its preview again. If it would act on anything that was not shown and
   confirmed, or would do something else, it does nothing.
4. **Was it confirmed?** With what the block asks for: a letter, the word `yes`, the name of the target, the number of
   objects, a phrase; by two operators if it says so. Every change needs a confirmation; silence confirms nothing.

The statement that changes runs on a second connection (`application_name` `dba-console:RUN:STEP`), with a lock timeout
of 2 s by default. Its transaction id is written to the run's journal before COMMIT: if the answer to COMMIT is lost,
the server's commit log is queried (`pg_xact_status`). If that has no answer either, the outcome is `unknown` and the
operator decides.

A change that can destroy the cluster (fsync or full_page_writes off) cannot be confirmed with a letter or `yes`: its
block must ask for typed text (`confirm=type:"…"`).

## Temporary settings

A parameter that a run sets with `temporary = true` has a pending revert from before it is set until the old value was
read back from the server. Each pending revert is a file in `reverts/` of the state directory, written and synced first:
parameter, location, exact old value (or `not set`), new value, run, operator, time, server. If that file cannot be
written, nothing is set. It is removed only after the old value was read back from the server.

A run that fails or is aborted reverts the settings without a question. If the run ends in any other way (`kill -9` of
the agent, a reboot, a lost server), the next agent on that server finds the pending reverts that belong to no active
run, and reports them until they are reverted: finding `settings-left`, runbook and action `put-back`. A console started
then offers it first. Settings changed by others in the meantime are not touched; the operator decides.

- **Parameters that need a restart** (`restart = true`) are pending until then. After the revert they stay pending until
  the old value is in effect again. `wal_level = minimal` is set only if the server could start with it: max_wal_senders
  0, archive_mode off, no standby and no slot; it is set last and reverted first, so that the server would start after
  each of the steps.
- **fsync and full_page_writes off** are refused unless they are temporary and the cluster is not in use otherwise: no
  database except `for_database` has sessions or objects (sessions in database postgres do not count). After the revert,
  put-back runs a checkpoint and syncs the host (`sync`), which the server does not do itself. If the server went down
  meanwhile without a clean shutdown, finding and action report that the cluster cannot be trusted: only a crash resets
  all its statistics at once. If the statistics do not show whether it crashed, the state is `unknown`.
- **autovacuum off** is set for the whole server or not at all. PostgreSQL has no such setting per database. It has a
  storage parameter per table, but a restore would have to set it between creating and filling a table, every table
  would need a pending revert, each reverted under a lock, and until then it would be part of every dump of them. The
  other databases of the server have no autovacuum meanwhile, which the preview says; wraparound prevention still runs.
"""


def markdown() -> str:
    """Return the whole page."""
    return "\n".join([PAGE_HEAD, *(line for name in ACTIONS for line in _action_lines(name))]).rstrip() + "\n"


def _action_lines(name: str) -> Iterator[str]:
    found = ACTIONS[name]
    yield f"## `{name}`\n"
    yield from textwrap.wrap(found.summary, WIDTH, break_on_hyphens=False, break_long_words=False)
    needs = ["a server"] * found.needs_server + ["root"] * found.needs_root
    needed = f"Needs {' and '.join(needs)}" if needs else "Needs neither a server nor root"
    if found.acts_on_cluster:
        needed += "; acts on the nodes of a cluster"
    undo = "It has an undo." if found.undoable else "It has no undo."
    yield f"\n{needed}. {undo}\n"
    if declared_fields(found.Settings):
        yield "\n".join(table_lines(found.Settings)) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
