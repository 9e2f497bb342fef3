"""The PostgreSQL side of a sample, as the agent uses it: connect, read, close, and what it cost.

Runs in a lane's thread. A connection that is lost is closed at once, and it is the caller who decides when to try
again; nothing here reconnects by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.clock import SYSTEM, Clock
from dba_console.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.probes.postgres.connection import MonitorConnection, connect
from dba_console.probes.postgres.monitor_options import MonitorOptions
from dba_console.probes.postgres.server_locality import Locality
from dba_console.probes.postgres.tick_reader import TickReader
from dba_console.samples.sample import Part

__all__ = ["ConnectFailed", "ConnectionLost", "PostgresProbe"]


class PostgresProbe:
    """Reads a server. Used by one thread; the counters may be read by any."""

    def __init__(self, conninfo: str, options: MonitorOptions | None = None, clock: Clock = SYSTEM) -> None:
        self._conninfo = conninfo
        self._options = options or MonitorOptions()
        self._clock = clock
        self._connection: MonitorConnection | None = None
        self._past = (0, 0, 0)

    def __repr__(self) -> str:
        return f"PostgresProbe(connected={self.connected})"

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def backend_pid(self) -> int | None:
        """The server process behind the connection; None without one, or where a pooler lends another each time."""
        connection = self._connection
        return None if connection is None or connection.through is not None else connection.hello.backend_pid

    @property
    def locality(self) -> Locality | None:
        """Whether the server runs on this host, with the postmaster's pid where it does; None while not connected."""
        return None if self._connection is None else self._connection.locality

    @property
    def queries(self) -> int:
        """Statements sent since the start, over all connections."""
        return self._counters()[0]

    @property
    def query_us(self) -> int:
        """Microseconds spent waiting for answers."""
        return self._counters()[1]

    @property
    def bytes_received(self) -> int:
        """Bytes the server sent, as the socket reported them."""
        return self._counters()[2]

    def connect(self) -> None:
        """Open the connection, within connect_timeout_s. Raises ConnectFailed; does nothing when connected."""
        if self._connection is None:
            self._connection = connect(self._conninfo, self._options, self._clock)
            self._ticks = TickReader(self._connection, self._options, self._clock)

    def close(self) -> None:
        """Give the slot back."""
        if self._connection is not None:
            self._past = self._counters()
            self._connection.pipeline.close()
            self._connection = None

    def read(self, names: Sequence[str], *, waiters: bool) -> list[Part]:
        """The parts in `names` of this room, and any that was late the last time; each with its own status.

        `waiters` says that somebody waited for a lock at the last tick; without it the locks are read only when this
        tick's sessions show one waiting. Raises ConnectionLost, and the connection is closed then.
        """
        if self._connection is None:
            raise ConnectionLost("not connected")
        try:
            return self._ticks.read(names, waiters=waiters)
        except ConnectionLost:
            self.close()
            raise

    def _counters(self) -> tuple[int, int, int]:
        wire = None if self._connection is None else self._connection.pipeline
        if wire is None:
            return self._past
        queries, query_us, received = self._past
        return queries + wire.queries, query_us + wire.query_us, received + wire.bytes_received
