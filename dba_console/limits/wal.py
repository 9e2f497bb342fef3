"""Figures of the findings about WAL, archiving and replication."""

from __future__ import annotations

from msgspec import Struct


class WalLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.wal]`."""
