"""What the catalogs say is wrong before anybody feels it: sort orders that changed, invalid indexes, full sequences.

Invalid indexes and sequences are those of the database the console is connected to: another one has to be asked by a
console of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale
from dba_console.findings.time_phrases import YEAR_S, future_time_text
from dba_console.samples.catalog import CatalogFaults, ChangedCollation, InvalidIndex, SequenceUsage
from dba_console.samples.findings import Severity
from dba_console.sanitize import clean
from dba_console.units import human_pct

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
