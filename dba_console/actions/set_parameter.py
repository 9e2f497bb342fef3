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
from dba_console.actions.link import Lost, ServerLink, StatementFailed, server
from dba_console.actions.parameter_check import refusal_of
from dba_console.actions.parameter_sql import (
    LOADED,
    RELOAD,
    Scope,
    Spot,
    file_entry,
    missing,
    names,
    setting,
    statement,
    stored,
)
from dba_console.actions.parameter_values import same, text_of

RELOAD_S = 15.0
"""For the postmaster to read the files and for our backend to hear of it; it takes milliseconds on a sound server."""
_LOOK_S = 0.1


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
        "was. Refuses parameters that need a restart unless asked, and values that hold a secret."
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
        spot, wanted = _named(settings.spot, now), settings.wanted
        refusal, hint = _refusal(settings, now, link, spot)
        if refusal is not None:
            return Sight(text=f"{now['name']} is {now['shown']}.", exact="", refusal=refusal, hint=hint)
        old = stored(link, spot)
        return Sight(
            text=_told(spot, now, old, wanted),
            exact=_exact(spot, wanted),
            values={"value": now["shown"], "set": old},
            count=1,
            rows=({**asdict(spot), "set": old},),
            done=same(now["name"], old, wanted, now["vartype"], now["unit"]) and not now["pending_restart"],
        )

    def act(self, settings: ParameterSettings, sight: Sight, world: World, control: Control) -> Done:
        spot, old = _spot_of(sight)
        return _set(server(world), spot, settings.wanted, old, world, control)

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
            if _counts(link, spot, settings.wanted, now):
                return Done(state="ok", text=f"{_is(spot, found)}, and it counts", values=values, undo=back)
            text = f"{_is(spot, found)}, but the server has not read it: it was not reloaded"
            return Done(state="failed", text=text, values=values, undo=back)
        if same(spot.parameter, found, old, *kind):
            return Done(state="failed", text=f"{_is(spot, found)}, as before", values=values)
        return Done(state="unknown", text=f"{_is(spot, found)}: neither as before nor as it was to be", values=values)

    def undo(self, settings: ParameterSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        link = server(world)
        spot = Spot(**data["spot"])
        now = setting(link, spot.parameter)
        found = stored(link, spot)
        if now is None or not same(spot.parameter, found, data["new"], now["vartype"], now["unit"]):
            return Done(state="failed", text=f"{_is(spot, found)}: somebody has changed it since, so it is left alone")
        return _set(link, spot, data["old"], found, world, control)


def _refusal(
    settings: ParameterSettings, now: Mapping[str, Any], link: ServerLink, spot: Spot
) -> tuple[str | None, str | None]:
    if settings.reset == (settings.value is not None):
        return "it has to be said what to set: a value, or reset = true, and not both", None
    refusal, hint = refusal_of(spot, settings.wanted, now, link, restart=settings.restart)
    if refusal is None and (gone := missing(link, spot)):
        return f"the server has no {gone}", None
    return refusal, hint


def _named(spot: Spot, now: Mapping[str, Any]) -> Spot:
    """The spot with the parameter's name as the server spells it."""
    return Spot(parameter=now["name"], scope=spot.scope, database=spot.database, role=spot.role)


def _spot_of(sight: Sight) -> tuple[Spot, str | None]:
    row = dict(sight.rows[0])
    return Spot(**{name: row[name] for name in Spot.__struct_fields__}), row["set"]


def _set(link: ServerLink, spot: Spot, value: str | None, old: str | None, world: World, control: Control) -> Done:
    """Write it, have it read, and look whether it counts."""
    back, read = _undo(spot, old, value), True
    try:
        if spot.scope == "session":
            _keep(link, spot, value)
        else:
            before = link.rows(LOADED)[0]["at"]
            link.act(statement(spot, value), transaction=spot.scope != "system", timeout_s=30.0)
            if spot.scope == "system":
                link.act(RELOAD)
                read = _await_reload(link, before, world, control)
    except StatementFailed as error:
        return Done(state="failed", text=f"the server refused: {error.message}")
    except Lost as error:
        return Done(state="unknown", text=error.message, undo=back)
    now = setting(link, spot.parameter) or {"shown": None}
    values = {"value": now["shown"], "set": value}
    if read and _counts(link, spot, value, now):
        return Done(state="ok", text=_effect(spot, value, now), values=values, undo=back)
    text = f"{_is(spot, value)}, but the server goes by {now['shown']} still"
    return Done(state="failed", text=text, values=values, undo=back)


def _keep(link: ServerLink, spot: Spot, value: str | None) -> None:
    if value is None:
        link.forget(spot.parameter)
    else:
        link.keep(spot.parameter, value)


def _await_reload(link: ServerLink, before: Any, world: World, control: Control) -> bool:
    """True as soon as our own backend has read the files anew, which it does after the postmaster."""
    until_us = world.clock.mono_us() + int(RELOAD_S * 1e6)
    while link.rows(LOADED)[0]["at"] <= before and world.clock.mono_us() < until_us:
        control.tell("waiting for the server to read its configuration")
        if control.wait(_LOOK_S):
            break
    return bool(link.rows(LOADED)[0]["at"] > before)


def _counts(link: ServerLink, spot: Spot, value: str | None, now: Mapping[str, Any]) -> bool:
    """It has the effect it can have now."""
    kind = (now.get("vartype", "string"), now.get("unit"))
    if spot.scope != "system":
        found = stored(link, spot)
        return same(spot.parameter, found, value, *kind)
    entry = file_entry(link, spot.parameter)
    if value is None:
        return entry is None
    if entry is None or not same(spot.parameter, entry["setting"], value, *kind):
        return False
    # What our own role or database sets hides the server's value from us; the server says whether the entry is applied.
    return bool(entry["applied"] or now.get("pending_restart"))


def _undo(spot: Spot, old: str | None, new: str | None) -> dict[str, Any]:
    return {"spot": asdict(spot), "old": old, "new": new}


def _is(spot: Spot, value: str | None) -> str:
    return f"{spot.parameter} is {'not set' if value is None else repr(value)} {spot.words()}"


def _effect(spot: Spot, value: str | None, now: Mapping[str, Any]) -> str:
    text = _is(spot, value)
    if spot.scope in ("database", "role"):
        return f"{text}; sessions that begin from now on have it"
    if now.get("pending_restart"):
        return f"{text}; it counts from the next restart, until then it is {now['shown']}"
    return f"{text}; it is {now['shown']} now"


def _exact(spot: Spot, wanted: str | None) -> str:
    text = statement(spot, wanted).strip()
    return f"{text}; SELECT pg_reload_conf()" if spot.scope == "system" else text


def _told(spot: Spot, now: Mapping[str, Any], old: str | None, wanted: str | None) -> str:
    was = "is not set" if old is None else f"is {old!r}"
    to = "taken out" if wanted is None else f"set to {wanted!r}"
    later = "; it counts after a restart only" if now["context"] == "postmaster" else ""
    return f"{now['name']} is {now['shown']} ({now['source']}); {spot.words()} it {was} and will be {to}{later}."
