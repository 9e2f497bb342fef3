"""Figures of the findings about I/O."""

from __future__ import annotations

from msgspec import Struct


class IoLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.io]`."""
