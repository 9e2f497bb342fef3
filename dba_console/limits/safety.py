"""Figures of the findings about checksums and transaction ids."""

from __future__ import annotations

from msgspec import Struct


class SafetyLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.safety]`."""

    checksum_critical_s: float = 86_400.0
    """A checksum failure is critical for so long after the last one; then a warning, for corruption does not heal."""
    xid_warn_pct: float = 40.0
    """Share of the ids up to the stop: autovacuum begins to freeze at a tenth of them, so it has failed for long."""
    xid_warn_xids: int = 1_300_000_000
    """Always a warning from here on, however late autovacuum is set to begin (check_postgres txn_wraparound, -w)."""
    xid_critical_xids: int = 1_600_000_000
    """Critical age: the default of vacuum_failsafe_age, where the server itself drops everything else."""
    xid_overdue_pct: float = 125.0
    """Of autovacuum_freeze_max_age: below it, forced vacuums may just be at work, and nothing is warned of."""
    xid_stop_critical_s: float = 86_400.0
    """Critical where the ids last no longer than this at the present rate: what a weekend or a night may be."""
    horizon_warn_xids: int = 50_000_000
    """A holder of the xid horizon so many ids old is a warning: vacuum_freeze_min_age, from where on VACUUM would
    freeze."""
    horizon_old_s: float = 3600.0
    """Also one that has held it for this long,"""
    horizon_old_xids: int = 1_000_000
    """where so many ids were used meanwhile: their dead rows are what bloats."""
    prepared_s: float = 3600.0
    """A prepared transaction this old is forgotten by whoever prepared it, and warned of whatever its age in ids
    (check_postgres prepared_txns warns after a second)."""
    wraparound_wait_s: float = 10.0
    """A vacuum against wraparound is a warning once somebody has waited behind it for so long."""
    invalid_index_s: float = 600.0
    """An invalid index that nobody builds is a warning after this time: whoever builds it may be about to try again."""
    sequence_warn_pct: float = 85.0
    """Used share of the numbers a sequence and its column can hold: a warning (check_postgres sequence, -w)."""
    sequence_critical_pct: float = 95.0
    """The same: critical (check_postgres sequence, -c)."""
    autovacuum_behind_times: float = 2.0
    """Dead rows at this multiple of what autovacuum comes at are too many,"""
    autovacuum_behind_s: float = 3600.0
    """where it stays so for this long: sixty turns of autovacuum_naptime."""
    autovacuum_busy_s: float = 3600.0
    """All autovacuum workers busy at every look for this long: a warning."""
