"""Statements on the wire, each under its guard, and what came of them.

What is not asked now has a reason, and the reason is an outcome like any other: nobody above needs to know whether a
query was refused a moment ago or is resting since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dba_console.clock import Clock
from dba_console.probes.postgres.connection import Connection
from dba_console.probes.postgres.guard import EACH_SECOND, Guard, Refusal
from dba_console.probes.postgres.loaders import Row
from dba_console.probes.postgres.options import MonitorOptions
from dba_console.probes.postgres.plan import FAST, grant
from dba_console.probes.postgres.readings.server import settings_param
from dba_console.probes.postgres.segment import Answer, Command, Segment
from dba_console.probes.postgres.statements import needs_version, statement


@dataclass(frozen=True, slots=True)
class Answered:
    """Rows of each command of a statement's segment."""

    rows: list[list[Row]]
    at_us: int
    took_us: int


Outcome = Answered | Refusal


class Asker:
    """Asks one server, over one connection. Guards live as long: a new connection may have new rights."""

    def __init__(self, connection: Connection, options: MonitorOptions, clock: Clock) -> None:
        self._connection = connection
        self._options = options
        self._clock = clock
        self._help = grant(connection.hello.user)
        self._guards: dict[str, Guard] = {}
        self._sql: dict[str, bytes | None] = {}
        self.outcomes: dict[str, Outcome] = {}
        """What came of each statement since `begin`; one that is not here is under way or was not asked."""

    def begin(self) -> None:
        """A new tick: forget the outcomes of the one before."""
        self.outcomes = {}

    def ask(self, statements: Iterable[str]) -> None:
        """Send what may be sent; the others have their outcome at once. Raises ConnectionLost."""
        self._connection.wire.send([segment for name in statements if (segment := self._segment(name)) is not None])

    def ask_with(self, name: str, *params: bytes | None) -> bool:
        """Send one statement with parameters. False: it may not be sent now."""
        text = self._text(name)
        if text is None or self._guard(name).refusal(self._clock.mono_us()) is not None:
            return False
        self._connection.wire.send([self._connection.segment(name, Command(name, text, params))])
        return True

    def note(self, answer: Answer) -> Outcome:
        """What came of a statement, from its answer; its guard learns from it."""
        guard = self._guard(answer.key)
        if answer.error is not None:
            return guard.failed(answer.error, answer.at_us)
        guard.succeeded(answer.took_us, answer.at_us)
        return Answered(self._connection.strip(answer.rows), answer.at_us, answer.took_us)

    def _segment(self, name: str) -> Segment | None:
        text = self._text(name)
        if text is None:
            self.outcomes[name] = self._missing(name)
            return None
        refusal = self._guard(name).refusal(self._clock.mono_us())
        if refusal is not None:
            self.outcomes[name] = refusal
            return None
        commands = [Command(name, text, (settings_param(),) if name == "settings" else ())]
        if name == "activity":
            # Ages are told by the server's clock, of the same moment.
            commands.append(Command("clock", self._text("clock") or b""))
        return self._connection.segment(name, *commands)

    def _text(self, name: str) -> bytes | None:
        if name == "progress":
            return self._connection.progress_sql
        if name not in self._sql:
            self._sql[name] = statement(name, self._connection.hello.version_num)
        return self._sql[name]

    def _missing(self, name: str) -> Refusal:
        if name == "progress":
            return Refusal("error", "the catalog did not say which progress views there are; a reconnect asks again")
        major = self._connection.hello.version_num // 10000
        return Refusal("unsupported", f"needs PostgreSQL {needs_version(name)}, this server is {major}")

    def _guard(self, name: str) -> Guard:
        guard = self._guards.get(name)
        if guard is None:
            guard = self._guards[name] = Guard(self._options, self._help, EACH_SECOND if name in FAST else None)
        return guard
