"""Why a parameter will not be set: what the server would refuse or ignore, and what could not be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dba_console.actions.link import ServerLink
from dba_console.actions.parameter_sql import Spot, broken_file, stored
from dba_console.actions.parameter_values import LIST_QUOTED, elements
from dba_console.redact import MASK, names_secret, redact

Refusal = tuple[str | None, str | None]
"""A sentence and a hint; (None, None) where it may be set."""


def refusal_of(spot: Spot, wanted: str | None, now: Mapping[str, Any], link: ServerLink, *, restart: bool) -> Refusal:
    """The first thing that speaks against it."""
    for told in (_place(spot), _context(spot, now, restart=restart), _rights(spot, now)):
        if told[0] is not None:
            return told
    if wanted is not None and spot.parameter.lower() in LIST_QUOTED and not elements(wanted):
        return f"the server cannot be told an empty {spot.parameter}", "reset = true takes it out"
    old = stored(link, spot)
    if names_secret(spot.parameter) or any(shown(spot.parameter, value) != value for value in (wanted, old)):
        return (
            f"{spot.parameter} holds a secret, which is written down nowhere here: it could not be put back",
            "set it by hand, in a file that only the server reads",
        )
    if spot.scope == "system" and (line := broken_file(link)):
        return f"the configuration cannot be read, so a reload would apply nothing: {line}", "mend that file first"
    return None, None


def shown(parameter: str, value: str | None) -> str | None:
    """The value of a parameter as it may leave this process."""
    if value is None or names_secret(parameter):
        return None if value is None else MASK
    return redact(value)


def _place(spot: Spot) -> Refusal:
    if spot.scope == "database" and not spot.database:
        return 'scope = "database" needs the name of the database', None
    if spot.scope == "role" and not spot.role:
        return 'scope = "role" needs the name of the role', None
    if spot.scope not in ("database", "role") and spot.database:
        return f'database = {spot.database!r} has no meaning with scope = "{spot.scope}"', None
    if spot.scope != "role" and spot.role:
        return f'role = {spot.role!r} has no meaning with scope = "{spot.scope}"', None
    return None, None


def _context(spot: Spot, now: Mapping[str, Any], *, restart: bool) -> Refusal:
    """By when a parameter can change (pg_settings.context)."""
    name, context = spot.parameter, now["context"]
    if context == "internal":
        return f"{name} is fixed when the server or its cluster is built", None
    if spot.scope == "system":
        if context == "postmaster" and not restart:
            return f"{name} counts only after a restart of the server", "restart = true sets it all the same"
        if now["source"] == "command line":
            return f"{name} is given on the server's command line, which wins over every file", None
        return None, None
    if context in ("postmaster", "sighup"):
        return f"{name} can be set for the whole server only", 'scope = "system"'
    if spot.scope == "session" and context in ("backend", "superuser-backend"):
        return f"{name} is fixed when a session begins", 'scope = "role" or "database"'
    return None, None


def _rights(spot: Spot, now: Mapping[str, Any]) -> Refusal:
    if spot.scope in ("database", "role") and now["standby"]:
        return f"this is a standby: what is set for a {spot.scope} is set on its primary", None
    if spot.scope != "system":
        return None, None  # the server says it in the statement itself, and nothing is left over
    if now["closed"]:
        return (
            "the server takes no ALTER SYSTEM from anybody: allow_alter_system is off",
            f"set {spot.parameter} where its configuration is kept (Patroni, an operator, configuration management)",
        )
    if not now["may_alter"]:
        return (
            f"this role may not ALTER SYSTEM SET {spot.parameter}",
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
