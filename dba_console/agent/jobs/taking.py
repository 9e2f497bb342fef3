"""What a restore will still take of its disk: by how its database has grown, else by how the disk's free room fell."""

from __future__ import annotations

from dba_console.agent.jobs.planned import ASK_AFTER_S
from dba_console.agent.jobs.space import Consumed
from dba_console.clock import SYSTEM, Clock
from dba_console.probes.jobs.catalog import Catalog, CatalogSeen

LATE_US = 2_000_000
"""A look that has taken so long asks nothing more: the server may not answer this question either."""
GUESSED = (
    "what it still needs is estimated by the fall of the disk's free room, in which what others write is counted too"
)


class Taking:
    """Used by one thread. Questions wait for the server: in a lane."""

    def __init__(self, conninfo: str, clock: Clock = SYSTEM) -> None:
        self._conninfo, self._clock = conninfo, clock
        self._catalog: Catalog | None = None
        self._grown, self._fallen = Consumed(), Consumed()
        self._need: float | None = None

    def need(
        self, database: str | None, pct: float | None, free_bytes: int, *, running_s: float, begun_us: int
    ) -> tuple[float | None, tuple[str, ...]]:
        """Bytes still to be taken, None where too little was watched; and the sentence where it is a guess.

        `running_s`: how long the restore has run, `begun_us`: monotonic time at which this look at it began.
        """
        by_disk = self._fallen.need_bytes(pct, -free_bytes)
        if database is not None and pct is not None and running_s >= ASK_AFTER_S:
            answer = self._asked(database, begun_us)
            if answer is not None:
                self._need = None if answer.bytes is None else self._grown.need_bytes(pct, answer.bytes)
        if self._need is not None:
            return self._need, ()
        return by_disk, () if by_disk is None else (GUESSED,)

    def _asked(self, database: str, begun_us: int) -> CatalogSeen | None:
        """How large it is, where that may be asked now."""
        if self._catalog is None:
            self._catalog = Catalog(self._conninfo, database, size_only=True, clock=self._clock)
        late = self._clock.mono_us() - begun_us > LATE_US
        return None if late or not self._catalog.due else self._catalog.look()
