"""Registry of all actions by name. A module is loaded when its action is first used.

A new action is one line here; `python -m dba_console.actions` prints the reference page from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from dba_console.actions.action import Action
from dba_console.core.declarations import find_invalid
from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError, suggest

_CLASS_PATHS = {
    "commit-prepared": "rollback_prepared:CommitPrepared",
    "create-database": "create_database:CreateDatabase",
    "cutover-begin": "dba_console.clusters.steps.begin_cutover:BeginCutover",
    "cutover-drain": "dba_console.clusters.steps.drain:WaitUntilNoWrites",
    "cutover-fence": "dba_console.clusters.steps.stop_primary:FenceOldPrimary",
    "cutover-finish": "dba_console.clusters.steps.finish_cutover:FinishCutover",
    "cutover-follow": "dba_console.clusters.steps.attach_standbys:FollowNewPrimary",
    "cutover-gate": "dba_console.clusters.steps.stop_primary:CheckPositions",
    "cutover-heartbeat": "dba_console.clusters.steps.measure_outage:MeasureOutage",
    "cutover-hooks": "dba_console.clusters.steps.run_hooks:RunHooks",
    "cutover-keep-out": "dba_console.clusters.steps.hold_clients:BlockConnections",
    "cutover-pause": "dba_console.clusters.steps.hold_clients:PausePoolers",
    "cutover-promote": "dba_console.clusters.steps.promote:Promote",
    "cutover-recheck": "dba_console.clusters.steps.recheck:CheckAgain",
    "cutover-rejoin": "dba_console.clusters.steps.attach_standbys:RejoinOldPrimary",
    "cutover-release": "dba_console.clusters.steps.release_clients:ReleaseClients",
    "cutover-repoint": "dba_console.clusters.steps.release_clients:RepointClients",
    "cutover-rewind": "dba_console.clusters.steps.rebuild_old_primary:RewindOldPrimary",
    "cutover-clone": "dba_console.clusters.steps.rebuild_old_primary:CloneOldPrimary",
    "cutover-stop": "dba_console.clusters.steps.stop_primary:StopPrimary",
    "drop-caches": "drop_caches:DropCaches",
    "drop-slot": "drop_slot:DropSlot",
    "fork-changes": "dba_console.clusters.split_brain:FindForkChanges",
    "losing-primary-stop": "dba_console.clusters.split_brain:StopLosingPrimary",
    "primaries-compare": "dba_console.clusters.compare_primaries:ComparePrimaries",
    "put-back": "temporary_settings:PutBack",
    "failover-archive": "dba_console.clusters.steps.prove_archiving:ProveArchiving",
    "failover-begin": "dba_console.clusters.steps.begin_failover:BeginFailover",
    "failover-close": "dba_console.clusters.steps.close_failover:CloseFailover",
    "failover-evidence": "dba_console.clusters.steps.await_evidence:AwaitEvidence",
    "failover-fence": "dba_console.clusters.steps.fence_dead_primary:FenceDeadPrimary",
    "failover-fetch": "dba_console.clusters.steps.fetch_wal:FetchWal",
    "failover-hold": "dba_console.clusters.steps.hold_in_failover:HoldInFailover",
    "rollback-prepared": "rollback_prepared:RollbackPrepared",
    "set-database-properties": "database_properties:SetDatabaseProperties",
    "set-parameters": "set_parameters:SetParameters",
    "shrink-file": "shrink_file:ShrinkFile",
    "signal-backend": "signal_backend:SignalBackend",
    "standby-attach": "dba_console.clusters.rebuild_standby:AttachStandby",
    "standby-rebuild": "dba_console.clusters.rebuild_standby:RebuildStandby",
    "sysctl": "sysctl:Sysctl",
    "vacuum": "vacuum:Vacuum",
}
"""Module and class."""


class _ActionRegistry(Mapping[str, Action]):
    """Creates an action when first used; actions are stateless, so one instance of each is enough."""

    def __init__(self) -> None:
        self._made: dict[str, Action] = {}

    def __getitem__(self, name: str) -> Action:
        if name not in self._made:
            module, _, kind = _CLASS_PATHS[name].partition(":")
            # Actions on a cluster are in a package above this one.
            path = module if "." in module else f"dba_console.actions.{module}"
            self._made[name] = getattr(importlib.import_module(path), kind)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_CLASS_PATHS))

    def __len__(self) -> int:
        return len(_CLASS_PATHS)

    def __contains__(self, name: object) -> bool:
        return name in _CLASS_PATHS  # without loading it


ACTIONS: Mapping[str, Action] = _ActionRegistry()


def find_action(name: str) -> Action:
    """Return the action of this name. Raises UsageError with the closest name."""
    if name in ACTIONS:
        return ACTIONS[name]
    raise UsageError(f"unknown action {name!r}", hint=suggest(name, ACTIONS) or f"actions: {', '.join(ACTIONS)}")


def parse_settings(name: str, values: Mapping[str, Any]) -> Any:
    """Return the settings of an action from the values of a runbook. Raises UsageError that names the invalid one."""
    action = find_action(name)
    for problem in find_invalid(values, action.Settings, f"action {name}", "setting", f"action {name}: "):
        raise UsageError(problem.text, hint=problem.hint or None)
    return convert(dict(values), action.Settings)
