"""From a change for a time to its debt and back: what is owed is written before anything is set, and struck out after
the old state was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dba_console.actions.action import ActionContext
from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.crash_detection import read_statistics_reset
from dba_console.actions.identity import ServerIdentity
from dba_console.actions.parameter_apply import ParameterChange, describe_setting, needs_reload
from dba_console.actions.parameter_check import Refusal
from dba_console.actions.parameter_sql import (
    ParameterLocation,
    find_missing_object,
    read_setting,
    read_stored_value,
    restart_pending,
)
from dba_console.actions.parameter_values import same_value
from dba_console.actions.pending_reverts import (
    PendingRevert,
    add_new_value,
    filter_by_server,
    read_all,
    remove,
    revert_id,
    reverts_directory,
    save,
    server_boot_id,
)


class RevertState(NamedTuple):
    """What is to be found of a debt on the server."""

    state: str
    """As `DebtNow.state`."""
    found: str | None


def location_of(revert: PendingRevert) -> ParameterLocation:
    """Where it is set."""
    return ParameterLocation(parameter=revert.parameter, scope=revert.scope, database=revert.database, role=revert.role)  # type: ignore[arg-type]  # as it was written


def reverts_of_server(context: ActionContext, now: ServerIdentity) -> list[PendingRevert]:
    """Every debt of this server, oldest first. Raises OSError."""
    return filter_by_server(read_all(reverts_directory(context)).reverts, now, context.target_key)


def refuse_changed_by_other_run(
    context: ActionContext, connection: ServerConnection, locations: Sequence[ParameterLocation]
) -> Refusal:
    """What another run has changed for a time is put back first: else nobody could tell what was there before both."""
    try:
        reverts = reverts_of_server(context, connection.read_identity())
    except OSError as error:
        return f"what is still to be put back cannot be read: {error}", "nothing is set for a time without it"
    for location in locations:
        revert = _find_by_location(reverts, location)
        if revert is not None and revert.run != context.run:
            return f"{revert.parameter} is still changed by run {revert.run}", "runbook put-back puts that back first"
    return None, None


def save_reverts(
    context: ActionContext, connection: ServerConnection, changes: Sequence[tuple[ParameterChange, str | None]]
) -> None:
    """Write down what has to be put back: each change with what is set there now. Raises Unwritten.

    What this run has changed before keeps what was there before the first time.
    """
    server = connection.read_identity()
    try:
        known = reverts_of_server(context, server)
    except OSError:
        known = []  # the write that follows says why
    counts = read_statistics_reset(connection)
    reverts = []
    for change, old in changes:
        before = _find_by_location(known, change.location)
        revert = before or PendingRevert(
            id=revert_id(context.run, server, _location_key(change.location)), parameter=change.location.parameter,
            scope=change.location.scope, database=change.location.database, role=change.location.role, old=old,
            run=context.run, runbook=context.runbook, directory=context.run_directory, who=context.confirmed_by,
            at_us=context.clock.wall_us(), target=context.target, target_key=context.target_key, server=server,
            boot_id=server_boot_id(context), stats_reset_us=counts.since_us, server_us=counts.now_us,
        )  # fmt: skip
        reverts.append(add_new_value(revert, change.value))
    save(reverts_directory(context), reverts, context)


def read_revert_state(connection: ServerConnection, revert: PendingRevert) -> RevertState:
    """How it stands on the server. Raises ConnectError, StatementFailed."""
    location = location_of(revert)
    now = read_setting(connection, location.parameter)
    if now is None or find_missing_object(connection, location):
        return RevertState("gone", None)
    found = read_stored_value(connection, location)
    kind = (now["vartype"], now["unit"])
    if same_value(location.parameter, found, revert.old, *kind):
        if location.scope == "system" and restart_pending(connection, now):
            return RevertState("pending", found)
        return RevertState("unread" if needs_reload(location, revert.old, now) else "back", found)
    ours = any(same_value(location.parameter, found, value, *kind) for value in revert.new_values)
    return RevertState("changed" if ours else "altered", found)


def remove_reverted(
    context: ActionContext, connection: ServerConnection, locations: Sequence[ParameterLocation]
) -> None:
    """Strike out what this run owes and is as it was again: after an undo, or where nothing came of the change."""
    try:
        reverts = [debt for debt in reverts_of_server(context, connection.read_identity()) if debt.run == context.run]
    except OSError:
        return  # it is looked at again with the next reading
    for revert in reverts:
        if location_of(revert) in locations and read_revert_state(connection, revert).state in ("back", "gone"):
            remove(reverts_directory(context), revert)


def describe_revert(revert: PendingRevert) -> str:
    """A debt in words."""
    was = "nothing was set" if revert.old is None else f"it was {revert.old!r}"
    return f"{describe_setting(location_of(revert), revert.new)}; {was}"


def revert_row(revert: PendingRevert, state: RevertState) -> dict[str, Any]:
    """A debt as the operator is shown it."""
    return {
        "parameter": revert.parameter, "where": location_of(revert).describe(), "found": state.found,
        "before": revert.old,
        "state": state.state, "run": revert.run, "id": revert.id,
    }  # fmt: skip


def _find_by_location(reverts: Sequence[PendingRevert], location: ParameterLocation) -> PendingRevert | None:
    return next((revert for revert in reverts if _location_key(location_of(revert)) == _location_key(location)), None)


def _location_key(location: ParameterLocation) -> tuple[str, str, str | None, str | None]:
    return location.parameter.lower(), location.scope, location.database, location.role
