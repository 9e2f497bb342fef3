"""Rules about what a cluster can lose for good, and about its catalogs and tables where they go wrong unnoticed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.core.units import human_pct
from dba_console.watch.findings import autovacuum, wraparound
from dba_console.watch.findings.phrases import YEAR_S, future_time_text, past_time_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.samples import postgres
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.postgres import CatalogFaults, ChangedCollation, InvalidIndex, SequenceUsage

# Checksums: pages that were damaged on disk, and clusters that would not notice.
#
# Corruption does not heal, and a page is only found damaged when it is read: so a failure seen once stays a finding
# for as long as the agent runs, whatever becomes of the server's counters.

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


# What the catalogs say is wrong before anybody feels it: sort orders that changed, invalid indexes, full sequences.
#
# Invalid indexes and sequences are those of the database the console is connected to: another one has to be asked by a
# console of its own.

SHOWN = 3
"""Named in the sentence; the evidence has all that were read."""
RATE_S = 600.0
"""No date is told by a shorter time of watching: two readings are five minutes apart."""


def collation_version(s: RuleContext) -> Iterator[Signal]:
    """The operating system or ICU sorts otherwise than when a database was made: indexes on text may be out of order.

    Before PostgreSQL 15 only collations named in the connected database are known, not the defaults of databases.
    Those nothing uses are left out. A new glibc is the usual cause; that no index is out of order has to be seen.
    """
    faults = s.picture.now("pg.catalog", CatalogFaults)
    if faults is None or not faults.collations:
        return
    rows = faults.collations
    yield Signal(
        severity="warning",
        text=f"{_collations_text(faults, rows)} recorded with version {clean(rows[0].recorded)}, and "
        f"{clean(rows[0].provider)} "
        f"has {clean(rows[0].actual)} now: indexes on text may be out of order",
        evidence={
            "collations": [
                f"{_collation_text(faults, row)}: {clean(row.recorded)} -> {clean(row.actual)}" for row in rows
            ],
            "collation_recorded": clean(rows[0].recorded),
            "collation_actual": clean(rows[0].actual),
        },
        advice="Check indexes on text with bt_index_check() of amcheck, REINDEX them, and only then ALTER DATABASE or "
        "COLLATION ... REFRESH VERSION, which checks nothing.",
    )


def _collations_text(faults: CatalogFaults, rows: list[ChangedCollation]) -> str:
    places = [_collation_text(faults, row) for row in rows]
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    many = len(places) > 1
    return f"Collation{'s' if many else ''} of {', '.join(places[:SHOWN])}{more} {'were' if many else 'was'}"


def _collation_text(faults: CatalogFaults, row: ChangedCollation) -> str:
    if row.database is not None:
        return f"database {clean(row.database)}"
    return f"{clean(row.name or '')} in database {clean(faults.database)}"


def invalid_index(s: RuleContext) -> Iterator[Signal]:
    """An index no query uses, left by a CREATE INDEX or REINDEX CONCURRENTLY that failed; those not built or dropped
    now.

    Whether one is under way is told by the lock such a statement keeps on the table. Told of the connected database
    only. check_pgactivity (invalid_indexes) is critical at once; here it is a warning, and given ten minutes, for
    whoever failed may be about to try again. Indexes of partitioned tables are invalid until the last partition has
    one, and left out.
    """
    faults = s.picture.now("pg.catalog", CatalogFaults)
    if faults is None or faults.indexes is None:
        return
    first: dict[str, int] = s.memo("invalid-index").setdefault("first", {})
    for gone in first.keys() - {row.name for row in faults.indexes}:
        del first[gone]
    for row in faults.indexes:
        first.setdefault(row.name, s.mono_us)
    least_us = int(s.limits.safety.invalid_index_s * 1e6)
    old = [row for row in faults.indexes if s.mono_us - first[row.name] >= least_us]
    if old:
        yield _invalid_signal(faults, old)


def _invalid_signal(faults: CatalogFaults, rows: list[InvalidIndex]) -> Signal:
    row = next((row for row in rows if row.ready), rows[0])
    costs = ", and every write to the table writes it" if row.ready else ""
    more = f"; {len(rows) - 1} more like it" if len(rows) > 1 else ""
    where = f"index {clean(row.name)} of table {clean(row.table)} in database {clean(faults.database)}"
    return Signal(
        severity="warning",
        text=f"No query uses {where}: it is invalid, and nobody builds it{costs}{more}",
        evidence={
            "invalid_indexes": [clean(one.name) for one in rows],
            "database": clean(faults.database),
            "pages": sum(one.pages for one in rows),
        },
        advice="DROP INDEX CONCURRENTLY it where its name ends in _ccnew or _ccold, which a failed REINDEX "
        "CONCURRENTLY leaves; else build it with REINDEX INDEX CONCURRENTLY, or drop it.",
    )


def sequence_full(s: RuleContext) -> Iterator[Signal]:
    """A sequence that has used most of the numbers that it, or the column it belongs to, can hold.

    The column counts where it is narrower: a bigint sequence behind an integer column ends at 2,147,483,647. A warning
    at 85 %, critical at 95 % (check_postgres, action sequence) or where the rest lasts no longer than a day; the rate
    is known after ten minutes. Told of the connected database only, of sequences that do not cycle and whose value this
    role may read (SELECT on the sequence, or pg_read_all_data). Of very many, the hundred are read whose tables have
    the most rows or inserts for their size. Tables that take numbers from a sequence they do not own are not known.
    """
    faults = s.picture.now("pg.catalog", CatalogFaults)
    if faults is None or faults.sequences is None:
        return
    first: dict[str, tuple[int, int]] = s.memo("sequence-full").setdefault("first", {})
    for gone in first.keys() - {row.name for row in faults.sequences}:
        del first[gone]
    for row in faults.sequences:
        signal = _full_signal(s, faults, row, first)
        if signal is not None:
            yield signal


def _full_signal(
    s: RuleContext, faults: CatalogFaults, row: SequenceUsage, first: dict[str, tuple[int, int]]
) -> Signal | None:
    since_us, value = first.setdefault(row.name, (s.mono_us, row.last))
    if (row.last - value) * row.increment < 0:  # somebody has set it back
        since_us, value = first[row.name] = (s.mono_us, row.last)
    pct = 100 * (row.last - row.start) / (row.stop - row.start)
    left = max(0, (row.stop - row.last) // row.increment)
    watched_s = (s.mono_us - since_us) / 1e6
    per_s = abs(row.last - value) / abs(row.increment) / watched_s if watched_s >= RATE_S else None
    left_s = None if not per_s else left / per_s
    subject = f"{clean(faults.database)}.{clean(row.name)}"
    limits = s.limits.safety
    soon = left_s is not None and left_s < limits.xid_stop_critical_s
    if not soon and not s.over(pct, limits.sequence_warn_pct, limits.sequence_warn_pct - 1, "sequence-full", subject):
        return None
    severity: Severity = "critical" if soon or pct >= limits.sequence_critical_pct else "warning"
    when = f", used up {future_time_text(left_s, s.now_us)}" if left_s is not None and left_s < YEAR_S else ""
    column = "" if row.column is None else f", for column {clean(row.column)},"
    return Signal(
        severity=severity,
        subject=subject,
        text=f"Sequence {clean(row.name)} of database {clean(faults.database)}{column} has used {human_pct(pct)} of "
        f"its numbers: {left:,} are left{when}",
        evidence={
            "sequence": clean(row.name),
            "column": None if row.column is None else clean(row.column),
            "database": clean(faults.database),
            "used_pct": round(pct, 1),
            "last_value": row.last,
            "stop_value": row.stop,
            "numbers_left": left,
            "numbers_per_s": None if per_s is None else round(per_s, 3),
            "left_s": left_s,
        },
        advice="At its end every INSERT fails. A wider column (ALTER COLUMN ... TYPE bigint) rewrites the table and "
        "its indexes under ACCESS EXCLUSIVE; begin in time with a new column that is filled in steps.",
    )


CATALOG_RULES: tuple[Rule, ...] = (
    Rule(
        name="collation-version",
        title="A collation sorts otherwise than when its database was made",
        parts=("pg.catalog",),
        check=keep_signals_while_stale("pg.catalog", collation_version),
        source="PostgreSQL: ALTER COLLATION (Notes), pg_database_collation_actual_version (15 and later)",
    ),
    Rule(
        name="invalid-index",
        title="An invalid index that nobody builds",
        parts=("pg.catalog",),
        check=keep_signals_while_stale("pg.catalog", invalid_index),
        warm_up_s=600.0,
        settings=("safety.invalid_index_s",),
        source="PostgreSQL: CREATE INDEX (Building Indexes Concurrently), REINDEX; check_pgactivity invalid_indexes",
    ),
    Rule(
        name="sequence-full",
        title="A sequence, or the column it numbers, is at its end",
        parts=("pg.catalog",),
        check=keep_signals_while_stale("pg.catalog", sequence_full),
        settings=("safety.sequence_warn_pct", "safety.sequence_critical_pct", "safety.xid_stop_critical_s"),
        source="check_postgres sequence 85 % / 95 %; PostgreSQL: CREATE SEQUENCE, Numeric Types (8.1)",
    ),
)


RULES: tuple[Rule, ...] = (
    *CHECKSUM_RULES, *wraparound.RULES, *wraparound.HORIZON_RULES, *wraparound.VACUUM_RULES, *autovacuum.RULES,
    *CATALOG_RULES,
)  # fmt: skip
