"""Rules about standbys: missing ones, commits that wait for a synchronous standby, lag, delay by design.

A standby's values that the role cannot see are unknown and raise nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.findings.phrases import sessions_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale, unobserved_us
from dba_console.watch.findings.thresholds import Computed, Judgement, Ordered, RuleThresholds
from dba_console.watch.lsn import lsn_distance
from dba_console.watch.replication.panel import apply_delay_s
from dba_console.watch.replication.readings import Replication, Slot, Standby
from dba_console.watch.samples.findings import Severity


class StandbyLimits(RuleThresholds, frozen=True):
    """`[findings.wal]`: standbys, as the primary sees them."""

    family = "wal"

    lag_warn_s: Judgement[float] = 60.0
    """Warning if a standby lags by this time: earlier than repmgr (replication_lag_warning, 300), as clients read from
    it."""
    lag_critical_s: Judgement[float] = 600.0
    """Critical if a standby lags by this time, as repmgr's replication_lag_critical."""
    lag_bytes: Judgement[int] = 1024**3
    """Warning if a standby has not replayed this much WAL and lags by `lag_bytes_s`."""
    lag_bytes_s: Judgement[float] = 30.0
    """Minimum lag in time for `lag_bytes`: on a busy server a gigabyte is a few seconds."""
    delayed_standbys: list[str] = []
    """Names (application_name) of standbys with recovery_min_apply_delay, which a primary cannot see: no warning."""
    standby_known_s: Judgement[float] = 60.0
    """A standby must have streamed for this long before it can be missing, unlike tests and base backups."""
    standby_gone_s: Computed[float] = 10.0
    """A standby is missing after this time: twice the wait of a restarted receiver before it connects
    (wal_retrieve_retry_interval)."""
    standby_forget_s: Judgement[float] = 86_400.0
    """A standby gone for this long is not missing any more: it was removed on purpose."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.lag_warn_s, cls.lag_critical_s),)


# Names of standbys that outlive their connections: after a restart, another process id is still the same standby.

_TABLE_SYNC = re.compile(r"pg_\d+_sync_\d+_")
"""ReplicationSlotNameForTablesync() in tablesync.c: workers that copy one table and end."""

StandbyName = tuple[str, str | None, int]
"""Application, address, and a number among those that share both."""


def name_standbys(standbys: Iterable[Standby]) -> Iterator[tuple[StandbyName, Standby]]:
    """Yield standbys and subscribers that stream and replay, each under a unique name that outlives its connection."""
    taken: dict[tuple[str, str | None], int] = {}
    for row in standbys:
        if row.state not in ("streaming", "catchup") or row.replay_lsn is None or _TABLE_SYNC.match(row.application):
            continue
        host = None if row.client is None else row.client.rpartition(":")[0] or row.client
        key = (row.application, host)
        taken[key] = taken.get(key, 0) + 1
        yield (*key, taken[key]), row


def logical_readers(slots: Iterable[Slot]) -> set[int]:
    """Return the processes that read logical slots: they serve subscribers, not standbys."""
    return {slot.active_pid for slot in slots if slot.kind == "logical" and slot.active_pid is not None}


def standby_subject(name: StandbyName) -> str:
    """Return the name as in a sentence and in the id of a finding."""
    application, host, number = name
    text = clean(application) or "without a name"
    if application == "walreceiver" and host:
        text += f" at {clean(host)}"
    return text if number == 1 else f"{text} ({number})"


SYNCHRONOUS = ("sync", "quorum")


@dataclass(slots=True)
class KnownStandby:
    """A standby that streams, or did."""

    pid: int
    first_us: int
    """Monotonic time since when it streams."""
    last_us: int
    gone_us: int
    """Wall time it was last seen."""
    sync_state: str | None
    noun: str = "standby"


def standby_gone(s: RuleContext) -> Iterator[Signal]:
    """A standby or subscriber that streamed for a minute has been missing for ten seconds; critical if
    synchronous_standby_names requires more than are left, since every commit then waits. Also critical if commits have
    waited for ten seconds for a standby that was never seen.

    Standbys that streamed for less than a minute, base backups, pg_receivewal and workers that copy one table are not
    missed. A server that became a standby has no standbys to miss.
    """
    now = s.picture.now("pg.replication", Replication)
    if now is None or _are_standbys_unknown(s):
        return
    memo = s.memo("standby-gone")
    if now.in_recovery:
        memo.clear()
        return
    known: dict[StandbyName, KnownStandby] = memo.setdefault("known", {})
    unobserved = unobserved_us(memo, s.mono_us)
    for seen in known.values():
        seen.first_us, seen.last_us = seen.first_us + unobserved, seen.last_us + unobserved
    _update_known(s, known, now)
    missing = max(
        0,
        _synchronous_required(s)
        - sum(row.sync_state in SYNCHRONOUS and row.state == "streaming" for row in now.standbys),
    )
    waiting = _waiting_commits(s) if missing else 0
    allowed_us = s.limits.of(StandbyLimits).standby_gone_s * 1e6
    gone = [(name, seen) for name, seen in known.items() if s.mono_us - seen.last_us >= allowed_us]
    for name, seen in gone:
        yield _gone_signal(s, name, seen, missing=missing, waiting=waiting)
    since_us = memo.setdefault("waiting_us", s.mono_us) if missing and waiting else memo.pop("waiting_us", None)
    lasted = since_us is not None and s.mono_us - since_us >= allowed_us
    if missing and waiting and lasted and not gone:
        yield _commits_wait_signal(missing, waiting)


def _are_standbys_unknown(s: RuleContext) -> bool:
    """Whether the part was read without its standbys: they are unknown then, not gone."""
    reading = s.picture.current.get("pg.replication")
    return reading is not None and "standbys not known" in (reading.part.note or "")


def _update_known(s: RuleContext, known: dict[StandbyName, KnownStandby], now: Replication) -> None:
    limits, logical = s.limits.of(StandbyLimits), logical_readers(now.slots)
    for name, row in name_standbys(now.standbys):
        seen = known.get(name)
        if seen is None or (seen.pid != row.pid and s.mono_us - seen.last_us > limits.standby_gone_s * 1e6):
            # It may have streamed since long before the agent started: the view shows since when.
            age = age_s(s.facts.server_now_us, row.backend_start)
            seen = known[name] = KnownStandby(row.pid, s.mono_us - int((age or 0.0) * 1e6), 0, 0, None)
        seen.noun = "subscriber" if row.pid in logical else "standby"
        seen.pid, seen.last_us, seen.gone_us, seen.sync_state = row.pid, s.mono_us, s.now_us, row.sync_state
    for name, seen in list(known.items()):
        away_s, stayed_s = (s.mono_us - seen.last_us) / 1e6, (seen.last_us - seen.first_us) / 1e6
        if away_s > limits.standby_forget_s or (away_s > 0 and stayed_s < limits.standby_known_s):
            del known[name]


def _gone_signal(s: RuleContext, name: StandbyName, seen: KnownStandby, *, missing: int, waiting: int) -> Signal:
    subject = standby_subject(name)
    hangs = missing > 0 and seen.sync_state in SYNCHRONOUS
    streamed_s = (seen.last_us - seen.first_us) / 1e6
    text = f"{seen.noun.capitalize()} {subject} is gone after streaming for {human_duration(streamed_s)}"
    if hangs:
        text += f": commits wait for a synchronous standby ({sessions_text(waiting)} now)"
    return Signal(
        severity="critical" if hangs else "warning",
        text=text,
        subject=subject,
        cause=f"{seen.noun} {subject} is gone",
        evidence={
            "application": subject,
            "pid": seen.pid,
            "sync_state": seen.sync_state,
            "synchronous_missing": missing,
            "waiting_commits": waiting,
        },
        since_us=seen.gone_us,
        series=("replication.lag_bytes", "connections.active"),
        advice=_SYNC_ADVICE if hangs else f"Check whether the {seen.noun} runs and can connect; its log shows why not.",
    )


def _commits_wait_signal(missing: int, waiting: int) -> Signal:
    return Signal(
        severity="critical",
        text=f"{sessions_text(waiting)} for a standby to commit: synchronous_standby_names requires {missing} more "
        "than stream",
        evidence={"synchronous_missing": missing, "waiting_commits": waiting},
        series=("connections.active",),
        advice=_SYNC_ADVICE,
    )


_SYNC_ADVICE = (
    "Bring the standby back, or remove it from synchronous_standby_names and reload: commits continue without its copy."
)


def count_synchronous(setting: str | None) -> int:
    """Return how many synchronous standbys synchronous_standby_names requires; 0 if none (syncrep_gram.y).

    >>> [count_synchronous(text) for text in ("", "*", "a, b", "FIRST 2 (a, b)", "ANY 1 (*)", "2 (a, b)")]
    [0, 1, 1, 2, 1, 2]
    """
    if not setting or not setting.strip():
        return 0
    counted = re.match(r"\s*(?:first|any)?\s*(\d+)\s*\(", setting, re.IGNORECASE)
    return 1 if counted is None else int(counted[1])


def _synchronous_required(s: RuleContext) -> int:
    """Return how many the server requires, evaluated only when its settings were read again."""
    memo, reading = s.memo("standby-gone"), s.picture.current.get("pg.server")
    if reading is None:
        return 0
    if memo.get("settings_us") != reading.part.at_us:
        memo["settings_us"] = reading.part.at_us
        memo["wanted"] = count_synchronous(s.facts.setting("synchronous_standby_names"))
    return int(memo["wanted"])


def _waiting_commits(s: RuleContext) -> int:
    """Count sessions whose commit waits for a standby (wait event SyncRep), as last seen."""
    sessions = s.facts.sessions
    return 0 if sessions is None else sum(row.wait_event == "SyncRep" for row in sessions.rows)


GONE_RULES: tuple[Rule, ...] = (
    Rule(
        name="standby-gone",
        title="A standby that streamed is gone, or commits wait for one",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", standby_gone),
        warm_up_s=10.0,
        clear_after_s=0.0,
        settings=(
            StandbyLimits.standby_known_s,
            StandbyLimits.standby_gone_s,
            StandbyLimits.standby_forget_s,
        ),
        source="pg_stat_replication; synchronous_standby_names; wal_retrieve_retry_interval 5 s",
    ),
)


# Lag: of standbys, by what they report; of this standby, by what it received and replayed.

CLEAR_SHARE = 0.7
MAX_DELAY_POINTS = 60
"""Positions remembered over a standby's delay: the resolution of the time since when WAL waits."""


