"""Text in the cells of a terminal: measured, padded, cut.

It is measured after `clean` (sanitize.py) made one line of printable signs of it: a control has no width to count.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_NARROW = re.compile(r"[ -~\u00a1-\u02ff\u2010-\u2027\u2190-\u21ff\u2400-\u2426\u2500-\u25fc]*")
"""Signs known to take one cell: what the panels draw with, so that most lines are measured by their length."""


def width(text: str) -> int:
    """Terminal cells `text` takes: wide East Asian signs take two, combining ones none.

    >>> width("abc"), width("表"), width("e\\u0301")
    (3, 2, 1)
    """
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    return sum(map(_character_width, text))


@lru_cache(maxsize=4096)
def _character_width(sign: str) -> int:
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
        step = _character_width(sign)
        if taken + step > cells - 1:
            break
        kept.append(sign)
        taken += step
    return "".join(kept) + "…"
