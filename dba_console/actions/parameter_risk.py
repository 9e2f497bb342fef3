"""Parameters that can cost a cluster: when they may be set at all, and what has to be said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.parameter_check import Refusal
from dba_console.actions.parameter_sql import read_auto_conf_entry, read_setting
from dba_console.actions.parameter_values import parse_value
from dba_console.errors import ConsoleError

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
