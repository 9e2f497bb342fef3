"""The xid horizon: what keeps VACUUM from removing dead rows and from freezing, ranked, with what to do about each.

One finding for all of it, named after the worst holder: only when that one is gone does the next one matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.horizon_holders import holder_advice, holder_text, rank_holders
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale
from dba_console.findings.wraparound import format_ids
from dba_console.frames.timestamps import age_s
from dba_console.samples import postgres
from dba_console.samples.findings import Severity
from dba_console.sanitize import clean
from dba_console.units import human_duration

HORIZON_CLEAR_SHARE = 0.9
DUMPS = ("pg_dump", "pg_dumpall")
NAMED = 5
"""Holders listed in the evidence."""


def horizon_held(s: RuleContext) -> Iterator[Signal]:
    """What keeps VACUUM from removing dead rows and from freezing: a session, a prepared transaction, a slot or a
    standby; the one that holds most is named, with what to do about it.

    A warning from 50 M ids, from an hour where a million ids were used meanwhile, and for a prepared transaction from
    an hour whatever was used: somebody has forgotten it.

    Dumps hold it by design: within the time they usually take, and their first day where that is not known, they are
    told and not warned of. On a standby nothing is: what it holds, its primary shows.
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
    others = f", and {len(held) - 1} more with it" if len(held) > 1 else ""
    since = "" if worst.since is None else f" for {human_duration(age_s(s.facts.server_now_us, worst.since))}"
    yield Signal(
        severity=_horizon_severity(s, worst),
        text=f"VACUUM cannot clean up behind {name}: it has held the xid horizon{since}, {format_ids(age)} ids by now"
        + others,
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
        title="Something keeps VACUUM from cleaning up and freezing",
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
