"""Rules about autovacuum: vacuums against wraparound; it is off, all workers are busy, or a table is not cleaned up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dba_console.core.clock import age_s, rfc3339
from dba_console.core.sanitize import clean
from dba_console.core.units import human_count, human_duration, human_pct
from dba_console.watch.findings.phrases import sessions_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.findings.thresholds import Computed, Judgement, RuleThresholds
from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.safety.readings import DeadRows, DeadRowTables
from dba_console.watch.samples.console import PendingRevertsNow


class WraparoundVacuumLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`: vacuums against wraparound."""

    family = "safety"

    wraparound_wait_s: Judgement[float] = 10.0
    """A vacuum against wraparound is a warning once a session has waited for it for this long."""


class AutovacuumLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`: autovacuum."""

    family = "safety"

    autovacuum_behind_times: Judgement[float] = 2.0
    """Autovacuum is behind if dead rows reach this multiple of its trigger for `autovacuum_behind_s`."""
    autovacuum_behind_s: Computed[float] = 3600.0
    """How long the dead rows must stay that many: sixty times autovacuum_naptime."""
    autovacuum_busy_s: Judgement[float] = 3600.0
    """Warning if all autovacuum workers are busy at every check for this long."""


# Vacuums against wraparound: progress, and which sessions wait for them.
#
# An ordinary autovacuum is cancelled by a conflicting lock request; one that prevents wraparound is not, and a session
# that requests an exclusive lock makes all later ones wait (ProcSleep in proc.c, PROC_VACUUM_FOR_WRAPAROUND).

TITLE = "(to prevent wraparound)"
"""Suffix of its query text, from autovac_report_activity() in autovacuum.c."""


class WraparoundVacuum(NamedTuple):
    pid: int
    table: str
    phase: str | None
    pct: float | None
    started_us: int | None
    behind: int
    wait_s: float | None
    """The longest wait for it."""


def wraparound_vacuum(s: RuleContext) -> Iterator[Signal]:
    """Autovacuum prevents wraparound and is not cancelled by lock requests: progress, and who waits for it.

    One finding for all of them, named after the one with the most waiting sessions, else the oldest. Info, and a
    warning once a session has waited for ten seconds.
    """
    operations = s.picture.now("pg.progress", Operations)
    if operations is None or not any(row.kind == "vacuum" for row in operations.rows):
        return
    works = [work for row in operations.rows if row.kind == "vacuum" and (work := _find_vacuum(s, row)) is not None]
    if not works:
        return
    worst = max(works, key=lambda work: (work.behind, -(work.started_us or 0)))
    waited = worst.behind > 0 and (worst.wait_s or 0.0) >= s.limits.of(WraparoundVacuumLimits).wraparound_wait_s
    yield Signal(
        severity="warning" if waited else "info",
        text=_text(worst, len(works), waited=waited),
        cause=f"autovacuum {worst.pid} vacuums {worst.table} to prevent wraparound{_progress_text(worst)} and "
        f"does not yield to lock requests",
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
        advice="Cancel the session that waits for the exclusive lock, not the vacuum: it would only start again."
        if waited
        else None,
    )


def _find_vacuum(s: RuleContext, row: Operation) -> WraparoundVacuum | None:
    session = s.facts.by_pid.get(row.pid)
    if session is None or TITLE not in session.query:
        return None
    behind = s.facts.count_blocked({row.pid}) if s.facts.waiters else 0
    table = clean(row.object or session.query.removeprefix("autovacuum: VACUUM ").partition(" (")[0])
    return WraparoundVacuum(row.pid, table, row.phase, row.pct, session.xact_start, behind, _wait_s(s, row.pid))


def _wait_s(s: RuleContext, pid: int) -> float | None:
    now_us = s.facts.server_time_us("pg.locks")
    waits = [age_s(now_us, waiter.wait_start) for waiter in s.facts.waiters or () if pid in waiter.blocked_by]
    return max((wait for wait in waits if wait is not None), default=None)


def _progress_text(work: WraparoundVacuum) -> str:
    """Return its phase and percentage, if known."""
    words = [] if work.phase is None else [clean(work.phase)]
    words += [] if work.pct is None else [human_pct(work.pct)]
    return f" ({' '.join(words)})" if words else ""


def _text(work: WraparoundVacuum, count: int, *, waited: bool) -> str:
    others = f", {count - 1} more are running" if count > 1 else ""
    text = f"Autovacuum prevents wraparound of {work.table}{_progress_text(work)}{others}"
    if not waited:
        return text
    wait = "" if work.wait_s is None else f", for up to {human_duration(work.wait_s)}"
    return f"{text}: {sessions_text(work.behind)} for it{wait}"


VACUUM_RULES: tuple[Rule, ...] = (
    Rule(
        name="wraparound-vacuum",
        title="Autovacuum prevents wraparound, and which sessions wait for it",
        parts=("pg.progress",),
        check=keep_signals_while_stale("pg.progress", wraparound_vacuum),
        # On an aged cluster hundreds of small tables are vacuumed one after the other, each briefly.
        raise_after_s=3.0,
        clear_after_s=30.0,
        runbook="lock-queue",
        settings=(WraparoundVacuumLimits.wraparound_wait_s,),
        source="autovacuum.c (the title of such a worker); pg_stat_progress_vacuum",
    ),
)


# Autovacuum that does not remove dead rows.

WORKER = "autovacuum worker"
REPEATED = 3
"""Vacuums, or workers, of one table since it fell behind that count as repeated: the first may have started before the
rows died, the second while a transaction could still see them."""


def autovacuum_off(s: RuleContext) -> Iterator[Signal]:
    """autovacuum or track_counts is off for the whole server: no dead rows are removed, no statistics are collected.

    A warning, because dead rows and stale plans follow within hours; info while a runbook run has switched it off
    temporarily and will revert it. Vacuums against wraparound still run (documentation, 19.10).
    """
    off = [name for name in ("autovacuum", "track_counts") if s.facts.setting(name) == "off"]
    if not off or s.facts.in_recovery:
        return
    reverts = s.picture.now("reverts", PendingRevertsNow)
    temporary = reverts is not None and any(
        revert.parameter in off and revert.run_is_active for revert in reverts.reverts
    )
    yield Signal(
        severity="info" if temporary else "warning",
        text=f"{' and '.join(off)} {'are' if len(off) > 1 else 'is'} off: dead rows stay, statistics go stale"
        + (", while a run is active" if temporary else ""),
        cause=f"{off[0]} is off",
        evidence={"settings_off": off},
        advice="Check the server log for when and why; ALTER SYSTEM RESET it, and pg_reload_conf().",
    )


def autovacuum_busy(s: RuleContext) -> Iterator[Signal]:
    """Every autovacuum worker was busy at each check for an hour: tables wait for a worker.

    Checked once a minute. autovacuum_max_workers share one cost limit, so more workers alone do not vacuum faster
    (documentation, 19.10.1). Visible to pg_monitor only; covers every database.
    """
    most = s.facts.number("autovacuum_max_workers")
    sessions = s.facts.sessions
    if not most or sessions is None:
        return
    memo = s.memo("autovacuum-busy")
    workers = [row for row in sessions.rows if row.backend_type == WORKER]
    if len(workers) < most:
        memo.clear()
        return
    since_us = memo.setdefault("since_us", s.mono_us)
    busy_s = (s.mono_us - since_us) / 1e6
    if busy_s < s.limits.of(AutovacuumLimits).autovacuum_busy_s:
        return
    oldest = min(workers, key=lambda row: row.xact_start or row.backend_start or 0)
    at_s = age_s(sessions.now_us, oldest.xact_start or oldest.backend_start)
    what = clean(oldest.query.removeprefix("autovacuum: "))
    yield Signal(
        severity="warning",
        text=f"All {len(workers)} autovacuum workers have been busy for {human_duration(busy_s)}: the oldest runs "
        f"{what} for {human_duration(at_s)}",
        cause="all autovacuum workers are busy",
        evidence={
            "workers": len(workers),
            "busy_s": busy_s,
            "oldest_worker_pid": oldest.pid,
            "oldest_worker_s": at_s,
            "oldest_worker_query": what,
        },
        since_us=s.now_us - int(busy_s * 1e6),
        advice="Raise autovacuum_vacuum_cost_limit or lower autovacuum_vacuum_cost_delay (effective after a reload); "
        "raise autovacuum_work_mem where indexes are scanned more than once.",
    )


@dataclass(slots=True)
class LaggingTable:
    """A table with too many dead rows, the time since when, and the vacuums and workers seen since."""

    first_us: int
    vacuums: int
    workers: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    """Process ids of autovacuum workers seen on it."""


def autovacuum_behind(s: RuleContext) -> Iterator[Signal]:
    """A table has had twice the dead rows that trigger autovacuum for an hour, and vacuum does not remove them.

    Either autovacuum is off for the table; or vacuums ran repeatedly and cannot remove the rows, because something
    holds the xmin horizon; or workers start and are cancelled by conflicting lock requests; or none ran. From 10,000
    dead rows, in the connected database only. The trigger is autovacuum_vacuum_threshold +
    autovacuum_vacuum_scale_factor * reltuples, at most autovacuum_vacuum_max_threshold (18 and later), or the table's
    own settings (documentation, 24.1.6).
    """
    found = s.picture.now("pg.dead_rows", DeadRowTables)
    if found is None or s.facts.in_recovery:
        return
    known: dict[str, LaggingTable] = s.memo("autovacuum-behind").setdefault("known", {})
    limits = s.limits.of(AutovacuumLimits)
    rows = [row for row in found.rows if row.dead >= limits.autovacuum_behind_times * max(1, row.trigger)]
    for gone in known.keys() - {row.name for row in rows}:
        del known[gone]
    at = _vacuuming_pids(s)
    old: list[tuple[DeadRows, LaggingTable]] = []
    for row in rows:
        behind = known.setdefault(row.name, LaggingTable(s.mono_us, row.vacuums))
        if row.vacuums < behind.vacuums:
            behind.vacuums = row.vacuums  # the statistics were reset
        behind.workers.extend(pid for pid in at.get(row.name, ()) if pid not in behind.workers)
        if (s.mono_us - behind.first_us) / 1e6 >= limits.autovacuum_behind_s:
            old.append((row, behind))
    if old:
        yield _behind_signal(s, found.database, old, at)


def _vacuuming_pids(s: RuleContext) -> dict[str, list[int]]:
    """Return the tables being vacuumed now, with the processes."""
    found: dict[str, list[int]] = {}
    operations = s.picture.now("pg.progress", Operations)
    for row in () if operations is None else operations.rows:
        if row.kind == "vacuum" and row.object is not None:
            found.setdefault(row.object, []).append(row.pid)
    return found


def _behind_signal(
    s: RuleContext, database: str, old: list[tuple[DeadRows, LaggingTable]], at: dict[str, list[int]]
) -> Signal:
    row, behind = max(old, key=lambda one: one[0].dead / max(1, one[0].trigger))
    since_s = (s.mono_us - behind.first_us) / 1e6
    vacuums = row.vacuums - behind.vacuums
    why, advice = _reason_and_advice(s, row, behind, vacuums, under_way=row.name in at)
    more = f"; {len(old) - 1} more tables like it" if len(old) > 1 else ""
    name = f"{clean(row.name)} of database {clean(database)}"
    evidence: dict[str, Any] = {
        "relation": clean(row.name),
        "database": clean(database),
        "dead_rows": row.dead,
        "live_rows": row.live,
        "autovacuum_at": row.trigger,
        "autovacuum_enabled": row.enabled,
        "vacuums": vacuums,
        "workers_seen": len(behind.workers),
        "behind_s": since_s,
        "last_vacuum": rfc3339(row.last_vacuum),
        "tables_behind": [clean(one.name) for one, _ in old],
    }
    return Signal(
        severity="warning",
        text=f"Dead rows are not removed from {name}: {human_count(row.dead)}, autovacuum triggers at "
        f"{human_count(row.trigger)}; {why}{more}",
        effect=f"dead rows are not removed from {name} ({human_count(row.dead)})",
        evidence=evidence,
        since_us=s.now_us - int(since_s * 1e6),
        advice=advice,
    )


def _reason_and_advice(
    s: RuleContext, row: DeadRows, behind: LaggingTable, vacuums: int, *, under_way: bool
) -> tuple[str, str]:
    """Return why the dead rows remain, and the advice."""
    if not row.enabled:
        return (
            "autovacuum_enabled is off for it",
            "ALTER TABLE ... RESET (autovacuum_enabled), unless something else vacuums it; then check that this runs.",
        )
    if "off" in (s.facts.setting("autovacuum"), s.facts.setting("track_counts")):
        return "autovacuum is off", "Switch autovacuum on, or VACUUM the table."
    if vacuums >= REPEATED:
        return (
            f"vacuumed {vacuums} times since, without effect: an old snapshot may still need the rows",
            "Check what holds the oldest xmin back (panel safety): old or prepared transaction, slot or standby.",
        )
    if len(behind.workers) >= REPEATED and not vacuums:
        return (
            f"{len(behind.workers)} workers started since and none finished",
            "Conflicting lock requests cancel autovacuum (log: canceling autovacuum task): VACUUM it manually.",
        )
    if under_way:
        return "a worker is vacuuming it", "Check its progress; autovacuum_vacuum_cost_delay limits its speed."
    last = "" if row.last_vacuum is None else f", the last one {_ago_text(s, row.last_vacuum)}"
    return (
        f"vacuumed {'once' if vacuums == 1 else f'{vacuums} times'} since" if vacuums else f"not vacuumed since{last}",
        "Check the log for why (log_autovacuum_min_duration = 0), and whether all workers are busy; VACUUM manually.",
    )


def _ago_text(s: RuleContext, server_us: int) -> str:
    age = age_s(s.facts.server_now_us, server_us)
    return "at an unknown time" if age is None else f"{human_duration(age)} ago"


AUTOVACUUM_RULES: tuple[Rule, ...] = (
    Rule(
        name="autovacuum-off",
        title="Autovacuum is off for the whole server",
        parts=("pg.server", "reverts"),
        check=autovacuum_off,
        source="PostgreSQL: autovacuum, track_counts (19.10, 19.9); check_postgres autovac_freeze explains why",
    ),
    Rule(
        name="autovacuum-busy",
        title="All autovacuum workers have been busy for a long time",
        parts=("pg.dead_rows",),
        check=keep_signals_while_stale("pg.dead_rows", autovacuum_busy),
        warm_up_s=3600.0,
        clear_after_s=120.0,
        settings=(AutovacuumLimits.autovacuum_busy_s,),
        source="PostgreSQL: autovacuum_max_workers, autovacuum_vacuum_cost_limit (19.10)",
    ),
    Rule(
        name="autovacuum-behind",
        title="Autovacuum does not clean up a table",
        parts=("pg.dead_rows",),
        check=keep_signals_while_stale("pg.dead_rows", autovacuum_behind),
        warm_up_s=3600.0,
        clear_after_s=120.0,
        settings=(
            AutovacuumLimits.autovacuum_behind_times,
            AutovacuumLimits.autovacuum_behind_s,
        ),
        source="PostgreSQL: The Autovacuum Daemon (24.1.6), its threshold",
    ),
)
