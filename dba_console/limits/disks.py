"""Figures of the findings about disks."""

from __future__ import annotations

from msgspec import Struct


class DiskLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.disks]`."""
