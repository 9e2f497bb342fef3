"""Names of databases, roles and relations, which the fast queries give as OIDs.

A name is asked for once and kept for a minute; what has no name (dropped, or not committed yet) is remembered too. So
the queries of each second open no catalog, and a catalog that is locked costs names, not the panel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dba_console.watch.probes.postgres.binary_results import Row, codec_of, decode
from dba_console.watch.probes.postgres.pipeline import Command

KEEP_US = 60_000_000
"""A renamed database, role or table shows its new name after this."""
_AT_ONCE = 2000
"""Names asked for in one query; what is beyond comes with the next tick."""


class Extent(NamedTuple):
    """How large a relation is. None: not known."""

    tuples: int | None
    """As the last vacuum or analyze estimated."""
    indexes: int | None


_NOTHING = Extent(None, None)


class OidNames:
    """OIDs to names for one connection. Asking for an unknown one puts it on the list to be asked for."""

    def __init__(self, database_oid: int, database_name: bytes, encoding: str) -> None:
        self.own_oid = database_oid
        self.codec = codec_of(encoding)
        self.own_name = decode_name(database_name, self.codec)
        self.version = 0
        """Raised when a name changed or came: texts made of names before are out of date."""
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
        """The codec of texts of that database; of the connected one where it is not known."""
        return self._codecs.get(oid or 0, self.codec)

    def relation(self, database: int | None, oid: int | None) -> str | None:
        """schema.name where it lies in the connected database or is shared (0), else `database/OID`."""
        if not oid:
            return None
        if database in (0, None, self.own_oid):
            return self._name("relation", oid) or f"{self.own_name}/{oid}"
        return f"{self.database(database) or database}/{oid}"

    def extent(self, database: int | None, oid: int | None) -> Extent:
        """How large a relation of the connected database is; nothing of any other."""
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
        """The query for what is wanted now."""
        asked = sorted(self._unknown)[:_AT_ONCE]
        arrays = tuple(
            _oid_array(oid for kind, oid in asked if kind == wanted) for wanted in ("database", "role", "relation")
        )
        return Command("names", sql, arrays)

    def store(self, rows: Iterable[Row]) -> None:
        """Take the answer; what was asked and is not in it has no name."""
        asked = sorted(self._unknown)[:_AT_ONCE]
        self._known.update(dict.fromkeys(asked))
        for kind, oid, first, second, encoding, tuples, indexes in rows:
            if indexes is not None:
                self._extents[oid] = Extent(tuples, indexes)
            if encoding is not None:
                self._codecs[oid] = codec_of(encoding.decode())
            parts = [decode_name(part, self.codec) for part in (first, second) if part is not None]
            self._known[kind.decode(), oid] = ".".join(parts)
        self._unknown.difference_update(asked)
        self.version += 1

    def stop_asking(self) -> None:
        """Stop asking for what is wanted now, until names are forgotten: it is known to have none, or cannot be had."""
        for key in self._unknown:
            self._known.setdefault(key, None)
        self._unknown.clear()
        self.version += 1

    def forget_old(self, now_us: int) -> None:
        """Forget every name once a minute, so that a rename is seen."""
        if self._since_us is None:
            self._since_us = now_us
        elif now_us - self._since_us >= KEEP_US:
            self._known.clear()
            self._extents.clear()
            self._since_us = now_us
            self.version += 1


def decode_name(raw: bytes, codec: str) -> str:
    """A name out of a shared catalog: in the encoding of whatever database it was made in, most likely UTF-8 or ours.

    >>> decode_name("é".encode(), "iso8859-1"), decode_name(b"\\xe9", "iso8859-1"), decode_name(b"\\xe9", "utf-8")
    ('é', 'é', '\\\\xe9')
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return decode(raw, codec)


def _oid_array(oids: Iterable[int]) -> bytes:
    return ("{" + ",".join(map(str, oids)) + "}").encode()
