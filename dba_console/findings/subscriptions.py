"""Subscriptions that do not go on: their worker fails, is not there, or they are disabled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale
from dba_console.samples.catalog import Subscription, Subscriptions
from dba_console.sanitize import clean
from dba_console.units import human_duration


@dataclass(slots=True)
class SubscriptionState:
    """What is remembered of a subscription."""

    counts: deque[tuple[int, int]] = field(default_factory=deque)
    """(monotonic time, errors counted by then) over the last `subscription_s`, and one before."""
    away_us: int | None = None
    """Monotonic time since when no worker was seen."""


def subscription_failing(s: RuleContext) -> Iterator[Signal]:
    """A subscription, of whichever database, that does not go on.

    A warning where the server counts errors of it anew (pg_stat_subscription_stats, 15 and later; a worker that fails
    is started again every five seconds), where it is enabled and no apply worker ran for a minute, and where an error
    has disabled it (disable_on_error). One that was disabled otherwise is told as a remark: its slot keeps WAL on the
    publisher all the same. Errors of the time before the console began are not told.
    """
    now = s.picture.now("pg.subscriptions", Subscriptions)
    if now is None or s.facts.in_recovery:
        return
    known: dict[tuple[str, str | None], SubscriptionState] = s.memo("subscription-failing").setdefault("known", {})
    for gone in known.keys() - {(row.name, row.database) for row in now.rows}:
        del known[gone]
    for row in now.rows:
        signal = _check(s, row, known.setdefault((row.name, row.database), SubscriptionState()))
        if signal is not None:
            yield signal


def _check(s: RuleContext, row: Subscription, seen: SubscriptionState) -> Signal | None:
    window_s = s.limits.wal.subscription_s
    errors = None if row.apply_errors is None else row.apply_errors + (row.sync_errors or 0)
    fresh = 0 if errors is None else _count_new_errors(seen, s.mono_us, errors, int(window_s * 1e6))
    if row.worker_pid is not None or not row.enabled:
        seen.away_us = None
    elif seen.away_us is None:
        seen.away_us = s.mono_us
    away_s = 0.0 if seen.away_us is None else (s.mono_us - seen.away_us) / 1e6
    if fresh:
        return _signal(row, f"fails: {fresh} {'error' if fresh == 1 else 'errors'} counted lately", fresh, _ERROR)
    if not row.enabled:
        failed = row.disable_on_error and bool(errors)
        why = "was disabled by an error" if failed else "is disabled"
        keeps = ", and its slot keeps WAL on the publisher" if row.has_slot else ""
        return _signal(row, f"{why}{keeps}", fresh, _ERROR if failed else _DISABLED, calm=not failed)
    if away_s >= window_s:
        return _signal(row, f"has no apply worker for {human_duration(away_s)}", fresh, _NO_WORKER)
    return None


def _count_new_errors(seen: SubscriptionState, mono_us: int, errors: int, span_us: int) -> int:
    """Errors counted within the last span; 0 at the first look and after a reset."""
    if seen.counts and errors < seen.counts[-1][1]:
        seen.counts.clear()
    seen.counts.append((mono_us, errors))
    while len(seen.counts) > 1 and mono_us - seen.counts[1][0] >= span_us:
        seen.counts.popleft()
    return errors - seen.counts[0][1]


_ERROR = (
    "The log of this server names the row and the reason. Mend the row, or skip the transaction it names (ALTER "
    "SUBSCRIPTION ... SKIP, 15 and later); then ALTER SUBSCRIPTION ... ENABLE where it is disabled."
)
_NO_WORKER = (
    "The log says why: no connection to the publisher, no such slot there, or no free worker (max_worker_processes, "
    "max_logical_replication_workers)."
)
_DISABLED = "ALTER SUBSCRIPTION ... ENABLE continues it; where it is not wanted, drop it and its slot on the publisher."


def _signal(row: Subscription, what: str, fresh: int, advice: str, *, calm: bool = False) -> Signal:
    name, database = clean(row.name), clean(row.database or "?")
    return Signal(
        severity="info" if calm else "warning",
        subject=f"{database}.{name}",
        text=f"Subscription {name} in database {database} {what}",
        evidence={
            "subscription": name,
            "database": database,
            "enabled": row.enabled,
            "worker_pid": row.worker_pid,
            "apply_errors": row.apply_errors,
            "sync_errors": row.sync_errors,
            "errors_lately": fresh,
            "disable_on_error": row.disable_on_error,
        },
        advice=advice,
    )


SUBSCRIPTION_RULES: tuple[Rule, ...] = (
    Rule(
        name="subscription-failing",
        title="A subscription fails, has no worker, or is disabled",
        parts=("pg.subscriptions",),
        check=keep_signals_while_stale("pg.subscriptions", subscription_failing),
        warm_up_s=60.0,
        clear_after_s=60.0,
        settings=("wal.subscription_s",),
        source="pg_stat_subscription_stats (15 and later); PostgreSQL: Logical Replication, Conflicts",
    ),
)
