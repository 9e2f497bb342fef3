"""The rule about the xid horizon: what keeps VACUUM from removing dead rows and from freezing, ranked, with advice for
each.

One finding for all holders, named after the worst: the next one matters only when that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.findings.thresholds import Computed, Judgement, RuleThresholds
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.safety.readings import Horizon, HorizonHolder
from dba_console.watch.samples.findings import Severity


class HorizonLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`: what holds transaction ids."""

    family = "safety"

    horizon_warn_xids: Computed[int] = 50_000_000
    """Warning about a holder of the oldest xmin (xid horizon) that is this many ids back: vacuum_freeze_min_age, from
    which VACUUM would freeze."""
    horizon_old_s: Judgement[float] = 3600.0
    """Warning about a holder that has held it for this long while `horizon_old_xids` were used."""
    horizon_old_xids: Judgement[int] = 1_000_000
    """Ids that must have been used since then: their dead rows cause bloat."""
    prepared_s: Judgement[float] = 3600.0
    """A prepared transaction this old was probably forgotten, and is a warning whatever its age in ids (check_postgres
    prepared_txns warns after a second)."""


# Holders of the xid horizon: ranked, named, with advice for each kind.


def rank_holders(horizon: Horizon) -> list[HorizonHolder]:
    """Return the holders, the highest age first, then the oldest. Ages that are not visible are left out."""
    held = [row for row in horizon.rows if row.xid_age is not None]
    held.sort(key=lambda row: (-(row.xid_age or 0), float("inf") if row.since is None else row.since))
    return held


def holder_text(row: HorizonHolder) -> str:
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


def holder_advice(row: HorizonHolder) -> str:
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


def format_ids(count: int) -> str:
    """Return a number of ids in a short form.

    >>> format_ids(2_140_483_647), format_ids(4_000_000), format_ids(81_499_000), format_ids(31_500)
    ('2,140 M', '4.0 M', '81 M', '31,500')
    """
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:.1f} M" if count < 10_000_000 else f"{count / 1e6:,.0f} M"


HORIZON_CLEAR_SHARE = 0.9
"""The finding is cleared below this share of the age that raised it."""
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
    horizon = s.picture.now("pg.horizon", Horizon)
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
        text=f"VACUUM cannot clean up: {name} has held the oldest xmin{since}, by {format_ids(age)} ids" + others,
        effect=f"VACUUM cannot clean up: the oldest xmin is held back by {format_ids(age)} ids",
        cause=f"{name} holds the oldest xmin back by {format_ids(age)} ids{others}",
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


def _too_far(s: RuleContext, row: HorizonHolder) -> bool:
    limits, age = s.limits.of(HorizonLimits), row.xid_age or 0
    held_s = age_s(s.facts.server_now_us, row.since) or 0.0
    if s.over(age, limits.horizon_warn_xids, int(limits.horizon_warn_xids * HORIZON_CLEAR_SHARE), "horizon-held"):
        return True
    if row.kind == "prepared" and held_s >= limits.prepared_s:
        return True
    return held_s >= limits.horizon_old_s and age >= limits.horizon_old_xids


def _horizon_severity(s: RuleContext, row: HorizonHolder) -> Severity:
    if (
        row.kind != "backend"
        or row.who not in DUMPS
        or (row.xid_age or 0) >= s.limits.of(HorizonLimits).horizon_warn_xids
    ):
        return "warning"
    known = [one.usual_s for one in s.panel(ProgressPanel).operations if one.kind == "pg_dump" and one.pid == row.pid]
    usual_s = next((one for one in known if one is not None), 86_400.0)
    held_s = age_s(s.facts.server_now_us, row.since)
    return "info" if held_s is not None and held_s <= 1.5 * usual_s else "warning"


HORIZON_RULES: tuple[Rule, ...] = (
    Rule(
        name="horizon-held",
        title="The oldest xmin (xid horizon) is held back: VACUUM cannot clean up or freeze",
        parts=("pg.horizon",),
        check=keep_signals_while_stale("pg.horizon", horizon_held),
        clear_after_s=20.0,
        runbook="xid-wraparound",
        settings=(
            HorizonLimits.horizon_warn_xids,
            HorizonLimits.horizon_old_s,
            HorizonLimits.horizon_old_xids,
            HorizonLimits.prepared_s,
        ),
        source="vacuum_freeze_min_age (50 M); check_postgres prepared_txns",
    ),
)
