"""Decodes pg.locks: waits for heavyweight locks, their blockers, and what those hold. Loaded by the probe only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dba_console.watch.probes.postgres.binary_results import Row, wall_us
from dba_console.watch.probes.postgres.oid_names import OidNames
from dba_console.watch.samples.postgres import HeldLock, Locks, LockSession, LockWaiter

_MODES = (
    "AccessShareLock", "RowShareLock", "RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock",
    "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock",
)  # fmt: skip
"""From weak to strong (PostgreSQL documentation, "Explicit Locking")."""


def locks_of(rows: Sequence[Row], names: OidNames) -> Locks:
    """Return the waits and what their blockers hold; of several modes on one object only the strongest."""
    waiters = [_lock(row, names) for row in rows if row[0] == b"waits"]
    held = [
        HeldLock(pid, mode.decode(), names.relation(database, relation), kind.decode())
        for pid, kind, mode, database, relation in _strongest(row for row in rows if row[0] == b"holds")
    ]
    return Locks(waiters, held, [LockSession(row[1], wall_us(row[5])) for row in rows if row[0] == b"sessions"])


def _lock(row: Row, names: OidNames) -> LockWaiter:
    _, pid, blocked_by, kind, mode, since, database, relation = row
    # pg_blocking_pids() repeats a blocker for each worker of a parallel query.
    blockers = list(dict.fromkeys(blocked_by or ()))
    return LockWaiter(pid, blockers, kind.decode(), mode.decode(), names.relation(database, relation), wall_us(since))


def _strongest(rows: Iterable[Row]) -> list[tuple[int, bytes, bytes, int | None, int | None]]:
    best: dict[tuple[int, bytes, int | None, int | None], bytes] = {}
    for _, pid, _, kind, mode, _, database, relation in rows:
        key = (pid, kind, database, relation)
        if key not in best or _strength(mode) > _strength(best[key]):
            best[key] = mode
    return [(pid, kind, mode, database, relation) for (pid, kind, database, relation), mode in best.items()]


def _strength(mode: bytes) -> int:
    name = mode.decode()
    return _MODES.index(name) if name in _MODES else -1
