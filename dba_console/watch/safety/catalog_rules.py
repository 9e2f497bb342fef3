"""Rules about problems that the catalogs show before queries do: changed collations, invalid indexes, full sequences.

Invalid indexes and sequences are those of the database the console is connected to; another database needs its own
console.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.core.sanitize import clean
from dba_console.core.units import human_pct
from dba_console.watch.findings.phrases import YEAR_S, future_time_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.safety.readings import CatalogFaults, ChangedCollation, InvalidIndex, SequenceUsage
from dba_console.watch.safety.wraparound_rules import WraparoundLimits
from dba_console.watch.samples.findings import Severity


class CatalogLimits(RuleThresholds, frozen=True):
    """`[findings.safety]`: indexes and sequences."""

    family = "safety"

    invalid_index_s: Judgement[float] = 600.0
    """Warning after this time about an invalid index that is not being built: the build may be retried."""
    sequence_warn_pct: Judgement[float] = 85.0
    """Warning from this used percentage of the values a sequence and its column can hold (check_postgres sequence,
    -w)."""
    sequence_critical_pct: Judgement[float] = 95.0
    """Critical from this used percentage of the values a sequence and its column can hold (check_postgres sequence,
    -c)."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.sequence_warn_pct, cls.sequence_critical_pct),)


SHOWN = 3
"""Number named in the sentence; the evidence lists all that were read."""
RATE_S = 600.0
"""Minimum observation for an estimate: two readings are five minutes apart."""


def collation_version(s: RuleContext) -> Iterator[Signal]:
    """The collation version of the operating system or ICU changed: indexes on text may be out of order.

    Before PostgreSQL 15 only collations named in the connected database are known, not the defaults of databases.
    Unused collations are left out. The usual cause is a new glibc; whether an index is out of order must be checked.
    """
    faults = s.picture.now("pg.catalog", CatalogFaults)
    if faults is None or not faults.collations:
        return
    rows = faults.collations
    yield Signal(
        severity="warning",
        text=f"{_collations_text(faults, rows)} created with version {clean(rows[0].recorded)}, and "
        f"{clean(rows[0].provider)} "
        f"now has {clean(rows[0].actual)}: indexes on text may be out of order",
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
    """An invalid index, left by a failed CREATE INDEX or REINDEX CONCURRENTLY; not one that is built or dropped now.

    Whether a build is running is derived from the lock such a statement holds on the table. Connected database only.
    check_pgactivity (invalid_indexes) is critical at once; here it is a warning after ten minutes, because the build
    may be retried. Indexes of partitioned tables are invalid until the last partition has one, and left out.
    """
    faults = s.picture.now("pg.catalog", CatalogFaults)
    if faults is None or faults.indexes is None:
        return
    first: dict[str, int] = s.memo("invalid-index").setdefault("first", {})
    for gone in first.keys() - {row.name for row in faults.indexes}:
        del first[gone]
    for row in faults.indexes:
        first.setdefault(row.name, s.mono_us)
    least_us = int(s.limits.of(CatalogLimits).invalid_index_s * 1e6)
    old = [row for row in faults.indexes if s.mono_us - first[row.name] >= least_us]
    if old:
        yield _invalid_signal(faults, old)


def _invalid_signal(faults: CatalogFaults, rows: list[InvalidIndex]) -> Signal:
    row = next((row for row in rows if row.ready), rows[0])
    costs = ", and every write to the table maintains it" if row.ready else ""
    more = f"; {len(rows) - 1} more like it" if len(rows) > 1 else ""
    where = f"index {clean(row.name)} of table {clean(row.table)} in database {clean(faults.database)}"
    return Signal(
        severity="warning",
        text=f"No query uses {where}: it is invalid and not being built{costs}{more}",
        evidence={
            "invalid_indexes": [clean(one.name) for one in rows],
            "database": clean(faults.database),
            "pages": sum(one.pages for one in rows),
        },
        advice="DROP INDEX CONCURRENTLY if its name ends in _ccnew or _ccold, which a failed REINDEX "
        "CONCURRENTLY leaves; otherwise rebuild it with REINDEX INDEX CONCURRENTLY, or drop it.",
    )


def sequence_full(s: RuleContext) -> Iterator[Signal]:
    """A sequence has used most of the values that it, or the column it belongs to, can hold.

    The column counts if it is narrower: a bigint sequence behind an integer column ends at 2,147,483,647. A warning
    at 85 %, critical at 95 % (check_postgres, action sequence) or if the rest lasts less than a day; the rate is known
    after ten minutes. Connected database only, sequences that do not cycle and that this role may read (SELECT on the
    sequence, or pg_read_all_data). With very many, only the hundred are read whose tables have the most rows or inserts
    for their size. Tables that use a sequence they do not own are not known.
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
    if (row.last - value) * row.increment < 0:  # it was set back
        since_us, value = first[row.name] = (s.mono_us, row.last)
    pct = 100 * (row.last - row.start) / (row.stop - row.start)
    left = max(0, (row.stop - row.last) // row.increment)
    watched_s = (s.mono_us - since_us) / 1e6
    per_s = abs(row.last - value) / abs(row.increment) / watched_s if watched_s >= RATE_S else None
    left_s = None if not per_s else left / per_s
    subject = f"{clean(faults.database)}.{clean(row.name)}"
    limits = s.limits.of(CatalogLimits)
    soon = left_s is not None and left_s < s.limits.of(WraparoundLimits).xid_stop_critical_s
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
        "its indexes under ACCESS EXCLUSIVE; start early with a new column that is filled in steps.",
    )


CATALOG_RULES: tuple[Rule, ...] = (
    Rule(
        name="collation-version",
        title="A collation version differs from the one its database was created with",
        parts=("pg.catalog",),
        check=keep_signals_while_stale("pg.catalog", collation_version),
        source="PostgreSQL: ALTER COLLATION (Notes), pg_database_collation_actual_version (15 and later)",
    ),
    Rule(
        name="invalid-index",
        title="An invalid index that is not being built",
        parts=("pg.catalog",),
        check=keep_signals_while_stale("pg.catalog", invalid_index),
        warm_up_s=600.0,
        settings=(CatalogLimits.invalid_index_s,),
        source="PostgreSQL: CREATE INDEX (Building Indexes Concurrently), REINDEX; check_pgactivity invalid_indexes",
    ),
    Rule(
        name="sequence-full",
        title="A sequence, or the column it numbers, is running out",
        parts=("pg.catalog",),
        check=keep_signals_while_stale("pg.catalog", sequence_full),
        settings=(
            CatalogLimits.sequence_warn_pct,
            CatalogLimits.sequence_critical_pct,
            WraparoundLimits.xid_stop_critical_s,
        ),
        source="check_postgres sequence 85 % / 95 %; PostgreSQL: CREATE SEQUENCE, Numeric Types (8.1)",
    ),
)
