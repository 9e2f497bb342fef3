"""The disk a job writes to: where it is mounted, what is free there. May hang with the disk: called in a lane only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.following.database_catalog import CatalogAnswer, CatalogReader
from dba_console.jobs.following.object_list import QUERY_AFTER_S
from dba_console.watch.samples.postgres import Server


class DiskSpace(NamedTuple):
    """A file system as who runs the job may use it."""

    mount: str
    free_bytes: int


def read_disk_space(path: str) -> DiskSpace | None:
    """Of the file or directory, or of the nearest directory above it that is there; None where nothing tells."""
    at = path
    while not os.path.lexists(at) and at not in ("", "/"):
        at = os.path.dirname(at)
    try:
        device, told = os.stat(at).st_dev, os.statvfs(at)
    except OSError:
        return None
    return DiskSpace(_mount_point(at, device), told.f_bavail * told.f_frsize)


def database_directory(server: Server, database: str | None) -> str | None:
    """The directory in which a database grows, but for tables that were given a tablespace of their own; None where
    that is not known: it is newer than what was read of the server."""
    if server.data_directory is None or not server.tablespaces:
        return server.data_directory
    found = next((one for one in server.databases if one.name == database), None)
    if found is None:
        return None
    if found.tablespace is None:
        return server.data_directory
    location = server.tablespaces.get(found.tablespace)
    # One that was made in place is told relative to the data directory.
    return None if location is None else os.path.join(server.data_directory, location)


def _mount_point(path: str, device: int) -> str:
    at = os.path.realpath(path)
    while at != "/":
        above = os.path.dirname(at)
        try:
            if os.stat(above).st_dev != device:
                return at
        except OSError:
            return at
        at = above
    return "/"


MIN_SHARE = 0.05
"""Of the work; below it what was written so far says nothing of the rest."""


def estimate_dump_bytes(
    written: int | None, done: float | None, total: float | None, ratio: float | None
) -> float | None:
    """What a dump will still write: as what it wrote so far is to the tables it dumped, else as in runs before
    (`ratio`); None where neither tells.

    >>> (estimate_dump_bytes(10, 100.0, 1000.0, None), estimate_dump_bytes(None, 0.0, 1000.0, 0.2),
    ...  estimate_dump_bytes(5, 1.0, 1000.0, None))
    (90.0, 200.0, None)
    """
    if total is None or done is None:
        return None
    if written and done >= MIN_SHARE * total > 0:
        return max(0.0, written / done * (total - done))
    return None if ratio is None else max(0.0, ratio * total - (written or 0))


class RestoreConsumption:
    """What a restore takes: as much for the rest as for the part watched."""

    LEAST_PCT = 10.0
    """Watched, before anything is concluded."""

    def __init__(self) -> None:
        self._from: tuple[float, int] | None = None

    def remaining_bytes(self, pct: float | None, size: int) -> float | None:
        """Still to be taken; None where too little was watched. `size` grows by what is taken: that of the database, or
        the free room of its disk below zero, where what others write counts too.
        """
        if pct is None:
            return None
        if self._from is None:
            self._from = pct, size
        before_pct, before = self._from
        taken = size - before
        if pct - before_pct < self.LEAST_PCT or taken <= 0:
            return None  # what others gave back meanwhile hides what it took
        return taken * (100.0 - pct) / (pct - before_pct)


class GrowthRate:
    """Bytes written and how fast, from one look to the next; what shrinks or is replaced begins anew."""

    WINDOW_US = 60_000_000
    SPAN_US = 5_000_000
    """A rate is told from so long a time on."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []

    def add(self, mono_us: int, amount: int) -> None:
        """What there is at this moment."""
        if self._points and amount < self._points[-1][1]:
            self._points.clear()
        self._points = [one for one in self._points if mono_us - one[0] <= self.WINDOW_US]
        self._points.append((mono_us, amount))

    @property
    def per_s(self) -> float | None:
        """Over the last minute; None before five seconds were seen."""
        return average_rate(self._points, self.SPAN_US)


def average_rate(seen: Sequence[tuple[int, int]], span_us: int) -> float | None:
    """Per second from the first to the last of (moment, amount).

    >>> average_rate([(0, 0), (10_000_000, 50)], 5_000_000), average_rate([(0, 0), (1_000_000, 50)], 5_000_000)
    (5.0, None)
    """
    if len(seen) < 2 or seen[-1][0] - seen[0][0] < span_us:
        return None
    return (seen[-1][1] - seen[0][1]) / ((seen[-1][0] - seen[0][0]) / 1e6)


# What a restore will still take of its disk: by how its database has grown, else by how the disk's free room fell.

QUERY_DEADLINE_US = 2_000_000
"""A look that has taken so long asks nothing more: the server may not answer this question either."""
DISK_ESTIMATE_NOTE = (
    "what it still needs is estimated by the fall of the disk's free room, in which what others write is counted too"
)


class RestoreSpaceEstimate:
    """Used by one thread. Questions wait for the server: in a lane."""

    def __init__(self, conninfo: str, clock: Clock = SYSTEM) -> None:
        self._conninfo, self._clock = conninfo, clock
        self._catalog: CatalogReader | None = None
        self._by_database, self._by_disk = RestoreConsumption(), RestoreConsumption()
        self._need: float | None = None

    def estimate(
        self, database: str | None, pct: float | None, free_bytes: int, *, running_s: float, begun_us: int
    ) -> tuple[float | None, tuple[str, ...]]:
        """Bytes still to be taken, None where too little was watched; and the sentence where it is a guess.

        `running_s`: how long the restore has run, `begun_us`: monotonic time at which this look at it began.
        """
        by_disk = self._by_disk.remaining_bytes(pct, -free_bytes)
        if database is not None and pct is not None and running_s >= QUERY_AFTER_S:
            answer = self._query_size(database, begun_us)
            if answer is not None:
                self._need = None if answer.bytes is None else self._by_database.remaining_bytes(pct, answer.bytes)
        if self._need is not None:
            return self._need, ()
        return by_disk, () if by_disk is None else (DISK_ESTIMATE_NOTE,)

    def _query_size(self, database: str, begun_us: int) -> CatalogAnswer | None:
        """How large it is, where that may be asked now."""
        if self._catalog is None:
            self._catalog = CatalogReader(self._conninfo, database, size_only=True, clock=self._clock)
        late = self._clock.mono_us() - begun_us > QUERY_DEADLINE_US
        return None if late or not self._catalog.is_due else self._catalog.query()
