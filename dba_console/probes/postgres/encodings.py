"""Bytes of the server as text, whatever encoding they are in; never an exception.

The connection asks for SQL_ASCII, so the server converts nothing and can fail in nothing. A query's text is in the
encoding of the database it runs in, not of ours. Names: PostgreSQL documentation, table "PostgreSQL Character Sets".
"""

from __future__ import annotations

import codecs

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
    """Python's codec for a PostgreSQL encoding; ascii where Python has none (EUC_TW, MULE_INTERNAL).

    >>> codec_of("LATIN9"), codec_of("EUC_TW")
    ('iso8859-15', 'ascii')
    """
    return _CODECS.get(encoding, "ascii")


def decode(raw: bytes | memoryview, codec: str = "utf-8") -> str:
    r"""`raw` as text; a byte that is not of the encoding is shown as \xNN.

    >>> decode(b"caf\xc3\xa9"), decode(b"caf\xe9"), decode(b"caf\xe9", "iso8859-1")
    ('café', 'caf\\xe9', 'café')
    """
    return codecs.decode(bytes(raw), codec, "backslashreplace")


def decode_beginning(raw: bytes, codec: str = "utf-8") -> str:
    r"""The same of text that was cut between two bytes: half a character at its end is left out.

    >>> decode_beginning("caf\xe9".encode()[:4]), decode_beginning(b"caf\xff"), decode_beginning(b"caf\xe9", "latin1")
    ('caf', 'caf\\xff', 'café')
    """
    return codecs.getincrementaldecoder(codec)("backslashreplace").decode(raw)
