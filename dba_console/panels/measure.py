"""Text in the cells of a terminal: made harmless, measured, cut.

Every string that came from a server or a kernel enters through `clean`: control characters, escapes and bidirectional
overrides become visible, harmless signs, so no terminal can be driven by what a session calls itself.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_REMEMBERED = 8192
"""Signs whose fate is kept: more than any one place writes with, and a bound for text made to fill memory."""


class _Harmless(dict[int, int | str | None]):
    """What each sign becomes, found out once: pictures for C0 controls, a blank for odd blanks, nothing for variation
    selectors (terminals disagree on their width), U+FFFD for what hides, reorders or cannot be shown."""

    def __missing__(self, code: int) -> int | str | None:
        sign = chr(code)
        answer: int | str | None
        if code < 32 or code == 127:
            answer = 0x2421 if code == 127 else 0x2400 + code
        elif 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            answer = None
        elif sign.isprintable():
            answer = code
        else:
            answer = " " if unicodedata.category(sign) == "Zs" else 0xFFFD
        if len(self) < _REMEMBERED:
            self[code] = answer
        return answer


_HARMLESS = _Harmless()


def clean(text: str) -> str:
    """`text` as one line of printable signs: controls become their pictures, what hides or reorders becomes U+FFFD.

    >>> clean("select 1;\\n\\x1b[2J\\x00"), clean("a\\u202eb")
    ('select 1;␊␛[2J␀', 'a�b')
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_HARMLESS)


_NARROW = re.compile(r"[ -~\u00a1-\u02ff\u2010-\u2027\u2190-\u21ff\u2400-\u2426\u2500-\u25fc]*")
"""Signs known to take one cell: what the panels draw with, so that most lines are measured by their length."""


def width(text: str) -> int:
    """Terminal cells `text` takes: wide East Asian signs take two, combining ones none.

    >>> width("abc"), width("表"), width("e\\u0301")
    (3, 2, 1)
    """
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    return sum(map(_cell, text))


@lru_cache(maxsize=4096)
def _cell(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """`text` in exactly `cells` cells: padded, or cut with `…`.

    >>> fit("abc", 5), fit("abcdef", 4), fit("7", 3, right=True)
    ('abc  ', 'abc…', '  7')
    """
    taken = width(text)
    if taken > cells:
        text = cut(text, cells)
        taken = width(text)
    padding = " " * (cells - taken)
    return padding + text if right else text + padding


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells` cells, its end replaced by `…` where it does not fit."""
    if width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    taken, kept = 0, []
    for sign in text:
        step = _cell(sign)
        if taken + step > cells - 1:
            break
        kept.append(sign)
        taken += step
    return "".join(kept) + "…"
