"""What the configuration lets be done here at all: `[actions]`, and `read_only` of a target."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from dba_console.config import ActionsConfig, Config
from dba_console.errors import UsageError
from dba_console.target import Target, make_target

SQL, COMMAND = "change", "run"
"""What a runbook's own SQL and commands are called in `deny`, beside the names of actions."""


def policy_refusal(
    config: ActionsConfig, name: str, known: Collection[str], *, target: str, read_only: bool = False
) -> str | None:
    """Why `name` (an action, `change` or `run`) may not be done here; None where it may.

    A name in `deny` that nothing has forbids everything: whoever wrote it meant to forbid something.

    >>> policy_refusal(ActionsConfig(deny=["drop-slots"]), "vacuum", ["drop-slot", "vacuum"], target="app")
    "actions.deny names 'drop-slots', which is no action, so nothing is done: is drop-slot meant?"
    """
    if not config.allow:
        return "actions.allow = false: nothing is changed from this console"
    if read_only:
        return f"read_only = true for target {target}: nothing is changed on it from this console"
    names = (*known, SQL, COMMAND)
    for denied in config.deny:
        if denied not in names:
            near = difflib.get_close_matches(denied, names, 1)
            meant = f"is {near[0]} meant?" if near else f"there are {', '.join(names)}"
            return f"actions.deny names {denied!r}, which is no action, so nothing is done: {meant}"
    if name in config.deny:
        return f"actions.deny forbids {name}"
    return None


def read_only(config: Config, target: Target) -> bool:
    """Whether the configuration calls this server read-only, by whatever name or connection string it was reached."""
    return any(
        configured.read_only and (name == target.name or _key(configured.dsn) == target.key)
        for name, configured in config.targets.items()
    )


def _key(dsn: str) -> str | None:
    try:
        return make_target(dsn).key
    except UsageError:
        return None  # nobody can have connected by it
