"""The PostgreSQL side of a sample: one pinned connection, one round trip a tick.

Runs in a lane's thread. `read` takes no longer than its deadline; an answer still due then is waited for by the next
read, since closing the connection would give up the slot, and a server that hangs would lose one more to each new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.clock import SYSTEM, Clock
from dba_console.probes.postgres.asking import Answered, Asker
from dba_console.probes.postgres.building import Builder
from dba_console.probes.postgres.connection import Connection, connect
from dba_console.probes.postgres.failures import ConnectFailed, ConnectionLost
from dba_console.probes.postgres.local import Locality
from dba_console.probes.postgres.options import MonitorOptions
from dba_console.probes.postgres.plan import PLANS
from dba_console.probes.postgres.readings.activity import HIDDEN
from dba_console.probes.postgres.sizes import SizeRound, sizes_param
from dba_console.probes.postgres.statements import statement
from dba_console.probes.postgres.wire import Answer
from dba_console.samples.postgres import Locks
from dba_console.samples.sample import Part, make_part
from dba_console.units import human_duration

__all__ = ["ConnectFailed", "ConnectionLost", "PostgresProbe"]

_NAMED = ("pg.activity", "pg.locks", "pg.progress")
"""Parts whose rows hold OIDs; made again when their names came."""
_SIZES_BUDGET_US = 100_000
"""Time one read gives to database sizes."""


class PostgresProbe:
    """Reads a server. Used by one thread; the counters may be read by any."""

    def __init__(self, conninfo: str, options: MonitorOptions | None = None, clock: Clock = SYSTEM) -> None:
        self._conninfo = conninfo
        self._options = options or MonitorOptions()
        self._clock = clock
        self._connection: Connection | None = None
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
            self._asker = Asker(self._connection, self._options, self._clock)
            self._builder = Builder(self._connection)
            self._open: list[str] = []
            self._sizes: SizeRound | None = None
            self._sizes_asked: list[int] = []

    def close(self) -> None:
        """Give the slot back."""
        if self._connection is not None:
            self._past = self._counters()
            self._connection.wire.close()
            self._connection = None

    def read(self, names: Sequence[str], *, waiters: bool) -> list[Part]:
        """The parts in `names` of this room, and any that was late the last time; each with its own status.

        `waiters` says that somebody waited for a lock at the last tick; without it the locks are read only when this
        tick's sessions show one waiting. Raises ConnectionLost, and the connection is closed then.
        """
        if self._connection is None:
            raise ConnectionLost("not connected")
        wanted = [name for name in PLANS if name in names]
        until_us = self._clock.mono_us() + int(self._options.answer_timeout_s * 1e6)
        try:
            return self._read(self._connection, wanted, waiters, until_us)
        except ConnectionLost:
            self.close()
            raise

    def _read(self, connection: Connection, wanted: list[str], waiters: bool, until_us: int) -> list[Part]:
        parts: list[Part] = []
        if connection.wire.due:
            self._collect(connection, until_us)
            parts = self._finished(connection)
            if connection.wire.due:
                return parts + self._late(connection, [name for name in wanted if name not in self._names(parts)])
        fresh = [name for name in wanted if name not in self._names(parts)]
        connection.names.forget_old(self._clock.mono_us())
        self._asker.begin()
        self._open = fresh
        self._ask(fresh, waiters)
        self._collect(connection, until_us)
        self._second_round(connection, until_us)
        parts += self._finished(connection)
        return parts + (self._late(connection, self._open) if self._open else [])

    @staticmethod
    def _names(parts: Sequence[Part]) -> set[str]:
        return {part.name for part in parts}

    def _ask(self, fresh: list[str], waiters: bool) -> None:
        statements: list[str] = []
        for name in fresh:
            held_back = name == "pg.locks" and not waiters and "pg.activity" in fresh
            if not held_back and not (name == "pg.sizes" and self._sizes is not None):
                statements += (PLANS[name].main, *PLANS[name].extra)
        self._asker.ask(statements)

    def _second_round(self, connection: Connection, until_us: int) -> None:
        """What the first answers made necessary: locks when somebody waits, names not known yet, some sizes."""
        if connection.wire.due:
            return
        if "pg.locks" in self._open and "locks" not in self._asker.outcomes and self._somebody_waits():
            self._asker.ask(["locks"])
            self._collect(connection, until_us)
        self._name_what_is_new(connection, until_us)
        self._go_on_with_sizes(connection, until_us)

    def _somebody_waits(self) -> bool:
        """Also where it cannot be known, because the waits of other roles are hidden."""
        activity = self._asker.outcomes.get("activity")
        if not isinstance(activity, Answered):
            return True
        return any(row[12] == b"Lock" or row[18] == HIDDEN for row in activity.rows[0])

    def _name_what_is_new(self, connection: Connection, until_us: int) -> None:
        """Build what holds OIDs once, for the names it lacks."""
        if connection.wire.due:
            return
        for name in _NAMED:
            if name in self._open and PLANS[name].main in self._asker.outcomes:
                self._builder.part(name, self._asker.outcomes, 0)
        if connection.names.wanted:
            text = statement("names", connection.hello.version_num) or b""
            if self._asker.ask_with("names", *connection.names.command(text).params):
                self._collect(connection, until_us)
            else:
                connection.names.give_up()

    def _go_on_with_sizes(self, connection: Connection, until_us: int) -> None:
        started = self._clock.mono_us()
        while self._sizes is not None and not connection.wire.due:
            now = self._clock.mono_us()
            batch = self._sizes.next_batch(now)
            if not batch or now - started > _SIZES_BUDGET_US:
                break
            self._sizes_asked = batch
            if not self._asker.ask_with("sizes", sizes_param(batch)):
                break
            self._collect(connection, until_us)

    def _collect(self, connection: Connection, until_us: int) -> None:
        for answer in connection.wire.collect(until_us):
            self._take(connection, answer)

    def _take(self, connection: Connection, answer: Answer) -> None:
        outcome = self._asker.note(answer)
        if answer.key == "names":
            if isinstance(outcome, Answered):
                connection.names.learn(outcome.rows[0])
            else:
                connection.names.give_up()
        elif answer.key == "sizes" and self._sizes is not None:
            if isinstance(outcome, Answered):
                self._sizes.answered(self._sizes_asked, outcome.rows[0], answer.took_us, answer.at_us)
            else:
                self._sizes.failed(self._sizes_asked, answer.took_us, answer.at_us)
        elif answer.key == "size_names" and isinstance(outcome, Answered):
            self._sizes = SizeRound(outcome.rows[0], connection.names.codec)
            self._open = [name for name in self._open if name != "pg.sizes"]
        else:
            self._asker.outcomes[answer.key] = outcome

    def _finished(self, connection: Connection) -> list[Part]:
        """Parts of which everything is known now; they are no longer open."""
        now = self._clock.mono_us()
        parts = []
        for name in list(self._open):
            part = self._part(name, now)
            if part is not None:
                parts.append(part)
                self._open.remove(name)
        if self._sizes is not None and self._sizes.done:
            parts.append(make_part("pg.sizes", self._sizes.reading(), at_us=now, note=self._sizes.note))
            self._sizes = None
        return parts

    def _part(self, name: str, now: int) -> Part | None:
        outcomes = self._asker.outcomes
        plan = PLANS[name]
        if name == "pg.locks" and "locks" not in outcomes and "activity" in outcomes and not self._somebody_waits():
            return make_part(name, Locks([], []), at_us=now)
        if any(statement not in outcomes for statement in (plan.main, *plan.extra)):
            return None
        return self._builder.part(name, outcomes, now)

    def _late(self, connection: Connection, names: Sequence[str]) -> list[Part]:
        """Parts that have no answer yet. Raises ConnectionLost when the server has been silent for too long."""
        now = self._clock.mono_us()
        since = connection.wire.owed_since_us
        silent_s = 0.0 if since is None else (now - since) / 1e6
        if silent_s > self._options.silence_s:
            raise ConnectionLost(
                f"no answer from the server for {human_duration(silent_s)}: the connection is given up"
            )
        note = f"no answer from the server for {human_duration(silent_s)}; it is waited for, and the connection kept"
        return [make_part(name, None, at_us=now, status="timeout", note=note) for name in names]

    def _counters(self) -> tuple[int, int, int]:
        wire = None if self._connection is None else self._connection.wire
        if wire is None:
            return self._past
        queries, query_us, received = self._past
        return queries + wire.queries, query_us + wire.query_us, received + wire.bytes_received
