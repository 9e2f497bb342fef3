"""What is read about the server as a whole: identity, settings, SLRU caches, sessions, due autovacuums.

The structs of its identity and settings (pg.server) are in `samples`, because all subjects use them; `decoder.py` adds
facts about the connection. Times are microseconds since 1970 by the server's clock; None is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Struct, structs

from dba_console.core.redact import redact
from dba_console.watch.part import DatabaseName, NameKind, PartKind, Query, RelationName, ServerPart
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.postgres import SettingName


class PendingSetting(Struct, array_like=True, frozen=True):
    """A setting whose new value needs a restart."""

    name: SettingName
    value: str | None
    """In effect now."""
    unit: str | None


class FileEntry(Struct, array_like=True, frozen=True):
    """A line of a configuration file that is not in effect."""

    name: SettingName | None
    value: str | None
    """None for a line with an error other than that it needs a restart: it may be anything."""
    file: Annotated[str, NameKind("path")] | None
    line: int | None
    error: str | None


class ConfigState(Struct, array_like=True, frozen=True):
    """Settings that differ from the configuration files."""

    loaded_at: int
    """When the files were last read without an error."""
    pending: list[PendingSetting] = []
    files: list[FileEntry] | None = None
    """None without the right to read pg_file_settings."""


class Slru(Struct, array_like=True, frozen=True, gc=False):
    """A row of pg_stat_slru: blocks of one of the small caches for transaction status and the like."""

    name: Annotated[str, NameKind("text")]
    blks_hit: int
    blks_read: int
    blks_written: int
    blks_zeroed: int
    truncates: int
    stats_reset: int | None


class Slrus(Struct, array_like=True, frozen=True):
    rows: list[Slru]

    def is_reset(self, before: Slrus) -> bool:
        """Whether counters were reset after the reading before."""
        return [row.stats_reset for row in self.rows] != [row.stats_reset for row in before.rows]


class SessionCounts(Struct, array_like=True, frozen=True):
    """Sums over pg_stat_database (14+)."""

    sessions: int
    """Established since the statistics were reset."""
    abandoned: int
    """Ended because the connection to the client was lost."""
    fatal: int
    killed: int
    active_ms: float
    """Time spent executing statements."""
    idle_in_transaction_ms: float
    stats_reset: int | None

    def is_reset(self, before: SessionCounts) -> bool:
        """Whether counters were reset after the reading before."""
        return self.stats_reset != before.stats_reset


class DueTable(Struct, array_like=True, frozen=True):
    """A table for which autovacuum is due: each number divided by the threshold that triggers it."""

    name: RelationName
    dead: float
    inserted: float
    """Rows inserted since the last vacuum; 0 if inserts do not trigger one."""
    changed: float
    """Rows changed since the last ANALYZE."""
    age: float
    """Age of its transaction ids: from 1 on the vacuum prevents wraparound and runs even if autovacuum is off."""
    pages: int


class DueTables(Struct, array_like=True, frozen=True):
    """Tables of the connected database that autovacuum would process next, the most overdue first."""

    database: DatabaseName
    rows: list[DueTable] = []


def without_secrets() -> Callable[[ConfigState], ConfigState]:
    """Return what masks secrets in values of settings."""

    def mask(state: ConfigState) -> ConfigState:
        pending = [structs.replace(row, value=_masked(row.value)) for row in state.pending]
        files = state.files
        if files is not None:
            files = [structs.replace(row, value=_masked(row.value), error=_masked(row.error)) for row in files]
        return structs.replace(state, pending=pending, files=files)

    return mask


def _masked(text: str | None) -> str | None:
    return None if text is None else redact(text)


PARTS = (
    PartKind("host.control", host.ControlFile, 10, "pg_control and postmaster.pid"),
    ServerPart(
        "pg.server",
        postgres.Server,
        every_s=30,
        meaning="identity, settings, roles, databases",
        queries=(
            Query("server"),
            Query("control", missing="identity"),
            Query("settings", rows="settings", missing="settings"),
            Query("databases", rows="databases", missing="databases"),
            Query("roles", rows="roles", missing="roles"),
            Query("tablespaces", missing="tablespaces"),
            Query("extensions", missing="extensions"),
        ),
    ),
    ServerPart(
        "pg.config",
        ConfigState,
        every_s=30,
        meaning="settings that differ from the configuration files",
        queries=(
            Query("config"),
            Query("pending_settings", rows="pending", missing="settings that need a restart"),
            Query("file_settings", rows="files", missing="errors in the configuration files"),
        ),
        finish=without_secrets,
    ),
    ServerPart("pg.slru", Slrus, every_s=10, meaning="SLRU caches", queries=(Query("slru", rows="rows"),)),
    ServerPart(
        "pg.session_counts",
        SessionCounts,
        every_s=10,
        meaning="sessions established and how they ended",
        queries=(Query("session_counts"),),
    ),
    ServerPart(
        "pg.autovacuum_due",
        DueTables,
        every_s=60,
        meaning="tables that autovacuum would process next",
        queries=(Query("due_database"), Query("autovacuum_due", rows="rows", missing="due tables")),
    ),
)
