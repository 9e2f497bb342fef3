"""Every action there is, by the name a runbook calls it. A module is loaded when its action is asked for.

A new action is a line here; its reference page is printed from it by `python -m dba_console.actions`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from dba_console.actions.action import Action
from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError

_CLASS_PATHS = {
    "create-database": "create_database:CreateDatabase",
    "cutover-begin": "dba_console.clusters.steps.begin_cutover:BeginCutover",
    "cutover-drain": "dba_console.clusters.steps.hold_clients:WaitUntilNoWrites",
    "cutover-fence": "dba_console.clusters.steps.stop_primary:FenceOldPrimary",
    "cutover-follow": "dba_console.clusters.steps.attach_standbys:FollowNewPrimary",
    "cutover-gate": "dba_console.clusters.steps.stop_primary:CheckPositions",
    "cutover-heartbeat": "dba_console.clusters.steps.measure_outage:MeasureOutage",
    "cutover-hooks": "dba_console.clusters.steps.hold_clients:RunHooks",
    "cutover-keep-out": "dba_console.clusters.steps.hold_clients:BlockConnections",
    "cutover-pause": "dba_console.clusters.steps.hold_clients:PausePoolers",
    "cutover-promote": "dba_console.clusters.steps.promote:Promote",
    "cutover-rejoin": "dba_console.clusters.steps.attach_standbys:RejoinOldPrimary",
    "cutover-release": "dba_console.clusters.steps.release_clients:ReleaseClients",
    "cutover-repoint": "dba_console.clusters.steps.release_clients:RepointClients",
    "cutover-rewind": "dba_console.clusters.steps.attach_standbys:RewindOldPrimary",
    "cutover-clone": "dba_console.clusters.steps.attach_standbys:CloneOldPrimary",
    "cutover-stop": "dba_console.clusters.steps.stop_primary:StopPrimary",
    "drop-caches": "drop_caches:DropCaches",
    "drop-slot": "drop_slot:DropSlot",
    "put-back": "put_back:PutBack",
    "failover-fence": "dba_console.clusters.steps.fence_dead_primary:FenceDeadPrimary",
    "rollback-prepared": "rollback_prepared:RollbackPrepared",
    "set-parameter": "set_parameter:SetParameter",
    "set-parameters": "set_parameters:SetParameters",
    "shrink-file": "shrink_file:ShrinkFile",
    "signal-backend": "signal_backend:SignalBackend",
    "sysctl": "sysctl:Sysctl",
    "vacuum": "vacuum:Vacuum",
}
"""Module and class."""


class _ActionRegistry(Mapping[str, Action]):
    """Made when first asked for; actions keep nothing, so one of each is enough."""

    def __init__(self) -> None:
        self._made: dict[str, Action] = {}

    def __getitem__(self, name: str) -> Action:
        if name not in self._made:
            module, _, kind = _CLASS_PATHS[name].partition(":")
            # What acts on a cluster stands in a package above this one.
            place = module if "." in module else f"dba_console.actions.{module}"
            made = getattr(importlib.import_module(place), kind)()
            self._made[name] = cast("Action", made)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_CLASS_PATHS))

    def __len__(self) -> int:
        return len(_CLASS_PATHS)

    def __contains__(self, name: object) -> bool:
        return name in _CLASS_PATHS  # without loading it


ACTIONS: Mapping[str, Action] = _ActionRegistry()


def find_action(name: str) -> Action:
    """The action of this name. Raises UsageError saying what was probably meant."""
    if name in ACTIONS:
        return ACTIONS[name]
    near = difflib.get_close_matches(name, ACTIONS, 1)
    there = f"did you mean {near[0]}?" if near else f"there are {', '.join(ACTIONS)}"
    raise UsageError(f"there is no action {name!r}", hint=there)


def parse_settings(name: str, values: Mapping[str, Any]) -> Any:
    """The settings of an action from what a runbook says. Raises UsageError naming the setting that cannot be meant."""
    kind = find_action(name).Settings
    known = [field.name for field in msgspec.structs.fields(kind)]
    for given in values:
        if given not in known:
            near = difflib.get_close_matches(given, known, 1)
            there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"{name} has no setting {given!r}", hint=there)
    try:
        return convert(dict(values), kind, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"settings of {name}: {error}", hint="python -m dba_console.actions prints the reference"
        ) from None
