"""Rows of the cluster panel, with the field names of `show --json`."""

from __future__ import annotations

from msgspec import Struct


class NodeSlot(Struct, kw_only=True):
    name: str
    kind: str
    active: bool
    wal_status: str | None = None
    retained_bytes: int | None = None


class NodeRow(Struct, kw_only=True):
    """A server of the cluster. Where `error` is set it does not answer, and the rest is what it answered last."""

    name: str
    role: str | None = None
    """primary or standby."""
    timeline: int | None = None
    system_identifier: str | None = None
    version: str | None = None
    lsn: str | None = None
    """Of a primary what it has written, of a standby what it has received."""
    lag_bytes: int | None = None
    """Written by the primary and not replayed here; null without exactly one primary that answers."""
    lag_s: float | None = None
    age_s: float | None = None
    """Of all of these numbers, but for archive_ready."""
    replay_paused: bool | None = None
    apply_delay_s: float | None = None
    """recovery_min_apply_delay; null where that is 0 or not known."""
    receiver: str | None = None
    sync_state: str | None = None
    """As the primary says; null also where its WAL senders cannot be told apart."""
    slots: list[NodeSlot] = []
    archive_ready: int | None = None
    archive_failing: bool | None = None
    archive_age_s: float | None = None
    """Of archive_ready and archive_failing."""
    error: str | None = None
    since: str | None = None
    """RFC 3339: since when it does not answer."""


class PoolerRow(Struct, kw_only=True):
    """A database of a pooler; one row without a database where the pooler has never answered."""

    name: str
    database: str | None = None
    mode: str | None = None
    clients_active: int | None = None
    clients_waiting: int | None = None
    longest_wait_s: float | None = None
    servers: int | None = None
    paused: bool | None = None
    paused_since: str | None = None
    """RFC 3339: when it was first seen paused."""
    leads_to: str | None = None
    """host:port."""
    node: str | None = None
    """The node that is; null where no node is reached under that address from here."""
    age_s: float | None = None
    error: str | None = None
    since: str | None = None
