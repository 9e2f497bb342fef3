"""Binary results as Python values, decoded in psycopg's C code: some 50 µs for the 226 rows of a tick.

Numbers come as int, float and bool; text as bytes, since its encoding is known only to whoever reads the row;
timestamps as raw microseconds since 2000 and LSNs as raw 64-bit numbers, without an object for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext
    from psycopg.abc import Transformer as TransformerLike
    from psycopg.adapt import AdaptersMap
    from psycopg.pq.abc import PGresult

Row = tuple[Any, ...]

_BYTEA, _INT8, _OID, _XID = 17, 20, 26, 28
_AS_BYTES = (0, 17, 18, 19, 25, 114, 869, 1042, 1043)
"""unknown, bytea, char, name, text, json, inet, bpchar, varchar (pg_type.dat)."""
_AS_INT8 = (1184, 3220)
"""timestamptz, pg_lsn."""

_EPOCH_2000_US = 946_684_800_000_000
_INFINITE = (-(1 << 63), (1 << 63) - 1)


class Loader:
    """Decodes the results of one connection."""

    def __init__(self) -> None:
        from psycopg.adapt import Transformer

        self._transformer: TransformerLike = Transformer(_context())

    def rows(self, result: PGresult) -> list[Row]:
        self._transformer.set_pgresult(result, set_loaders=True, format=_binary())
        return self._transformer.load_rows(0, result.ntuples, tuple)


class _Context:
    """What a Transformer asks for: our loaders, and no connection, whose encoding would be applied to text."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


def _context() -> AdaptContext:
    import psycopg
    from psycopg.adapt import AdaptersMap
    from psycopg.pq import Format

    adapters = AdaptersMap(psycopg.adapters)
    for source, oids in ((_BYTEA, _AS_BYTES), (_INT8, _AS_INT8), (_OID, (_XID,))):
        loader = psycopg.adapters.get_loader(source, Format.BINARY)
        assert loader is not None
        for oid in oids:
            adapters.register_loader(oid, loader)
    return _Context(adapters)


def _binary() -> Any:
    from psycopg.pq import Format

    return Format.BINARY


def wall_us(timestamp: int | None) -> int | None:
    """Microseconds since 1970 of a timestamptz; None for NULL and for the infinities.

    >>> wall_us(0), wall_us(None), wall_us((1 << 63) - 1)
    (946684800000000, None, None)
    """
    if timestamp is None or timestamp in _INFINITE:
        return None
    return timestamp + _EPOCH_2000_US


def lsn(raw: int | None) -> int | None:
    """A pg_lsn as the 64-bit byte position it is (read as signed)."""
    return None if raw is None else raw & 0xFFFF_FFFF_FFFF_FFFF


def client_address(raw: bytes | None) -> str | None:
    """The address of an inet in binary form: family, bits, is_cidr, length, bytes (inet_send in network.c).

    >>> client_address(bytes([2, 32, 0, 4, 10, 0, 0, 7])), client_address(None)
    ('10.0.0.7', None)
    """
    if raw is None:
        return None
    import socket

    family = socket.AF_INET if raw[0] == 2 else socket.AF_INET6
    return socket.inet_ntop(family, raw[4:])


def client(address: bytes | None, port: int | None) -> str | None:
    """Where a session comes from: an address, `[local]` for a unix socket (port -1), None where it may not be seen."""
    return "[local]" if port == -1 else client_address(address)
