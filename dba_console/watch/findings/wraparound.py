"""Rules about wraparound: xid and multixact ages, vacuums against wraparound, and holders of the xid horizon.

Every database counts, including template0 and those that allow no connections: the oldest one stops the whole cluster.
Ages are known from the first reading; estimates need a measured rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration, human_pct
from dba_console.watch.findings.phrases import YEAR_S, future_time_text, round_number, sessions_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.frames.progress import done_pct
from dba_console.watch.frames.safety import WRAP_AGE, Thresholds, series_name, thresholds
from dba_console.watch.samples import postgres
from dba_console.watch.samples.findings import Severity

# Holders of the xid horizon: ranked, named, with advice for each kind.


def rank_holders(horizon: postgres.Horizon) -> list[postgres.HorizonHolder]:
    """Return the holders, the highest age first, then the oldest. Ages that are not visible are left out."""
    held = [row for row in horizon.rows if row.xid_age is not None]
    held.sort(key=lambda row: (-(row.xid_age or 0), float("inf") if row.since is None else row.since))
    return held


def holder_text(row: postgres.HorizonHolder) -> str:
    """Return the holder as text."""
    who = clean(row.who)
    match row.kind:
        case "backend":
            state = f", {clean(row.state)}" if row.state else ""
            return f"session {row.pid} ({who}{state})"
        case "prepared":
            return f"prepared transaction {who!r}"
        case "slot":
            return f"{row.state or ''} replication slot {who}".lstrip()
        case _:
            return f"standby {who} (hot_standby_feedback)"


def holder_advice(row: postgres.HorizonHolder) -> str:
    """Return the advice for each kind, as in the documentation (maintenance.sgml, "Preventing Transaction ID Wraparound
    Failures")."""
    database = f" in database {clean(row.database)}" if row.database else ""
    match row.kind:
        case "backend":
            return f"End that transaction: ask its owner, or SELECT pg_terminate_backend({row.pid})."
        case "prepared":
            return f"COMMIT PREPARED or ROLLBACK PREPARED it{database}: ask its transaction manager which."
        case "slot" if row.state == "active":
            return "Find out what the reader of this slot waits for: it confirms no progress."
        case "slot":
            return "Drop the slot if it will not be read again; its replica or subscriber must then be rebuilt."
        case _:
            return "End the long query on that standby, or turn hot_standby_feedback off there."


CLEAR_SHARE = 0.97
"""A finding is cleared below this share of the age that raised it."""


class IdCounter(NamedTuple):
    """The xid or multixact counter: the age of its oldest database, and where the server warns and stops."""

    rule: str
    noun: str
    database: str
    age: int
    warn: int
    stop: int
    freeze_max_age: int | None
    failsafe: int | None
    per_s: float | None
    server_says: str | None = None

    @property
    def left(self) -> int:
        return max(0, self.stop - self.age)

    def reached_in_s(self, age: int) -> float | None:
        """Return the seconds until that age at the current rate; 0 if reached, None without a rate."""
        if self.age >= age:
            return 0.0
        if self.per_s is None:
            return None
        return (age - self.age) / self.per_s if self.per_s > 0 else YEAR_S


def format_ids(count: int) -> str:
    """Return a number of ids in a short form.

    >>> format_ids(2_140_483_647), format_ids(4_000_000), format_ids(81_499_000), format_ids(31_500)
    ('2,140 M', '4.0 M', '81 M', '31,500')
    """
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:.1f} M" if count < 10_000_000 else f"{count / 1e6:,.0f} M"


def xid_wraparound(s: RuleContext) -> Iterator[Signal]:
    """The oldest database is far older than autovacuum should allow: shows how many ids are left, in which database,
    and the dates at the current rate.

    A warning from two fifths of the age at which the server stops, or from a quarter beyond autovacuum_freeze_max_age
    if that is later, in any case from the 1.3 G of check_postgres; critical from 1.6 G (vacuum_failsafe_age), if the
    server itself warns, or if the ids last less than a day. PostgreSQL 13 warns 11 M ids before the end and stops at
    1 M, 14 to 18 at 40 M and 3 M, 19 at 100 M and 3 M (varsup.c).
    """
    panel = s.safety
    major = s.facts.major
    if panel.xid_age is None or panel.xid_database is None or major is None:
        return
    limits = thresholds(major)
    yield from _check(
        s,
        IdCounter(
            "xid-wraparound", "transaction", panel.xid_database, panel.xid_age, limits.xid_warn, limits.xid_stop,
            panel.freeze_max_age, panel.failsafe_age, panel.xids_per_s,
            server_says(major, clean(panel.xid_database), panel.xid_age, limits),
        ),
    )  # fmt: skip


