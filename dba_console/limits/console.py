"""Figures of the findings about the console itself."""

from __future__ import annotations

from msgspec import Struct


class ConsoleLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.console]`."""
