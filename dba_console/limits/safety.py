"""Figures of the findings about checksums and transaction ids."""

from __future__ import annotations

from msgspec import Struct


class SafetyLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.safety]`."""