def replication_lag(s: RuleContext) -> Iterator[Signal]:
    """A standby or subscriber lags: a warning from a minute, or from a gigabyte and half a minute (if the time is not
    known, a gigabyte that does not decrease), critical from ten minutes; shows whether sending, writing or replaying is
    slow.

    On a primary, each by its own report; a reported lag counts as time it has lasted. On a standby, by what it received
    and replayed. Without a stream only the age of the last commit is known, which also grows on an idle primary: info,
    and a warning only if a stream was seen before.

    A standby with recovery_min_apply_delay lags by design: on itself only WAL received longer ago than that delay and
    still not replayed counts, from when the console saw it received. The primary does not know the delay: list the
    standby's application_name in findings.wal.delayed_standbys there. `standby-delayed` reports both.
    """
    now = s.picture.now("pg.replication", Replication)
    if now is None:
        return
    if now.in_recovery:
        yield from _own_lag_signals(s, now)
        return
    logical = logical_readers(now.slots)
    standbys = [(name, row) for name, row in name_standbys(now.standbys) if not _is_delayed_by_design(s, row)]
    known = s.memo("replication-lag").get("bytes", {})
    for gone in known.keys() - {standby_subject(name) for name, _ in standbys}:
        del known[gone]
    for name, row in standbys:
        yield from _lag_signals(s, now, name, row, "Subscriber" if row.pid in logical else "Standby")


