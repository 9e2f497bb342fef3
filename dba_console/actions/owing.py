"""From a change for a time to its debt and back: what is owed is written before anything is set, and struck out after
the old state was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dba_console.actions.action import World
from dba_console.actions.crashes import counted
from dba_console.actions.debts import Debt, boot_id, debt_id, directory_of, find, of_server, strike, with_value, write
from dba_console.actions.identity import Identity
from dba_console.actions.link import ServerLink
from dba_console.actions.parameter_apply import Change, tell, unread
from dba_console.actions.parameter_check import Refusal
from dba_console.actions.parameter_sql import Spot, missing, restart_due, setting, stored
from dba_console.actions.parameter_values import same


class Standing(NamedTuple):
    """What is to be found of a debt on the server."""

    state: str
    """As `DebtNow.state`."""
    found: str | None


def spot_of(debt: Debt) -> Spot:
    """Where it is set."""
    return Spot(parameter=debt.parameter, scope=debt.scope, database=debt.database, role=debt.role)  # type: ignore[arg-type]  # as it was written


def own(world: World, now: Identity) -> list[Debt]:
    """Every debt of this server, oldest first. Raises OSError."""
    return of_server(find(directory_of(world)).debts, now, world.target_key)


def refuse_owed(world: World, link: ServerLink, spots: Sequence[Spot]) -> Refusal:
    """What another run has changed for a time is put back first: else nobody could tell what was there before both."""
    try:
        debts = own(world, link.identity())
    except OSError as error:
        return f"what is still to be put back cannot be read: {error}", "nothing is set for a time without it"
    for spot in spots:
        debt = _of_spot(debts, spot)
        if debt is not None and debt.run != world.run:
            return f"{debt.parameter} is still changed by run {debt.run}", "runbook put-back puts that back first"
    return None, None


def owe(world: World, link: ServerLink, changes: Sequence[tuple[Change, str | None]]) -> None:
    """Write down what has to be put back: each change with what is set there now. Raises Unwritten.

    What this run has changed before keeps what was there before the first time.
    """
    server = link.identity()
    try:
        known = own(world, server)
    except OSError:
        known = []  # the write that follows says why
    counts = counted(link)
    debts = []
    for change, old in changes:
        before = _of_spot(known, change.spot)
        debt = before or Debt(
            id=debt_id(world.run, server, _place(change.spot)), parameter=change.spot.parameter,
            scope=change.spot.scope, database=change.spot.database, role=change.spot.role, old=old,
            run=world.run, runbook=world.runbook, directory=world.run_directory, who=world.who,
            at_us=world.clock.wall_us(), target=world.target, target_key=world.target_key, server=server,
            boot_id=boot_id(world), counted_since_us=counts.since_us, server_us=counts.now_us,
        )  # fmt: skip
        debts.append(with_value(debt, change.value))
    write(directory_of(world), debts, world)


def standing(link: ServerLink, debt: Debt) -> Standing:
    """How it stands on the server. Raises ConnectError, StatementFailed."""
    spot = spot_of(debt)
    now = setting(link, spot.parameter)
    if now is None or missing(link, spot):
        return Standing("gone", None)
    found = stored(link, spot)
    kind = (now["vartype"], now["unit"])
    if same(spot.parameter, found, debt.old, *kind):
        if spot.scope == "system" and restart_due(link, now):
            return Standing("pending", found)
        return Standing("unread" if unread(spot, debt.old, now) else "back", found)
    ours = any(same(spot.parameter, found, value, *kind) for value in debt.news)
    return Standing("changed" if ours else "altered", found)


def strike_returned(world: World, link: ServerLink, spots: Sequence[Spot]) -> None:
    """Strike out what this run owes and is as it was again: after an undo, or where nothing came of the change."""
    try:
        debts = [debt for debt in own(world, link.identity()) if debt.run == world.run]
    except OSError:
        return  # it is looked at again with the next reading
    for debt in debts:
        if spot_of(debt) in spots and standing(link, debt).state in ("back", "gone"):
            strike(directory_of(world), debt)


def told(debt: Debt) -> str:
    """A debt in words."""
    was = "nothing was set" if debt.old is None else f"it was {debt.old!r}"
    return f"{tell(spot_of(debt), debt.new)}; {was}"


def row_of(debt: Debt, standing: Standing) -> dict[str, Any]:
    """A debt as the operator is shown it."""
    return {
        "parameter": debt.parameter, "where": spot_of(debt).words(), "found": standing.found, "before": debt.old,
        "state": standing.state, "run": debt.run, "id": debt.id,
    }  # fmt: skip


def _of_spot(debts: Sequence[Debt], spot: Spot) -> Debt | None:
    return next((debt for debt in debts if _place(spot_of(debt)) == _place(spot)), None)


def _place(spot: Spot) -> tuple[str, str, str | None, str | None]:
    return spot.parameter.lower(), spot.scope, spot.database, spot.role
