"""Check which changes the configuration allows: `[actions]`, and `read_only` of a target."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from dba_console.core.config import ActionsConfig, Config
from dba_console.core.errors import UsageError, suggest
from dba_console.core.target import Target, address_of

SQL_ACT, COMMAND_ACT = "change", "run"
"""Names of a runbook's own SQL and commands in `deny`, beside the names of actions."""


def policy_refusal(config: ActionsConfig, name: str, known: Collection[str], *, read_only: str = "") -> str | None:
    """Return why the configuration forbids `name` (an action, `change` or `run`); None if it is allowed.

    `read_only` is the name of the read-only target it would act on. An unknown name in `deny` forbids everything: it
    was meant to forbid something.

    >>> policy_refusal(ActionsConfig(deny=["drop-slots"]), "vacuum", ["drop-slot", "vacuum"])
    "actions.deny has an unknown action 'drop-slots', so all changes are refused: did you mean drop-slot?"
    """
    if not config.allow:
        return "actions.allow = false: this console makes no changes"
    if read_only:
        return f"read_only = true for target {read_only}: this console makes no changes to it"
    names = (*known, SQL_ACT, COMMAND_ACT)
    for denied in config.deny:
        if denied not in names:
            suggestion = suggest(denied, names) or f"known are {', '.join(names)}"
            return f"actions.deny has an unknown action {denied!r}, so all changes are refused: {suggestion}"
    if name in config.deny:
        return f"actions.deny forbids {name}"
    return None


def find_read_only_target(config: Config, target: Target, cluster: str = "") -> str:
    """Return the name of the read-only target that is the target acted on, or a node of the cluster acted on, by
    whatever name or connection string it was reached. Empty: none."""
    nodes = config.clusters[cluster].nodes.values() if cluster in config.clusters else ()
    servers = {_address_key(node.dsn, "server") for node in nodes} - {None}
    for name, one in config.targets.items():
        same = (
            name == target.name
            or _address_key(one.dsn, "key") == target.key
            or _address_key(one.dsn, "server") in servers
        )
        if one.read_only and same:
            return name
    return ""


def _address_key(dsn: str, part: Literal["key", "server"]) -> str | None:
    try:
        return str(getattr(address_of(dsn), part))
    except UsageError:
        return None  # no connection can use it
