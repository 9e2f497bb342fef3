"""Figures that only make sense in an order: a warning comes before what is critical, and clearing below raising."""

from __future__ import annotations

ORDERED_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "connections": (
        ("clear_pct", "near_pct"),
        ("near_pct", "critical_pct"),
        ("storm_warn_pct", "critical_pct"),
        ("critical_in_s", "full_in_s"),
        ("date_from_pct", "critical_date_from_pct"),
        ("limit_clear_pct", "limit_near_pct"),
        ("idle_transaction_s", "idle_transaction_warning_s"),
    ),
    "locks": (("queue_behind", "queue_critical_behind"), ("blocker_s", "blocker_critical_s")),
    "io": (
        ("stalled_clear_pct", "stalled_pct"),
        ("stalled_pct", "critical_pct"),
        ("waiting_sessions", "critical_sessions"),
        ("saturated_clear_pct", "saturated_pct"),
    ),
    "memory": (("fell_least_bytes", "fell_most_bytes"), ("reclaim_notice_pct", "reclaim_warning_pct")),
    "safety": (("xid_warn_xids", "xid_critical_xids"), ("sequence_warn_pct", "sequence_critical_pct")),
    "wal": (
        ("backlog_s", "backlog_critical_s"),
        ("full_critical_s", "full_warn_s"),
        ("lag_warn_s", "lag_critical_s"),
        ("slot_near_pct", "slot_near_critical_pct"),
    ),
    "disks": (
        ("full_warning_pct", "full_critical_pct"),
        ("full_warning_pct", "full_beside_critical_pct"),
        ("full_in_critical_s", "full_in_warning_s"),
        ("inodes_warning_pct", "inodes_critical_pct"),
        ("temp_full_in_critical_s", "full_in_warning_s"),
    ),
    "server": (("down_warning_s", "down_critical_s"), ("silent_warning_s", "silent_critical_s")),
}
"""Family -> pairs of which the first must not be above the second."""
