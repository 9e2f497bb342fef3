"""Reads one tick over one connection: one round trip for the regular queries, a second for what their answers require.

A read takes no longer than its deadline. Answers still missing then are awaited by the next read: closing the
connection would lose the slot, and a hanging server would lose one more slot to each new connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import convert

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.units import human_duration
from dba_console.watch.locks.decoder import locks_of
from dba_console.watch.probes.postgres.binary_results import ResultRows, Row, decode_name
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed as ConnectFailed
from dba_console.watch.probes.postgres.connect_errors import ConnectionLost as ConnectionLost
from dba_console.watch.probes.postgres.connection import MonitorConnection, connect
from dba_console.watch.probes.postgres.oid_names import oid_array
from dba_console.watch.probes.postgres.pipeline import SegmentAnswer, statement
from dba_console.watch.probes.postgres.row_decoder import PartDecoder
from dba_console.watch.probes.postgres.server_locality import Locality
from dba_console.watch.probes.postgres.statements import (
    SERVER_PARTS,
    Outcome,
    Refusal,
    StatementRows,
    StatementRunner,
    grant_hint,
)
from dba_console.watch.progress.decoder import operations_of
from dba_console.watch.samples.postgres import Locks
from dba_console.watch.samples.sample import Part, make_part
from dba_console.watch.server.decoder import server_of
from dba_console.watch.sessions.decoder import ActivityDecoder, may_anybody_wait

# Builds the parts of a sample from statement outcomes: a table from part name to the function that decodes its rows.
# A part that its subject declares is decoded by the names of its columns, unless it has a function here.

Rows = Mapping[str, ResultRows]


class PartBuilder:
    """Builds parts for one connection."""

    def __init__(self, connection: MonitorConnection, query_texts: str) -> None:
        self._connection = connection
        names = connection.names
        activity = ActivityDecoder(names, query_texts)
        self._clock_rows: list[Row] = []
        self._read: dict[str, Callable[[Rows], Any]] = {
            **{name: PartDecoder(part, names.codec).decode for name, part in SERVER_PARTS.items()},
            "pg.activity": lambda rows: activity.decode(rows["activity"], *self._clock_rows[0]),
            "pg.locks": lambda rows: locks_of(rows["locks"], names),
            "pg.progress": lambda rows: operations_of(rows["progress"], names),
            "pg.server": lambda rows: server_of(rows, connection),
        }

    def part(self, name: str, outcomes: Mapping[str, Outcome], now_us: int) -> Part:
        """Return the part, with its reading or the reason why it has none as its status. Never raises."""
        first, *others = SERVER_PARTS[name].sent_at_once
        main = outcomes[first.name]
        if isinstance(main, Refusal):
            return make_part(name, None, at_us=now_us, status=main.status, note=main.note)
        rows, took_us, notes = {first.name: main.rows[0]}, main.took_us, self._privilege_notes(name)
        if name == "pg.activity":
            self._clock_rows = main.rows[1]
        for query in others:
            outcome = outcomes[query.name]
            if isinstance(outcome, StatementRows):
                rows[query.name] = outcome.rows[0]
                took_us += outcome.took_us
            else:
                notes.append(f"{query.missing} not known: {outcome.note}")
        try:
            reading = self._read[name](rows)
        except Exception as error:
            # A row of an unexpected shape costs its part, never the tick.
            note = f"the server's answer could not be read ({type(error).__name__}); please report this version"
            return make_part(name, None, at_us=main.at_us, took_us=took_us, status="error", note=note)
        return make_part(name, reading, at_us=main.at_us, took_us=took_us, note="; ".join(notes) or None)

    def _privilege_notes(self, name: str) -> list[str]:
        hello = self._connection.hello
        if SERVER_PARTS[name].needs_all_stats and not hello.all_stats:
            return [f"other roles' sessions are partly hidden: {grant_hint(hello.user)}"]
        return []


# pg.sizes: database sizes, a few per query. pg_database_size() makes the server stat every file of a database: fast for
# most, minutes for some, and some servers have thousands. So a round adapts its batch size to the time the queries
# take, pauses after each expensive query, and gives its reading at the end. A size that cannot be read stays None.

_CHEAP_US = 20_000
_MOST = 64
_REST = 10
"""After an expensive query the round pauses for this many times the query's duration."""


