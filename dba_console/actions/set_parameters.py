"""The action set-parameters: set configuration parameters, keep their exact old values (or `not set`), revert them.

They are set in one location (the whole server, a database, a role, or the statements of this run) with one reload;
afterwards it is verified that they took effect, because pg_reload_conf() returns before any process has read the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.parameter_check import (
    ChangeOutcome,
    ParameterChange,
    Refusal,
    apply_changes,
    describe_setting,
    disables_durability,
    find_refusal,
    find_risk,
    has_effect,
    needs_reload,
    reload,
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
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.temporary_settings import refuse_changed_by_other_run, remove_reverted, save_reverts
from dba_console.core.errors import suggest


class ParametersSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    settings: dict[str, str | int | float | bool | None] = {}
    """Name and value of each, as in postgresql.conf, with units. An empty or missing value leaves that parameter
    unchanged."""
    parameter: str | None = None
    """Instead of `settings`: name of a single parameter."""
    value: str | int | float | bool | None = None
    """Value of `parameter`; an empty one is set too."""
    reset: bool = False
    """Reset `parameter` in its location instead, so that the value set elsewhere applies."""
    scope: Scope = "system"
    """`system`: ALTER SYSTEM and a reload; `database`, `role`: for new sessions; `session`: for the later statements of
    this run, until the agent of the console ends."""
    database: str | None = None
    """Database for scope `database`; with scope `role`, only in this database."""
    role: str | None = None
    """Role for scope `role`."""
    restart: bool = False
    """Also set parameters that take effect only after a restart; they are shown as pending until then."""
    temporary: bool = False
    """Temporary: the old values are saved to disk before any is set, and a finding reports them until reverted."""
    for_database: str | None = None
    """With fsync or full_page_writes off: the only database whose loss is accepted; default: the run's database."""

    def __post_init__(self) -> None:
        if bool(self.settings) == (self.parameter is not None):
            raise ValueError("set either settings or parameter")
        if self.parameter is None and (self.reset or self.value is not None):
            raise ValueError("value and reset need parameter")

    @property
    def wanted(self) -> dict[str, str | None]:
        """The parameters to set, with their values; None: reset."""
        if self.parameter is not None:
            return {self.parameter: None if self.reset or self.value is None else setting_text(self.value)}
        given = {name: value for name, value in self.settings.items() if value is not None and value != ""}
        return {name: setting_text(value) for name, value in given.items()}

    def location(self, name: str) -> ParameterLocation:
        return ParameterLocation(parameter=name, scope=self.scope, database=self.database, role=self.role)


