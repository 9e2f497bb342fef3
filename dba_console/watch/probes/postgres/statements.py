"""The statements of each part, their backoff, and their outcomes.

A statement that is not sent now has a reason, and that reason is an outcome like any other: callers need not know
whether it was refused just now or is paused since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dba_console.core.clock import Clock
from dba_console.core.redact import redact
from dba_console.core.units import human_duration
from dba_console.watch.part import ServerPart
from dba_console.watch.probes.postgres.binary_results import (
    ResultRows,
)
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.connection import MonitorConnection
from dba_console.watch.probes.postgres.pipeline import (
    Command,
    Segment,
    SegmentAnswer,
    ServerError,
    needs_version,
    statement,
)
from dba_console.watch.samples.sample import PARTS, Status

# The parts in the order of sending: the sessions, which decide whether locks are read, then what changes each second,
# then the identity, which all panels use, last what a first picture does not need.

_FAST_S = 2

SERVER_PARTS = {
    part.name: part
    for part in sorted(
        (part for part in PARTS.values() if isinstance(part, ServerPart)),
        key=lambda part: (part.name != "pg.activity", part.every_s > _FAST_S, part.name != "pg.server", not part.first),
    )
}

FAST = frozenset(query.name for part in SERVER_PARTS.values() if part.every_s == 1 for query in part.queries)
"""Statements sent each second."""


def grant_hint(user: str) -> str:
    """Return the GRANT that would give this role the privilege.

    >>> grant_hint('a"b')
    'GRANT pg_monitor TO "a""b" would help'
    """
    quoted = user.replace('"', '""')
    return f'GRANT pg_monitor TO "{quoted}" would help'


# Backoff: a refused statement is not retried each tick, an expensive one is sent less often. Each refusal is a line in
# the server's log, and a monitor must not load the server. SQLSTATEs: PostgreSQL documentation, appendix A.

_UNSUPPORTED = ("42883", "42P01", "42703", "42704", "0A000")
"""undefined function, table, column, object; feature not supported."""
_TIMEOUT = ("57014", "55P03")
"""query_canceled (statement_timeout), lock_not_available (lock_timeout)."""

_FIRST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """How long a statement may pause. Statements that show an incident each second must not pause for long."""

    duty: int = 10
    """An expensive query pauses for this many times its duration."""
    max_pause_s: float = 300.0
    """The longest pause; after a server was frozen, every query that was running looks expensive."""


EVERY_SECOND = BackoffPolicy(duty=2, max_pause_s=5.0)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a statement has no rows now."""

    status: Status
    note: str


class QueryBackoff:
    """Decides for one statement whether it may be sent now. Times are monotonic microseconds."""

    def __init__(self, options: MonitorOptions, help_note: str, policy: BackoffPolicy | None = None) -> None:
        self._options = options
        self._policy = policy or BackoffPolicy()
        self._help = help_note
        self._failures = 0
        self._until_us = 0
        self._refusal: Refusal | None = None

    def refusal(self, now_us: int) -> Refusal | None:
        """Return why it is not sent now; None: send it."""
        return self._refusal if now_us < self._until_us else None

    def succeeded(self, took_us: int, now_us: int) -> None:
        """Record a success; pause if it was expensive."""
        self._failures = 0
        self._refusal = None
        if took_us > self._options.expensive_s * 1e6:
            rest_us = min(took_us * self._policy.duty, int(self._policy.max_pause_s * 1e6))
            self._until_us = now_us + rest_us
            took, rest = human_duration(took_us / 1e6), human_duration(rest_us / 1e6)
            self._refusal = Refusal("stale", f"its query took {took}; paused for {rest}")

    def failed(self, error: ServerError, now_us: int) -> Refusal:
        """Record a failure and return the refusal, which is also given during the pause."""
        self._failures += 1
        refusal = self._explain(error)
        if refusal.status in ("denied", "unsupported"):
            pause_s = self._options.retry_refused_s
        else:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (self._failures - 1), self._policy.max_pause_s)
        self._until_us = now_us + int(pause_s * 1e6)
        self._refusal = refusal
        return refusal

    def _explain(self, error: ServerError) -> Refusal:
        message = redact(error.message)
        if error.sqlstate == "42501":
            return Refusal("denied", f"{message}; {self._help}")
        if error.sqlstate in _UNSUPPORTED:
            return Refusal("unsupported", f"not supported by this server: {message}")
        if error.sqlstate == "55P03":
            limit = human_duration(self._options.lock_timeout_s)
            return Refusal("timeout", f"a lock on a system catalog was not free within {limit}")
        if error.sqlstate in _TIMEOUT:
            limit = human_duration(self._options.statement_timeout_s)
            return Refusal("timeout", f"{message} (limit {limit}); retried less often")
        return Refusal("error", f"{message} (SQLSTATE {error.sqlstate or 'unknown'})")


@dataclass(frozen=True, slots=True)
class StatementRows:
    """Rows of each command of a statement's segment."""

    rows: list[ResultRows]
    at_us: int
    took_us: int


Outcome = StatementRows | Refusal


class StatementRunner:
    """Sends statements over one connection. Backoff state ends with it: a new connection may have other privileges."""

    def __init__(self, connection: MonitorConnection, options: MonitorOptions, clock: Clock) -> None:
        self._connection = connection
        self._options = options
        self._clock = clock
        self._help = grant_hint(connection.hello.user)
        self._guards: dict[str, QueryBackoff] = {}
        self._sql: dict[str, bytes | None] = {}
        self.outcomes: dict[str, Outcome] = {}
        """Outcome of each statement since `begin_tick`; one that is missing here is pending or was not sent."""

    def begin_tick(self) -> None:
        """Start a tick: clear the outcomes of the previous one."""
        self.outcomes = {}

    def send(self, statements: Iterable[str]) -> None:
        """Send the statements that are permitted now; the others get their outcome at once. Raises ConnectionLost."""
        self._connection.pipeline.send([segment for name in statements if (segment := self._segment(name)) is not None])

    def send_with_params(self, name: str, *params: bytes | None) -> bool:
        """Send one statement with parameters; False if it may not be sent now."""
        text = self._text(name)
        if text is None or self._guard(name).refusal(self._clock.mono_us()) is not None:
            return False
        self._connection.pipeline.send([self._connection.segment(name, Command(name, text, params))])
        return True

    def record_answer(self, answer: SegmentAnswer) -> Outcome:
        """Return the outcome of a statement from its answer, and update its backoff."""
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
        commands = [Command(name, text)]
        if name == "activity":
            # Ages are computed by the server's clock, read in the same segment.
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
            return Refusal("error", "could not list the progress views of this server; retried at the next reconnect")
        major = self._connection.hello.version_num // 10000
        return Refusal("unsupported", f"needs PostgreSQL {needs_version(name)}, this server is {major}")

    def _guard(self, name: str) -> QueryBackoff:
        guard = self._guards.get(name)
        if guard is None:
            guard = self._guards[name] = QueryBackoff(self._options, self._help, EVERY_SECOND if name in FAST else None)
        return guard
