"""Statements on the wire, each under its guard, and what came of them.

What is not asked now has a reason, and the reason is an outcome like any other: nobody above needs to know whether a
query was refused a moment ago or is resting since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dba_console.clock import Clock
from dba_console.probes.postgres.binary_results import Row
from dba_console.probes.postgres.connection import MonitorConnection
from dba_console.probes.postgres.monitor_options import MonitorOptions
from dba_console.probes.postgres.part_statements import FAST, grant_hint
from dba_console.probes.postgres.pipeline_messages import Command, Segment, SegmentAnswer
from dba_console.probes.postgres.query_backoff import EVERY_SECOND, QueryBackoff, Refusal
from dba_console.probes.postgres.readings.server import settings_param
from dba_console.probes.postgres.sql_files import needs_version, statement


@dataclass(frozen=True, slots=True)
class StatementRows:
    """Rows of each command of a statement's segment."""

    rows: list[list[Row]]
    at_us: int
    took_us: int


Outcome = StatementRows | Refusal


class StatementRunner:
    """Asks one server, over one connection. Guards live as long: a new connection may have new rights."""

    def __init__(self, connection: MonitorConnection, options: MonitorOptions, clock: Clock) -> None:
        self._connection = connection
        self._options = options
        self._clock = clock
        self._help = grant_hint(connection.hello.user)
        self._guards: dict[str, QueryBackoff] = {}
        self._sql: dict[str, bytes | None] = {}
        self.outcomes: dict[str, Outcome] = {}
        """What came of each statement since `begin_tick`; one that is not here is under way or was not asked."""

    def begin_tick(self) -> None:
        """A new tick: forget the outcomes of the one before."""
        self.outcomes = {}

    def send(self, statements: Iterable[str]) -> None:
        """Send what may be sent; the others have their outcome at once. Raises ConnectionLost."""
        self._connection.pipeline.send([segment for name in statements if (segment := self._segment(name)) is not None])

    def send_with_params(self, name: str, *params: bytes | None) -> bool:
        """Send one statement with parameters. False: it may not be sent now."""
        text = self._text(name)
        if text is None or self._guard(name).refusal(self._clock.mono_us()) is not None:
            return False
        self._connection.pipeline.send([self._connection.segment(name, Command(name, text, params))])
        return True

    def record_answer(self, answer: SegmentAnswer) -> Outcome:
        """What came of a statement, from its answer; its guard learns from it."""
        guard = self._guard(answer.key)
        if answer.error is not None:
            return guard.failed(answer.error, answer.at_us)
        guard.succeeded(answer.took_us, answer.at_us)
        return StatementRows(self._connection.strip(answer.rows), answer.at_us, answer.took_us)

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

    def _guard(self, name: str) -> QueryBackoff:
        guard = self._guards.get(name)
        if guard is None:
            guard = self._guards[name] = QueryBackoff(self._options, self._help, EVERY_SECOND if name in FAST else None)
        return guard
