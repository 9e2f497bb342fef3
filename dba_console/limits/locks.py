"""Figures of the findings about locks."""

from __future__ import annotations

from msgspec import Struct


class LockLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.locks]`."""
