"""Checksums: pages that were damaged on disk, and clusters that would not notice.

Corruption does not heal, and a page is only found damaged when it is read: so a failure seen once stays a finding for
as long as the agent runs, whatever becomes of the server's counters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.time_phrases import past_time_text
from dba_console.frames.timestamps import rfc3339
from dba_console.samples import postgres
from dba_console.samples.findings import Severity
from dba_console.sanitize import clean

ONLINE_MAJOR = 19
"""pg_enable_data_checksums() came with 19; before, pg_checksums needs a stopped server."""


@dataclass(slots=True)
class DatabaseDamage:
    """What is known of one database: pg_stat_database counts, as far as it was not reset meanwhile."""

    name: str | None
    failures: int
    """All that were ever seen: what was there at the beginning, and each one since."""
    new_failures: int
    """Those since the agent began."""
    counter: int
    """The view's own number at the last reading."""
    last_us: int | None
    """checksum_last_failure, the server's clock."""


def checksum_failures(s: RuleContext) -> Iterator[Signal]:
    """Failures counted in pg_stat_database (12+), those of the time before the agent too.

    Critical until a day after the last one, by the server's own time of it, so that starting the agent anew changes
    nothing; a warning after that. A counter that was reset, or lost in a crash, takes nothing back.
    """
    stats = s.picture.now("pg.databases", postgres.DatabaseStats)
    if stats is None:
        return
    known: dict[int, DatabaseDamage] = s.memo("checksum-failure").setdefault("known", {})
    _update_counts(known, stats.rows, first="seen" not in s.memo("checksum-failure"))
    s.memo("checksum-failure")["seen"] = True
    damaged = sorted((one for one in known.values() if one.failures), key=lambda one: -(one.last_us or 0))
    if damaged:
        yield _failure_signal(s, damaged)


def _update_counts(known: dict[int, DatabaseDamage], rows: Collection[postgres.DatabaseStat], *, first: bool) -> None:
    if len(known) > len(rows):
        there = {row.oid for row in rows}
        for oid in [oid for oid, one in known.items() if oid not in there and not one.failures]:
            del known[oid]  # databases of tests come and go by the thousand
    for row in rows:
        if row.checksum_failures is None:
            continue  # checksums are off, or it may not be seen
        one = known.get(row.oid)
        if one is None:
            one = known[row.oid] = DatabaseDamage(row.name, 0, 0, 0, None)
        # After a reset the view begins at 0 again: what it counts then has all happened since.
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
    elsewhere = "; the server's own count was reset since" if _was_reset(damaged) else ""
    evidence: dict[str, Any] = {
        "checksum_failures": failures,
        "checksum_failures_since_start": fresh,
        "checksum_databases": [_database_text(one) for one in damaged],
        "checksum_last_failure": rfc3339(last),
    }
    return Signal(
        severity=_severity(s, fresh, last_us),
        text=f"{text}: pages on disk are not what was written{elsewhere}",
        evidence=evidence,
        since_us=s.memo("checksum-failure").setdefault("since_us", last_us),
        runbook="checksum-failure",
        advice="Find the relation in the server's log (invalid page in block), take no VACUUM FULL or REINDEX yet, and "
        "check that the backups from before the first failure are kept.",
    )


def _severity(s: RuleContext, fresh: int, last_us: int | None) -> Severity:
    if last_us is None:
        return "critical" if fresh else "warning"
    return "critical" if (s.now_us - last_us) / 1e6 < s.limits.safety.checksum_critical_s else "warning"


def _database_text(one: DatabaseDamage) -> str:
    return "the shared catalogs" if one.name is None else f"database {clean(one.name)}"


def _failure_text(count: int) -> str:
    return "A page failed its checksum" if count == 1 else f"{count} reads failed their checksum"


def _was_reset(damaged: list[DatabaseDamage]) -> bool:
    return any(one.counter < one.failures for one in damaged)


def checksums_off(s: RuleContext) -> Iterator[Signal]:
    """The cluster has none: nothing on the way from disk to memory would be noticed (initdb's default until 17)."""
    if s.facts.setting("data_checksums") != "off":
        return
    online = (s.facts.major or 0) >= ONLINE_MAJOR
    how = (
        "pg_enable_data_checksums() turns them on while the server runs"
        if online
        else "pg_checksums --enable turns them on while the server, and every standby of it, is stopped"
    )
    yield Signal(
        severity="info",
        text=f"Data checksums are off: a page damaged on disk is taken for sound; {how}",
        evidence={"data_checksums": "off"},
        advice="Until then only amcheck and reading everything, as a dump does, find damage.",
    )


CHECKSUM_RULES: tuple[Rule, ...] = (
    Rule(
        name="checksum-failure",
        title="Pages failed their checksum when they were read from disk",
        parts=("pg.databases",),
        check=checksum_failures,
        settings=("safety.checksum_critical_s",),
        runbook="checksum-failure",
        source="pg_stat_database.checksum_failures, checksum_last_failure (PostgreSQL 12+)",
    ),
    Rule(
        name="checksums-off",
        title="The cluster has no data checksums",
        parts=("pg.server",),
        check=checksums_off,
        source="data_checksums; pg_checksums; online from PostgreSQL 19 on",
    ),
)