class SetParameters(Action):
    name: ClassVar[str] = "set-parameters"
    summary: ClassVar[str] = (
        "Sets one or several configuration parameters for the server (ALTER SYSTEM and one reload, in an order in "
        "which the server could start after each), a database, a role, or the statements of this run; waits until they "
        "take effect. If one is refused, none is set. Its undo restores the exact old values, also `not set`. Refuses "
        "parameters that need a restart unless requested, and values that contain a secret. A temporary setting "
        "(`temporary`) has a pending revert: see `put-back`."
    )
    Settings: ClassVar[type[Struct]] = ParametersSettings
    undoable: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = (*ParameterLocation.__struct_fields__, "set", "to")

    def preview(self, settings: ParametersSettings, context: ActionContext) -> ActionPreview:
        connection = context.require_connection()
        found = {name: read_setting(connection, name) for name in settings.wanted}
        refusal, hint = _refusal(settings, found, connection, context)
        if refusal is not None:
            return ActionPreview(text=f"Set {', '.join(found)}.", exact="", refusal=refusal, hint=hint)
        rows, left = [], []
        for name, now in found.items():
            assert now is not None  # unknown names were refused
            location, wanted = settings.location(now["name"]), settings.wanted[name]
            old = read_stored_value(connection, location)
            if same_value(location.parameter, old, wanted, now["vartype"], now["unit"]) and not now["pending_restart"]:
                left.append(location.parameter)
                continue
            when = "after a restart" if now["context"] == "postmaster" else "at once"
            row = {"set": old, "to": wanted, "is": now["shown"], "source": now["source"], "when": when}
            rows.append({**asdict(location), **row})
        return ActionPreview(
            text=_preview_text(settings, rows, left, list(remarks(connection, settings.wanted))),
            exact=_exact_text(settings, rows),
            values={row["parameter"]: row["is"] for row in rows},
            count=len(rows),
            rows=tuple(rows),
            done=not rows,
            destructive=settings.scope == "system"
            and any(disables_durability(row["parameter"], row["to"]) for row in rows),
        )

    def act(
        self, settings: ParametersSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection, pairs = context.require_connection(), _changes_with_old(preview)
        if settings.temporary:
            save_reverts(context, connection, pairs)
        outcomes = apply_changes(connection, [change for change, _ in pairs], context, control)
        if settings.temporary and any(not one.written for one in outcomes):
            remove_reverted(context, connection, [one.change.location for one in outcomes if not one.written])
        return _result(outcomes, pairs)

    def settle(self, settings: ParametersSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        connection, pairs = context.require_connection(), _changes_with_old(preview)
        outcomes = [_find_outcome(connection, change, old) for change, old in pairs]
        if settings.temporary:
            remove_reverted(context, connection, [change.location for change, _ in pairs])
        done = _result(outcomes, pairs)
        left = [one for one in outcomes if one.state == "failed"]
        again = done.state == "failed" and all(not one.written for one in left)
        return replace(done, again=again)

    def undo(
        self, settings: ParametersSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        connection = context.require_connection()
        back, altered, stale = [], [], False
        for row in data["rows"]:
            location = ParameterLocation(**row["spot"])
            now, found = read_setting(connection, location.parameter), read_stored_value(connection, location)
            kind = ("string", None) if now is None else (now["vartype"], now["unit"])
            if same_value(location.parameter, found, row["old"], *kind):
                stale = stale or (now is not None and needs_reload(location, row["old"], now))
                continue
            if now is None or not same_value(location.parameter, found, row["new"], *kind):
                altered.append(f"{describe_setting(location, found)}: changed by others since, so it is not reverted")
            else:
                back.append(ParameterChange(location, row["old"]))
        outcomes = apply_changes(connection, back, context, control) if back else []
        if stale and not back:
            reload(connection, context, control)
        if settings.temporary:
            remove_reverted(context, connection, [ParameterLocation(**row["spot"]) for row in data["rows"]])
        states = {one.state for one in outcomes} | ({"failed"} if altered else set())
        state = next((state for state in ("unknown", "failed") if state in states), "ok")
        return ActionResult(
            state=state, text="; ".join([*(one.text for one in outcomes), *altered]) or "all have their old values"
        )


def _refusal(
    settings: ParametersSettings, found: Mapping[str, Any], connection: QueryConnection, context: ActionContext
) -> Refusal:
    if settings.parameter is not None and settings.reset == (settings.value is not None):
        return "set either value or reset = true", None
    if settings.temporary and settings.scope == "session":
        return 'temporary has no meaning with scope = "session": these settings end with the run', None
    for name, now in found.items():
        if now is None:
            unknown = "parameters of an extension exist once it is loaded"
            return f"the server has no parameter {name}", suggest(name, parameter_names(connection)) or unknown
        location = settings.location(now["name"])
        refusal, hint = find_refusal(location, settings.wanted[name], now, connection, restart=settings.restart)
        if refusal is None and (gone := find_missing_object(connection, location)):
            refusal = f"the server has no {gone}"
        if refusal is not None:
            return refusal, hint
    locations = [settings.location(now["name"]) for now in found.values() if now is not None]
    message = refuse_changed_by_other_run(context, connection, locations) if settings.temporary else (None, None)
    if message[0] is not None or settings.scope != "system":
        return message
    return find_risk(connection, settings.wanted, temporary=settings.temporary, for_database=settings.for_database)


def _changes_with_old(preview: ActionPreview) -> list[tuple[ParameterChange, str | None]]:
    """Return each change with its old value."""
    return [(ParameterChange(_location_of(row), row["to"]), row["set"]) for row in preview.rows]


def _location_of(row: Mapping[str, Any]) -> ParameterLocation:
    return ParameterLocation(**{name: row[name] for name in ParameterLocation.__struct_fields__})


def _find_outcome(connection: QueryConnection, change: ParameterChange, old: str | None) -> ChangeOutcome:
    """Return the outcome of an interrupted change."""
    now = read_setting(connection, change.location.parameter)
    if now is None:
        return ChangeOutcome(change, "unknown", f"the server no longer has the parameter {change.location.parameter}")
    found, kind = read_stored_value(connection, change.location), (now["vartype"], now["unit"])
    message = describe_setting(change.location, found)
    if same_value(change.location.parameter, found, change.value, *kind):
        if has_effect(connection, change, now):
            return ChangeOutcome(change, "ok", f"{message}, and is in effect", now["shown"], True)
        return ChangeOutcome(change, "failed", f"{message}, but the server was not reloaded", now["shown"], True)
    if same_value(change.location.parameter, found, old, *kind):
        return ChangeOutcome(change, "failed", f"{message}, as before", now["shown"])
    return ChangeOutcome(change, "unknown", f"{message}: neither the old nor the new value", now["shown"], True)


def _result(outcomes: Sequence[ChangeOutcome], pairs: Sequence[tuple[ParameterChange, str | None]]) -> ActionResult:
    before = dict(pairs)
    written = [one.change for one in outcomes if one.written or one.state == "unknown"]
    rows = [{"spot": asdict(one.location), "old": before[one], "new": one.value} for one in written]
    states = [one.state for one in outcomes]
    state = "unknown" if "unknown" in states else "ok" if set(states) <= {"ok"} else "failed"
    return ActionResult(
        state=state,
        text="; ".join(one.text for one in outcomes),
        values={one.change.location.parameter: one.effective for one in outcomes},
        undo={"rows": rows} if rows else None,
    )


def _preview_text(
    settings: ParametersSettings, rows: Sequence[Mapping[str, Any]], left: Sequence[str], more: Sequence[str]
) -> str:
    words = [f"{row['parameter']} from {row['is']} ({row['source']}) to {_new_text(row['to'])}" for row in rows]
    where = settings.location("").describe()
    sentences = [f"{where}: {', '.join(words)}" if words else f"nothing to set {where}"]
    if later := [row["parameter"] for row in rows if row["when"] != "at once"]:
        sentences.append(f"takes effect only after a restart: {', '.join(later)}")
    if left:
        sentences.append(f"already as requested: {', '.join(left)}")
    if rows and settings.scope == "system":
        sentences += more
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in sentences)


def _new_text(value: str | None) -> str:
    return "the value set elsewhere" if value is None else value or "''"


def _exact_text(settings: ParametersSettings, rows: Sequence[Mapping[str, Any]]) -> str:
    texts = [set_statement(_location_of(row), row["to"]).strip() for row in rows]
    return "; ".join([*texts, *(["SELECT pg_reload_conf()"] if texts and settings.scope == "system" else [])])
