"""The disk a job writes to: free space, growth, and the space still needed. May hang with the disk: only in a lane."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.following.database_catalog import CatalogAnswer, CatalogReader
from dba_console.jobs.following.object_list import QUERY_AFTER_S
from dba_console.watch.samples.postgres import Server


class DiskSpace(NamedTuple):
    """A file system with the space available to unprivileged users."""

    mount: str
    free_bytes: int


def read_disk_space(path: str) -> DiskSpace | None:
    """Return the space at a path, or at its nearest existing parent directory; None if unknown."""
    at = path
    while not os.path.lexists(at) and at not in ("", "/"):
        at = os.path.dirname(at)
    try:
        device, space = os.stat(at).st_dev, os.statvfs(at)
    except OSError:
        return None
    return DiskSpace(_mount_point(at, device), space.f_bavail * space.f_frsize)


def database_directory(server: Server, database: str | None) -> str | None:
    """Return the directory of a database's default tablespace; None if unknown: the database is newer than the last
    reading of the server."""
    if server.data_directory is None or not server.tablespaces:
        return server.data_directory
    found = next((one for one in server.databases if one.name == database), None)
    if found is None:
        return None
    if found.tablespace is None:
        return server.data_directory
    location = server.tablespaces.get(found.tablespace)
    # An in-place tablespace has a path relative to the data directory.
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
"""Share of the work below which the bytes written are not extrapolated."""


def estimate_dump_bytes(
    written: int | None, done: float | None, total: float | None, ratio: float | None
) -> float | None:
    """Estimate the bytes a dump will still write: by its ratio of written to dumped bytes so far, else by that of past
    runs (`ratio`); None if both are unknown.

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
    """Extrapolates the space a restore needs from its growth so far."""

    LEAST_PCT = 10.0
    """Progress that must be observed first."""

    def __init__(self) -> None:
        self._from: tuple[float, int] | None = None

    def remaining_bytes(self, pct: float | None, size: int) -> float | None:
        """Return the bytes still needed; None if too little was observed. `size` is that of the database, or the
        negative free space of its disk, which includes writes of others.
        """
        if pct is None:
            return None
        if self._from is None:
            self._from = pct, size
        before_pct, before = self._from
        taken = size - before
        if pct - before_pct < self.LEAST_PCT or taken <= 0:
            return None  # others freed space meanwhile
        return taken * (100.0 - pct) / (pct - before_pct)


class GrowthRate:
    """The growth rate over the last minute; restarts if the value shrinks."""

    WINDOW_US = 60_000_000
    SPAN_US = 5_000_000
    """Minimum time for a rate."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []

    def add(self, mono_us: int, amount: int) -> None:
        """Add the current amount."""
        if self._points and amount < self._points[-1][1]:
            self._points.clear()
        self._points = [one for one in self._points if mono_us - one[0] <= self.WINDOW_US]
        self._points.append((mono_us, amount))

    @property
    def per_s(self) -> float | None:
        """The rate over the last minute; None before five seconds are observed."""
        return average_rate(self._points, self.SPAN_US)


def average_rate(seen: Sequence[tuple[int, int]], span_us: int) -> float | None:
    """Return the rate per second from the first to the last (time, amount).

    >>> average_rate([(0, 0), (10_000_000, 50)], 5_000_000), average_rate([(0, 0), (1_000_000, 50)], 5_000_000)
    (5.0, None)
    """
    if len(seen) < 2 or seen[-1][0] - seen[0][0] < span_us:
        return None
    return (seen[-1][1] - seen[0][1]) / ((seen[-1][0] - seen[0][0]) / 1e6)


# The space a restore still needs: by the growth of its database, else by the decrease of free space on the disk.

QUERY_DEADLINE_US = 2_000_000
"""A scan that has taken this long sends no query: the server may not answer it either."""
DISK_ESTIMATE_NOTE = (
    "the space it still needs is estimated from the decrease of free space, which includes writes by other processes"
)


class RestoreSpaceEstimate:
    """Estimates the space a restore still needs. Waits for the server: only in a lane. Not thread-safe."""

    def __init__(self, conninfo: str, clock: Clock = SYSTEM) -> None:
        self._conninfo, self._clock = conninfo, clock
        self._catalog: CatalogReader | None = None
        self._by_database, self._by_disk = RestoreConsumption(), RestoreConsumption()
        self._need: float | None = None

    def estimate(
        self, database: str | None, pct: float | None, free_bytes: int, *, running_s: float, begun_us: int
    ) -> tuple[float | None, tuple[str, ...]]:
        """Return the bytes still needed, None if too little was observed; and a note if estimated by free space.

        `running_s`: how long the restore has run, `begun_us`: monotonic start time of this scan.
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
        """Query the database's size, if due."""
        if self._catalog is None:
            self._catalog = CatalogReader(self._conninfo, database, size_only=True, clock=self._clock)
        late = self._clock.mono_us() - begun_us > QUERY_DEADLINE_US
        return None if late or not self._catalog.is_due else self._catalog.query()
