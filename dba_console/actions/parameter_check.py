"""Check, set and verify configuration parameters: refusals, durability risks, changes with one reload, outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, Control
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
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import MASK, names_secret, redact

Refusal = tuple[str | None, str | None]
"""Message and hint; (None, None): not refused."""


def find_refusal(
    location: ParameterLocation,
    wanted: str | None,
    now: Mapping[str, Any],
    connection: QueryConnection,
    *,
    restart: bool,
) -> Refusal:
    """Return the first reason against setting the parameter."""
    for message in (
        _check_scope(location),
        _check_context(location, now, restart=restart),
        _check_privileges(location, now),
    ):
        if message[0] is not None:
            return message
    if wanted is not None and location.parameter.lower() in LIST_QUOTED and not split_list(wanted):
        return f"{location.parameter} cannot be set to an empty list", "reset = true removes the setting"
    old = read_stored_value(connection, location)
    if names_secret(location.parameter) or any(
        masked_value(location.parameter, value) != value for value in (wanted, old)
    ):
        return (
            f"{location.parameter} contains a secret, which is never stored, so it could not be reverted",
            "set it manually, in a file that only the server reads",
        )
    if location.scope == "system" and (line := find_broken_file(connection)):
        return f"the configuration has an error, so a reload would apply nothing: {line}", "fix that file first"
    return None, None


def masked_value(parameter: str, value: str | None) -> str | None:
    """Return the value of a parameter with secrets masked."""
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
    """Check when the parameter can change (pg_settings.context)."""
    name, context = location.parameter, now["context"]
    if context == "internal":
        return f"{name} is fixed when the server is compiled or the cluster is created", None
    if location.scope == "system":
        if context == "postmaster" and not restart:
            return f"{name} takes effect only after a restart of the server", "restart = true sets it anyway"
        if now["source"] == "command line":
            return f"{name} is set on the server's command line, which overrides every file", None
        return None, None
    if context in ("postmaster", "sighup"):
        return f"{name} can only be set for the whole server", 'scope = "system"'
    if location.scope == "session" and context in ("backend", "superuser-backend"):
        return f"{name} is fixed when a session starts", 'scope = "role" or "database"'
    return None, None


def _check_privileges(location: ParameterLocation, now: Mapping[str, Any]) -> Refusal:
    if location.scope in ("database", "role") and now["standby"]:
        return f"this is a standby: settings of a {location.scope} are changed on its primary", None
    if location.scope != "system":
        return None, None  # the statement itself fails without the privilege, and has no effect then
    if now["closed"]:
        return (
            "the server refuses ALTER SYSTEM: allow_alter_system is off",
            f"set {location.parameter} where its configuration is managed (Patroni, a Kubernetes operator, "
            f"configuration management)",
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
            "this role may not read the settings in the files, so they could not be reverted",
            "GRANT SELECT ON pg_file_settings, EXECUTE ON FUNCTION pg_show_all_file_settings() TO it",
        )
    return None, None


# Parameters that can destroy a cluster: when they may be set, and the warnings shown before.

DURABILITY_PARAMETERS = ("fsync", "full_page_writes")
"""When off, a crash of the host or a power loss may leave the whole cluster unusable (PostgreSQL documentation, "Write
Ahead Log")."""
MAX_NAMED_DATABASES = 5
"""Maximum number of databases listed by name."""

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
"""Objects of initdb and of extensions are not counted (FirstNormalObjectId in access/transam.h)."""
_REPLICATION = """
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE NOT temporary) AS slots
"""
_MINIMAL_REQUIRES = (("max_wal_senders", "0"), ("archive_mode", "off"), ("summarize_wal", "off"))
"""What wal_level = minimal requires, else the server does not start (postmaster.c; summarize_wal from 17 on)."""


def disables_durability(name: str, value: str | None) -> bool:
    """Whether this setting disables durability of the cluster."""
    return name.lower() in DURABILITY_PARAMETERS and value is not None and parse_value(value, "bool", None) is False


def find_risk(
    connection: QueryConnection, wanted: Mapping[str, str | None], *, temporary: bool, for_database: str | None
) -> Refusal:
    """Return the first reason against setting these for the whole server. `wanted` are set together."""
    off = [name for name, value in wanted.items() if disables_durability(name, value)]
    if off:
        message = f"with {' and '.join(off)} off, a crash of the host can destroy the whole cluster"
        if not temporary:
            return f"{message}, so it can only be set temporarily", "temporary = true, and put-back at the end"
        if others := list(other_databases_in_use(connection, for_database)):
            more = f" and {len(others) - MAX_NAMED_DATABASES} more" if len(others) > MAX_NAMED_DATABASES else ""
            return (
                f"{message}, and it has other databases in use: {'; '.join(others[:MAX_NAMED_DATABASES])}{more}",
                "use it only on a cluster that contains nothing but the database being loaded",
            )
    level = wanted.get("wal_level")
    if level is not None and level.strip().lower() == "minimal":
        return _check_wal_minimal(connection, wanted)
    return None, None


def remarks(connection: QueryConnection, wanted: Mapping[str, str | None]) -> Iterator[str]:
    """Return the warnings to show before these are set."""
    off = [name for name, value in wanted.items() if disables_durability(name, value)]
    if off:
        yield f"while {' and '.join(off)} is off, a crash of the host or a power loss can destroy the whole cluster"
    if "autovacuum" in wanted and parse_value(wanted["autovacuum"] or "on", "bool", None) is False:
        rows = connection.rows(
            "SELECT count(*) AS n FROM pg_catalog.pg_database d WHERE d.datallowconn AND NOT d.datistemplate"
        )
        yield f"autovacuum is off for all {rows[0]['n']} databases of the server, except to prevent wraparound"
    if (wanted.get("wal_level") or "").strip().lower() == "minimal":
        yield "base backups from before wal_level minimal cannot be recovered past it: take a new one afterwards"


def other_databases_in_use(connection: QueryConnection, mine: str | None) -> Iterator[str]:
    """Return the other databases with sessions or objects, as text.

    For the database postgres only objects count: any user may log in there.
    """
    own = mine or connection.read_identity().database
    for row in connection.rows(_DATABASES, {"mine": own}):
        sessions = 0 if row["name"] == "postgres" else row["sessions"]
        objects = _count_objects(connection, row["name"]) if row["open"] else None
        parts = [f"{sessions} sessions"] if sessions else []
        if objects is None:
            parts.append("contents cannot be read")
        elif objects:
            parts.append(f"{objects} objects")
        if parts:
            yield f"database {row['name']} ({', '.join(parts)})"


def _count_objects(connection: QueryConnection, database: str) -> int | None:
    try:
        return int(connection.for_database(database).rows(_OBJECTS)[0]["objects"])
    except ConsoleError:
        return None


def _check_wal_minimal(connection: QueryConnection, wanted: Mapping[str, str | None]) -> Refusal:
    for name, needed in _MINIMAL_REQUIRES:
        now = read_setting(connection, name)
        if now is None:
            continue
        will = _value_after_restart(connection, name, wanted, now)
        if parse_value(will, now["vartype"], now["unit"]) != parse_value(needed, now["vartype"], now["unit"]):
            return (
                f"with wal_level = minimal the server starts only if {name} is {needed}, and it will be {will}",
                f"also set {name} = {needed}, if the feature is not needed",
            )
    [row] = connection.rows(_REPLICATION)
    if row["standbys"] or row["slots"]:
        return (
            f"wal_level = minimal ends replication, and the server has {row['standbys']} standbys or other WAL "
            f"receivers and {row['slots']} replication slots",
            "remove everything that depends on this server's WAL first",
        )
    return None, None


def _value_after_restart(
    connection: QueryConnection, name: str, wanted: Mapping[str, str | None], now: Mapping[str, Any]
) -> str:
    """Return the value at the next start: the new one, else the one in postgresql.auto.conf, else the current one."""
    given = wanted.get(name)
    if given is not None:
        return given
    entry = read_auto_conf_entry(connection, name)
    return str(entry["setting"] if entry is not None else now["setting"])


# Write parameters, reload the server, and verify that they took effect. Every change and every revert does it here.

RELOAD_TIMEOUT_S = 15.0
"""Time for the postmaster and our backend to read the files; normally milliseconds."""
_POLL_S = 0.02
STATEMENT_TIMEOUT_S = 30.0


class ParameterChange(NamedTuple):
    """A parameter location and its new value; None: reset."""

    location: ParameterLocation
    value: str | None


class ChangeOutcome(NamedTuple):
    """The outcome of one change."""

    change: ParameterChange
    state: str
    """ok, failed, unknown, or left: not started, because an earlier one failed."""
    text: str
    effective: str | None = None
    """The value in effect, as the server shows it."""
    written: bool = False
    """It is written, whether or not it has taken effect."""


def apply_changes(
    connection: ActingConnection, changes: Sequence[ParameterChange], context: ActionContext, control: Control
) -> list[ChangeOutcome]:
    """Make the changes, in an order in which the server could start after each of them, with one reload for all.

    Stops at the first change that fails or whose outcome is unknown; the earlier ones are loaded and take effect.
    Raises ConnectError, Refused.
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
        *(ChangeOutcome(change, "left", f"{change.location.parameter} was not changed") for change in rest),
    ]


def reload(connection: ActingConnection, context: ActionContext, control: Control) -> bool:
    """Reload the configuration. Return True as soon as our own backend has loaded it, which happens after the
    postmaster. Raises StatementFailed, StatementLost."""
    before = connection.rows(CONF_LOAD_TIME)[0]["at"]
    connection.execute_change(RELOAD)
    deadline_us = context.clock.mono_us() + int(RELOAD_TIMEOUT_S * 1e6)
    while connection.rows(CONF_LOAD_TIME)[0]["at"] <= before and context.clock.mono_us() < deadline_us:
        control.report_progress("waiting for the server to reload its configuration")
        if control.wait(_POLL_S):
            break
    return bool(connection.rows(CONF_LOAD_TIME)[0]["at"] > before)


def start_safe_order(changes: Sequence[ParameterChange]) -> list[ParameterChange]:
    """Sort the changes so that the server could start after each one, if the host goes down in between.

    With wal_level = minimal it starts only if max_wal_senders is 0 and archive_mode off: so minimal is set last, and
    reverted first (PostgreSQL documentation, "Write Ahead Log", wal_level).
    """

    def rank(change: ParameterChange) -> int:
        if change.location.parameter != "wal_level":
            return 1
        return 2 if (change.value or "").strip().lower() == "minimal" else 0

    return sorted(changes, key=rank)


def has_effect(connection: QueryConnection, change: ParameterChange, now: Mapping[str, Any]) -> bool:
    """Whether the change has taken effect, as far as it can without a restart."""
    location, value = change
    kind = (now.get("vartype", "string"), now.get("unit"))
    if location.scope != "system":
        return same_value(location.parameter, read_stored_value(connection, location), value, *kind)
    entry = read_auto_conf_entry(connection, location.parameter)
    if value is None:
        return entry is None
    if entry is None or not same_value(location.parameter, entry["setting"], value, *kind):
        return False
    # A setting of our own role or database hides the server's value; pg_file_settings shows if the entry is applied.
    return bool(entry["applied"] or now.get("pending_restart"))


def needs_reload(location: ParameterLocation, old: str | None, now: Mapping[str, Any]) -> bool:
    """Whether the value in effect differs from the file because the server was not reloaded.

    Only decided for values whose source is a configuration file.
    """
    if location.scope != "system" or now["source"] != "configuration file" or now["context"] == "postmaster":
        return False
    if old is None:
        return str(now["sourcefile"] or "").endswith("postgresql.auto.conf")
    return not same_value(location.parameter, now["shown"], old, now["vartype"], now["unit"])


def describe_setting(location: ParameterLocation, value: str | None) -> str:
    """Return the setting as text.

    >>> describe_setting(ParameterLocation(parameter="fsync"), None)
    'fsync is not set in postgresql.auto.conf'
    """
    return f"{location.parameter} is {'not set' if value is None else repr(value)} {location.describe()}"


def _write(connection: ActingConnection, change: ParameterChange) -> None:
    location, value = change
    if location.scope != "session":
        connection.execute_change(
            set_statement(location, value), transaction=location.scope != "system", timeout_s=STATEMENT_TIMEOUT_S
        )
    elif value is None:
        connection.reset_parameter(location.parameter)
    else:
        connection.set_parameter(location.parameter, value)


def _check_outcome(connection: QueryConnection, change: ParameterChange, read: bool) -> ChangeOutcome:
    location, value = change
    now = read_setting(connection, location.parameter) or {"shown": None}
    if read and has_effect(connection, change, now):
        return ChangeOutcome(change, "ok", _effect_text(location, value, now), now["shown"], True)
    text = f"{describe_setting(location, value)}, but the value in effect is still {now['shown']}"
    return ChangeOutcome(change, "failed", text, now["shown"], True)


def _effect_text(location: ParameterLocation, value: str | None, now: Mapping[str, Any]) -> str:
    text = describe_setting(location, value)
    if location.scope in ("database", "role"):
        return f"{text}; it applies to new sessions"
    if now.get("pending_restart"):
        return f"{text}; it takes effect at the next restart, until then it is {now['shown']}"
    return f"{text}; it is {now['shown']} now"
