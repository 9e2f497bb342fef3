"""Decodes binary results to Python values in psycopg's C code: about 50 µs for the 226 rows of a tick.

Numbers become int, float and bool; text stays bytes, since only the reader of a row knows its encoding; timestamps are
raw microseconds since 2000 and LSNs raw 64-bit numbers, without an object for each.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext
    from psycopg.abc import Transformer as TransformerLike
    from psycopg.adapt import AdaptersMap
    from psycopg.pq.abc import PGresult

Row = tuple[Any, ...]


class ResultRows(list[Row]):
    """The rows of a result, with the name and the type of each column."""

    __slots__ = ("columns",)

    def __init__(self, rows: Iterable[Row], columns: tuple[tuple[str, int], ...]) -> None:
        super().__init__(rows)
        self.columns = columns


_BYTEA, _INT8, _OID, _XID = 17, 20, 26, 28
TEXTS = frozenset((18, 19, 25, 1042, 1043))
"""char, name, text, bpchar, varchar (pg_type.dat)."""
_AS_BYTES = (0, 17, 114, 869, *TEXTS)
"""unknown, bytea, json, inet, and texts."""
TIMESTAMPTZ, LSN = 1184, 3220

_EPOCH_2000_US = 946_684_800_000_000
_INFINITE = (-(1 << 63), (1 << 63) - 1)


class Loader:
    """Decodes the results of one connection."""

    def __init__(self) -> None:
        from psycopg.adapt import Transformer

        self._transformer: TransformerLike = Transformer(_context())

    def rows(self, result: PGresult) -> ResultRows:
        self._transformer.set_pgresult(result, set_loaders=True, format=_binary())
        columns = tuple([((result.fname(at) or b"").decode(), result.ftype(at)) for at in range(result.nfields)])
        return ResultRows(self._transformer.load_rows(0, result.ntuples, tuple), columns)


class _Context:
    """What a Transformer requires: our loaders, and no connection, whose encoding would be applied to text."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


def _context() -> AdaptContext:
    import psycopg
    from psycopg.adapt import AdaptersMap
    from psycopg.pq import Format

    adapters = AdaptersMap(psycopg.adapters)
    for source, oids in ((_BYTEA, _AS_BYTES), (_INT8, (TIMESTAMPTZ, LSN)), (_OID, (_XID,))):
        loader = psycopg.adapters.get_loader(source, Format.BINARY)
        assert loader is not None
        for oid in oids:
            adapters.register_loader(oid, loader)
    return _Context(adapters)


def _binary() -> Any:
    from psycopg.pq import Format

    return Format.BINARY


def wall_us(timestamp: int | None) -> int | None:
    """Return the microseconds since 1970 of a timestamptz; None for NULL and for the infinities.

    >>> wall_us(0), wall_us(None), wall_us((1 << 63) - 1)
    (946684800000000, None, None)
    """
    if timestamp is None or timestamp in _INFINITE:
        return None
    return timestamp + _EPOCH_2000_US


def lsn(raw: int | None) -> int | None:
    """Return a pg_lsn as an unsigned 64-bit byte position (it is read as signed)."""
    return None if raw is None else raw & 0xFFFF_FFFF_FFFF_FFFF


def client_address(raw: bytes | None) -> str | None:
    """Return the address of an inet in binary form: family, bits, is_cidr, length, bytes (inet_send in network.c).

    >>> client_address(bytes([2, 32, 0, 4, 10, 0, 0, 7])), client_address(None)
    ('10.0.0.7', None)
    """
    if raw is None:
        return None
    import socket

    family = socket.AF_INET if raw[0] == 2 else socket.AF_INET6
    return socket.inet_ntop(family, raw[4:])


def client(address: bytes | None, port: int | None) -> str | None:
    """Return a session's client: an address, `[local]` for a unix socket (port -1), None if hidden."""
    return "[local]" if port == -1 else client_address(address)


# Decodes bytes of the server as text in any encoding; never raises. The connection requests SQL_ASCII, so the server
# converts nothing. A query's text is in the encoding of its database, not of ours. Names: PostgreSQL documentation,
# table "PostgreSQL Character Sets".

_CODECS = {
    "SQL_ASCII": "utf-8", "UTF8": "utf-8", "EUC_JP": "euc_jp", "EUC_CN": "gb2312", "EUC_KR": "euc_kr",
    "EUC_JIS_2004": "euc_jis_2004", "LATIN1": "iso8859-1", "LATIN2": "iso8859-2", "LATIN3": "iso8859-3",
    "LATIN4": "iso8859-4", "LATIN5": "iso8859-9", "LATIN6": "iso8859-10", "LATIN7": "iso8859-13",
    "LATIN8": "iso8859-14", "LATIN9": "iso8859-15", "LATIN10": "iso8859-16", "ISO_8859_5": "iso8859-5",
    "ISO_8859_6": "iso8859-6", "ISO_8859_7": "iso8859-7", "ISO_8859_8": "iso8859-8", "KOI8R": "koi8-r",
    "KOI8U": "koi8-u", "WIN866": "cp866", "WIN874": "cp874", "WIN1250": "cp1250", "WIN1251": "cp1251",
    "WIN1252": "cp1252", "WIN1253": "cp1253", "WIN1254": "cp1254", "WIN1255": "cp1255", "WIN1256": "cp1256",
    "WIN1257": "cp1257", "WIN1258": "cp1258", "SJIS": "cp932", "SHIFT_JIS_2004": "shift_jis_2004", "BIG5": "big5",
    "GBK": "gbk", "GB18030": "gb18030", "UHC": "cp949", "JOHAB": "johab",
}  # fmt: skip


def codec_of(encoding: str) -> str:
    """Return Python's codec for a PostgreSQL encoding; ascii where Python has none (EUC_TW, MULE_INTERNAL).

    >>> codec_of("LATIN9"), codec_of("EUC_TW")
    ('iso8859-15', 'ascii')
    """
    return _CODECS.get(encoding, "ascii")


def decode(raw: bytes | memoryview, codec: str = "utf-8") -> str:
    r"""Return `raw` as text; a byte that is invalid in the encoding is shown as \xNN.

    >>> decode(b"caf\xc3\xa9"), decode(b"caf\xe9"), decode(b"caf\xe9", "iso8859-1")
    ('café', 'caf\\xe9', 'café')
    """
    return codecs.decode(bytes(raw), codec, "backslashreplace")


def decode_name(raw: bytes, codec: str) -> str:
    """Decode a name from a shared catalog: in the encoding of the database it was created in, likely UTF-8 or ours.

    >>> decode_name("é".encode(), "iso8859-1"), decode_name(b"\\xe9", "iso8859-1"), decode_name(b"\\xe9", "utf-8")
    ('é', 'é', '\\\\xe9')
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return decode(raw, codec)


def decode_beginning(raw: bytes, codec: str = "utf-8") -> str:
    r"""Decode text that was cut between two bytes: an incomplete character at its end is left out.

    >>> decode_beginning("caf\xe9".encode()[:4]), decode_beginning(b"caf\xff"), decode_beginning(b"caf\xe9", "latin1")
    ('caf', 'caf\\xff', 'café')
    """
    return codecs.getincrementaldecoder(codec)("backslashreplace").decode(raw)
