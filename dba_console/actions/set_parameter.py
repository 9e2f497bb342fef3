"""Set a configuration parameter, keep what was there exactly, and put it back: also where nothing was set before.

It is set in one place (the whole server, a database, a role, or the statements of this run), and afterwards the server
is asked whether it has taken effect: a reload is answered before anybody has read the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import ServerLink, server
from dba_console.actions.owing import owe, refuse_owed, strike_returned
from dba_console.actions.parameter_apply import Change, apply, counts, tell
from dba_console.actions.parameter_check import refusal_of, shown
from dba_console.actions.parameter_risk import remarks, risk_of, risky
from dba_console.actions.parameter_sql import Scope, Spot, missing, names, setting, statement, stored
from dba_console.actions.parameter_values import same, text_of


class ParameterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parameter: str
    """Its name."""
    value: str | int | float | bool | None = None
    """As in postgresql.conf, units included."""
    reset: bool = False
    """Take it out of its place instead, so that what stands elsewhere counts."""
    scope: Scope = "system"
    """`system`: ALTER SYSTEM and a reload; `database`, `role`: for sessions that begin later; `session`: for the later
    statements of this run, until its connection is lost with the console's agent."""
    database: str | None = None
    """With `database`; with `role` it narrows it."""
    role: str | None = None
    """With `role`."""
    restart: bool = False
    """Set a parameter that only a restart makes count."""
    temporary: bool = False
    """For a time: what was there is on the disk before it is set, and stays a finding until it is put back."""
    for_database: str | None = None
    """With fsync or full_page_writes off: the one database whose loss is accepted; without it the run's own."""

    @property
    def spot(self) -> Spot:
        return Spot(parameter=self.parameter, scope=self.scope, database=self.database, role=self.role)

    @property
    def wanted(self) -> str | None:
        """None: not set."""
        return None if self.reset or self.value is None else text_of(self.value)