def _is_delayed_by_design(s: RuleContext, row: Standby) -> bool:
    return row.application in s.limits.of(StandbyLimits).delayed_standbys


def _lag_signals(s: RuleContext, now: Replication, name: StandbyName, row: Standby, word: str) -> Iterator[Signal]:
    lag_bytes, lag_s = lsn_distance(now.lsn, row.replay_lsn), row.replay_lag_s
    if lag_bytes is None:
        return
    if lag_bytes == 0:
        lag_s = None  # the last report before it caught up
    subject = standby_subject(name)
    if not _is_behind(s, lag_s, lag_bytes, subject):
        return
    sent, flushed = lsn_distance(now.lsn, row.sent_lsn), lsn_distance(now.lsn, row.flush_lsn)
    time_text = "" if lag_s is None else f"{human_duration(lag_s)}, "
    where = _lag_stage(sent, flushed, lag_bytes)
    yield Signal(
        severity=_lag_severity(s, lag_s),
        text=f"{word} {subject} is behind by {time_text}{human_bytes(lag_bytes)} of WAL, most of it {where}",
        subject=subject,
        evidence={
            "application": subject,
            "pid": row.pid,
            "lag_s": lag_s,
            "lag_bytes": lag_bytes,
            "sent_lag_bytes": sent,
            "flush_lag_bytes": flushed,
            "sync_state": row.sync_state,
        },
        series=("replication.lag_bytes", "replication.lag_s", "replication.wal_bytes_per_s"),
        lasted_s=lag_s or 0.0,
        runbook="standby-lag" if word == "Standby" else None,
        advice=_LAG_ADVICE[where],
    )


