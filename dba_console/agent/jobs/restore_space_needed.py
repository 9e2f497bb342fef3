"""What a restore will still take of its disk: by how its database has grown, else by how the disk's free room fell."""

from __future__ import annotations

from dba_console.agent.jobs.object_list import QUERY_AFTER_S
from dba_console.agent.jobs.target_disk import RestoreConsumption
from dba_console.clock import SYSTEM, Clock
from dba_console.probes.jobs.database_catalog import CatalogAnswer, CatalogReader

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
