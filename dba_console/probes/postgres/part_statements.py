"""Which statements make a part, and what is lost where one is refused.

`main` must answer for the part to be there; each of `extra` may fail for itself, and the part says so. The order is the
order on the wire: what changes each second first, what may be dear last.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartStatements:
    main: str
    extra: tuple[str, ...] = ()


PART_STATEMENTS: dict[str, PartStatements] = {
    "pg.activity": PartStatements("activity"),
    "pg.locks": PartStatements("locks"),
    "pg.progress": PartStatements("progress"),
    "pg.replication": PartStatements("positions", ("standbys", "slots")),
    "pg.server": PartStatements("server", ("control", "settings", "databases", "roles", "tablespaces", "extensions")),
    "pg.databases": PartStatements("database_stats"),
    "pg.archiver": PartStatements("archiver", ("archive_ready",)),
    "pg.wal": PartStatements("checkpoints", ("wal", "wal_files")),
    "pg.io": PartStatements("io"),
    "pg.horizon": PartStatements("horizon"),
    "pg.xids": PartStatements("xids", ("xid_tables",)),
    "pg.sizes": PartStatements("size_names"),
    "pg.temp": PartStatements("temp", ("temp_closed",)),
    "pg.catalog": PartStatements("collations", ("invalid_indexes", "sequences")),
    "pg.subscriptions": PartStatements("subscriptions"),
    "pg.dead_rows": PartStatements("dead_rows"),
}
"""Every part of this room."""

FAST = ("activity", "locks", "progress")
"""Statements asked each second."""

NEEDS_ALL_STATS = ("pg.activity", "pg.replication", "pg.horizon")
"""Parts that answer without pg_monitor, but with columns of other roles' sessions left out."""

EXTRA_LABELS = {
    "standbys": "standbys",
    "slots": "slots",
    "control": "identity",
    "settings": "settings",
    "databases": "databases",
    "roles": "roles",
    "tablespaces": "tablespaces",
    "extensions": "extensions",
    "archive_ready": "files waiting to be archived",
    "wal": "WAL counters",
    "wal_files": "size of pg_wal",
    "xid_tables": "oldest tables",
    "invalid_indexes": "invalid indexes",
    "sequences": "sequences",
    "temp_closed": "temporary files written before",
}
"""What people call the extras."""


def grant_hint(user: str) -> str:
    """The sentence that says how this role may be let.

    >>> grant_hint('a"b')
    'GRANT pg_monitor TO "a""b" would help'
    """
    quoted = user.replace('"', '""')
    return f'GRANT pg_monitor TO "{quoted}" would help'
