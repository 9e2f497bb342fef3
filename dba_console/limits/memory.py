"""Figures of the findings about memory."""

from __future__ import annotations

from msgspec import Struct


class MemoryLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.memory]`."""