def mxid_wraparound(s: RuleContext) -> Iterator[Signal]:
    """The same for multixact ids, which are used when several sessions lock the same rows; holders of the xid horizon
    do not hold these.

    Thresholds as for transaction ids, with autovacuum_multixact_freeze_max_age and vacuum_multixact_failsafe_age. Their
    members have a separate limit, which no view shows before PostgreSQL 19: this rule does not cover it, the runbook
    counts their files.
    """
    panel = s.safety
    major = s.facts.major
    oldest = max(panel.databases, key=lambda row: row.mxid_age, default=None)
    if oldest is None or major is None:
        return
    limits = thresholds(major)
    freeze = s.facts.number("autovacuum_multixact_freeze_max_age")
    failsafe = s.facts.number("vacuum_multixact_failsafe_age")
    if failsafe is not None:
        failsafe = max(failsafe, int(1.05 * (freeze or 0)))  # vacuum_xid_failsafe_check in vacuum.c
    yield from _check(
        s,
        IdCounter(
            "mxid-wraparound", "multixact", oldest.database, oldest.mxid_age, limits.mxid_warn, limits.mxid_stop,
            freeze, failsafe, panel.mxids_per_s,
        ),
    )  # fmt: skip


def _check(s: RuleContext, ids: IdCounter) -> Iterator[Signal]:
    raise_at = _warn_age(s, ids)
    failsafe = ids.failsafe is not None and ids.age >= ids.failsafe
    if not s.over(ids.age, raise_at, int(raise_at * CLEAR_SHARE), ids.rule) and not failsafe:
        return
    effect = _effect_text(s, ids)
    yield Signal(
        severity=_severity(s, ids),
        text=effect + (", autovacuum's failsafe is active" if failsafe else ""),
        effect=effect,
        evidence=_evidence(s, ids, failsafe),
        series=(series_name(s.facts, "next_xid" if ids.rule == "xid-wraparound" else "next_mxid"),),
        runbook="xid-wraparound",
        advice=_advice(s, ids),
    )


def _warn_age(s: RuleContext, ids: IdCounter) -> int:
    """Return 40 % of the stop, or where forced vacuums are overdue if that is later, but at most 1.3 G."""
    limits = s.limits.safety
    share = limits.xid_warn_pct / 100 * ids.stop
    overdue = limits.xid_overdue_pct / 100 * (ids.freeze_max_age or 0)
    return int(min(max(share, overdue), limits.xid_warn_xids))


def _severity(s: RuleContext, ids: IdCounter) -> Severity:
    """Return critical from 1.6 G (or where the server itself warns), or if used up within a day."""
    limits = s.limits.safety
    stop_in_s = ids.reached_in_s(ids.stop)
    soon = stop_in_s is not None and stop_in_s < limits.xid_stop_critical_s
    return "critical" if soon or ids.age >= min(limits.xid_critical_xids, ids.warn) else "warning"


def _effect_text(s: RuleContext, ids: IdCounter) -> str:
    """Return how many are left, in which database, until when."""
    server = f"PostgreSQL {s.facts.major}"
    closed = "" if _allows_connections(s, ids.database) else ", which allows no connections,"
    where = f"database {clean(ids.database)}{closed} is {format_ids(ids.age)} ids old"
    if ids.left == 0:
        return f"{server} no longer assigns {ids.noun} ids: {where}"
    return (
        f"{format_ids(ids.left)} {ids.noun} ids left until {server} stops assigning them{_dates_text(s, ids)}: {where}"
    )


def _dates_text(s: RuleContext, ids: IdCounter) -> str:
    """Return the dates of the server's own warnings and of the stop, in brackets; empty without a rate."""
    stop_in_s, warn_in_s = ids.reached_in_s(ids.stop), ids.reached_in_s(ids.warn)
    if stop_in_s is None:
        return ""
    if stop_in_s >= YEAR_S:
        return " (not within a year at the current rate)"
    warned = f"; it warns {future_time_text(warn_in_s, s.now_us)}" if warn_in_s else ""
    return f" ({future_time_text(stop_in_s, s.now_us)}, at {ids.per_s or 0:,.0f} a second{warned})"