class SetParameter:
    """Implements `Action`."""

    name: ClassVar[str] = "set-parameter"
    summary: ClassVar[str] = (
        "Sets a configuration parameter for the server (ALTER SYSTEM and reload), a database, a role, or the "
        "statements of this run; waits until it counts. Its undo restores exactly what was there, also that nothing "
        "was. Refuses parameters that need a restart unless asked, and values that hold a secret. What is set for a "
        "time (`temporary`) is owed: see `put-back`."
    )
    Settings: ClassVar[type[Struct]] = ParameterSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = True

    def look(self, settings: ParameterSettings, world: World) -> Sight:
        link = server(world)
        now = setting(link, settings.parameter)
        if now is None:
            near = difflib.get_close_matches(settings.parameter, names(link), 1)
            near_hint = f"did you mean {near[0]}?" if near else "an extension's own are there once it is loaded"
            told = f"the server has no parameter {settings.parameter}"
            return Sight(text=f"{told}.", exact="", refusal=told, hint=near_hint)
        spot, wanted = named(settings.spot, now), settings.wanted
        refusal, hint = _refusal(settings, now, link, spot, world)
        if refusal is not None:
            text = f"{now['name']} is {shown(now['name'], now['shown'])}."
            return Sight(text=text, exact="", refusal=refusal, hint=hint)
        old = stored(link, spot)
        more = "".join(f" {one[0].upper()}{one[1:]}." for one in remarks(link, {spot.parameter: wanted}))
        return Sight(
            text=_told(spot, now, old, wanted) + (more if spot.scope == "system" else ""),
            exact=_exact(spot, wanted),
            values={"value": now["shown"], "set": old},
            count=1,
            rows=({**asdict(spot), "set": old},),
            done=same(now["name"], old, wanted, now["vartype"], now["unit"]) and not now["pending_restart"],
            grave=spot.scope == "system" and risky(now["name"], wanted),
        )

    def act(self, settings: ParameterSettings, sight: Sight, world: World, control: Control) -> Done:
        spot, old = _spot_of(sight)
        change = Change(spot, settings.wanted)
        return _set(server(world), change, old, world, control, temporary=settings.temporary)

    def settle(self, settings: ParameterSettings, sight: Sight, world: World) -> Done:
        link = server(world)
        spot, old = _spot_of(sight)
        now = setting(link, spot.parameter)
        if now is None:
            return Done(state="unknown", text=f"the server has no parameter {spot.parameter} any more")
        found, kind = stored(link, spot), (now["vartype"], now["unit"])
        values = {"value": now["shown"], "set": found}
        if same(spot.parameter, found, settings.wanted, *kind):
            back = _undo(spot, old, settings.wanted)
            if counts(link, Change(spot, settings.wanted), now):
                return Done(state="ok", text=f"{tell(spot, found)}, and it counts", values=values, undo=back)
            text = f"{tell(spot, found)}, but the server has not read it: it was not reloaded"
            return Done(state="failed", text=text, values=values, undo=back)
        if same(spot.parameter, found, old, *kind):
            if settings.temporary:
                strike_returned(world, link, [spot])
            return Done(state="failed", text=f"{tell(spot, found)}, as before", values=values, again=True)
        return Done(state="unknown", text=f"{tell(spot, found)}: neither as before nor as it was to be", values=values)

    def undo(self, settings: ParameterSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        link = server(world)
        spot = Spot(**data["spot"])
        now = setting(link, spot.parameter)
        found = stored(link, spot)
        if now is None or not same(spot.parameter, found, data["new"], now["vartype"], now["unit"]):
            return Done(state="failed", text=f"{tell(spot, found)}: somebody has changed it since, so it is left alone")
        done = _set(link, Change(spot, data["old"]), found, world, control, temporary=False)
        if settings.temporary:
            strike_returned(world, link, [spot])
        return done


def _refusal(
    settings: ParameterSettings, now: Mapping[str, Any], link: ServerLink, spot: Spot, world: World
) -> tuple[str | None, str | None]:
    if settings.reset == (settings.value is not None):
        return "it has to be said what to set: a value, or reset = true, and not both", None
    refusal, hint = refusal_of(spot, settings.wanted, now, link, restart=settings.restart)
    if refusal is None and (gone := missing(link, spot)):
        return f"the server has no {gone}", None
    if refusal is None and settings.temporary:
        if spot.scope == "session":
            return "what is set for the statements of a run ends with it: temporary has no meaning there", None
        refusal, hint = refuse_owed(world, link, [spot])
    if refusal is None and spot.scope == "system":
        wanted = {spot.parameter: settings.wanted}
        return risk_of(link, wanted, temporary=settings.temporary, for_database=settings.for_database)
    return refusal, hint


def named(spot: Spot, now: Mapping[str, Any]) -> Spot:
    """The spot with the parameter's name as the server spells it."""
    return Spot(parameter=now["name"], scope=spot.scope, database=spot.database, role=spot.role)


def _spot_of(sight: Sight) -> tuple[Spot, str | None]:
    row = dict(sight.rows[0])
    return Spot(**{name: row[name] for name in Spot.__struct_fields__}), row["set"]


def _set(link: ServerLink, change: Change, old: str | None, world: World, control: Control, *, temporary: bool) -> Done:
    """Write it, have it read, and look whether it counts."""
    spot, value = change
    back = _undo(spot, old, value)
    if temporary:
        owe(world, link, [(change, old)])
    [became] = apply(link, [change], world, control)
    if became.state == "unknown":
        return Done(state="unknown", text=became.text, undo=back)
    if not became.written:
        if temporary:
            strike_returned(world, link, [spot])
        return Done(state="failed", text=became.text)
    return Done(state=became.state, text=became.text, values={"value": became.shown, "set": value}, undo=back)


def _undo(spot: Spot, old: str | None, new: str | None) -> dict[str, Any]:
    return {"spot": asdict(spot), "old": old, "new": new}


def _exact(spot: Spot, wanted: str | None) -> str:
    text = statement(spot, wanted).strip()
    return f"{text}; SELECT pg_reload_conf()" if spot.scope == "system" else text


def _told(spot: Spot, now: Mapping[str, Any], old: str | None, wanted: str | None) -> str:
    was = "is not set" if old is None else f"is {old!r}"
    to = "taken out" if wanted is None else f"set to {wanted!r}"
    later = "; it counts after a restart only" if now["context"] == "postmaster" else ""
    return f"{now['name']} is {now['shown']} ({now['source']}); {spot.words()} it {was} and will be {to}{later}."
