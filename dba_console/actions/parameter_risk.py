"""Parameters that can cost a cluster: when they may be set at all, and what has to be said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dba_console.actions.link import ServerLink
from dba_console.actions.parameter_check import Refusal
from dba_console.actions.parameter_sql import file_entry, setting
from dba_console.actions.parameter_values import meaning
from dba_console.errors import ConsoleError

DURABLE = ("fsync", "full_page_writes")
"""Off, a crash of the host or a loss of power may leave the whole cluster unusable (PostgreSQL documentation, "Write
Ahead Log")."""
NAMED = 5
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
_STREAMS = """
SELECT (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE NOT temporary) AS slots
"""
_NEEDED = (("max_wal_senders", "0"), ("archive_mode", "off"), ("summarize_wal", "off"))
"""What wal_level = minimal needs, else the server does not start (postmaster.c; summarize_wal from 17 on)."""


def risky(name: str, value: str | None) -> bool:
    """Whether this takes the cluster's durability away."""
    return name.lower() in DURABLE and value is not None and meaning(value, "bool", None) is False


def risk_of(
    link: ServerLink, wanted: Mapping[str, str | None], *, temporary: bool, for_database: str | None
) -> Refusal:
    """The first thing that speaks against setting these for the whole server. `wanted` are set together."""
    off = [name for name, value in wanted.items() if risky(name, value)]
    if off:
        told = f"{' and '.join(off)} off: a crash of the host costs the whole cluster"
        if not temporary:
            return f"{told}, so it is done for a time only", "temporary = true, and put-back at the end"
        if others := list(others_of(link, for_database)):
            more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
            return (
                f"{told}, and others live in it: {'; '.join(others[:NAMED])}{more}",
                "only on a cluster that holds nothing but what is being loaded",
            )
    level = wanted.get("wal_level")
    if level is not None and level.strip().lower() == "minimal":
        return _minimal(link, wanted)
    return None, None


def remarks(link: ServerLink, wanted: Mapping[str, str | None]) -> Iterator[str]:
    """What is worth a sentence before these are set."""
    off = [name for name, value in wanted.items() if risky(name, value)]
    if off:
        yield f"while {' and '.join(off)} is off, a crash of the host or a loss of power costs the whole cluster"
    if "autovacuum" in wanted and meaning(wanted["autovacuum"] or "on", "bool", None) is False:
        rows = link.rows(
            "SELECT count(*) AS n FROM pg_catalog.pg_database d WHERE d.datallowconn AND NOT d.datistemplate"
        )
        yield f"autovacuum is off for all {rows[0]['n']} databases of the server, but for what prevents wraparound"
    if (wanted.get("wal_level") or "").strip().lower() == "minimal":
        yield "with wal_level minimal no base backup from before it can be rolled forward past it: take one afterwards"


def others_of(link: ServerLink, mine: str | None) -> Iterator[str]:
    """Who else uses this cluster, in words: databases beside that one with sessions or objects in them.

    postgres is everybody's for logging in: there objects alone count.
    """
    own = mine or link.identity().database
    for row in link.rows(_DATABASES, {"mine": own}):
        sessions = 0 if row["name"] == "postgres" else row["sessions"]
        objects = _objects(link, row["name"]) if row["open"] else None
        told = [f"{sessions} sessions"] if sessions else []
        if objects is None:
            told.append("what is in it cannot be looked at")
        elif objects:
            told.append(f"{objects} objects")
        if told:
            yield f"database {row['name']} ({', '.join(told)})"


def _objects(link: ServerLink, database: str) -> int | None:
    try:
        return int(link.to(database).rows(_OBJECTS)[0]["objects"])
    except ConsoleError:
        return None


def _minimal(link: ServerLink, wanted: Mapping[str, str | None]) -> Refusal:
    for name, needed in _NEEDED:
        now = setting(link, name)
        if now is None:
            continue
        will = _after(link, name, wanted, now)
        if meaning(will, now["vartype"], now["unit"]) != meaning(needed, now["vartype"], now["unit"]):
            return (
                f"with wal_level = minimal the server starts only where {name} is {needed}, and it will be {will}",
                f"set {name} = {needed} with it, where nobody needs it",
            )
    [row] = link.rows(_STREAMS)
    if row["standbys"] or row["slots"]:
        return (
            f"wal_level = minimal ends replication, and there are {row['standbys']} standbys or other readers of WAL "
            f"and {row['slots']} replication slots",
            "nobody may depend on this server's WAL",
        )
    return None, None


def _after(link: ServerLink, name: str, wanted: Mapping[str, str | None], now: Mapping[str, Any]) -> str:
    """What it will be at the next start: as it is about to be set, else as it is written, else as it is."""
    given = wanted.get(name)
    if given is not None:
        return given
    entry = file_entry(link, name)
    return str(entry["setting"] if entry is not None else now["setting"])