def _allows_connections(s: RuleContext, database: str) -> bool:
    rows = [] if s.facts.server is None else s.facts.server.databases
    return next((row.allow_connections for row in rows if row.name == database), True)


def _evidence(s: RuleContext, ids: IdCounter, failsafe: bool) -> dict[str, Any]:
    kind = "xid" if ids.rule == "xid-wraparound" else "mxid"
    return {
        f"{kind}_database": clean(ids.database),
        f"{kind}_age": ids.age,
        f"{kind}_left": ids.left,
        f"{kind}_warn_age": ids.warn,
        f"{kind}_stop_age": ids.stop,
        f"{kind}s_per_s": round_number(ids.per_s),
        "warn_in_s": round_number(ids.reached_in_s(ids.warn)),
        "stop_in_s": round_number(ids.reached_in_s(ids.stop)),
        "freeze_max_age": ids.freeze_max_age,
        "failsafe_age": ids.failsafe,
        "failsafe_active": failsafe,
        "server_major": s.facts.major,
        "server_says": ids.server_says,
    }


def server_says(major: int, database: str, age: int, limits: Thresholds) -> str | None:
    """Return what the server answers to a command that needs a transaction id, as in an English log: with the ids left
    before the wrap itself, which are more than those before the stop. None if it does not warn yet.

    GetNewTransactionId() in varsup.c; the text of the stop changed in 17.
    """
    if age >= limits.xid_stop:
        what = "that assign new transaction IDs " if major >= 17 else ""
        return f'database is not accepting commands {what}to avoid wraparound data loss in database "{database}"'
    if age >= limits.xid_warn:
        return f'database "{database}" must be vacuumed within {WRAP_AGE - age} transactions'
    return None


def _advice(s: RuleContext, ids: IdCounter) -> str:
    """Return the first steps, in the order of the documentation (maintenance.sgml, "Preventing Transaction ID
    Wraparound Failures"): release the horizon before any VACUUM, which could not freeze otherwise."""
    if s.facts.in_recovery:
        return "On its primary: VACUUM as superuser, after nothing holds the horizon there."
    horizon = s.picture.now("pg.horizon", postgres.Horizon)
    worst = next(iter(rank_holders(horizon)), None) if horizon is not None and ids.rule == "xid-wraparound" else None
    if worst is not None and 2 * (worst.xid_age or 0) >= ids.age:
        return f"First {holder_text(worst)}. {holder_advice(worst)} Then {_vacuum_advice(s, ids)}"
    return _vacuum_advice(s, ids)


def _vacuum_advice(s: RuleContext, ids: IdCounter) -> str:
    database = clean(ids.database)
    text = f"VACUUM as superuser in {database}, the oldest tables first: not FULL, which needs an id, and not FREEZE."
    if not _allows_connections(s, ids.database):
        text = f"ALTER DATABASE {database} ALLOW_CONNECTIONS true, VACUUM in it as superuser, then disallow them again."
    major = s.facts.major or 0
    if major <= 13:
        return f"{text} After the stop, PostgreSQL 13 asks for single-user mode."
    if major <= 16:
        return f"{text} Do not use single-user mode, despite the hint of {major}."
    return text


RULES: tuple[Rule, ...] = (
    Rule(
        name="xid-wraparound",
        title="Transaction ids are running out: how many are left, and until when",
        parts=("pg.xids",),
        runbook="xid-wraparound",
        check=keep_signals_while_stale("pg.xids", xid_wraparound),
        settings=(
            "safety.xid_warn_pct", "safety.xid_warn_xids", "safety.xid_overdue_pct", "safety.xid_critical_xids",
            "safety.xid_stop_critical_s",
        ),
        source="varsup.c SetTransactionIdLimit; vacuum_failsafe_age; check_postgres txn_wraparound 1.3 G / 1.4 G",
    ),
    Rule(
        name="mxid-wraparound",
        title="Multixact ids are running out: how many are left, and until when",
        parts=("pg.xids",),
        runbook="xid-wraparound",
        check=keep_signals_while_stale("pg.xids", mxid_wraparound),
        settings=(
            "safety.xid_warn_pct", "safety.xid_warn_xids", "safety.xid_overdue_pct", "safety.xid_critical_xids",
            "safety.xid_stop_critical_s",
        ),
        source="multixact.c SetMultiXactIdLimit; vacuum_multixact_failsafe_age",
    ),
)  # fmt: skip


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
        settings=("safety.wraparound_wait_s",),
        source="autovacuum.c (the title of such a worker); pg_stat_progress_vacuum",
    ),
)


