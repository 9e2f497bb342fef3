"""Figures of the findings about the server."""

from __future__ import annotations

from msgspec import Struct


class ServerLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.server]`."""
