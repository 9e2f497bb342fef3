"""Write parameters in their places, have the server read them, and look whether they count: one of them or several.

Everything that sets a parameter, for good or for a time, and everything that puts one back goes through here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dba_console.actions.action import ActionContext, Control
from dba_console.actions.connection_api import ServerConnection, StatementFailed, StatementLost
from dba_console.actions.parameter_sql import (
    CONF_LOAD_TIME,
    RELOAD,
    ParameterLocation,
    read_auto_conf_entry,
    read_setting,
    read_stored_value,
    set_statement,
)
from dba_console.actions.parameter_values import same_value

RELOAD_TIMEOUT_S = 15.0
"""For the postmaster to read the files and for our backend to hear of it; it takes milliseconds on a sound server."""
_POLL_S = 0.1
STATEMENT_TIMEOUT_S = 30.0


class ParameterChange(NamedTuple):
    """A parameter in a place, and what is to stand there; None: nothing."""

    location: ParameterLocation
    value: str | None


class ChangeOutcome(NamedTuple):
    """What became of one change."""

    change: ParameterChange
    state: str
    """ok, failed, unknown, or left: not begun, because one before it failed."""
    text: str
    effective: str | None = None
    """What the server goes by, as it says it."""
    written: bool = False
    """It stands in its place, whether or not it counts."""


def apply_changes(
    connection: ServerConnection, changes: Sequence[ParameterChange], context: ActionContext, control: Control
) -> list[ChangeOutcome]:
    """Make the changes, in an order in which the server could start after each of them, with one reload for all.

    Stops at the first that is refused or whose end is unknown; those before it are read and count. An unknown end is
    told by the first of the list that has it. Raises ConnectError, Refused.
    """
    written: list[ParameterChange] = []
    failure: ChangeOutcome | None = None
    for change in start_safe_order(changes):
        try:
            _write(connection, change)
        except StatementFailed as error:
            failure = ChangeOutcome(change, "failed", f"the server refused: {error.message}")
            break
        except StatementLost as error:
            failure = ChangeOutcome(change, "unknown", error.message)
            break
        written.append(change)
    read = True
    if any(change.location.scope == "system" for change in written):
        try:
            read = reload(connection, context, control)
        except StatementFailed as error:
            return [
                ChangeOutcome(one, "failed", f"the server refused to reload: {error.message}", None, True)
                for one in written
            ]
        except StatementLost as error:
            return [ChangeOutcome(one, "unknown", error.message, None, True) for one in written]
    made = [_check_outcome(connection, change, read) for change in written]
    if failure is None:
        return made
    started = [*written, failure.change]
    rest = [change for change in start_safe_order(changes) if change not in started]
    return [
        *made,
        failure,
        *(ChangeOutcome(change, "left", f"{change.location.parameter} was left as it is") for change in rest),
    ]


def reload(connection: ServerConnection, context: ActionContext, control: Control) -> bool:
    """Have the server read its files. True as soon as our own backend has read them, which it does after the
    postmaster. Raises StatementFailed, Lost."""
    before = connection.rows(CONF_LOAD_TIME)[0]["at"]
    connection.execute_change(RELOAD)
    deadline_us = context.clock.mono_us() + int(RELOAD_TIMEOUT_S * 1e6)
    while connection.rows(CONF_LOAD_TIME)[0]["at"] <= before and context.clock.mono_us() < deadline_us:
        control.report_progress("waiting for the server to read its configuration")
        if control.wait(_POLL_S):
            break
    return bool(connection.rows(CONF_LOAD_TIME)[0]["at"] > before)


def start_safe_order(changes: Sequence[ParameterChange]) -> list[ParameterChange]:
    """So that the server could start after each one, should the host go down right then.

    With wal_level = minimal it starts only where max_wal_senders is 0 and archive_mode off: so it comes to that last,
    and away from it first (PostgreSQL documentation, "Write Ahead Log", wal_level).
    """

    def place(change: ParameterChange) -> int:
        if change.location.parameter != "wal_level":
            return 1
        return 2 if (change.value or "").strip().lower() == "minimal" else 0

    return sorted(changes, key=place)


def has_effect(connection: ServerConnection, change: ParameterChange, now: Mapping[str, Any]) -> bool:
    """It has the effect it can have now."""
    location, value = change
    kind = (now.get("vartype", "string"), now.get("unit"))
    if location.scope != "system":
        return same_value(location.parameter, read_stored_value(connection, location), value, *kind)
    entry = read_auto_conf_entry(connection, location.parameter)
    if value is None:
        return entry is None
    if entry is None or not same_value(location.parameter, entry["setting"], value, *kind):
        return False
    # What our own role or database sets hides the server's value from us; the server says whether the entry is applied.
    return bool(entry["applied"] or now.get("pending_restart"))


def needs_reload(location: ParameterLocation, old: str | None, now: Mapping[str, Any]) -> bool:
    """The server goes by something else than what is written: it was not told to read the files.

    Told where nothing but the files can be what it goes by.
    """
    if location.scope != "system" or now["source"] != "configuration file" or now["context"] == "postmaster":
        return False
    if old is None:
        return str(now["sourcefile"] or "").endswith("postgresql.auto.conf")
    return not same_value(location.parameter, now["shown"], old, now["vartype"], now["unit"])


def describe_setting(location: ParameterLocation, value: str | None) -> str:
    """What stands in a place.

    >>> describe_setting(ParameterLocation(parameter="fsync"), None)
    'fsync is not set in postgresql.auto.conf'
    """
    return f"{location.parameter} is {'not set' if value is None else repr(value)} {location.describe()}"


def _write(connection: ServerConnection, change: ParameterChange) -> None:
    location, value = change
    if location.scope != "session":
        connection.execute_change(
            set_statement(location, value), transaction=location.scope != "system", timeout_s=STATEMENT_TIMEOUT_S
        )
    elif value is None:
        connection.reset_parameter(location.parameter)
    else:
        connection.set_parameter(location.parameter, value)


def _check_outcome(connection: ServerConnection, change: ParameterChange, read: bool) -> ChangeOutcome:
    location, value = change
    now = read_setting(connection, location.parameter) or {"shown": None}
    if read and has_effect(connection, change, now):
        return ChangeOutcome(change, "ok", _effect_text(location, value, now), now["shown"], True)
    text = f"{describe_setting(location, value)}, but the server goes by {now['shown']} still"
    return ChangeOutcome(change, "failed", text, now["shown"], True)


def _effect_text(location: ParameterLocation, value: str | None, now: Mapping[str, Any]) -> str:
    text = describe_setting(location, value)
    if location.scope in ("database", "role"):
        return f"{text}; sessions that begin from now on have it"
    if now.get("pending_restart"):
        return f"{text}; it counts from the next restart, until then it is {now['shown']}"
    return f"{text}; it is {now['shown']} now"
