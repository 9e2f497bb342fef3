"""Rows of the panels' tables, with the field names of the contract (`show --json`); units as in `model`."""

from __future__ import annotations

from msgspec import Struct


class ConnectionGroup(Struct, kw_only=True):
    """Connections with one attribute in common."""

    name: str
    count: int
    active: int | None = 0
    """None if the state of a session is hidden or not tracked; idle_in_transaction too."""
    idle_in_transaction: int | None = 0
    limit: int | None = None
    """CONNECTION LIMIT of the role or database; None if it has none."""
    oldest_idle_s: float | None = None
