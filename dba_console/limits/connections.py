"""Figures of the findings about connections."""

from __future__ import annotations

from msgspec import Struct


class ConnectionLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.connections]`."""
