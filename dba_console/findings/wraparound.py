"""Wraparound: how many transaction and multixact ids are left before the server stops giving them out.

Every database counts, template0 and those that allow no connections too: the oldest one stops the whole cluster. Ages
are told at first sight; dates only once a burn rate was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dba_console.findings.horizon_holders import holder_advice, holder_text, rank_holders
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale
from dba_console.findings.time_phrases import YEAR_S, future_time_text
from dba_console.findings.wal_space import round_number
from dba_console.frames.safety import WRAP_AGE, Thresholds, series_name, thresholds
from dba_console.samples import postgres
from dba_console.samples.findings import Severity
from dba_console.sanitize import clean

CLEAR_SHARE = 0.97
"""A finding is cleared at this share of the age that raised it."""


class IdCounter(NamedTuple):
    """One of the two counters: where its oldest database stands, and where the server warns and stops."""

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
        """Seconds until that age at the present rate; 0 where it is reached, None where no rate is known."""
        if self.age >= age:
            return 0.0
        if self.per_s is None:
            return None
        return (age - self.age) / self.per_s if self.per_s > 0 else YEAR_S


def format_ids(count: int) -> str:
    """A number of ids as DBAs say it.

    >>> format_ids(2_140_483_647), format_ids(4_000_000), format_ids(81_499_000), format_ids(31_500)
    ('2,140 M', '4.0 M', '81 M', '31,500')
    """
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:.1f} M" if count < 10_000_000 else f"{count / 1e6:,.0f} M"


def xid_wraparound(s: RuleContext) -> Iterator[Signal]:
    """The oldest database has an age that autovacuum should never have let come about: how many ids are left, the dates
    at the present rate, and in which database.

    A warning from two fifths of the age at which the server stops, or from a quarter beyond autovacuum_freeze_max_age
    where that is later, in any case from the 1.3 G of check_postgres; critical from 1.6 G (vacuum_failsafe_age), where
    the server itself warns, or where the ids last no longer than a day. PostgreSQL 13 warns 11 M ids before the end and
    stops at 1 M, 14 to 18 at 40 M and 3 M, 19 at 100 M and 3 M (varsup.c).
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
    """The same for multixact ids, which sessions that lock the same rows together use up; what holds the xid horizon
    does not hold these.

    Figures as for transaction ids, with autovacuum_multixact_freeze_max_age and vacuum_multixact_failsafe_age. Their
    members have a limit of their own, which no view told before PostgreSQL 19: this rule does not see it, the runbook
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
    felt = _effect_text(s, ids)
    yield Signal(
        severity=_severity(s, ids),
        text=felt + (", autovacuum's failsafe is at work" if failsafe else ""),
        effect=felt,
        evidence=_evidence(s, ids, failsafe),
        series=(series_name(s.facts, "next_xid" if ids.rule == "xid-wraparound" else "next_mxid"),),
        runbook="xid-wraparound",
        advice=_advice(s, ids),
    )


def _warn_age(s: RuleContext, ids: IdCounter) -> int:
    """40 % of the stop, or where forced vacuums are overdue if that is later, and never later than 1.3 G."""
    limits = s.limits.safety
    share = limits.xid_warn_pct / 100 * ids.stop
    overdue = limits.xid_overdue_pct / 100 * (ids.freeze_max_age or 0)
    return int(min(max(share, overdue), limits.xid_warn_xids))


def _severity(s: RuleContext, ids: IdCounter) -> Severity:
    """Critical: past 1.6 G (or where the server itself warns), or used up within a day."""
    limits = s.limits.safety
    stop_in_s = ids.reached_in_s(ids.stop)
    soon = stop_in_s is not None and stop_in_s < limits.xid_stop_critical_s
    return "critical" if soon or ids.age >= min(limits.xid_critical_xids, ids.warn) else "warning"


def _effect_text(s: RuleContext, ids: IdCounter) -> str:
    """How many are left, in which database, until when."""
    server = f"PostgreSQL {s.facts.major}"
    closed = "" if _allows_connections(s, ids.database) else ", which allows no connections,"
    where = f"database {clean(ids.database)}{closed} is {format_ids(ids.age)} ids old"
    if ids.left == 0:
        return f"{server} gives out no {ids.noun} ids any more: {where}"
    return (
        f"{format_ids(ids.left)} {ids.noun} ids are left before {server} gives out no "
        f"more{_dates_text(s, ids)}: {where}"
    )


def _dates_text(s: RuleContext, ids: IdCounter) -> str:
    """The dates of the server's own warnings and of the stop, in brackets; nothing where no rate is known."""
    stop_in_s, warn_in_s = ids.reached_in_s(ids.stop), ids.reached_in_s(ids.warn)
    if stop_in_s is None:
        return ""
    if stop_in_s >= YEAR_S:
        return " (at the present rate not within a year)"
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
    """What the server answers to a command that needs a transaction id, as it stands in the log in English: with the
    ids left before the wrap itself, which are more than those before the stop. None while it says nothing yet.

    GetNewTransactionId() in varsup.c; the words of the stop changed with 17.
    """
    if age >= limits.xid_stop:
        what = "that assign new transaction IDs " if major >= 17 else ""
        return f'database is not accepting commands {what}to avoid wraparound data loss in database "{database}"'
    if age >= limits.xid_warn:
        return f'database "{database}" must be vacuumed within {WRAP_AGE - age} transactions'
    return None


def _advice(s: RuleContext, ids: IdCounter) -> str:
    """The first steps of the order of the documentation (maintenance.sgml, "Preventing Transaction ID Wraparound
    Failures"): what holds the horizon goes before any VACUUM, which could not freeze otherwise."""
    if s.facts.in_recovery:
        return "On its primary: VACUUM as superuser, once nothing holds the horizon there any more."
    horizon = s.picture.now("pg.horizon", postgres.Horizon)
    worst = next(iter(rank_holders(horizon)), None) if horizon is not None and ids.rule == "xid-wraparound" else None
    if worst is not None and 2 * (worst.xid_age or 0) >= ids.age:
        return f"First {holder_text(worst)}. {holder_advice(worst)} Then {_vacuum_advice(s, ids)}"
    return _vacuum_advice(s, ids)


def _vacuum_advice(s: RuleContext, ids: IdCounter) -> str:
    database = clean(ids.database)
    text = f"VACUUM as superuser in {database}, the oldest tables first: not FULL, which needs an id, and not FREEZE."
    if not _allows_connections(s, ids.database):
        text = f"ALTER DATABASE {database} ALLOW_CONNECTIONS true, then VACUUM in it as superuser; and close it again."
    major = s.facts.major or 0
    if major <= 13:
        return f"{text} Once the server has stopped giving out ids, 13 asks for single-user mode."
    if major <= 16:
        return f"{text} No single-user mode, whatever the hint of {major} says."
    return text


RULES: tuple[Rule, ...] = (
    Rule(
        name="xid-wraparound",
        title="Transaction ids run out: how many are left, and until when",
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
        title="Multixact ids run out: how many are left, and until when",
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
