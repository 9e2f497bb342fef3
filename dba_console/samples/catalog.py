"""Readings of the catalogs: what goes wrong slowly, and is seen there before it is felt.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved, reused or
removed. Times are microseconds since 1970 by the server's clock; None is NULL.
"""

from __future__ import annotations

from msgspec import Struct


class ChangedCollation(Struct, array_like=True, frozen=True):
    """A collation whose version is another one now than when it, or its database, was made."""

    database: str | None
    """Whose default it is; None for a collation of the connected database."""
    name: str | None
    """schema.name; None for the default of a database."""
    provider: str
    """libc, icu, builtin."""
    recorded: str
    actual: str


class InvalidIndex(Struct, array_like=True, frozen=True):
    """An index of the connected database that no query uses, and that nobody builds or drops now."""

    name: str
    table: str
    ready: bool
    """Every write to the table writes it too."""
    pages: int


class SequenceUsage(Struct, array_like=True, frozen=True):
    """A sequence of the connected database that has used half of its numbers or more."""

    name: str
    column: str | None
    """table.column it belongs to (serial, identity); None: it belongs to none."""
    last: int
    start: int
    """The first number it can have, at the other end of `stop`."""
    stop: int
    """The last number that sequence and column can hold."""
    increment: int


class CatalogFaults(Struct, array_like=True, frozen=True):
    """What the catalogs say is wrong with a database. None: not known."""

    database: str
    """The connected one, which `indexes` and `sequences` are of."""
    collations: list[ChangedCollation]
    indexes: list[InvalidIndex] | None
    sequences: list[SequenceUsage] | None
    """Without those whose value this role may not read."""


class Subscription(Struct, array_like=True, frozen=True):
    """A row of pg_subscription, of whichever database."""

    name: str
    database: str | None
    enabled: bool
    has_slot: bool
    worker_pid: int | None
    """Its apply worker; None where none runs."""
    apply_errors: int | None
    """Counted since the statistics were reset (15+); None before."""
    sync_errors: int | None
    disable_on_error: bool


class Subscriptions(Struct, array_like=True, frozen=True):
    rows: list[Subscription]


class DeadRows(Struct, array_like=True, frozen=True):
    """A table of the connected database with more dead rows than autovacuum lets come about."""

    name: str
    dead: int
    live: int
    trigger: int
    """Dead rows from which on autovacuum comes, by the settings of the server and the table's own."""
    enabled: bool
    """False: autovacuum_enabled = off is set on the table."""
    vacuums: int
    """VACUUMs that have come to their end, autovacuum's included, since the statistics were reset."""
    last_vacuum: int | None


class DeadRowTables(Struct, array_like=True, frozen=True):
    """Tables autovacuum should have come to, the worst first."""

    database: str
    """The connected one, which all of them are of."""
    rows: list[DeadRows]
