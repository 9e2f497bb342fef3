"""What the configuration lets be done here at all: `[actions]`, and `find_read_only_target` of a target."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Literal

from dba_console.core.config import ActionsConfig, Config
from dba_console.core.errors import UsageError
from dba_console.core.target import Target, address_of

SQL_ACT, COMMAND_ACT = "change", "run"
"""What a runbook's own SQL and commands are called in `deny`, beside the names of actions."""


def policy_refusal(config: ActionsConfig, name: str, known: Collection[str], *, read_only: str = "") -> str | None:
    """Why `name` (an action, `change` or `run`) may not be done here; None where it may.

    `find_read_only_target` is the configured target that may not be changed, where it acts on one. A name in `deny`
    that nothing has forbids everything: whoever wrote it meant to forbid something.

    >>> policy_refusal(ActionsConfig(deny=["drop-slots"]), "vacuum", ["drop-slot", "vacuum"])
    "actions.deny names 'drop-slots', which is no action, so nothing is done: is drop-slot meant?"
    """
    if not config.allow:
        return "actions.allow = false: nothing is changed from this console"
    if read_only:
        return f"read_only = true for target {read_only}: nothing is changed on it from this console"
    names = (*known, SQL_ACT, COMMAND_ACT)
    for denied in config.deny:
        if denied not in names:
            near = difflib.get_close_matches(denied, names, 1)
            meant = f"is {near[0]} meant?" if near else f"there are {', '.join(names)}"
            return f"actions.deny names {denied!r}, which is no action, so nothing is done: {meant}"
    if name in config.deny:
        return f"actions.deny forbids {name}"
    return None


def find_read_only_target(config: Config, target: Target, cluster: str = "") -> str:
    """The target the configuration calls read-only, by whatever name or connection string the server was reached: the
    one acted on, or a node of the cluster acted on. Empty: none."""
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
        return None  # nobody can have connected by it
