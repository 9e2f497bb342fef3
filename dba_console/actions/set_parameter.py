"""The action set-parameter: set a configuration parameter, keep its exact old value (or `not set`), and revert it.

It is set in one location (the whole server, a database, a role, or the statements of this run); afterwards it is
verified that it took effect, because pg_reload_conf() returns before any process has read the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.connection_api import ServerConnection, require_connection
from dba_console.actions.parameter_check import (
    ParameterChange,
    apply_changes,
    describe_setting,
    disables_durability,
    find_refusal,
    find_risk,
    has_effect,
    masked_value,
    remarks,
)
from dba_console.actions.parameter_sql import (
    ParameterLocation,
    Scope,
    find_missing_object,
    parameter_names,
    read_setting,
    read_stored_value,
    same_value,
    set_statement,
    setting_text,
)
from dba_console.actions.temporary_settings import refuse_changed_by_other_run, remove_reverted, save_reverts


class ParameterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parameter: str
    """Name of the parameter."""
    value: str | int | float | bool | None = None
    """As in postgresql.conf, with units."""
    reset: bool = False
    """Reset it in its location instead, so that the value set elsewhere applies."""
    scope: Scope = "system"
    """`system`: ALTER SYSTEM and a reload; `database`, `role`: for new sessions; `session`: for the later statements of
    this run, until the agent of the console ends."""
    database: str | None = None
    """Database for scope `database`; with scope `role`, only in this database."""
    role: str | None = None
    """Role for scope `role`."""
    restart: bool = False
    """Set a parameter that takes effect only after a restart."""
    temporary: bool = False
    """Temporary: the old value is saved to disk before it is set, and a finding reports it until it is reverted."""
    for_database: str | None = None
    """With fsync or full_page_writes off: the only database whose loss is accepted; default: the run's database."""

    @property
    def location(self) -> ParameterLocation:
        return ParameterLocation(parameter=self.parameter, scope=self.scope, database=self.database, role=self.role)

    @property
    def wanted(self) -> str | None:
        """The new value as text; None: reset."""
        return None if self.reset or self.value is None else setting_text(self.value)


