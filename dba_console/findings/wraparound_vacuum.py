"""Vacuums against wraparound: at work, how far, and who waits behind one, for they never give way to anybody.

An ordinary autovacuum is cancelled by whoever needs its lock; one that prevents wraparound is not, and whoever wants an
exclusive lock makes everybody after him wait (ProcSleep in proc.c, PROC_VACUUM_FOR_WRAPAROUND).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale
from dba_console.frames.progress import done_pct
from dba_console.frames.timestamps import age_s
from dba_console.samples import postgres
from dba_console.sanitize import clean
from dba_console.units import human_duration, human_pct

TITLE = "(to prevent wraparound)"
"""What autovac_report_activity() in autovacuum.c ends its query text with."""


class WraparoundVacuum(NamedTuple):
    pid: int
    table: str
    phase: str | None
    pct: float | None
    started_us: int | None
    behind: int
    wait_s: float | None
    """The longest wait behind it."""


def wraparound_vacuum(s: RuleContext) -> Iterator[Signal]:
    """Autovacuum works against wraparound, and gives way to nobody meanwhile: how far it is, and who waits behind it.

    One finding for all of them, named after the one with the most sessions behind it, else the oldest. Told, and a
    warning once somebody has waited for ten seconds.
    """
    operations = s.picture.now("pg.progress", postgres.Operations)
    if operations is None or not any(row.kind == "vacuum" for row in operations.rows):
        return
    works = [work for row in operations.rows if row.kind == "vacuum" and (work := _find_vacuum(s, row)) is not None]
    if not works:
        return
    worst = max(works, key=lambda work: (work.behind, -(work.started_us or 0)))
    waited = worst.behind > 0 and (worst.wait_s or 0.0) >= s.limits.safety.wraparound_wait_s
    yield Signal(
        severity="warning" if waited else "info",
        text=_text(worst, len(works), waited=waited),
        cause=f"autovacuum {worst.pid} vacuums {worst.table} to prevent wraparound{_progress_text(worst)} and "
        f"gives way to none",
        evidence={
            "pid": worst.pid,
            "relation": worst.table,
            "phase": worst.phase,
            "pct": worst.pct,
            "blocks": worst.behind,
            "longest_wait_s": worst.wait_s,
            "wraparound_vacuums": len(works),
        },
        since_us=s.host_us(worst.started_us),
        runbook="lock-queue" if waited else None,
        advice="Cancel whoever waits for the exclusive lock, not the vacuum: it would only begin again."
        if waited
        else None,
    )


def _find_vacuum(s: RuleContext, row: postgres.Operation) -> WraparoundVacuum | None:
    session = s.facts.by_pid.get(row.pid)
    if session is None or TITLE not in session.query:
        return None
    behind = s.facts.count_blocked({row.pid}) if s.facts.waiters else 0
    table = clean(row.object or session.query.removeprefix("autovacuum: VACUUM ").partition(" (")[0])
    return WraparoundVacuum(row.pid, table, row.phase, done_pct(row), session.xact_start, behind, _wait_s(s, row.pid))


def _wait_s(s: RuleContext, pid: int) -> float | None:
    now_us = s.facts.server_time_us("pg.locks")
    waits = [age_s(now_us, waiter.wait_start) for waiter in s.facts.waiters or () if pid in waiter.blocked_by]
    return max((wait for wait in waits if wait is not None), default=None)


def _progress_text(work: WraparoundVacuum) -> str:
    """How far it is, as far as the view tells."""
    words = [] if work.phase is None else [clean(work.phase)]
    words += [] if work.pct is None else [human_pct(work.pct)]
    return f" ({' '.join(words)})" if words else ""


def _text(work: WraparoundVacuum, count: int, *, waited: bool) -> str:
    others = f", {count - 1} more are at work" if count > 1 else ""
    text = f"Autovacuum prevents wraparound of {work.table}{_progress_text(work)}{others}"
    if not waited:
        return text
    wait = "" if work.wait_s is None else f", for up to {human_duration(work.wait_s)}"
    sessions = "1 session waits" if work.behind == 1 else f"{work.behind} sessions wait"
    return f"{text}: {sessions} behind it{wait}"


VACUUM_RULES: tuple[Rule, ...] = (
    Rule(
        name="wraparound-vacuum",
        title="Autovacuum works against wraparound, and who waits behind it",
        parts=("pg.progress",),
        check=keep_signals_while_stale("pg.progress", wraparound_vacuum),
        # On an aged cluster hundreds of small tables are vacuumed one after the other, each for a moment.
        raise_after_s=3.0,
        clear_after_s=30.0,
        runbook="lock-queue",
        settings=("safety.wraparound_wait_s",),
        source="autovacuum.c (the title of such a worker); pg_stat_progress_vacuum",
    ),
)
