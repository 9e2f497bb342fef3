"""What is read about locks: waits for heavyweight locks, only while a session waits; and who blocked whom.

The structs of waits are in `samples`: all subjects know who blocks whom. OIDs become names in `decoder.py`.
"""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.part import ApplicationName, DatabaseName, PartKind, Query, RelationName, ServerPart, UserName
from dba_console.watch.samples import postgres

# What the agent computes from readings of locks and sessions (`episodes.py`). Times are monotonic microseconds.


class BlockedSession(Struct, array_like=True, frozen=True):
    """A session that waited for a root blocker, also behind others."""

    pid: int
    backend_start: int | None
    """With the pid it identifies the session: pids are reused."""
    user: UserName | None
    application: ApplicationName
    mode: str
    """The lock it waited for last."""
    relation: RelationName | None
    locktype: str
    waited_us: int
    first_us: int
    last_us: int


class LockEpisode(Struct, array_like=True, frozen=True):
    """A session that blocked others and waited for none itself. `pid` 0: a prepared transaction."""

    pid: int
    backend_start: int | None
    database: DatabaseName | None
    user: UserName | None
    application: ApplicationName
    state: str | None
    """In which it blocked others the longest, with its statement then."""
    query: str
    waited_us: int
    """Sum over the sessions that waited for it."""
    first_us: int
    last_us: int
    waiters: list[BlockedSession]
    """Those that waited longest."""
    omitted_waiters: int
    omitted_us: int


class LockEpisodes(Struct, array_like=True, frozen=True):
    """Who blocked whom in the last minutes, the most time waited first."""

    since_us: int
    """The first reading of locks: what was before is not known."""
    rows: list[LockEpisode]
    omitted: int
    """Root blockers that are not in `rows`, and the time waited for them."""
    omitted_us: int
    gaps: list[tuple[int, int]]
    """From when to when locks were not read."""


PARTS = (
    ServerPart("pg.locks", postgres.Locks, every_s=1, meaning="lock waits", queries=(Query("locks"),)),
    PartKind("locks.episodes", LockEpisodes, 2, "who blocked whom"),
)
