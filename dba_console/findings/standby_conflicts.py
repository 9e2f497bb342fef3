"""Queries that a standby cancels, so that replay can go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.stale_parts import keep_signals_while_stale
from dba_console.samples import postgres
from dba_console.sanitize import clean
from dba_console.units import human_duration

Counts = dict[str, int]


def standby_conflicts(s: RuleContext) -> Iterator[Signal]:
    """Queries this standby cancelled for conflicts with recovery, over ten minutes: a line, and a warning from ten on.

    Counted by pg_stat_database, so those of every database, and none of before the console began. Which kind they are
    of, pg_stat_database_conflicts tells.
    """
    stats = s.picture.now("pg.databases", postgres.DatabaseStats)
    if stats is None or not s.facts.in_recovery:
        s.memo("standby-conflicts").clear()
        return
    counts: Counts = {row.name: row.conflicts for row in stats.rows if row.name is not None and row.conflicts}
    ring: deque[tuple[int, Counts]] = s.memo("standby-conflicts").setdefault("ring", deque())
    if ring and any(counts.get(name, 0) < count for name, count in ring[-1][1].items()):
        ring.clear()  # reset, or a database is gone
    if not ring or counts != ring[-1][1]:
        ring.append((s.mono_us, counts))
    window_s = s.limits.wal.conflicts_window_s
    while len(ring) > 1 and s.mono_us - ring[1][0] >= window_s * 1e6:
        ring.popleft()
    fresh = {name: count - ring[0][1].get(name, 0) for name, count in counts.items()}
    total = sum(fresh.values())
    if not total:
        return
    worst = clean(max(fresh, key=fresh.__getitem__))
    many = "1 query was" if total == 1 else f"{total} queries were"
    yield Signal(
        severity="warning" if total >= s.limits.wal.conflicts_warn else "info",
        text=f"{many} cancelled on this standby by replay within {human_duration(window_s)}, most in {worst}",
        evidence={"conflicts": total, "conflicts_window_s": window_s, "database": worst},
        advice="pg_stat_database_conflicts tells the kind. Snapshots: hot_standby_feedback, which lets the primary "
        "bloat; locks: DDL and VACUUM's truncation there. max_standby_streaming_delay gives them time, and lag.",
    )


CONFLICT_RULES: tuple[Rule, ...] = (
    Rule(
        name="standby-conflicts",
        title="Replay cancels queries on this standby",
        parts=("pg.databases",),
        check=keep_signals_while_stale("pg.databases", standby_conflicts),
        settings=("wal.conflicts_window_s", "wal.conflicts_warn"),
        source="pg_stat_database.conflicts; PostgreSQL: Handling Query Conflicts (26.4.2)",
    ),
)
