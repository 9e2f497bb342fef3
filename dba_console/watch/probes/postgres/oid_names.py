"""Names of databases, roles and relations, which the fast queries return as OIDs.

A name is queried once and cached for a minute; an OID without a name (dropped, or not committed yet) is cached too. So
the queries of each second open no catalog, and a locked catalog costs names, not the panel. After that minute the names
of databases and roles are queried again: texts built from them are rebuilt only if one has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dba_console.watch.probes.postgres.binary_results import Row, codec_of, decode_name
from dba_console.watch.probes.postgres.pipeline import Command

KEEP_US = 60_000_000
"""Cache time, microseconds: a renamed database, role or table shows its new name after this."""
_AT_ONCE = 2000
"""Names requested in one query; the rest follows in the next tick."""


class Extent(NamedTuple):
    """The size of a relation. None: not known."""

    tuples: int | None
    """As estimated by the last VACUUM or ANALYZE."""
    indexes: int | None


_NOTHING = Extent(None, None)


class OidNames:
    """Maps OIDs to names for one connection. An unknown OID is queued for the next query."""

    def __init__(self, database_oid: int, database_name: bytes, encoding: str) -> None:
        self.own_oid = database_oid
        self.codec = codec_of(encoding)
        self.own_name = decode_name(database_name, self.codec)
        self.version = 0
        """Incremented when names were added or changed: texts built from older names are out of date."""
        self._known: dict[tuple[str, int], str | None] = {}
        self._codecs: dict[int, str] = {}
        self._extents: dict[int, Extent] = {}
        self._unknown: set[tuple[str, int]] = set()
        self._since_us: int | None = None

    def database(self, oid: int | None) -> str | None:
        return self._name("database", oid)

    def role(self, oid: int | None) -> str | None:
        return self._name("role", oid)

    def codec_of_database(self, oid: int | None) -> str:
        """Return the codec for texts of that database, or of the connected one if it is not known."""
        return self._codecs.get(oid or 0, self.codec)

    def relation(self, database: int | None, oid: int | None) -> str | None:
        """Return schema.name for a relation of the connected database or a shared one (0), else `database/OID`."""
        if not oid:
            return None
        if database in (0, None, self.own_oid):
            return self._name("relation", oid) or f"{self.own_name}/{oid}"
        return f"{self.database(database) or database}/{oid}"

    def extent(self, database: int | None, oid: int | None) -> Extent:
        """Return the size of a relation of the connected database; unknown for any other."""
        return self._extents.get(oid or 0, _NOTHING) if database == self.own_oid else _NOTHING

    def _name(self, kind: str, oid: int | None) -> str | None:
        if not oid:
            return None
        if (kind, oid) not in self._known:
            self._unknown.add((kind, oid))
            return None
        return self._known[kind, oid]

    @property
    def has_unknown(self) -> bool:
        return bool(self._unknown)

    def command(self, sql: bytes) -> Command:
        """Return the query for the unknown OIDs."""
        requested = sorted(self._unknown)[:_AT_ONCE]
        arrays = tuple(
            oid_array(oid for kind, oid in requested if kind == wanted) for wanted in ("database", "role", "relation")
        )
        return Command("names", sql, arrays)

    def store(self, rows: Iterable[Row]) -> None:
        """Store the answer; an OID that was requested and is missing in it has no name."""
        requested = sorted(self._unknown)[:_AT_ONCE]
        before = {key: self._known.get(key, "") for key in requested}
        self._known.update(dict.fromkeys(requested))
        for kind, oid, first, second, encoding, tuples, indexes in rows:
            if indexes is not None:
                self._extents[oid] = Extent(tuples, indexes)
            if encoding is not None:
                self._codecs[oid] = codec_of(encoding.decode())
            parts = [decode_name(part, self.codec) for part in (first, second) if part is not None]
            self._known[kind.decode(), oid] = ".".join(parts)
        self._unknown.difference_update(requested)
        if any(self._known[key] != name for key, name in before.items()):
            self.version += 1

    def stop_asking(self) -> None:
        """Stop requesting the unknown OIDs until the cache expires: they have no name, or it cannot be read."""
        self._known.update(dict.fromkeys(self._unknown))
        self._unknown.clear()
        self.version += 1

    def forget_old(self, now_us: int) -> None:
        """Once a minute drop the names of relations and request the others again, so that a rename becomes visible."""
        if self._since_us is None:
            self._since_us = now_us
        elif now_us - self._since_us >= KEEP_US:
            self._known = {key: name for key, name in self._known.items() if name is not None and key[0] != "relation"}
            self._unknown.update(self._known)
            self._extents.clear()
            self._since_us = now_us


def oid_array(oids: Iterable[int]) -> bytes:
    """Return an array literal."""
    return ("{" + ",".join(map(str, oids)) + "}").encode()