class SetParameter:
    """Implements `Action`."""

    name: ClassVar[str] = "set-parameter"
    summary: ClassVar[str] = (
        "Sets a configuration parameter for the server (ALTER SYSTEM and reload), a database, a role, or the "
        "statements of this run; waits until it takes effect. Its undo restores the exact old value, also `not set`. "
        "Refuses parameters that need a restart unless requested, and values that contain a secret. A temporary "
        "setting (`temporary`) has a pending revert: see `put-back`."
    )
    Settings: ClassVar[type[Struct]] = ParameterSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = True

    def preview(self, settings: ParameterSettings, context: ActionContext) -> ActionPreview:
        connection = require_connection(context)
        now = read_setting(connection, settings.parameter)
        if now is None:
            near = difflib.get_close_matches(settings.parameter, parameter_names(connection), 1)
            near_hint = f"did you mean {near[0]}?" if near else "parameters of an extension exist once it is loaded"
            message = f"the server has no parameter {settings.parameter}"
            return ActionPreview(text=f"{message}.", exact="", refusal=message, hint=near_hint)
        location, wanted = with_server_spelling(settings.location, now), settings.wanted
        refusal, hint = _refusal(settings, now, connection, location, context)
        if refusal is not None:
            text = f"{now['name']} is {masked_value(now['name'], now['shown'])}."
            return ActionPreview(text=text, exact="", refusal=refusal, hint=hint)
        old = read_stored_value(connection, location)
        more = "".join(f" {one[0].upper()}{one[1:]}." for one in remarks(connection, {location.parameter: wanted}))
        return ActionPreview(
            text=_preview_text(location, now, old, wanted) + (more if location.scope == "system" else ""),
            exact=_exact_text(location, wanted),
            values={"value": now["shown"], "set": old},
            count=1,
            rows=({**asdict(location), "set": old},),
            done=same_value(now["name"], old, wanted, now["vartype"], now["unit"]) and not now["pending_restart"],
            destructive=location.scope == "system" and disables_durability(now["name"], wanted),
        )

    def act(
        self, settings: ParameterSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        location, old = _location_of(preview)
        change = ParameterChange(location, settings.wanted)
        return _set(require_connection(context), change, old, context, control, temporary=settings.temporary)

    def settle(self, settings: ParameterSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection = require_connection(context)
        location, old = _location_of(preview)
        now = read_setting(connection, location.parameter)
        if now is None:
            return ActionResult(state="unknown", text=f"the server no longer has the parameter {location.parameter}")
        found, kind = read_stored_value(connection, location), (now["vartype"], now["unit"])
        values = {"value": now["shown"], "set": found}
        if same_value(location.parameter, found, settings.wanted, *kind):
            back = _undo_data(location, old, settings.wanted)
            if has_effect(connection, ParameterChange(location, settings.wanted), now):
                return ActionResult(
                    state="ok", text=f"{describe_setting(location, found)}, and is in effect", values=values, undo=back
                )
            text = f"{describe_setting(location, found)}, but the server was not reloaded"
            return ActionResult(state="failed", text=text, values=values, undo=back)
        if same_value(location.parameter, found, old, *kind):
            if settings.temporary:
                remove_reverted(context, connection, [location])
            return ActionResult(
                state="failed", text=f"{describe_setting(location, found)}, as before", values=values, again=True
            )
        return ActionResult(
            state="unknown",
            text=f"{describe_setting(location, found)}: neither the old nor the new value",
            values=values,
        )

    def undo(
        self, settings: ParameterSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        connection = require_connection(context)
        location = ParameterLocation(**data["spot"])
        now = read_setting(connection, location.parameter)
        found = read_stored_value(connection, location)
        if now is None or not same_value(location.parameter, found, data["new"], now["vartype"], now["unit"]):
            return ActionResult(
                state="failed",
                text=f"{describe_setting(location, found)}: changed by others since, so it is not reverted",
            )
        done = _set(connection, ParameterChange(location, data["old"]), found, context, control, temporary=False)
        if settings.temporary:
            remove_reverted(context, connection, [location])
        return done


def _refusal(
    settings: ParameterSettings,
    now: Mapping[str, Any],
    connection: ServerConnection,
    location: ParameterLocation,
    context: ActionContext,
) -> tuple[str | None, str | None]:
    if settings.reset == (settings.value is not None):
        return "set either value or reset = true", None
    refusal, hint = find_refusal(location, settings.wanted, now, connection, restart=settings.restart)
    if refusal is None and (gone := find_missing_object(connection, location)):
        return f"the server has no {gone}", None
    if refusal is None and settings.temporary:
        if location.scope == "session":
            return 'temporary has no meaning with scope = "session": these settings end with the run', None
        refusal, hint = refuse_changed_by_other_run(context, connection, [location])
    if refusal is None and location.scope == "system":
        wanted = {location.parameter: settings.wanted}
        return find_risk(connection, wanted, temporary=settings.temporary, for_database=settings.for_database)
    return refusal, hint


def with_server_spelling(location: ParameterLocation, now: Mapping[str, Any]) -> ParameterLocation:
    """Return the location with the parameter's name as the server spells it."""
    return ParameterLocation(
        parameter=now["name"], scope=location.scope, database=location.database, role=location.role
    )


def _location_of(preview: ActionPreview) -> tuple[ParameterLocation, str | None]:
    row = dict(preview.rows[0])
    return ParameterLocation(**{name: row[name] for name in ParameterLocation.__struct_fields__}), row["set"]


def _set(
    connection: ServerConnection,
    change: ParameterChange,
    old: str | None,
    context: ActionContext,
    control: Control,
    *,
    temporary: bool,
) -> ActionResult:
    """Write it, reload the server, and verify that it took effect."""
    location, value = change
    back = _undo_data(location, old, value)
    if temporary:
        save_reverts(context, connection, [(change, old)])
    [outcome] = apply_changes(connection, [change], context, control)
    if outcome.state == "unknown":
        return ActionResult(state="unknown", text=outcome.text, undo=back)
    if not outcome.written:
        if temporary:
            remove_reverted(context, connection, [location])
        return ActionResult(state="failed", text=outcome.text)
    return ActionResult(
        state=outcome.state, text=outcome.text, values={"value": outcome.effective, "set": value}, undo=back
    )


def _undo_data(location: ParameterLocation, old: str | None, new: str | None) -> dict[str, Any]:
    return {"spot": asdict(location), "old": old, "new": new}


def _exact_text(location: ParameterLocation, wanted: str | None) -> str:
    text = set_statement(location, wanted).strip()
    return f"{text}; SELECT pg_reload_conf()" if location.scope == "system" else text


def _preview_text(location: ParameterLocation, now: Mapping[str, Any], old: str | None, wanted: str | None) -> str:
    was = "is not set" if old is None else f"is {old!r}"
    to = "reset" if wanted is None else f"set to {wanted!r}"
    later = "; it takes effect only after a restart" if now["context"] == "postmaster" else ""
    return f"{now['name']} is {now['shown']} ({now['source']}); {location.describe()} it {was} and will be {to}{later}."
