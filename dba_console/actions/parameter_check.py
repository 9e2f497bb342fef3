"""Why a parameter will not be set: what the server would refuse or ignore, and what could not be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.parameter_sql import ParameterLocation, find_broken_file, read_stored_value
from dba_console.actions.parameter_values import LIST_QUOTED, split_list
from dba_console.redact import MASK, names_secret, redact

Refusal = tuple[str | None, str | None]
"""A sentence and a hint; (None, None) where it may be set."""


def find_refusal(
    location: ParameterLocation,
    wanted: str | None,
    now: Mapping[str, Any],
    connection: ServerConnection,
    *,
    restart: bool,
) -> Refusal:
    """The first thing that speaks against it."""
    for message in (
        _check_scope(location),
        _check_context(location, now, restart=restart),
        _check_privileges(location, now),
    ):
        if message[0] is not None:
            return message
    if wanted is not None and location.parameter.lower() in LIST_QUOTED and not split_list(wanted):
        return f"the server cannot be told an empty {location.parameter}", "reset = true takes it out"
    old = read_stored_value(connection, location)
    if names_secret(location.parameter) or any(
        masked_value(location.parameter, value) != value for value in (wanted, old)
    ):
        return (
            f"{location.parameter} holds a secret, which is written down nowhere here: it could not be put back",
            "set it by hand, in a file that only the server reads",
        )
    if location.scope == "system" and (line := find_broken_file(connection)):
        return f"the configuration cannot be read, so a reload would apply nothing: {line}", "mend that file first"
    return None, None


def masked_value(parameter: str, value: str | None) -> str | None:
    """The value of a parameter as it may leave this process."""
    if value is None or names_secret(parameter):
        return None if value is None else MASK
    return redact(value)


def _check_scope(location: ParameterLocation) -> Refusal:
    if location.scope == "database" and not location.database:
        return 'scope = "database" needs the name of the database', None
    if location.scope == "role" and not location.role:
        return 'scope = "role" needs the name of the role', None
    if location.scope not in ("database", "role") and location.database:
        return f'database = {location.database!r} has no meaning with scope = "{location.scope}"', None
    if location.scope != "role" and location.role:
        return f'role = {location.role!r} has no meaning with scope = "{location.scope}"', None
    return None, None


def _check_context(location: ParameterLocation, now: Mapping[str, Any], *, restart: bool) -> Refusal:
    """By when a parameter can change (pg_settings.context)."""
    name, context = location.parameter, now["context"]
    if context == "internal":
        return f"{name} is fixed when the server or its cluster is built", None
    if location.scope == "system":
        if context == "postmaster" and not restart:
            return f"{name} counts only after a restart of the server", "restart = true sets it all the same"
        if now["source"] == "command line":
            return f"{name} is given on the server's command line, which wins over every file", None
        return None, None
    if context in ("postmaster", "sighup"):
        return f"{name} can be set for the whole server only", 'scope = "system"'
    if location.scope == "session" and context in ("backend", "superuser-backend"):
        return f"{name} is fixed when a session begins", 'scope = "role" or "database"'
    return None, None


def _check_privileges(location: ParameterLocation, now: Mapping[str, Any]) -> Refusal:
    if location.scope in ("database", "role") and now["standby"]:
        return f"this is a standby: what is set for a {location.scope} is set on its primary", None
    if location.scope != "system":
        return None, None  # the server says it in the statement itself, and nothing is left over
    if now["closed"]:
        return (
            "the server takes no ALTER SYSTEM from anybody: allow_alter_system is off",
            f"set {location.parameter} where its configuration is kept (Patroni, an operator, configuration "
            f"management)",
        )
    if not now["may_alter"]:
        return (
            f"this role may not ALTER SYSTEM SET {location.parameter}",
            "a superuser may; from 15 on GRANT ALTER SYSTEM ON",
        )
    if not now["may_reload"]:
        return "this role may not reload the configuration", "GRANT EXECUTE ON FUNCTION pg_reload_conf() TO it"
    if not now["may_read_files"]:
        return (
            "this role may not read what is set in the files, so it could not be put back",
            "GRANT SELECT ON pg_file_settings, EXECUTE ON FUNCTION pg_show_all_file_settings() TO it",
        )
    return None, None