# The xid horizon: what keeps VACUUM from removing dead rows and from freezing, ranked, with advice for each.
#
# One finding for all holders, named after the worst: the next one matters only when that is gone.

HORIZON_CLEAR_SHARE = 0.9
DUMPS = ("pg_dump", "pg_dumpall")
NAMED = 5
"""Holders listed in the evidence."""


def horizon_held(s: RuleContext) -> Iterator[Signal]:
    """VACUUM cannot remove dead rows or freeze because of a session, a prepared transaction, a slot or a standby; names
    the one with the highest age, with advice.

    A warning from 50 M ids, from an hour if a million ids were used meanwhile, and for a prepared transaction from an
    hour regardless: it was probably forgotten.

    Dumps hold it by design: within 1.5 times their typical duration, or on their first day if that is not known, they
    are info. On a standby nothing is raised: its primary shows what it holds.
    """
    horizon = s.picture.now("pg.horizon", postgres.Horizon)
    if horizon is None or not horizon.rows or s.facts.in_recovery:
        return
    held = rank_holders(horizon)
    worst = next((row for row in held if _too_far(s, row)), None)
    if worst is None:
        return
    age = worst.xid_age or 0
    name = holder_text(worst)
    others = f", and {len(held) - 1} more" if len(held) > 1 else ""
    since = "" if worst.since is None else f" for {human_duration(age_s(s.facts.server_now_us, worst.since))}"
    yield Signal(
        severity=_horizon_severity(s, worst),
        text=f"VACUUM cannot clean up: {name} has held the xid horizon{since}, by {format_ids(age)} ids" + others,
        effect=f"VACUUM cannot clean up: the xid horizon is held back by {format_ids(age)} ids",
        cause=f"{name} holds the xid horizon back by {format_ids(age)} ids{others}",
        evidence={
            "holder_kind": worst.kind,
            "holder": clean(worst.who),
            "pid": worst.pid if worst.kind == "backend" else None,
            "holder_xid_age": age,
            "since_age_s": age_s(s.facts.server_now_us, worst.since),
            "holders": [f"{holder_text(row)}: {format_ids(row.xid_age or 0)}" for row in held[:NAMED]],
        },
        since_us=s.host_us(worst.since),
        runbook="xid-wraparound",
        advice=holder_advice(worst),
    )


def _too_far(s: RuleContext, row: postgres.HorizonHolder) -> bool:
    limits, age = s.limits.safety, row.xid_age or 0
    held_s = age_s(s.facts.server_now_us, row.since) or 0.0
    if s.over(age, limits.horizon_warn_xids, int(limits.horizon_warn_xids * HORIZON_CLEAR_SHARE), "horizon-held"):
        return True
    if row.kind == "prepared" and held_s >= limits.prepared_s:
        return True
    return held_s >= limits.horizon_old_s and age >= limits.horizon_old_xids


def _horizon_severity(s: RuleContext, row: postgres.HorizonHolder) -> Severity:
    if row.kind != "backend" or row.who not in DUMPS or (row.xid_age or 0) >= s.limits.safety.horizon_warn_xids:
        return "warning"
    known = [one.usual_s for one in s.progress.operations if one.kind == "pg_dump" and one.pid == row.pid]
    usual_s = next((one for one in known if one is not None), 86_400.0)
    held_s = age_s(s.facts.server_now_us, row.since)
    return "info" if held_s is not None and held_s <= 1.5 * usual_s else "warning"


HORIZON_RULES: tuple[Rule, ...] = (
    Rule(
        name="horizon-held",
        title="The xid horizon is held: VACUUM cannot clean up or freeze",
        parts=("pg.horizon",),
        check=keep_signals_while_stale("pg.horizon", horizon_held),
        clear_after_s=20.0,
        runbook="xid-wraparound",
        settings=(
            "safety.horizon_warn_xids", "safety.horizon_old_s", "safety.horizon_old_xids", "safety.prepared_s",
        ),
        source="vacuum_freeze_min_age (50 M); check_postgres prepared_txns",
    ),
)  # fmt: skip