_LAG_ADVICE = {
    "not sent": "Check the network to the standby, and the CPU of its walsender.",
    "not flushed": "Check the standby's disk: it receives faster than it writes.",
    "not replayed": "Check the standby: a query that conflicts with replay, replay paused, recovery_min_apply_delay, "
    "or a slow disk.",
}


def _lag_stage(sent: int | None, flushed: int | None, replayed: int) -> str:
    """Return the stage with most of the distance."""
    first, second = sent or 0, max(0, (flushed or 0) - (sent or 0))
    parts = {"not sent": first, "not flushed": second, "not replayed": replayed - first - second}
    return max(parts, key=parts.__getitem__)


def _own_lag_signals(s: RuleContext, now: Replication) -> Iterator[Signal]:
    """Yield the lag of this standby. If all that a live stream brought is replayed, it does not lag. Without a stream
    only the age of the last commit is known, which grows on an idle primary: info, unless a stream was seen before.
    """
    streaming = now.receiver_status == "streaming"
    memo = s.memo("replication-lag")
    memo["streamed"] = streaming or memo.get("streamed", False)
    lag_bytes = lsn_distance(now.receive_lsn, now.lsn)
    delay_s = apply_delay_s(s.facts)
    overdue_s = None if delay_s is None else _overdue_s(s, now, delay_s)
    if streaming and lag_bytes == 0:
        return
    lag_s = age_s(now.now_us, now.replay_at)
    if delay_s is not None and streaming:
        if _is_behind(s, overdue_s, None, ""):
            yield _overdue_signal(s, now, overdue_s or 0.0, delay_s)
        return
    beyond_s = None if lag_s is None else lag_s - (delay_s or 0.0)
    if not _is_behind(s, beyond_s, lag_bytes if streaming else None, ""):
        return
    size = f", {human_bytes(lag_bytes)} received and not replayed" if lag_bytes else ""
    stream = "" if streaming else ", no WAL is streaming in"
    shown = f"This standby shows data committed {human_duration(lag_s)} ago{size}"
    severity: Severity = _lag_severity(s, beyond_s) if streaming else "warning"
    yield Signal(
        severity=severity if streaming or memo["streamed"] else "info",
        text=shown + stream,
        effect=shown,
        evidence={
            "lag_s": lag_s,
            "lag_bytes": lag_bytes,
            "replay_paused": now.replay_paused,
            "receiver_status": now.receiver_status,
        },
        series=("replication.lag_bytes", "replication.lag_s"),
        runbook="standby-lag",
    )


def _overdue_s(s: RuleContext, now: Replication, delay_s: float) -> float | None:
    """Return how many seconds the oldest WAL not replayed exceeds the delay, by when it was received; else None.

    The age of the last replayed commit is useless here: after an hour without commits, the next commit waits for the
    whole delay, and meanwhile the last one is that hour old.
    """
    memo = s.memo("replication-lag")
    received: list[tuple[int, int]] = memo.setdefault("received", [])
    if now.lsn is None or now.receive_lsn is None:
        return None
    every_us = max(delay_s, s.limits.of(StandbyLimits).lag_warn_s) * 1e6 / MAX_DELAY_POINTS
    if not received or (now.receive_lsn > received[-1][1] and s.mono_us - received[-1][0] >= every_us):
        received.append((s.mono_us, now.receive_lsn))
    if len(received) > 2 * MAX_DELAY_POINTS:  # replay is stuck: only the first point matters
        received[1:-1] = received[1:-1:2]
    received[:] = [point for point in received if point[1] > now.lsn]
    late_s = (s.mono_us - received[0][0]) / 1e6 - delay_s if received else 0.0
    return late_s if late_s > 0 else None


