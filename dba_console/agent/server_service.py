"""The server service: reads the server in each tick over the monitor connection, and never waits longer than a tick.

At most one call is pending. A call that does not end in its tick goes on, and the parts report since when the server
has not answered; a call longer than `HARD_LIMIT_S` is abandoned with its connection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dba_console.agent.source import TickSource
from dba_console.core.clock import Clock
from dba_console.watch.probes.deadline_lane import PolledCall
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.watch.probes.postgres.server_locality import Locality
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from dba_console.watch.progress.readings import Operations
from dba_console.watch.replication.readings import Replication
from dba_console.watch.samples.postgres import Server, Sessions
from dba_console.watch.samples.sample import PARTS, Part, make_part

# Pauses between connection attempts, by the reason of the last failure. Pure.
#
# Each refusal is a line in the server's log, and repeated wrong passwords can lock an account. If all slots are in use,
# attempts must be frequent, to get a slot when one becomes free.

DEFAULT_DELAYS_S = (1.0, 1.0, 2.0, 2.0, 5.0)
"""Pauses in seconds after the first attempt, the second, ...; the last one repeats."""
REFUSED_DELAYS_S = (1.0, 5.0, 10.0, 30.0)
"""If an operator must first fix something: role, password, database, certificate."""
NO_SLOT_DELAYS_S = (1.0,)
"""No slot of the server is free. A limit of the role or the database is a setting, and less urgent."""


def delays_after(error: ConnectFailed) -> tuple[float, ...]:
    """Return the pauses, in seconds, after this failure and repeated ones.

    >>> (delays_after(ConnectFailed("auth", "no such role"))[-1],
    ...  delays_after(ConnectFailed("refused", "nobody listens"))[-1])
    (30.0, 5.0)
    """
    if error.kind == "no_slots" and error.limit in (None, "server", "pooler"):
        return NO_SLOT_DELAYS_S
    return REFUSED_DELAYS_S if error.kind in ("auth", "ssl") else DEFAULT_DELAYS_S


def delay_s(schedule: tuple[float, ...], attempts: int) -> float:
    """Return the pause after `attempts` earlier failed attempts."""
    return schedule[min(attempts, len(schedule) - 1)]


def failure_text(error: ConnectFailed) -> str:
    """Return the failure and its hint as one sentence.

    >>> failure_text(ConnectFailed("auth", "role x does not exist"))
    'role x does not exist: check role, passfile (~/.pgpass) and pg_hba.conf'
    """
    return f"{error.message.rstrip('.')}: {error.hint}" if error.hint else error.message


PG_PARTS = tuple(name for name in PARTS if name.startswith("pg."))
FIRST_PARTS = tuple(name for name in PG_PARTS if PARTS[name].first)
"""Parts read at once on a new connection."""
FIRST_CONNECT_WAIT_US = 1_500_000
"""The first tick waits this long for the server: a picture without it would look like an outage."""
CONNECT_WAIT_US = 200_000
"""Later ticks wait this long for a connection attempt before connections are counted by processes."""
HARD_LIMIT_S = 12.0
"""A longer call is abandoned; far more than connect_timeout and statement_timeout together."""
RESOLVER_ALLOWANCE_S = 1.0
"""An attempt longer than its timeout by this much hangs where no timeout applies: in the resolver."""
REASON_PART = "pg.server"
"""The part that reports why there is no connection; the frame's target uses its note."""
NO_CONNECTION = "no connection"


@dataclass(frozen=True, slots=True)
class ConnectionOutage:
    """Why there is no connection, and since when."""

    kind: str
    """no_slots, starting, refused, auth, timeout, lost, silent, ..."""
    text: str
    since_us: int
    refused_by: str | None = None
    """For no_slots, what has no free slots: server, role, database or pooler."""


