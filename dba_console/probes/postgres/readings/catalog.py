"""pg.catalog, pg.subscriptions, pg.dead_rows: what goes wrong slowly, and is seen in the catalogs before it is felt."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row, wall_us
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.oid_names import OidNames, decode_name
from dba_console.samples.catalog import (
    CatalogFaults,
    ChangedCollation,
    DeadRows,
    DeadRowTables,
    InvalidIndex,
    SequenceUsage,
    Subscription,
    Subscriptions,
)

PROVIDERS = {b"b": "builtin", b"c": "libc", b"d": "default", b"i": "icu"}


def catalog_of(
    collations: Sequence[Row], indexes: Sequence[Row] | None, sequences: Sequence[Row] | None, names: OidNames
) -> CatalogFaults:
    """What the catalogs say; None stands for rows that were refused."""
    return CatalogFaults(
        database=names.own_name,
        collations=[_collation(row, names) for row in collations],
        indexes=None if indexes is None else [_index(row, names.codec) for row in indexes],
        sequences=None if sequences is None else [_sequence(row, names.codec) for row in sequences],
    )


def _collation(row: Row, names: OidNames) -> ChangedCollation:
    database, name, provider, recorded, actual = row
    return ChangedCollation(
        None if database is None else decode_name(database, names.codec),
        None if name is None else decode(name, names.codec),
        PROVIDERS.get(provider, decode(provider)),
        decode(recorded, names.codec),
        decode(actual, names.codec),
    )


def _index(row: Row, codec: str) -> InvalidIndex:
    schema, name, table, ready, pages = row
    return InvalidIndex(f"{decode(schema, codec)}.{decode(name, codec)}", decode(table, codec), ready, pages)


def _sequence(row: Row, codec: str) -> SequenceUsage:
    schema, name, table, attribute, *numbers = row
    column = None if table is None else f"{decode(table, codec)}.{decode(attribute, codec)}"
    return SequenceUsage(f"{decode(schema, codec)}.{decode(name, codec)}", column, *numbers)


def subscriptions_of(rows: Sequence[Row], names: OidNames) -> Subscriptions:
    """Every subscription of the server."""
    return Subscriptions([_subscription(row, names) for row in rows])


def _subscription(row: Row, names: OidNames) -> Subscription:
    name, database, *rest = row
    return Subscription(
        decode(name, names.codec), None if database is None else decode_name(database, names.codec), *rest
    )


def unvacuumed_of(rows: Sequence[Row], names: OidNames) -> DeadRowTables:
    """Tables of the connected database; none where autovacuum keeps up."""
    return DeadRowTables(names.own_name, [_dead(row, names.codec) for row in rows])


def _dead(row: Row, codec: str) -> DeadRows:
    schema, name, dead, live, trigger, enabled, vacuums, last = row
    label = f"{decode(schema, codec)}.{decode(name, codec)}"
    return DeadRows(label, dead, int(live), int(trigger), enabled, vacuums, wall_us(last))