def _overdue_signal(s: RuleContext, now: Replication, overdue_s: float, delay_s: float) -> Signal:
    lag_bytes = lsn_distance(now.receive_lsn, now.lsn)
    return Signal(
        severity=_lag_severity(s, overdue_s),
        text=f"This standby is behind by {human_duration(overdue_s)} more than its recovery_min_apply_delay of "
        f"{human_duration(delay_s)}, {human_bytes(lag_bytes)} received and not replayed",
        evidence={"overdue_s": overdue_s, "apply_delay_s": delay_s, "lag_bytes": lag_bytes},
        series=("replication.lag_bytes", "replication.lag_s"),
        runbook="standby-lag",
    )


def _is_behind(s: RuleContext, lag_s: float | None, lag_bytes: int | None, subject: str) -> bool:
    limits, rule = s.limits.of(StandbyLimits), "replication-lag"
    far = _is_far(s, lag_s, lag_bytes, subject)
    return s.over(lag_s, limits.lag_warn_s, limits.lag_warn_s * CLEAR_SHARE, rule, subject) or far


def _is_far(s: RuleContext, lag_s: float | None, lag_bytes: int | None, subject: str) -> bool:
    """Whether it is too many bytes behind, and not just catching up with a burst."""
    limits, rule = s.limits.of(StandbyLimits), "replication-lag"
    known: dict[str, int] = s.memo(rule).setdefault("bytes", {})
    before = known.pop(subject, None)
    if not s.over(lag_bytes, limits.lag_bytes, limits.lag_bytes * CLEAR_SHARE, rule, subject) or lag_bytes is None:
        return False
    known[subject] = lag_bytes
    if s.is_open(rule, subject):
        return True
    return lag_s >= limits.lag_bytes_s if lag_s is not None else before is None or lag_bytes >= before


def _lag_severity(s: RuleContext, lag_s: float | None) -> Severity:
    return "critical" if lag_s is not None and lag_s >= s.limits.of(StandbyLimits).lag_critical_s else "warning"


def standby_delayed(s: RuleContext) -> Iterator[Signal]:
    """A standby delayed by design: info, so that nobody reads from it or fails over to it by mistake.

    This server, if recovery_min_apply_delay is set; and, on a primary, standbys listed in
    findings.wal.delayed_standbys.
    """
    now = s.picture.now("pg.replication", Replication)
    if now is None:
        return
    if now.in_recovery:
        delay_s = apply_delay_s(s.facts)
        if delay_s is not None:
            yield Signal(
                severity="info",
                text=f"This standby is delayed by design: it replays each commit {human_duration(delay_s)} after it "
                "was made (recovery_min_apply_delay)",
                evidence={"apply_delay_s": delay_s},
                series=("replication.lag_s",),
            )
        return
    for name, row in name_standbys(now.standbys):
        if _is_delayed_by_design(s, row):
            subject = standby_subject(name)
            lag = "" if row.replay_lag_s is None else f", now by {human_duration(row.replay_lag_s)}"
            yield Signal(
                severity="info",
                subject=subject,
                text=f"Standby {subject} is delayed by design{lag} (findings.wal.delayed_standbys)",
                evidence={"application": subject, "pid": row.pid, "lag_s": row.replay_lag_s},
                series=("replication.lag_s",),
            )


LAG_RULES: tuple[Rule, ...] = (
    Rule(
        name="replication-lag",
        title="A standby is behind, by time or by bytes",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", replication_lag),
        raise_after_s=6.0,
        clear_after_s=15.0,
        settings=(
            StandbyLimits.lag_warn_s,
            StandbyLimits.lag_critical_s,
            StandbyLimits.lag_bytes,
            StandbyLimits.lag_bytes_s,
            StandbyLimits.delayed_standbys,
        ),
        runbook="standby-lag",
        source="pg_stat_replication.replay_lag; repmgr replication_lag_warning 300, replication_lag_critical 600",
    ),
    Rule(
        name="standby-delayed",
        title="A standby is delayed by design",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", standby_delayed),
        settings=(StandbyLimits.delayed_standbys,),
        source="PostgreSQL: recovery_min_apply_delay (19.6.3)",
    ),
)
