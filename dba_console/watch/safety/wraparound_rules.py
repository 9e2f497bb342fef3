"""Rules about wraparound: xid and multixact ages.

Every database counts, including template0 and those that allow no connections: the oldest one stops the whole cluster.
Ages are known from the first reading; estimates need a measured rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.watch.findings.phrases import YEAR_S, future_time_text, round_number
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.findings.thresholds import Computed, Judgement, Ordered, RuleThresholds
from dba_console.watch.safety.horizon_rules import HorizonLimits, format_ids, holder_advice, holder_text, rank_holders
from dba_console.watch.safety.panel import WRAP_AGE, SafetyPanel, Thresholds, series_name, thresholds
from dba_console.watch.safety.readings import Horizon, HorizonHolder
from dba_console.watch.samples.findings import Severity


class WraparoundLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`: transaction ids."""

    family = "safety"

    xid_warn_pct: Judgement[float] = 40.0
    """Warning from this percentage of the ids up to the stop: autovacuum freezes from a tenth of them, so it has long
    failed."""
    xid_warn_xids: Judgement[int] = 1_300_000_000
    """Warning from this age, whatever the autovacuum settings (check_postgres txn_wraparound, -w)."""
    xid_critical_xids: Computed[int] = 1_600_000_000
    """Critical from this age: the default of vacuum_failsafe_age, where the server itself drops everything else."""
    xid_overdue_pct: Judgement[float] = 125.0
    """Percentage of autovacuum_freeze_max_age below which nothing is raised: forced vacuums may still be running."""
    xid_stop_critical_s: Judgement[float] = 86_400.0
    """Critical if the ids last at most this long at the current rate: a night, or a weekend."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.xid_warn_xids, cls.xid_critical_xids),)


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


def xid_wraparound(s: RuleContext) -> Iterator[Signal]:
    """The oldest database is far older than autovacuum should allow: shows how many ids are left, in which database,
    and the dates at the current rate.

    A warning from two fifths of the age at which the server stops, or from a quarter beyond autovacuum_freeze_max_age
    if that is later, in any case from the 1.3 G of check_postgres; critical from 1.6 G (vacuum_failsafe_age), if the
    server itself warns, or if the ids last less than a day. PostgreSQL 13 warns 11 M ids before the end and stops at
    1 M, 14 to 18 at 40 M and 3 M, 19 at 100 M and 3 M (varsup.c).
    """
    panel = s.panel(SafetyPanel)
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
    """The same for multixact ids, which are used when several sessions lock the same rows. Sessions and prepared
    transactions that are open for long hold these too; replication slots and the feedback of standbys do not.

    Thresholds as for transaction ids, with autovacuum_multixact_freeze_max_age and vacuum_multixact_failsafe_age. Their
    members have a separate limit, which no view shows before PostgreSQL 19: this rule does not cover it, the runbook
    counts their files.
    """
    panel = s.panel(SafetyPanel)
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
    limits = s.limits.of(WraparoundLimits)
    share = limits.xid_warn_pct / 100 * ids.stop
    overdue = limits.xid_overdue_pct / 100 * (ids.freeze_max_age or 0)
    return int(min(max(share, overdue), limits.xid_warn_xids))


def _severity(s: RuleContext, ids: IdCounter) -> Severity:
    """Return critical from 1.6 G (or where the server itself warns), or if used up within a day."""
    limits = s.limits.of(WraparoundLimits)
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
        return "On its primary: VACUUM as superuser, after nothing holds the oldest xmin back there."
    horizon = s.picture.now("pg.horizon", Horizon)
    held = [] if horizon is None else rank_holders(horizon)
    worst = next(iter(held), None) if ids.rule == "xid-wraparound" else _oldest_transaction(s, held)
    if worst is not None and (ids.rule == "mxid-wraparound" or 2 * (worst.xid_age or 0) >= ids.age):
        return f"First {holder_text(worst)}. {holder_advice(worst)} Then {_vacuum_advice(s, ids)}"
    return _vacuum_advice(s, ids)


def _oldest_transaction(s: RuleContext, held: Sequence[HorizonHolder]) -> HorizonHolder | None:
    """Return the session or prepared transaction that was open first, if it has been open for `horizon_old_s`: how many
    multixact ids it holds is not visible (GetOldestMultiXactId in multixact.c)."""
    opened = [row for row in held if row.kind in ("backend", "prepared") and row.since is not None]
    oldest = min(opened, key=lambda row: row.since or 0, default=None)
    open_s = None if oldest is None else age_s(s.facts.server_now_us, oldest.since)
    return oldest if open_s is not None and open_s >= s.limits.of(HorizonLimits).horizon_old_s else None


def _vacuum_advice(s: RuleContext, ids: IdCounter) -> str:
    database = clean(ids.database)
    text = f"VACUUM as superuser in {database}, the oldest tables first: not FULL, which needs an id, and not FREEZE."
    if not _allows_connections(s, ids.database):
        # ALTER DATABASE … ALLOW_CONNECTIONS would need an id itself.
        text = f"Leave {database} to autovacuum, which needs no connection and starts automatically, also if it is off."
    major = s.facts.major or 0
    if major <= 13:
        return f"{text} After the stop, PostgreSQL 13 asks for single-user mode."
    if major <= 16:
        return f"{text} Do not use single-user mode, despite the hint of {major}."
    return text


WRAPAROUND_RULES: tuple[Rule, ...] = (
    Rule(
        name="xid-wraparound",
        title="Transaction ids are running out: how many are left, and until when",
        parts=("pg.xids",),
        runbook="xid-wraparound",
        check=keep_signals_while_stale("pg.xids", xid_wraparound),
        settings=(
            WraparoundLimits.xid_warn_pct,
            WraparoundLimits.xid_warn_xids,
            WraparoundLimits.xid_overdue_pct,
            WraparoundLimits.xid_critical_xids,
            WraparoundLimits.xid_stop_critical_s,
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
            WraparoundLimits.xid_warn_pct,
            WraparoundLimits.xid_warn_xids,
            WraparoundLimits.xid_overdue_pct,
            WraparoundLimits.xid_critical_xids,
            WraparoundLimits.xid_stop_critical_s,
            HorizonLimits.horizon_old_s,
        ),
        source="multixact.c SetMultiXactIdLimit, GetOldestMultiXactId; vacuum_multixact_failsafe_age",
    ),
)
