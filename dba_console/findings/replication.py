"""Standbys: how far behind, and whether they are still there.

What a role may not see of a standby is unknown, and nothing is said of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dba_console.findings.rule import Rule
from dba_console.findings.signal import Signal
from dba_console.findings.situation import Situation
from dba_console.frames.replication import behind
from dba_console.frames.times import age_s
from dba_console.harmless import clean
from dba_console.samples import postgres
from dba_console.samples.findings import Severity
from dba_console.units import human_bytes, human_duration

CLEAR_SHARE = 0.7
SYNCHRONOUS = ("sync", "quorum")
_TABLE_SYNC = re.compile(r"pg_\d+_sync_\d+_")
"""ReplicationSlotNameForTablesync() in tablesync.c: workers that copy one table and then end."""

Name = tuple[str, str | None, int]
"""Application, address, and which of several that share both."""


def replication_lag(s: Situation) -> Iterator[Signal]:
    """Primary: each standby by what it reports. Standby: itself, by what it received and replayed."""
    now = s.picture.now("pg.replication", postgres.Replication)
    if now is None:
        return
    if now.in_recovery:
        yield from _own_lag(s, now)
        return
    for name, row in _named(now.standbys):
        yield from _lag_of(s, now, name, row)


def _lag_of(s: Situation, now: postgres.Replication, name: Name, row: postgres.Standby) -> Iterator[Signal]:
    lag_bytes, lag_s = behind(now.lsn, row.replay_lsn), row.replay_lag_s
    if lag_bytes is None:
        return
    if lag_bytes == 0:
        lag_s = None  # the last report before it caught up
    subject = _subject(name)
    if not _is_behind(s, lag_s, lag_bytes, subject):
        return
    sent, flushed = behind(now.lsn, row.sent_lsn), behind(now.lsn, row.flush_lsn)
    time_text = "" if lag_s is None else f"{human_duration(lag_s)}, "
    where = _where(sent, flushed, lag_bytes)
    yield Signal(
        severity=_lag_severity(s, lag_s),
        text=f"Standby {subject} is behind by {time_text}{human_bytes(lag_bytes)} of WAL, most of it {where}",
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
        advice=_LAG_ADVICE[where],
    )


_LAG_ADVICE = {
    "not sent": "Look at the network to the standby, and at the CPU of its walsender.",
    "not flushed": "Look at the standby's disk: it receives faster than it writes.",
    "not replayed": "Look at the standby: a query that conflicts with replay, replay paused, or a disk that is slow.",
}


def _where(sent: int | None, flushed: int | None, replayed: int) -> str:
    """Between which two positions most of the distance lies."""
    first, second = sent or 0, max(0, (flushed or 0) - (sent or 0))
    parts = {"not sent": first, "not flushed": second, "not replayed": replayed - first - second}
    return max(parts, key=parts.__getitem__)


def _own_lag(s: Situation, now: postgres.Replication) -> Iterator[Signal]:
    """All a living stream brought is replayed: not behind. Without a stream the age of the last commit is all there is;
    on a primary that does nothing it grows for no reason, so that is told and not warned of, unless a stream was seen.
    """
    streaming = now.receiver_status == "streaming"
    memo = s.memo("replication-lag")
    memo["streamed"] = streaming or memo.get("streamed", False)
    lag_bytes = behind(now.receive_lsn, now.lsn)
    if streaming and lag_bytes == 0:
        return
    lag_s = age_s(now.now_us, now.replay_at)
    if not _is_behind(s, lag_s, lag_bytes if streaming else None, ""):
        return
    paused = ", replay is paused" if now.replay_paused else ""
    size = f", {human_bytes(lag_bytes)} received and not replayed" if lag_bytes else ""
    stream = "" if streaming else ", no WAL is streaming in"
    severity: Severity = _lag_severity(s, lag_s) if streaming else "warning"
    yield Signal(
        severity=severity if streaming or memo["streamed"] else "info",
        text=f"This standby shows what was committed {human_duration(lag_s)} ago{size}{paused}{stream}",
        evidence={
            "lag_s": lag_s,
            "lag_bytes": lag_bytes,
            "replay_paused": now.replay_paused,
            "receiver_status": now.receiver_status,
        },
        series=("replication.lag_bytes", "replication.lag_s"),
        advice="SELECT pg_wal_replay_resume() lets it go on." if now.replay_paused else None,
    )


def _is_behind(s: Situation, lag_s: float | None, lag_bytes: int | None, subject: str) -> bool:
    limits, rule = s.limits.wal, "replication-lag"
    late = s.over(lag_s, limits.lag_warn_s, limits.lag_warn_s * CLEAR_SHARE, rule, subject)
    return late or s.over(lag_bytes, limits.lag_bytes, limits.lag_bytes * CLEAR_SHARE, rule, subject)


def _lag_severity(s: Situation, lag_s: float | None) -> Severity:
    return "critical" if lag_s is not None and lag_s >= s.limits.wal.lag_critical_s else "warning"


@dataclass(slots=True)
class Seen:
    """A standby that streams, or did."""

    pid: int
    first_us: int
    """Monotonic: since when it streams."""
    last_us: int
    gone_us: int
    """Wall time it was last seen."""
    sync_state: str | None


def standby_gone(s: Situation) -> Iterator[Signal]:
    """A standby that had been streaming and does not come back; critical where commits wait for it.

    Those that came and went within a minute, base backups, receivers of mere WAL and workers that copy one table are
    not missed. A server that became a standby has no standbys to miss.
    """
    now = s.picture.now("pg.replication", postgres.Replication)
    if now is None or _unread(s):
        return
    memo = s.memo("standby-gone")
    if now.in_recovery:
        memo.clear()
        return
    known: dict[Name, Seen] = memo.setdefault("known", {})
    _note(s, known, now.standbys)
    missing = _missing_for_commits(s, now.standbys)
    waiting = _waiting_commits(s) if missing else 0
    gone = [(name, seen) for name, seen in known.items() if _is_missed(s, seen)]
    for name, seen in gone:
        yield _gone(s, name, seen, missing=missing, waiting=waiting)
    since_us = memo.setdefault("waiting_us", s.mono_us) if missing and waiting else memo.pop("waiting_us", None)
    lasted = since_us is not None and s.mono_us - since_us >= s.limits.wal.standby_gone_s * 1e6
    if missing and waiting and lasted and not gone:
        yield _commits_wait(missing, waiting)


def _unread(s: Situation) -> bool:
    """Whether the part was read, and its standbys were not: they are unknown then, not gone."""
    reading = s.picture.current.get("pg.replication")
    return reading is not None and "standbys not known" in (reading.part.note or "")


def _note(s: Situation, known: dict[Name, Seen], standbys: Iterable[postgres.Standby]) -> None:
    limits = s.limits.wal
    for name, row in _named(standbys):
        seen = known.get(name)
        if seen is None or (seen.pid != row.pid and s.mono_us - seen.last_us > limits.standby_gone_s * 1e6):
            # It may have streamed since long before the agent began: the view says since when.
            age = age_s(s.facts.server_now_us, row.backend_start)
            seen = known[name] = Seen(row.pid, s.mono_us - int((age or 0.0) * 1e6), 0, 0, None)
        seen.pid, seen.last_us, seen.gone_us, seen.sync_state = row.pid, s.mono_us, s.now_us, row.sync_state
    for name, seen in list(known.items()):
        away_s, stayed_s = (s.mono_us - seen.last_us) / 1e6, (seen.last_us - seen.first_us) / 1e6
        if away_s > limits.standby_forget_s or (away_s > 0 and stayed_s < limits.standby_known_s):
            del known[name]


def _is_missed(s: Situation, seen: Seen) -> bool:
    return s.mono_us - seen.last_us >= s.limits.wal.standby_gone_s * 1e6


def _gone(s: Situation, name: Name, seen: Seen, *, missing: int, waiting: int) -> Signal:
    subject = _subject(name)
    hangs = missing > 0 and seen.sync_state in SYNCHRONOUS
    text = (
        f"Standby {subject} is gone, after it had streamed for {human_duration((seen.last_us - seen.first_us) / 1e6)}"
    )
    if hangs:
        text += f": commits wait for a synchronous standby ({waiting} sessions wait now)"
    return Signal(
        severity="critical" if hangs else "warning",
        text=text,
        subject=subject,
        cause=f"standby {subject} is gone",
        evidence={
            "application": subject,
            "pid": seen.pid,
            "sync_state": seen.sync_state,
            "synchronous_missing": missing,
            "waiting_commits": waiting,
        },
        since_us=seen.gone_us,
        series=("replication.lag_bytes", "connections.active"),
        advice=_SYNC_ADVICE if hangs else "See whether the standby runs and can connect; its log says why not.",
    )


def _commits_wait(missing: int, waiting: int) -> Signal:
    return Signal(
        severity="critical",
        text=f"{waiting} commits wait for a standby: synchronous_standby_names asks for {missing} more than stream",
        evidence={"synchronous_missing": missing, "waiting_commits": waiting},
        series=("connections.active",),
        advice=_SYNC_ADVICE,
    )


_SYNC_ADVICE = (
    "Bring the standby back, or take it out of synchronous_standby_names and reload: commits go on, without its copy."
)


def synchronous_wanted(setting: str | None) -> int:
    """How many synchronous standbys synchronous_standby_names asks for; 0 where none (syncrep_gram.y).

    >>> [synchronous_wanted(text) for text in ("", "*", "a, b", "FIRST 2 (a, b)", "ANY 1 (*)", "2 (a, b)")]
    [0, 1, 1, 2, 1, 2]
    """
    if not setting or not setting.strip():
        return 0
    counted = re.match(r"\s*(?:first|any)?\s*(\d+)\s*\(", setting, re.IGNORECASE)
    return 1 if counted is None else int(counted[1])


def _missing_for_commits(s: Situation, standbys: Iterable[postgres.Standby]) -> int:
    wanted = synchronous_wanted(s.facts.setting("synchronous_standby_names"))
    return max(0, wanted - sum(row.sync_state in SYNCHRONOUS and row.state == "streaming" for row in standbys))


def _waiting_commits(s: Situation) -> int:
    """Sessions whose commit waits for a standby (wait event SyncRep), as last seen."""
    sessions = s.facts.sessions
    return 0 if sessions is None else sum(row.wait_event == "SyncRep" for row in sessions.rows)


def _named(standbys: Iterable[postgres.Standby]) -> Iterator[tuple[Name, postgres.Standby]]:
    """Standbys and subscribers that stream and replay, each under a name of its own that outlives its connection."""
    taken: dict[tuple[str, str | None], int] = {}
    for row in standbys:
        if row.state not in ("streaming", "catchup") or row.replay_lsn is None or _TABLE_SYNC.match(row.application):
            continue
        host = None if row.client is None else row.client.rpartition(":")[0] or row.client
        key = (row.application, host)
        taken[key] = taken.get(key, 0) + 1
        yield (*key, taken[key]), row


def _subject(name: Name) -> str:
    application, host, number = name
    text = clean(application) or "without a name"
    if application == "walreceiver" and host:
        text += f" at {clean(host)}"
    return text if number == 1 else f"{text} ({number})"


RULES: tuple[Rule, ...] = (
    Rule(
        name="replication-lag",
        title="standbys that are behind, by time or by bytes",
        parts=("pg.replication",),
        look=replication_lag,
        raise_after_s=10.0,
        clear_after_s=15.0,
        settings=("wal.lag_warn_s", "wal.lag_critical_s", "wal.lag_bytes"),
        source="pg_stat_replication.replay_lag; repmgr replication_lag_warning 300, replication_lag_critical 600",
    ),
    Rule(
        name="standby-gone",
        title="standbys that streamed and are gone; commits that wait for one",
        parts=("pg.replication",),
        look=standby_gone,
        clear_after_s=0.0,
        settings=("wal.standby_known_s", "wal.standby_gone_s", "wal.standby_forget_s"),
        source="pg_stat_replication; synchronous_standby_names; wal_retrieve_retry_interval 5 s",
    ),
)
