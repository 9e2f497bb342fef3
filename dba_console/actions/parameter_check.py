"""Why a parameter will not be set: what the server would refuse or ignore, and what could not be taken back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dba_console.actions.action import ActionContext, Control
from dba_console.actions.connection_api import ServerConnection, StatementFailed, StatementLost
from dba_console.actions.parameter_sql import (
    CONF_LOAD_TIME,
    LIST_QUOTED,
    RELOAD,
    ParameterLocation,
    find_broken_file,
    parse_value,
    read_auto_conf_entry,
    read_setting,
    read_stored_value,
    same_value,
    set_statement,
    split_list,
)
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import MASK, names_secret, redact

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


# Parameters that can cost a cluster: when they may be set at all, and what has to be said of them.

DURABILITY_PARAMETERS = ("fsync", "full_page_writes")
"""Off, a crash of the host or a loss of power may leave the whole cluster unusable (PostgreSQL documentation, "Write
Ahead Log")."""
MAX_NAMED_DATABASES = 5
"""Databases told by name."""

_DATABASES = """
SELECT d.datname AS name, d.datallowconn AS open,
       (SELECT count(*) FROM pg_catalog.pg_stat_activity a
         WHERE a.datid = d.oid AND coalesce(a.backend_type, 'client backend') = 'client backend'
           AND a.pid <> pg_catalog.pg_backend_pid() AND a.application_name !~ '^dba-console') AS sessions
  FROM pg_catalog.pg_database d
 WHERE NOT d.datistemplate AND d.datname <> %(mine)s
 ORDER BY d.datname
"""
_OBJECTS = """
SELECT count(*) AS objects
  FROM pg_catalog.pg_class c
 WHERE c.oid >= 16384 AND c.relkind IN ('r', 'm', 'S', 'p', 'f', 'v')
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend p
                    WHERE p.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND p.objid = c.oid
                      AND p.deptype = 'e')
"""
"""What initdb and extensions made is nobody's data (FirstNormalObjectId in access/transam.h)."""
_REPLICATION = """
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE NOT temporary) AS slots
"""
_MINIMAL_REQUIRES = (("max_wal_senders", "0"), ("archive_mode", "off"), ("summarize_wal", "off"))
"""What wal_level = minimal needs, else the server does not start (postmaster.c; summarize_wal from 17 on)."""


def disables_durability(name: str, value: str | None) -> bool:
    """Whether this takes the cluster's durability away."""
    return name.lower() in DURABILITY_PARAMETERS and value is not None and parse_value(value, "bool", None) is False


def find_risk(
    connection: ServerConnection, wanted: Mapping[str, str | None], *, temporary: bool, for_database: str | None
) -> Refusal:
    """The first thing that speaks against setting these for the whole server. `wanted` are set together."""
    off = [name for name, value in wanted.items() if disables_durability(name, value)]
    if off:
        message = f"{' and '.join(off)} off: a crash of the host costs the whole cluster"
        if not temporary:
            return f"{message}, so it is done for a time only", "temporary = true, and put-back at the end"
        if others := list(other_databases_in_use(connection, for_database)):
            more = f" and {len(others) - MAX_NAMED_DATABASES} more" if len(others) > MAX_NAMED_DATABASES else ""
            return (
                f"{message}, and others live in it: {'; '.join(others[:MAX_NAMED_DATABASES])}{more}",
                "only on a cluster that holds nothing but what is being loaded",
            )
    level = wanted.get("wal_level")
    if level is not None and level.strip().lower() == "minimal":
        return _check_wal_minimal(connection, wanted)
    return None, None


def remarks(connection: ServerConnection, wanted: Mapping[str, str | None]) -> Iterator[str]:
    """What is worth a sentence before these are set."""
    off = [name for name, value in wanted.items() if disables_durability(name, value)]
    if off:
        yield f"while {' and '.join(off)} is off, a crash of the host or a loss of power costs the whole cluster"
    if "autovacuum" in wanted and parse_value(wanted["autovacuum"] or "on", "bool", None) is False:
        rows = connection.rows(
            "SELECT count(*) AS n FROM pg_catalog.pg_database d WHERE d.datallowconn AND NOT d.datistemplate"
        )
        yield f"autovacuum is off for all {rows[0]['n']} databases of the server, but for what prevents wraparound"
    if (wanted.get("wal_level") or "").strip().lower() == "minimal":
        yield "with wal_level minimal no base backup from before it can be rolled forward past it: take one afterwards"


def other_databases_in_use(connection: ServerConnection, mine: str | None) -> Iterator[str]:
    """Who else uses this cluster, in words: databases beside that one with sessions or objects in them.

    postgres is everybody's for logging in: there objects alone count.
    """
    own = mine or connection.read_identity().database
    for row in connection.rows(_DATABASES, {"mine": own}):
        sessions = 0 if row["name"] == "postgres" else row["sessions"]
        objects = _count_objects(connection, row["name"]) if row["open"] else None
        parts = [f"{sessions} sessions"] if sessions else []
        if objects is None:
            parts.append("what is in it cannot be looked at")
        elif objects:
            parts.append(f"{objects} objects")
        if parts:
            yield f"database {row['name']} ({', '.join(parts)})"


def _count_objects(connection: ServerConnection, database: str) -> int | None:
    try:
        return int(connection.for_database(database).rows(_OBJECTS)[0]["objects"])
    except ConsoleError:
        return None


def _check_wal_minimal(connection: ServerConnection, wanted: Mapping[str, str | None]) -> Refusal:
    for name, needed in _MINIMAL_REQUIRES:
        now = read_setting(connection, name)
        if now is None:
            continue
        will = _value_after_restart(connection, name, wanted, now)
        if parse_value(will, now["vartype"], now["unit"]) != parse_value(needed, now["vartype"], now["unit"]):
            return (
                f"with wal_level = minimal the server starts only where {name} is {needed}, and it will be {will}",
                f"set {name} = {needed} with it, where nobody needs it",
            )
    [row] = connection.rows(_REPLICATION)
    if row["standbys"] or row["slots"]:
        return (
            f"wal_level = minimal ends replication, and there are {row['standbys']} standbys or other readers of WAL "
            f"and {row['slots']} replication slots",
            "nobody may depend on this server's WAL",
        )
    return None, None


def _value_after_restart(
    connection: ServerConnection, name: str, wanted: Mapping[str, str | None], now: Mapping[str, Any]
) -> str:
    """What it will be at the next start: as it is about to be set, else as it is written, else as it is."""
    given = wanted.get(name)
    if given is not None:
        return given
    entry = read_auto_conf_entry(connection, name)
    return str(entry["setting"] if entry is not None else now["setting"])


# Write parameters in their places, have the server read them, and look whether they count: one of them or several.
#
# Everything that sets a parameter, for good or for a time, and everything that puts one back goes through here.

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
