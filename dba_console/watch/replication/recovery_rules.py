"""Rules about what a server applies: the WAL receiver and replay of this standby, cancelled queries, subscriptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.findings.thresholds import Computed, Judgement, RuleThresholds
from dba_console.watch.lsn import lsn_distance
from dba_console.watch.replication.panel import apply_delay_s
from dba_console.watch.replication.readings import Replication, Subscription, Subscriptions
from dba_console.watch.safety.readings import DatabaseStats


class RecoveryLimits(RuleThresholds, frozen=True):
    """`[findings.wal]`: subscriptions and recovery conflicts."""

    family = "wal"

    subscription_s: Computed[float] = 60.0
    """Reported after this time: an enabled subscription without an apply worker. Twelve attempts of the launcher, one
    every five seconds (wal_retrieve_retry_interval)."""
    conflicts_window_s: Judgement[float] = 600.0
    """Time over which queries cancelled by recovery on a standby are counted."""
    conflicts_warn: Judgement[int] = 10
    """Warning from this many cancelled queries within it, since one a minute is not an accident; below it info."""


# Queries that a standby cancels so that replay can continue.

Counts = dict[str, int]


def standby_conflicts(s: RuleContext) -> Iterator[Signal]:
    """Queries this standby cancelled for conflicts with recovery within ten minutes: info, and a warning from ten.

    Counted by pg_stat_database, so for every database, and only since the console started. Their kind is in
    pg_stat_database_conflicts.
    """
    stats = s.picture.now("pg.databases", DatabaseStats)
    if stats is None or not s.facts.in_recovery:
        s.memo("standby-conflicts").clear()
        return
    counts: Counts = {row.name: row.conflicts for row in stats.rows if row.name is not None and row.conflicts}
    readings: deque[tuple[int, Counts]] = s.memo("standby-conflicts").setdefault("readings", deque())
    if readings and any(counts.get(name, 0) < count for name, count in readings[-1][1].items()):
        readings.clear()  # reset, or a database was dropped
    if not readings or counts != readings[-1][1]:
        readings.append((s.mono_us, counts))
    window_s = s.limits.of(RecoveryLimits).conflicts_window_s
    while len(readings) > 1 and s.mono_us - readings[1][0] >= window_s * 1e6:
        readings.popleft()
    fresh = {name: count - readings[0][1].get(name, 0) for name, count in counts.items()}
    total = sum(fresh.values())
    if not total:
        return
    worst = clean(max(fresh, key=fresh.__getitem__))
    many = "1 query was" if total == 1 else f"{total} queries were"
    yield Signal(
        severity="warning" if total >= s.limits.of(RecoveryLimits).conflicts_warn else "info",
        text=f"{many} cancelled on this standby by replay within {human_duration(window_s)}, most in {worst}",
        evidence={"conflicts": total, "conflicts_window_s": window_s, "database": worst},
        advice="pg_stat_database_conflicts shows the kind. Snapshots: hot_standby_feedback, which causes bloat on the "
        "primary; locks: DDL and VACUUM truncation there. max_standby_streaming_delay allows more time, and more lag.",
    )


CONFLICT_RULES: tuple[Rule, ...] = (
    Rule(
        name="standby-conflicts",
        title="Replay cancels queries on this standby",
        parts=("pg.databases",),
        check=keep_signals_while_stale("pg.databases", standby_conflicts),
        settings=(
            RecoveryLimits.conflicts_window_s,
            RecoveryLimits.conflicts_warn,
        ),
        source="pg_stat_database.conflicts; PostgreSQL: Handling Query Conflicts (26.4.2)",
    ),
)


# Recovery of this standby: it receives no WAL, or its replay is paused.

RECEIVER_S = 30.0
"""A restarted primary is back by then, and the receiver five seconds later (wal_retrieve_retry_interval)."""
IDLE_S = 60.0
"""If the last replayed commit is older: the stream stopped long ago, or the primary has no commits."""
RETRY_S = 6.0
"""Then raised after this time: one attempt to reconnect, plus a margin."""

TARGETS = (
    "recovery_target", "recovery_target_lsn", "recovery_target_name", "recovery_target_time", "recovery_target_xid",
)  # fmt: skip


def wal_receiver_down(s: RuleContext) -> Iterator[Signal]:
    """This standby has primary_conninfo set, but no WAL receiver streams and nothing is replayed from an archive.

    Raised at once if the server reports since when: it has received nothing since it started, half a minute ago or
    more, and has no archive to restore from. After eight seconds if the console never saw it stream and the last
    replayed transaction was committed more than a minute ago; the server does not report since when it receives
    nothing, and on an idle primary that age says little. Otherwise after half a minute, longer than a primary needs to
    restart.

    After a restart, a standby with recovery_min_apply_delay starts its receiver only when it has replayed the WAL it
    had: info until that time has passed.

    A standby that only restores from an archive has no primary_conninfo, and is not checked; one whose replay continues
    without a receiver reads from its archive or from pg_wal. If the role cannot see primary_conninfo, only a standby
    without restore_command is checked.
    """
    now = s.picture.now("pg.replication", Replication)
    if now is None:
        return
    memo = s.memo("wal-receiver-down")
    before, memo["lsn"] = memo.get("lsn"), now.lsn
    if not now.in_recovery or is_receiving(now):
        memo["streamed"] = now.in_recovery
        memo.pop("begun_us", None)
        return
    if not _should_receive(now) or now.lsn != before:
        return
    commit_s, up_s = age_s(now.now_us, now.replay_at), _up_s(s, now)
    never = _received_nothing(now) and not memo.get("streamed")
    lasted_s, text = 0.0, "This standby receives no WAL: no WAL receiver is streaming"
    if never and up_s is not None:
        text += f" since the server started {human_duration(up_s)} ago"
    elif commit_s is not None:
        text += f"; the last transaction replayed was committed {human_duration(commit_s)} ago"
    if never and up_s is not None:
        lasted_s = up_s
    elif not memo.get("streamed") and commit_s is not None and commit_s >= IDLE_S:
        lasted_s = RECEIVER_S - RETRY_S
    yield Signal(
        severity="info" if never and up_s is not None and up_s < (apply_delay_s(s.facts) or 0.0) else "warning",
        text=text + _delay_text(s),
        cause="it receives no WAL: no WAL receiver is streaming",
        evidence={
            "receiver_status": now.receiver_status,
            "last_commit_age_s": commit_s,
            "uptime_s": up_s,
            "replay_paused": now.replay_paused,
            "apply_delay_s": apply_delay_s(s.facts),
        },
        series=("replication.lag_s", "replication.wal_bytes_per_s"),
        since_us=_since(s, memo, up_s if never else None),
        lasted_s=lasted_s,
        runbook="standby-lag",
        advice=_RECEIVER_ADVICE,
    )


_RECEIVER_ADVICE = (
    "The log of this server shows why the receiver ends (no connection, no such slot, WAL segment already removed). "
    "Check that the primary runs and accepts it: primary_conninfo, pg_hba.conf, max_wal_senders."
)


def _should_receive(now: Replication) -> bool:
    """Whether its WAL should come over a connection; if that is hidden, whether it has no other source."""
    return now.primary_conninfo_set or (now.primary_conninfo_set is None and now.restore_command_set is False)


def is_receiving(now: Replication) -> bool:
    """Whether a WAL receiver streams; assumed if this role cannot see its status."""
    return now.receiver_status == "streaming" or (now.has_receiver and now.receiver_status is None)


def _received_nothing(now: Replication) -> bool:
    """Whether no WAL was received since the server started: it replayed only what was in pg_wal before.

    A receiver requests from the start of a segment, and its position shows that before anything has arrived
    (RequestXLogStreaming in walreceiverfuncs.c). WAL from an archive may be beyond the received position.
    """
    if now.restore_command_set:
        return False
    return now.receive_lsn is None or (now.lsn is not None and now.receive_lsn < now.lsn)


def _since(s: RuleContext, memo: dict[str, Any], up_s: float | None) -> int:
    begun_us: int = memo.setdefault("begun_us", s.now_us)
    return begun_us if up_s is None else s.now_us - int(up_s * 1e6)


def _up_s(s: RuleContext, now: Replication) -> float | None:
    server = s.facts.server
    return None if server is None else age_s(now.now_us, server.start_us)


def _delay_text(s: RuleContext) -> str:
    """Return why the server does not even try: it starts a receiver when replay reaches the end of the WAL it has."""
    delay_s = apply_delay_s(s.facts)
    if delay_s is None:
        return ""
    return (
        f"; replay may wait for recovery_min_apply_delay ({human_duration(delay_s)}), "
        "and a receiver starts only when replay needs more WAL"
    )


def replay_paused(s: RuleContext) -> Iterator[Signal]:
    """Replay on this standby is paused: queries see increasingly old data, and WAL accumulates.

    Raised from the first reading. Info if a recovery target is set: recovery pauses when it reaches one.
    """
    now = s.picture.now("pg.replication", Replication)
    if now is None or not now.in_recovery or not now.replay_paused:
        return
    waiting, commit_s = lsn_distance(now.receive_lsn, now.lsn), age_s(now.now_us, now.replay_at)
    text = "Replay on this standby is paused"
    if waiting:
        text += f": {human_bytes(waiting)} of WAL received and not replayed"
    target = next((name for name in TARGETS if s.facts.setting(name)), None)
    yield Signal(
        severity="warning" if target is None else "info",
        text=text if target is None else f"{text}, with {target} set",
        effect="replay on this standby is paused",
        cause="replay is paused",
        evidence={
            "replay_paused": True,
            "lag_bytes": waiting,
            "last_commit_age_s": commit_s,
            "recovery_target": target,
        },
        series=("replication.lag_bytes", "replication.lag_s"),
        runbook="standby-lag",
        advice=_PAUSE_ADVICE if target is None else _TARGET_ADVICE,
    )


_PAUSE_ADVICE = (
    "SELECT pg_wal_replay_resume() continues it. Check the server log first: if it paused because a setting is lower "
    "than on the primary, resuming shuts this server down."
)
_TARGET_ADVICE = (
    "Check that the data is what you want. After a target was reached, SELECT pg_wal_replay_resume() ends recovery: "
    "the server becomes a primary."
)

RECOVERY_RULES: tuple[Rule, ...] = (
    Rule(
        name="wal-receiver-down",
        title="This standby receives no WAL",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", wal_receiver_down),
        raise_after_s=RECEIVER_S,
        runbook="standby-lag",
        source="pg_stat_wal_receiver, primary_conninfo, pg_last_wal_receive_lsn; wal_retrieve_retry_interval 5 s",
    ),
    Rule(
        name="replay-paused",
        title="Replay on this standby is paused",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", replay_paused),
        clear_after_s=0.0,
        runbook="standby-lag",
        source="pg_is_wal_replay_paused; PostgreSQL: Recovery Control Functions (9.28.4), Hot Standby (26.4)",
    ),
)


# Subscriptions that do not progress: the worker fails or is missing, or they are disabled.


@dataclass(slots=True)
class SubscriptionState:
    """Errors and missing worker of a subscription over time."""

    counts: deque[tuple[int, int]] = field(default_factory=deque)
    """(monotonic time, errors counted by then) over the last `subscription_s`, plus one before."""
    away_us: int | None = None
    """Monotonic time since when no worker has been seen."""


def subscription_failing(s: RuleContext) -> Iterator[Signal]:
    """A subscription of any database does not progress.

    A warning if the server counts new errors for it (pg_stat_subscription_stats, 15 and later; a failing worker is
    restarted every five seconds), if it is enabled and had no apply worker for a minute, or if an error disabled it
    (disable_on_error). A subscription disabled otherwise is info: its slot still retains WAL on the publisher. Errors
    from before the console started are not counted.
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
    window_s = s.limits.of(RecoveryLimits).subscription_s
    errors = None if row.apply_errors is None else row.apply_errors + (row.sync_errors or 0)
    fresh = 0 if errors is None else _count_new_errors(seen, s.mono_us, errors, int(window_s * 1e6))
    if row.worker_pid is not None or not row.enabled:
        seen.away_us = None
    elif seen.away_us is None:
        seen.away_us = s.mono_us
    away_s = 0.0 if seen.away_us is None else (s.mono_us - seen.away_us) / 1e6
    if fresh:
        return _signal(row, f"fails: {fresh} {'error' if fresh == 1 else 'errors'} counted recently", fresh, _ERROR)
    if not row.enabled:
        failed = row.disable_on_error and bool(errors)
        why = "was disabled by an error" if failed else "is disabled"
        keeps = ", and its slot retains WAL on the publisher" if row.has_slot else ""
        return _signal(row, f"{why}{keeps}", fresh, _ERROR if failed else _DISABLED, calm=not failed)
    if away_s >= window_s:
        return _signal(row, f"has had no apply worker for {human_duration(away_s)}", fresh, _NO_WORKER)
    return None


def _count_new_errors(seen: SubscriptionState, mono_us: int, errors: int, span_us: int) -> int:
    """Return the errors counted within the last span; 0 at the first reading and after a reset."""
    if seen.counts and errors < seen.counts[-1][1]:
        seen.counts.clear()
    seen.counts.append((mono_us, errors))
    while len(seen.counts) > 1 and mono_us - seen.counts[1][0] >= span_us:
        seen.counts.popleft()
    return errors - seen.counts[0][1]


_ERROR = (
    "The log of this server shows the row and the reason. Fix the row, or skip the transaction it names (ALTER "
    "SUBSCRIPTION ... SKIP, 15 and later); then ALTER SUBSCRIPTION ... ENABLE if it is disabled."
)
_NO_WORKER = (
    "The log shows why: no connection to the publisher, no such slot there, or no free worker (max_worker_processes, "
    "max_logical_replication_workers)."
)
_DISABLED = "ALTER SUBSCRIPTION ... ENABLE continues it; if it is not needed, drop it and its slot on the publisher."


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
        settings=(RecoveryLimits.subscription_s,),
        source="pg_stat_subscription_stats (15 and later); PostgreSQL: Logical Replication, Conflicts",
    ),
)
