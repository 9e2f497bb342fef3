"""A tick on one connection: one round trip for what is always asked, a second for what its answers made necessary.

A read takes no longer than its deadline; an answer still due then is waited for by the next read, since closing the
connection would give up the slot, and a server that hangs would lose one more to each new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.clock import Clock
from dba_console.probes.postgres.asking import Answered, Asker
from dba_console.probes.postgres.building import Builder
from dba_console.probes.postgres.connection import Connection
from dba_console.probes.postgres.failures import ConnectionLost
from dba_console.probes.postgres.options import MonitorOptions
from dba_console.probes.postgres.plan import PLANS
from dba_console.probes.postgres.readings.activity import HIDDEN
from dba_console.probes.postgres.segment import Answer
from dba_console.probes.postgres.sizes import SizeRound, sizes_param
from dba_console.probes.postgres.statements import statement
from dba_console.samples.postgres import Locks
from dba_console.samples.sample import Part, make_part
from dba_console.units import human_duration

_NAMED = ("pg.activity", "pg.locks", "pg.progress")
"""Parts whose rows hold OIDs; made again when their names came."""
_SIZES_BUDGET_US = 100_000
"""Time one read gives to database sizes."""


class Ticks:
    """Reads parts over one connection, and remembers what is still open between two reads."""

    def __init__(self, connection: Connection, options: MonitorOptions, clock: Clock) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._options = options
        self._clock = clock
        self._asker = Asker(connection, options, clock)
        self._builder = Builder(connection, options.query_texts)
        self._open: list[str] = []
        self._built: dict[str, tuple[int, Part]] = {}
        self._sizes: SizeRound | None = None
        self._sizes_asked: list[int] = []

    def read(self, names: Sequence[str], *, waiters: bool) -> list[Part]:
        """The parts in `names`, and any that was late the last time. Raises ConnectionLost."""
        until_us = self._clock.mono_us() + int(self._options.answer_timeout_s * 1e6)
        parts: list[Part] = []
        if self._wire.due:
            self._collect(until_us)
            parts = self._finished()
        done = {part.name for part in parts}
        wanted = [name for name in PLANS if name in names and name not in done]
        if self._wire.due:
            return parts + self._late(wanted)
        self._begin([name for name in wanted if name != "pg.sizes" or self._sizes is None], waiters)
        self._collect(until_us)
        self._second_round(until_us)
        return parts + self._finished() + self._late(self._open)

    def _begin(self, wanted: list[str], waiters: bool) -> None:
        """Send what is always asked. Locks are held back until the sessions say whether anybody waits."""
        self._connection.names.forget_old(self._clock.mono_us())
        self._asker.begin()
        self._built.clear()
        self._open = wanted
        held_back = {"pg.locks"} if "pg.activity" in wanted and not waiters else set()
        plans = [PLANS[name] for name in wanted if name not in held_back]
        self._asker.ask(statement for plan in plans for statement in (plan.main, *plan.extra))

    def _second_round(self, until_us: int) -> None:
        """What the first answers made necessary: locks when somebody waits, names not known yet, some sizes."""
        if self._wire.due:
            return
        if "pg.locks" in self._open and "locks" not in self._asker.outcomes and self._somebody_waits():
            self._asker.ask(["locks"])
            self._collect(until_us)
        self._name_what_is_new(until_us)
        self._go_on_with_sizes(until_us)

    def _somebody_waits(self) -> bool:
        """Also where it cannot be known, because the waits of other roles are hidden."""
        activity = self._asker.outcomes.get("activity")
        if not isinstance(activity, Answered):
            return True
        return any(row[12] == b"Lock" or row[18] == HIDDEN for row in activity.rows[0])

    def _name_what_is_new(self, until_us: int) -> None:
        """Build what holds OIDs once, for the names it lacks."""
        if self._wire.due:
            return
        for name in set(_NAMED).intersection(self._open):
            self._part(name)
        if self._connection.names.wanted:
            text = statement("names", self._connection.hello.version_num) or b""
            if self._asker.ask_with("names", *self._connection.names.command(text).params):
                self._collect(until_us)
            else:
                self._connection.names.give_up()

    def _go_on_with_sizes(self, until_us: int) -> None:
        started = self._clock.mono_us()
        while self._sizes is not None and not self._wire.due:
            now = self._clock.mono_us()
            batch = self._sizes.next_batch(now)
            if not batch or now - started > _SIZES_BUDGET_US:
                break
            self._sizes_asked = batch
            if not self._asker.ask_with("sizes", sizes_param(batch)):
                break
            self._collect(until_us)

    def _collect(self, until_us: int) -> None:
        for answer in self._wire.collect(until_us):
            self._take(answer)

    def _take(self, answer: Answer) -> None:
        outcome = self._asker.note(answer)
        if answer.key == "names":
            if isinstance(outcome, Answered):
                self._connection.names.learn(outcome.rows[0])
            else:
                self._connection.names.give_up()
        elif answer.key == "sizes" and self._sizes is not None:
            if isinstance(outcome, Answered):
                self._sizes.answered(self._sizes_asked, outcome.rows[0], answer.took_us, answer.at_us)
            else:
                self._sizes.failed(self._sizes_asked, answer.took_us, answer.at_us)
        elif answer.key == "size_names" and isinstance(outcome, Answered):
            self._sizes = SizeRound(outcome.rows[0], self._connection.names.codec)
            self._open = [name for name in self._open if name != "pg.sizes"]
        else:
            self._asker.outcomes[answer.key] = outcome

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
        outcomes, plan, now = self._asker.outcomes, PLANS[name], self._clock.mono_us()
        if all(statement in outcomes for statement in (plan.main, *plan.extra)):
            part = self._builder.part(name, outcomes, now)
        elif name == "pg.locks" and "activity" in outcomes and not self._somebody_waits():
            part = make_part(name, Locks([], []), at_us=now)
        else:
            return None
        self._built[name] = (version, part)
        return part

    def _late(self, names: Sequence[str]) -> list[Part]:
        """Parts that have no answer yet. Raises ConnectionLost when the server has been silent for too long."""
        if not self._wire.due:
            return []
        now = self._clock.mono_us()
        silent_s = (now - (self._wire.owed_since_us or now)) / 1e6
        if silent_s > self._options.silence_s:
            raise ConnectionLost(
                f"no answer from the server for {human_duration(silent_s)}: the connection is given up"
            )
        note = f"no answer from the server for {human_duration(silent_s)}; it is waited for, and the connection kept"
        return [make_part(name, None, at_us=now, status="timeout", note=note) for name in names]
