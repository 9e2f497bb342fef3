"""Figures of the findings about connections."""

from __future__ import annotations

from msgspec import Struct


class ConnectionLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.connections]`. Shares are of the usable connections: max_connections minus both reserves."""

    near_pct: float = 85.0
    """Taken from here on: a warning."""
    critical_pct: float = 95.0
    """Taken from here on: critical."""
    clear_pct: float = 80.0
    """What is open about the share clears below this."""
    full_in_s: float = 600.0
    """Full within this time at a steady growth: a warning."""
    critical_in_s: float = 90.0
    """Full within this time: critical."""
    date_from_pct: float = 40.0
    """No date of a warning is told below this share: a server that starts fills too."""
    critical_date_from_pct: float = 60.0
    """No date is critical below this share."""
    storm_window_s: float = 15.0
    """Growth of so short a time is a storm and no trend."""
    storm_least: int = 30
    """New connections within the window below which nothing is a storm: pools of ten or twenty start as one."""
    storm_pct: float = 20.0
    """And the least share of the usable connections."""
    storm_majority_pct: float = 50.0
    """The share of the growth that one application, or one user, must account for."""
    storm_warn_pct: float = 50.0
    """A storm is a remark while a smaller share of the usable connections is taken, and a warning from there on."""
    start_grace_s: float = 120.0
    """After a start of the server clients come back: what is opened so soon is told, and alarms nobody."""
    limit_near_pct: float = 90.0
    """Of a CONNECTION LIMIT of a role or database, or of max_wal_senders: a warning."""
    limit_clear_pct: float = 80.0
    """What is open about such a limit clears below this."""
    limit_least: int = 5
    """Smaller limits are reached on purpose: one job at a time."""
    idle_transaction_s: float = 60.0
    """A session idle in a transaction that holds a transaction id or a snapshot for so long is told."""
    idle_transaction_warning_s: float = 300.0
    """And from here on a warning."""
    idle_transaction_bare_s: float = 900.0
    """One that holds neither, only its locks, is told from here on."""
    idle_transaction_blocks_s: float = 2.0
    """Idle for so long while others wait behind it: a warning at once."""
    idle_transaction_critical_behind: int = 5
    """So many waiting behind it ..."""
    idle_transaction_critical_s: float = 30.0
    """... for so long: critical."""
