"""A tick on one connection: one round trip for what is always asked, a second for what its answers made necessary.

A read takes no longer than its deadline; an answer still due then is waited for by the next read, since closing the
connection would give up the slot, and a server that hangs would lose one more to each new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.clock import Clock
from dba_console.probes.postgres.connect_errors import ConnectionLost
from dba_console.probes.postgres.connection import MonitorConnection
from dba_console.probes.postgres.database_sizes import SizeRound, sizes_param
from dba_console.probes.postgres.monitor_options import MonitorOptions
from dba_console.probes.postgres.part_builder import PartBuilder
from dba_console.probes.postgres.part_statements import PART_STATEMENTS
from dba_console.probes.postgres.pipeline_messages import SegmentAnswer
from dba_console.probes.postgres.readings.activity import HIDDEN
from dba_console.probes.postgres.sql_files import statement
from dba_console.probes.postgres.statement_runner import StatementRows, StatementRunner
from dba_console.samples.postgres import Locks
from dba_console.samples.sample import Part, make_part
from dba_console.units import human_duration

_NAMED = ("pg.activity", "pg.locks", "pg.progress")
"""Parts whose rows hold OIDs; made again when their names came."""
_SIZES_BUDGET_US = 100_000
"""Time one read gives to database sizes."""


class TickReader:
    """Reads parts over one connection, and remembers what is still open between two reads."""

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
        """The parts in `names`, and any that was late the last time. Raises ConnectionLost."""
        until_us = self._clock.mono_us() + int(self._options.answer_timeout_s * 1e6)
        parts: list[Part] = []
        if self._wire.pending:
            self._collect(until_us)
            parts = self._finished()
        done = {part.name for part in parts}
        wanted = [name for name in PART_STATEMENTS if name in names and name not in done]
        if self._wire.pending:
            return parts + self._timed_out_parts(wanted)
        self._begin([name for name in wanted if name != "pg.sizes" or self._sizes is None], waiters)
        self._collect(until_us)
        self._second_round(until_us)
        return parts + self._finished() + self._timed_out_parts(self._open)

    def _begin(self, wanted: list[str], waiters: bool) -> None:
        """Send what is always asked. Locks are held back until the sessions say whether anybody waits."""
        self._connection.names.forget_old(self._clock.mono_us())
        self._runner.begin_tick()
        self._built.clear()
        self._open = wanted
        held_back = {"pg.locks"} if "pg.activity" in wanted and not waiters else set()
        plans = [PART_STATEMENTS[name] for name in wanted if name not in held_back]
        self._runner.send(statement for plan in plans for statement in (plan.main, *plan.extra))

    def _second_round(self, until_us: int) -> None:
        """What the first answers made necessary: locks when somebody waits, names not known yet, some sizes."""
        if self._wire.pending:
            return
        if "pg.locks" in self._open and "locks" not in self._runner.outcomes and self._may_anybody_wait():
            self._runner.send(["locks"])
            self._collect(until_us)
        self._resolve_new_names(until_us)
        self._continue_sizes(until_us)

    def _may_anybody_wait(self) -> bool:
        """Also where it cannot be known, because the waits of other roles are hidden."""
        activity = self._runner.outcomes.get("activity")
        if not isinstance(activity, StatementRows):
            return True
        return any(row[12] == b"Lock" or row[18] == HIDDEN for row in activity.rows[0])

    def _resolve_new_names(self, until_us: int) -> None:
        """Build what holds OIDs once, for the names it lacks."""
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
            if not self._runner.send_with_params("sizes", sizes_param(batch)):
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
        """Parts of which everything is known now; they are no longer open."""
        parts = [part for name in self._open if (part := self._part(name)) is not None]
        done = {part.name for part in parts}
        self._open = [name for name in self._open if name not in done]
        if self._sizes is not None and self._sizes.done:
            now = self._clock.mono_us()
            parts.append(make_part("pg.sizes", self._sizes.reading(), at_us=now, note=self._sizes.note))
            self._sizes = None
        return parts

    def _part(self, name: str) -> Part | None:
        """The part, None while something of it is due. Made again only when names came since."""
        version = self._connection.names.version
        if name in self._built and self._built[name][0] == version:
            return self._built[name][1]
        outcomes, plan, now = self._runner.outcomes, PART_STATEMENTS[name], self._clock.mono_us()
        if all(statement in outcomes for statement in (plan.main, *plan.extra)):
            part = self._builder.part(name, outcomes, now)
        elif name == "pg.locks" and "activity" in outcomes and not self._may_anybody_wait():
            part = make_part(name, Locks([], []), at_us=now)
        else:
            return None
        self._built[name] = (version, part)
        return part

    def _timed_out_parts(self, names: Sequence[str]) -> list[Part]:
        """Parts that have no answer yet. Raises ConnectionLost when the server has been silent for too long."""
        if not self._wire.pending:
            return []
        now = self._clock.mono_us()
        silent_s = (now - (self._wire.waiting_since_us or now)) / 1e6
        if silent_s > self._options.max_silence_s:
            raise ConnectionLost(
                f"no answer from the server for {human_duration(silent_s)}: the connection is given up"
            )
        note = f"no answer from the server for {human_duration(silent_s)}; it is waited for, and the connection kept"
        return [make_part(name, None, at_us=now, status="timeout", note=note) for name in names]
