"""Standbys that streamed and are gone, and commits that wait for one that is not there.

What a role may not see of a standby is unknown, and nothing is said of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale, unobserved_us
from dba_console.findings.standby_names import StandbyName, logical_readers, name_standbys, standby_subject
from dba_console.frames.timestamps import age_s
from dba_console.samples import postgres
from dba_console.units import human_duration

SYNCHRONOUS = ("sync", "quorum")


@dataclass(slots=True)
class KnownStandby:
    """A standby that streams, or did."""

    pid: int
    first_us: int
    """Monotonic: since when it streams."""
    last_us: int
    gone_us: int
    """Wall time it was last seen."""
    sync_state: str | None
    noun: str = "standby"


def standby_gone(s: RuleContext) -> Iterator[Signal]:
    """A standby or subscriber that had been streaming for a minute and has been away for ten seconds; critical where
    synchronous_standby_names asks for more than are left, for then every commit waits. So it is, too, where commits
    have waited for ten seconds for a standby nobody ever saw.

    Those that came and went within a minute, base backups, receivers of mere WAL and workers that copy one table are
    not missed. A server that became a standby has no standbys to miss.
    """
    now = s.picture.now("pg.replication", postgres.Replication)
    if now is None or _are_standbys_unknown(s):
        return
    memo = s.memo("standby-gone")
    if now.in_recovery:
        memo.clear()
        return
    known: dict[StandbyName, KnownStandby] = memo.setdefault("known", {})
    unwatched = unobserved_us(memo, s.mono_us)
    for seen in known.values():
        seen.first_us, seen.last_us = seen.first_us + unwatched, seen.last_us + unwatched
    _update_known(s, known, now)
    missing = max(
        0,
        _synchronous_required(s)
        - sum(row.sync_state in SYNCHRONOUS and row.state == "streaming" for row in now.standbys),
    )
    waiting = _waiting_commits(s) if missing else 0
    gone = [(name, seen) for name, seen in known.items() if _is_missed(s, seen)]
    for name, seen in gone:
        yield _gone_signal(s, name, seen, missing=missing, waiting=waiting)
    since_us = memo.setdefault("waiting_us", s.mono_us) if missing and waiting else memo.pop("waiting_us", None)
    lasted = since_us is not None and s.mono_us - since_us >= s.limits.wal.standby_gone_s * 1e6
    if missing and waiting and lasted and not gone:
        yield _commits_wait_signal(missing, waiting)


def _are_standbys_unknown(s: RuleContext) -> bool:
    """Whether the part was read, and its standbys were not: they are unknown then, not gone."""
    reading = s.picture.current.get("pg.replication")
    return reading is not None and "standbys not known" in (reading.part.note or "")


def _update_known(s: RuleContext, known: dict[StandbyName, KnownStandby], now: postgres.Replication) -> None:
    limits, logical = s.limits.wal, logical_readers(now.slots)
    for name, row in name_standbys(now.standbys):
        seen = known.get(name)
        if seen is None or (seen.pid != row.pid and s.mono_us - seen.last_us > limits.standby_gone_s * 1e6):
            # It may have streamed since long before the agent began: the view says since when.
            age = age_s(s.facts.server_now_us, row.backend_start)
            seen = known[name] = KnownStandby(row.pid, s.mono_us - int((age or 0.0) * 1e6), 0, 0, None)
        seen.noun = "subscriber" if row.pid in logical else "standby"
        seen.pid, seen.last_us, seen.gone_us, seen.sync_state = row.pid, s.mono_us, s.now_us, row.sync_state
    for name, seen in list(known.items()):
        away_s, stayed_s = (s.mono_us - seen.last_us) / 1e6, (seen.last_us - seen.first_us) / 1e6
        if away_s > limits.standby_forget_s or (away_s > 0 and stayed_s < limits.standby_known_s):
            del known[name]


def _is_missed(s: RuleContext, seen: KnownStandby) -> bool:
    return s.mono_us - seen.last_us >= s.limits.wal.standby_gone_s * 1e6


def _gone_signal(s: RuleContext, name: StandbyName, seen: KnownStandby, *, missing: int, waiting: int) -> Signal:
    subject = standby_subject(name)
    hangs = missing > 0 and seen.sync_state in SYNCHRONOUS
    streamed_s = (seen.last_us - seen.first_us) / 1e6
    text = f"{seen.noun.capitalize()} {subject} is gone, after it had streamed for {human_duration(streamed_s)}"
    if hangs:
        text += f": commits wait for a synchronous standby ({_sessions(waiting)} now)"
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
        advice=_SYNC_ADVICE if hangs else f"See whether the {seen.noun} runs and can connect; its log says why not.",
    )


def _sessions(waiting: int) -> str:
    return "1 session waits" if waiting == 1 else f"{waiting} sessions wait"


def _commits_wait_signal(missing: int, waiting: int) -> Signal:
    return Signal(
        severity="critical",
        text=f"{_sessions(waiting)} for a standby to commit: synchronous_standby_names asks for {missing} more than "
        "stream",
        evidence={"synchronous_missing": missing, "waiting_commits": waiting},
        series=("connections.active",),
        advice=_SYNC_ADVICE,
    )


_SYNC_ADVICE = (
    "Bring the standby back, or take it out of synchronous_standby_names and reload: commits go on, without its copy."
)


def count_synchronous(setting: str | None) -> int:
    """How many synchronous standbys synchronous_standby_names asks for; 0 where none (syncrep_gram.y).

    >>> [count_synchronous(text) for text in ("", "*", "a, b", "FIRST 2 (a, b)", "ANY 1 (*)", "2 (a, b)")]
    [0, 1, 1, 2, 1, 2]
    """
    if not setting or not setting.strip():
        return 0
    counted = re.match(r"\s*(?:first|any)?\s*(\d+)\s*\(", setting, re.IGNORECASE)
    return 1 if counted is None else int(counted[1])


def _synchronous_required(s: RuleContext) -> int:
    """How many the server asks for, looked up anew only when its settings were read anew."""
    memo, reading = s.memo("standby-gone"), s.picture.current.get("pg.server")
    if reading is None:
        return 0
    if memo.get("settings_us") != reading.part.at_us:
        memo["settings_us"] = reading.part.at_us
        memo["wanted"] = count_synchronous(s.facts.setting("synchronous_standby_names"))
    return int(memo["wanted"])


def _waiting_commits(s: RuleContext) -> int:
    """Sessions whose commit waits for a standby (wait event SyncRep), as last seen."""
    sessions = s.facts.sessions
    return 0 if sessions is None else sum(row.wait_event == "SyncRep" for row in sessions.rows)


RULES: tuple[Rule, ...] = (
    Rule(
        name="standby-gone",
        title="A standby that streamed is gone, or commits wait for one",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", standby_gone),
        warm_up_s=10.0,
        clear_after_s=0.0,
        settings=("wal.standby_known_s", "wal.standby_gone_s", "wal.standby_forget_s"),
        source="pg_stat_replication; synchronous_standby_names; wal_retrieve_retry_interval 5 s",
    ),
)