class ServerService(TickSource):
    """The server as the collector knows it. All attributes are read on the collector's thread."""

    def __init__(self, conninfo: str, options: MonitorOptions, clock: Clock, interval_s: float) -> None:
        self._conninfo, self._options, self._clock, self._interval_s = conninfo, options, clock, interval_s
        self._probe = PostgresProbe(conninfo, options, clock)
        self._call: PolledCall[list[Part]] = PolledCall("postgres", clock)
        super().__init__(self._call)
        self._late_ticks = 0
        self._has_begun = False
        self._connect_until_us = 0
        self._attempts = 0
        self._next_attempt_us = 0
        self._due_names: set[str] = set()
        self._ever_connected = False
        self.outage: ConnectionOutage | None = ConnectionOutage("new", "not connected yet", clock.mono_us())
        self.slot_refusals = 0
        """Attempts to connect that were refused for lack of a slot."""
        self.server: Server | None = None
        self.sessions: Sessions | None = None
        self.operations: Operations | None = None
        self.newest: dict[str, Part] = {}
        """The last part of each name with a reading."""
        self._queries = (0, 0, 0)

    @property
    def conninfo(self) -> str:
        return self._conninfo

    @property
    def connected(self) -> bool:
        return self.outage is None

    @property
    def login_refusal(self) -> str:
        """Why the server has refused every login so far; empty after a success, and for other outages."""
        outage = self.outage
        return outage.text if outage is not None and outage.kind == "auth" and not self._ever_connected else ""

    def attempted(self, until_us: int) -> bool:
        """Return whether no connection attempt is pending, at monotonic `until_us` at the latest."""
        return self.connected or self._call.idle(until_us)

    @property
    def backend_pid(self) -> int | None:
        return self._probe.backend_pid if self.outage is None else None

    @property
    def locality(self) -> Locality | None:
        """Whether the connected server runs on this host; None while not connected."""
        return self._probe.locality if self._probe.connected else None

    def counters(self) -> tuple[int, int, int]:
        """Return queries, microseconds waited for answers and bytes received, over all connections of this process."""
        q, u, b = self._queries
        return q + self._probe.queries, u + self._probe.query_us, b + self._probe.bytes_received

    def begin(self, due: Collection[str]) -> None:
        """Start the reads of this tick, unless the last call is pending or a pause between attempts lasts."""
        self._due_names.update(name for name in PG_PARTS if name in due)
        now = self._clock.mono_us()
        self._connect_until_us = now + (CONNECT_WAIT_US if self._has_begun else FIRST_CONNECT_WAIT_US)
        self._has_begun = True
        if self._call.pending or (self.outage is not None and now < self._next_attempt_us):
            return
        waiters = "Lock" in [row.wait_event_type for row in self.sessions.rows] if self.sessions else True
        probe, names = self._probe, [name for name in PG_PARTS if name in self._due_names]

        def job() -> list[Part]:
            if probe.connected:
                return probe.read(names, waiters=waiters)
            probe.connect()
            return probe.read(FIRST_PARTS, waiters=True)

        if self._call.start(job, now):
            self._late_ticks = 0
        else:
            self._fail("silent", "several connections to the server hang; waiting for one to end")

    def finish(self, until_us: int) -> list[Part]:
        """Return the parts read in time, or empty parts with the reason. A connection attempt has its own limit."""
        if not self.connected:
            until_us = self._connect_until_us
        if not self._call.pending:
            return self._empty_parts("error")
        if not self._call.ended(until_us):
            return self._late_parts()
        try:
            parts = self._call.take()
        except ConnectFailed as error:
            self.slot_refusals += error.kind == "no_slots"
            self._fail(error.kind, failure_text(error), delays_after(error), error.limit)
            return self._empty_parts("error")
        except ConnectionLost as error:
            self._fail("lost", error.message)
            return self._empty_parts("error")
        self._succeeded(parts)
        return parts

    def close(self) -> None:
        self._call.close(self._probe.close)

    def _succeeded(self, parts: Sequence[Part]) -> None:
        self._attempts, self._ever_connected = 0, True
        self.outage = self._silent_outage(parts)
        for part in parts:
            self._due_names.discard(part.name)
            if part.reading is None:
                continue
            self.newest[part.name] = part
            if part.name == "pg.server":
                self.server = part.decode()
            elif part.name == "pg.activity":
                self.sessions = part.decode()
            elif part.name == "pg.progress":
                self.operations = part.decode()
            elif part.name == "pg.replication":
                self._reread_server_after_role_change(part.decode())

    def _reread_server_after_role_change(self, replication: Replication) -> None:
        """Read the server part early: a promotion keeps the connection, and shows first in the replication part."""
        if self.server is not None and self.server.in_recovery != replication.in_recovery:
            self._due_names.add("pg.server")

    def _silent_outage(self, parts: Sequence[Part]) -> ConnectionOutage | None:
        """Return the outage of a server that keeps the connection and does not answer."""
        sessions = next((part for part in parts if part.name == "pg.activity"), None)
        if sessions is None or sessions.status != "timeout":
            return None
        since = self.outage.since_us if self.outage is not None else self._clock.mono_us()
        return ConnectionOutage("silent", sessions.note or "the server does not answer", since)

    def _fail(
        self, kind: str, text: str, schedule: tuple[float, ...] = DEFAULT_DELAYS_S, refused_by: str | None = None
    ) -> None:
        now = self._clock.mono_us()
        since = self.outage.since_us if self.outage is not None else now
        self.outage = ConnectionOutage(kind, text, since, refused_by)
        pause = delay_s(schedule, self._attempts)
        self._attempts += 1
        # Half a tick less, so that the attempt falls on the tick and not after it.
        self._next_attempt_us = now + int((pause - self._interval_s / 2) * 1e6)

    def _late_parts(self) -> list[Part]:
        now = self._clock.mono_us()
        waited = (now - self._call.started_us) / 1e6
        if waited > HARD_LIMIT_S:
            self._abandon()
        elif waited < self._interval_s:
            return []  # it may still arrive in the next tick; a slow answer is not an outage
        # Time of the query plus one microsecond per tick: an answer is read later than all of these, so it counts.
        self._late_ticks += 1
        as_of_us = self._call.started_us + self._late_ticks
        if not self._probe.connected:
            return self._connecting_parts(waited, as_of_us)
        if self.outage is None:
            self.outage = ConnectionOutage(
                "silent", "the server does not answer on the open connection", self._call.started_us
            )
        silent_s = (now - self.outage.since_us) / 1e6
        return self._empty_parts("timeout", f"the server has not answered for {silent_s:.0f} s", as_of_us)

    def _connecting_parts(self, waited: float, as_of_us: int) -> list[Part]:
        """Return parts for a pending attempt: with the reason of the last one, or none for the first attempt."""
        if self.outage is None or self.outage.kind != "new":
            return self._empty_parts("error", as_of_us=as_of_us)
        if waited < self._options.connect_timeout_s + RESOLVER_ALLOWANCE_S:
            return []
        note = f"not connected after {waited:.0f} s: does the host's name resolve?"
        return self._empty_parts("error", note, as_of_us)

    def _abandon(self) -> None:
        self._queries = self.counters()
        self._probe = PostgresProbe(self._conninfo, self._options, self._clock)
        self._call.abandon()
        self._fail("silent", "the server does not answer; its connection was abandoned")

    def _empty_parts(self, status: str, note: str | None = None, as_of_us: int | None = None) -> list[Part]:
        """Return every part of the server, empty, with the reason, so that no panel shows stale data as current.

        Only one part has the full reason, to avoid repeating a long sentence.
        """
        now = self._clock.mono_us() if as_of_us is None else as_of_us
        full = note or (self.outage.text if self.outage else "not read")
        return [
            make_part(
                name, None, at_us=now, status="timeout" if status == "timeout" else "error",
                note=full if note or name == REASON_PART else NO_CONNECTION,
            )
            for name in PG_PARTS
        ]  # fmt: skip
