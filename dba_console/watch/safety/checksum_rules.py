"""Rules about checksums: damaged pages on disk, and clusters that would not detect them.

Corruption does not heal, and damage is found only when a page is read: so a failure seen once stays a finding as long
as the agent runs, even if the server's counters are reset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.watch.findings.phrases import past_time_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.findings.thresholds import Judgement, RuleThresholds
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples.findings import Severity


class ChecksumLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`: checksum failures."""

    family = "safety"

    checksum_critical_s: Judgement[float] = 86_400.0
    """A checksum failure is critical for this long after the last one; then a warning: corruption does not heal."""


ONLINE_MAJOR = 19
"""pg_enable_data_checksums() exists from 19; before, pg_checksums needs a stopped server."""


@dataclass(slots=True)
class DatabaseDamage:
    """Checksum failures of one database, by pg_stat_database; survives a reset of the counter."""

    name: str | None
    failures: int
    """All failures: those present at the start, and those since."""
    new_failures: int
    """Failures since the agent started."""
    counter: int
    """The view's value at the last reading."""
    last_us: int | None
    """checksum_last_failure, the server's clock."""


def checksum_failures(s: RuleContext) -> Iterator[Signal]:
    """Failures counted in pg_stat_database (12+), including those before the agent started.

    Critical until a day after the last one, by the server's own time, so that a restart of the agent changes nothing;
    a warning after that. A reset of the counter, or its loss in a crash, removes nothing.
    """
    stats = s.picture.now("pg.databases", DatabaseStats)
    if stats is None:
        return
    known: dict[int, DatabaseDamage] = s.memo("checksum-failure").setdefault("known", {})
    _update_counts(known, stats.rows, first="seen" not in s.memo("checksum-failure"))
    s.memo("checksum-failure")["seen"] = True
    damaged = sorted((one for one in known.values() if one.failures), key=lambda one: -(one.last_us or 0))
    if damaged:
        yield _failure_signal(s, damaged)


def _update_counts(known: dict[int, DatabaseDamage], rows: Collection[DatabaseStat], *, first: bool) -> None:
    if len(known) > len(rows):
        there = {row.oid for row in rows}
        for oid in [oid for oid, one in known.items() if oid not in there and not one.failures]:
            del known[oid]  # test databases come and go by the thousand
    for row in rows:
        if row.checksum_failures is None:
            continue  # checksums are off, or not visible
        one = known.get(row.oid)
        if one is None:
            one = known[row.oid] = DatabaseDamage(row.name, 0, 0, 0, None)
        # After a reset the view restarts at 0: what it counts then has all happened since.
        new = row.checksum_failures - (one.counter if row.checksum_failures >= one.counter else 0)
        one.failures += new
        one.new_failures += 0 if first else new
        one.counter = row.checksum_failures
        if row.checksum_last_failure is not None:
            one.last_us = max(one.last_us or 0, row.checksum_last_failure)


def _failure_signal(s: RuleContext, damaged: list[DatabaseDamage]) -> Signal:
    failures, fresh = sum(one.failures for one in damaged), sum(one.new_failures for one in damaged)
    last = max((one.last_us or 0 for one in damaged), default=0) or None
    last_us = s.host_us(last)
    where = ", ".join(_database_text(one) for one in damaged[:3]) + (", and others" if len(damaged) > 3 else "")
    text = f"{_failure_text(failures)} in {where}"
    if last_us is not None:
        text += f", the last {past_time_text(last_us, s.now_us)}"
    was_reset = any(one.counter < one.failures for one in damaged)
    elsewhere = "; the server's counter was reset since" if was_reset else ""
    evidence: dict[str, Any] = {
        "checksum_failures": failures,
        "checksum_failures_since_start": fresh,
        "checksum_databases": [_database_text(one) for one in damaged],
        "checksum_last_failure": rfc3339(last),
    }
    return Signal(
        severity=_severity(s, fresh, last_us),
        text=f"{text}: data pages on disk are corrupted{elsewhere}",
        evidence=evidence,
        since_us=s.memo("checksum-failure").setdefault("since_us", last_us),
        runbook="checksum-failure",
        advice="Find the relation in the server's log (invalid page in block), do not run VACUUM FULL or REINDEX yet, "
        "and check that backups from before the first failure are kept.",
    )


def _severity(s: RuleContext, fresh: int, last_us: int | None) -> Severity:
    if last_us is None:
        return "critical" if fresh else "warning"
    return "critical" if (s.now_us - last_us) / 1e6 < s.limits.of(ChecksumLimits).checksum_critical_s else "warning"


def _database_text(one: DatabaseDamage) -> str:
    return "the shared catalogs" if one.name is None else f"database {clean(one.name)}"


def _failure_text(count: int) -> str:
    return "A page failed its checksum" if count == 1 else f"{count} reads failed their checksum"


def checksums_off(s: RuleContext) -> Iterator[Signal]:
    """The cluster has no data checksums: corruption on the way from disk to memory goes undetected (initdb's default
    until 17)."""
    if s.facts.setting("data_checksums") != "off":
        return
    online = (s.facts.major or 0) >= ONLINE_MAJOR
    how = (
        "pg_enable_data_checksums() turns them on while the server runs"
        if online
        else "pg_checksums --enable turns them on while the server and all its standbys are stopped"
    )
    yield Signal(
        severity="info",
        text=f"Data checksums are off: corruption on disk goes undetected; {how}",
        evidence={"data_checksums": "off"},
        advice="While they are off, only amcheck and reading everything, as a dump does, detect damage.",
    )


CHECKSUM_RULES: tuple[Rule, ...] = (
    Rule(
        name="checksum-failure",
        title="Pages failed their checksum when they were read from disk",
        parts=("pg.databases",),
        check=checksum_failures,
        settings=(ChecksumLimits.checksum_critical_s,),
        runbook="checksum-failure",
        source="pg_stat_database.checksum_failures, checksum_last_failure (PostgreSQL 12+)",
    ),
    Rule(
        name="checksums-off",
        title="The cluster has no data checksums",
        parts=("pg.server",),
        check=checksums_off,
        source="data_checksums; pg_checksums; online from PostgreSQL 19",
    ),
)