class SizeRound:
    """One reading of all sizes in progress. Times are monotonic microseconds."""

    def __init__(self, rows: Sequence[Row], codec: str) -> None:
        self._names = {oid: decode_name(name, codec) for oid, name, _ in rows}
        self._sizes: dict[int, int] = {}
        self._left = deque(oid for oid, _, allowed in rows if allowed)
        self._denied = sum(not allowed for *_, allowed in rows)
        self._batch = 4
        self._rest_until_us = 0
        self.timed_out: list[str] = []
        """Databases whose size could not be read within the time limit."""

    @property
    def done(self) -> bool:
        return not self._left

    def next_batch(self, now_us: int) -> list[int]:
        """Return the databases to query now; none during a pause."""
        if now_us < self._rest_until_us:
            return []
        return [self._left[index] for index in range(min(self._batch, len(self._left)))]

    def answered(self, oids: Sequence[int], rows: Sequence[Row], took_us: int, now_us: int) -> None:
        """Store the sizes; a database dropped meanwhile has no row and is left out of the reading."""
        self._drop(oids)
        self._sizes.update(dict(rows))
        for oid in set(oids) - self._sizes.keys():
            self._names.pop(oid, None)
        self._batch = min(self._batch * 2, _MOST) if took_us < _CHEAP_US else max(1, self._batch // 4)
        if took_us >= _CHEAP_US:
            self._rest_until_us = now_us + took_us * _REST

    def failed(self, oids: Sequence[int], took_us: int, now_us: int) -> None:
        """Handle a timeout or refusal: query one database at a time, and skip a single one that fails."""
        if len(oids) == 1:
            self._drop(oids)
            self.timed_out.append(self._names[oids[0]])
        self._batch = 1
        self._rest_until_us = now_us + max(took_us, _CHEAP_US) * _REST

    def reading(self) -> Any:
        """Return the reading as the part declares it: rows of name and size."""
        rows = [(name, self._sizes.get(oid)) for oid, name in self._names.items()]
        return convert((rows,), SERVER_PARTS["pg.sizes"].reading)

    @property
    def note(self) -> str | None:
        """Return what is missing, None if nothing is."""
        missing = []
        if self._denied:
            missing.append(f"{self._denied} without CONNECT or pg_read_all_stats (in pg_monitor)")
        if self.timed_out:
            missing.append(f"too slow to query: {', '.join(self.timed_out[:3])}")
        return "sizes unknown: " + "; ".join(missing) if missing else None

    def _drop(self, oids: Sequence[int]) -> None:
        gone = set(oids)
        self._left = deque(oid for oid in self._left if oid not in gone)


_NAMED = ("pg.activity", "pg.locks", "pg.progress")
"""Parts whose rows contain OIDs; rebuilt when names arrived."""
_SIZES_BUDGET_US = 100_000
"""Time per read for database sizes."""


class TickReader:
    """Reads parts over one connection and keeps pending answers between reads."""

    def __init__(self, connection: MonitorConnection, options: MonitorOptions, clock: Clock) -> None:
        self._connection = connection
        self._wire = connection.pipeline
        self._options = options
        self._clock = clock
        self._runner = StatementRunner(connection, options, clock)
        self._builder = PartBuilder(connection, options.query_texts)
        self._open: list[str] = []
        self._built: dict[str, tuple[int, Part]] = {}
        self._sizes: SizeRound | None = None
        self._sizes_asked: list[int] = []

    def read(self, names: Sequence[str], *, waiters: bool) -> list[Part]:
        """Return the parts in `names`, and any that was late the last time. Raises ConnectionLost."""
        until_us = self._clock.mono_us() + int(self._options.answer_timeout_s * 1e6)
        parts: list[Part] = []
        if self._wire.pending:
            self._collect(until_us)
            parts = self._finished()
        done = {part.name for part in parts}
        wanted = [name for name in SERVER_PARTS if name in names and name not in done]
        if self._wire.pending:
            return parts + self._timed_out_parts(wanted)
        self._begin([name for name in wanted if name != "pg.sizes" or self._sizes is None], waiters)
        self._collect(until_us)
        self._second_round(until_us)
        return parts + self._finished() + self._timed_out_parts(self._open)

    def _begin(self, wanted: list[str], waiters: bool) -> None:
        """Send the regular queries. Locks are held back until the sessions show whether any of them waits."""
        self._connection.names.forget_old(self._clock.mono_us())
        self._runner.begin_tick()
        self._built.clear()
        self._open = wanted
        held_back = {"pg.locks"} if "pg.activity" in wanted and not waiters else set()
        parts = [SERVER_PARTS[name] for name in wanted if name not in held_back]
        self._runner.send(query.name for part in parts for query in part.sent_at_once)

    def _second_round(self, until_us: int) -> None:
        """Send what the first answers require: locks if a session waits, unknown names, some sizes."""
        if self._wire.pending:
            return
        if "pg.locks" in self._open and "locks" not in self._runner.outcomes and self._may_anybody_wait():
            self._runner.send(["locks"])
            self._collect(until_us)
        self._resolve_new_names(until_us)
        self._continue_sizes(until_us)

    def _may_anybody_wait(self) -> bool:
        """Return whether any session may wait for a lock; also True if the waits of other roles are hidden."""
        activity = self._runner.outcomes.get("activity")
        if not isinstance(activity, StatementRows):
            return True
        return may_anybody_wait(activity.rows[0])

    def _resolve_new_names(self, until_us: int) -> None:
        """Build the parts that contain OIDs once, to collect the unknown names."""
        if self._wire.pending:
            return
        for name in set(_NAMED).intersection(self._open):
            self._part(name)
        if self._connection.names.has_unknown:
            text = statement("names", self._connection.hello.version_num) or b""
            if self._runner.send_with_params("names", *self._connection.names.command(text).params):
                self._collect(until_us)
            else:
                self._connection.names.stop_asking()

    def _continue_sizes(self, until_us: int) -> None:
        started = self._clock.mono_us()
        while self._sizes is not None and not self._wire.pending:
            now = self._clock.mono_us()
            batch = self._sizes.next_batch(now)
            if not batch or now - started > _SIZES_BUDGET_US:
                break
            self._sizes_asked = batch
            if not self._runner.send_with_params("sizes", oid_array(batch)):
                break
            self._collect(until_us)

    def _collect(self, until_us: int) -> None:
        for answer in self._wire.collect(until_us):
            self._store_answer(answer)

    def _store_answer(self, answer: SegmentAnswer) -> None:
        outcome = self._runner.record_answer(answer)
        if answer.key == "names":
            if isinstance(outcome, StatementRows):
                self._connection.names.store(outcome.rows[0])
            else:
                self._connection.names.stop_asking()
        elif answer.key == "sizes" and self._sizes is not None:
            if isinstance(outcome, StatementRows):
                self._sizes.answered(self._sizes_asked, outcome.rows[0], answer.took_us, answer.at_us)
            else:
                self._sizes.failed(self._sizes_asked, answer.took_us, answer.at_us)
        elif answer.key == "size_names" and isinstance(outcome, StatementRows):
            self._sizes = SizeRound(outcome.rows[0], self._connection.names.codec)
            self._open = [name for name in self._open if name != "pg.sizes"]
        else:
            self._runner.outcomes[answer.key] = outcome

    def _finished(self) -> list[Part]:
        """Return the parts that are complete now, and remove them from the open ones."""
        parts = [part for name in self._open if (part := self._part(name)) is not None]
        done = {part.name for part in parts}
        self._open = [name for name in self._open if name not in done]
        if self._sizes is not None and self._sizes.done:
            now = self._clock.mono_us()
            parts.append(make_part("pg.sizes", self._sizes.reading(), at_us=now, note=self._sizes.note))
            self._sizes = None
        return parts

    def _part(self, name: str) -> Part | None:
        """Return the part, None while an answer is pending. Rebuilt only if names arrived since."""
        version = self._connection.names.version
        if name in self._built and self._built[name][0] == version:
            return self._built[name][1]
        outcomes, now = self._runner.outcomes, self._clock.mono_us()
        if all(query.name in outcomes for query in SERVER_PARTS[name].sent_at_once):
            part = self._builder.part(name, outcomes, now)
        elif name == "pg.locks" and "activity" in outcomes and not self._may_anybody_wait():
            part = make_part(name, Locks([], []), at_us=now)
        else:
            return None
        self._built[name] = (version, part)
        return part

    def _timed_out_parts(self, names: Sequence[str]) -> list[Part]:
        """Return the parts without an answer yet. Raises ConnectionLost if the server has been silent for too long."""
        if not self._wire.pending:
            return []
        now = self._clock.mono_us()
        silent_s = (now - (self._wire.waiting_since_us or now)) / 1e6
        if silent_s > self._options.max_silence_s:
            raise ConnectionLost(f"no answer from the server for {human_duration(silent_s)}: closing the connection")
        note = f"no answer from the server for {human_duration(silent_s)}; still waiting, the connection is kept"
        return [make_part(name, None, at_us=now, status="timeout", note=note) for name in names]


# The PostgreSQL probe as the agent uses it: connect, read, close, counters. Runs in a lane's thread. A lost connection
# is closed at once; the caller decides when to reconnect.


class PostgresProbe:
    """Reads a server. Not thread-safe, except that any thread may read the counters."""

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
        """The server process behind the connection; None without a connection, or behind a pooler, where it changes."""
        connection = self._connection
        return None if connection is None or connection.through is not None else connection.hello.backend_pid

    @property
    def locality(self) -> Locality | None:
        """Whether the server runs on this host, with the postmaster's pid if it does; None if not connected."""
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
        """Open the connection, within connect_timeout_s. Raises ConnectFailed; does nothing if connected."""
        if self._connection is None:
            self._connection = connect(self._conninfo, self._options, self._clock)
            self._ticks = TickReader(self._connection, self._options, self._clock)

    def close(self) -> None:
        """Close the connection and release its slot."""
        if self._connection is not None:
            self._past = self._counters()
            self._connection.pipeline.close()
            self._connection = None

    def read(self, names: Sequence[str], *, waiters: bool) -> list[Part]:
        """Return the PostgreSQL parts in `names`, and any that was late the last time; each with its own status.

        `waiters` says that a session waited for a lock at the last tick; without it the locks are read only if this
        tick's sessions show a wait. Raises ConnectionLost, and the connection is closed then.
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
