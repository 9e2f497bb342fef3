"""Figures of the findings about dumps and restores."""

from __future__ import annotations

from msgspec import Struct


class JobLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.jobs]`."""
