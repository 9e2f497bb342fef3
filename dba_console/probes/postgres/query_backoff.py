"""What was refused is not asked each tick; what was dear is asked more rarely.

Each refusal is a line in the server's log, and a monitor that hurts is turned off. One guard to a statement. SQLSTATEs:
PostgreSQL documentation, appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass

from dba_console.probes.postgres.monitor_options import MonitorOptions
from dba_console.probes.postgres.pipeline_messages import ServerError
from dba_console.redact import redact
from dba_console.samples.sample import Status
from dba_console.units import human_duration

_UNSUPPORTED = ("42883", "42P01", "42703", "42704", "0A000")
"""undefined function, table, column, object; feature not supported."""
_TIMEOUT = ("57014", "55P03")
"""query_canceled (statement_timeout), lock_not_available (lock_timeout)."""

_FIRST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """How long a statement may rest. What shows an incident each second must not be blind through it."""

    duty: int = 10
    """A dear query rests this many times as long as it took."""
    max_pause_s: float = 300.0
    """The longest rest, whatever for; a server that was frozen made every query dear that was under way."""


EVERY_SECOND = BackoffPolicy(duty=2, max_pause_s=5.0)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a statement has no rows now."""

    status: Status
    note: str


class QueryBackoff:
    """Decides for one statement whether it may be sent now. Times are monotonic microseconds."""

    def __init__(self, options: MonitorOptions, help_note: str, patience: BackoffPolicy | None = None) -> None:
        self._options = options
        self._policy = patience or BackoffPolicy()
        self._help = help_note
        self._failures = 0
        self._until_us = 0
        self._refusal: Refusal | None = None

    def refusal(self, now_us: int) -> Refusal | None:
        """Why it is not sent now; None: send it."""
        return self._refusal if now_us < self._until_us else None

    def succeeded(self, took_us: int, now_us: int) -> None:
        """It answered; if it took long it rests."""
        self._failures = 0
        self._refusal = None
        if took_us > self._options.expensive_s * 1e6:
            rest_us = min(took_us * self._policy.duty, int(self._policy.max_pause_s * 1e6))
            self._until_us = now_us + rest_us
            took, rest = human_duration(took_us / 1e6), human_duration(rest_us / 1e6)
            self._refusal = Refusal("stale", f"its query took {took}, so it rests for {rest}")

    def failed(self, error: ServerError, now_us: int) -> Refusal:
        """It failed; the sentence for the part, also given while it rests."""
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
            return Refusal("unsupported", f"this server cannot answer it: {message}")
        if error.sqlstate == "55P03":
            limit = human_duration(self._options.lock_timeout_s)
            return Refusal("timeout", f"a lock on a system catalog was not free within {limit}")
        if error.sqlstate in _TIMEOUT:
            limit = human_duration(self._options.statement_timeout_s)
            return Refusal("timeout", f"{message} (limit {limit}); it is asked more rarely now")
        return Refusal("error", f"{message} (SQLSTATE {error.sqlstate or 'unknown'})")
