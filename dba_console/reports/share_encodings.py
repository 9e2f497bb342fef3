"""For shared copies: replace names in text that is URL-encoded, base64 or hexadecimal."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus, unquote, unquote_plus

_PERCENT = re.compile(r"[\w.~%+!*'()/@-]+")
_HEXADECIMAL = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){4,}(?![0-9A-Fa-f])")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[^=]{8}|[^=]{6,7}=)[A-Za-z0-9+/_-]{6,}={0,2}(?![A-Za-z0-9+/_=-])")
"""At least eight signs, with those that fill it up."""


def replace_encoded(text: str, replace: Callable[[str], str]) -> str:
    """Return the text with `replace` applied to what is encoded in it; the rest stays.

    >>> text = "a%20b bWVpbmVkYg== x'6d65696e656462'"
    >>> replace_encoded(text, lambda plain: plain.replace("a b", "x").replace("meinedb", "db2x"))
    "x ZGIyeA== x'64623278'"
    """
    if "%" in text:
        text = _PERCENT.sub(lambda match: _in_percent(match[0], replace), text)
    if len(text) < 8:
        return text
    text = _HEXADECIMAL.sub(lambda match: _in_hexadecimal(match[0], replace), text)
    return _BASE64.sub(lambda match: _in_base64(match[0], replace), text)


def _in_hexadecimal(encoded: str, replace: Callable[[str], str]) -> str:
    try:
        plain = bytes.fromhex(encoded).decode()
    except ValueError:
        return encoded
    made = replace(plain) if plain.isprintable() else plain
    if made == plain:
        return encoded
    digits = made.encode().hex()
    return digits.upper() if encoded == encoded.upper() else digits


def _in_percent(encoded: str, replace: Callable[[str], str]) -> str:
    if "%" not in encoded:
        return encoded
    for decode, encode in ((unquote, quote), (unquote_plus, quote_plus)):
        plain = decode(encoded)
        made = replace(plain)
        if made != plain:
            return encode(made, safe="/@")
    return encoded


def _in_base64(encoded: str, replace: Callable[[str], str]) -> str:
    if encoded.islower() or encoded.isupper() or encoded.isdecimal():
        return encoded  # a word: base64 of text has letters of both cases
    body = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return encoded
    if not plain.isprintable():
        return encoded
    made = replace(plain)
    return encoded if made == plain else base64.b64encode(made.encode()).decode()
