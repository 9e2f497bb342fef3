"""Replace text within what is written as in a URL, or in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus, unquote, unquote_plus

_PERCENT = re.compile(r"[\w.~%+!*'()/@-]+")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{8,}={0,2}(?![A-Za-z0-9+/_=-])")


def replace_encoded(text: str, replace: Callable[[str], str]) -> str:
    """Return the text with `replace` applied to what is encoded in it; the rest stays.

    >>> replace_encoded("a%20b bWVpbmVkYg==", lambda plain: plain.replace("a b", "x").replace("meinedb", "db"))
    'x ZGI='
    """
    if "%" in text:
        text = _PERCENT.sub(lambda match: _in_percent(match[0], replace), text)
    return _BASE64.sub(lambda match: _in_base64(match[0], replace), text) if len(text) >= 8 else text


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
