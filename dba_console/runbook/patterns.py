"""Regular expressions of documents, held to what a backtracking matcher answers at once.

A document may come from anywhere, and while a pattern is matched the whole process stands still. So no repetition is
within another, few are followed by what they could go on with, and the text is not long: it then takes milliseconds.
"""

from __future__ import annotations

import re
from re import _compiler as compiler  # type: ignore[attr-defined]  # what `re` is made of has no public names
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST_DOUBTFUL = 3
"""Repetitions that the matcher may end at several places: each takes it as often again as the text is long."""
MOST_OPTIONAL = 8
LONGEST_VALUE = 200
"""Characters of a value that is put to a pattern."""
FEW = 8
"""So often may a part stand a fixed number of times, as in an address, and count as written out."""
_CHARACTERS = [chr(code) for code in range(128)] + ["é"]
_ANY = frozenset(_CHARACTERS)
_SINGLE = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)

Tree = list[tuple[Any, Any]]


def backtracking_risk(pattern: str) -> str | None:
    """Why a pattern may take for ever; None where it does not. Raises re.error where it is none.

    >>> backtracking_risk("(a+)+$"), backtracking_risk(r"[a-z]{1,63}-\\d+(\\.\\d+)?")
    ('a repetition within a repetition', None)
    """
    try:
        counted = _Counted()
        counted.see(list(parser.parse(pattern)), frozenset(), within=False)
    except RecursionError:
        return "too many brackets"
    if counted.why is None and (counted.doubtful > MOST_DOUBTFUL or counted.optional > MOST_OPTIONAL):
        return "too many parts of which it is not clear where they end"
    return counted.why


def matches_pattern(pattern: str, text: str) -> bool:
    """Whether the whole text has the form; a longer one than LONGEST_VALUE never has."""
    return len(text) <= LONGEST_VALUE and re.fullmatch(pattern, text) is not None


class _Counted:
    """What a pattern has of each kind."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.doubtful = self.optional = 0

    def see(self, tree: Tree, follow: frozenset[str], *, within: bool) -> None:
        """Count what is in `tree`, after which one of `follow` comes; `within` a repetition."""
        for at, (what, value) in enumerate(tree):
            first, empty = _first(tree[at + 1 :])
            after = first | follow if empty else first
            if what in (op.GROUPREF, op.GROUPREF_EXISTS):
                self.why = "a reference to a group"
            elif what in (op.MAX_REPEAT, op.MIN_REPEAT, getattr(op, "POSSESSIVE_REPEAT", None)):
                self._repeat(int(value[0]), int(value[1]), list(value[2]), after, within=within)
            elif what is op.SUBPATTERN:
                self.see(list(value[3]), after, within=within)
            elif what is op.BRANCH:
                if within:
                    self.why = "a choice within a repetition"
                for branch in value[1]:
                    self.see(list(branch), after, within=within)
            elif what in (op.ASSERT, op.ASSERT_NOT):
                self.see(list(value[1]), _ANY, within=within)

    def _repeat(self, low: int, high: int, body: Tree, after: frozenset[str], *, within: bool) -> None:
        if within and low != high:
            self.why = "a repetition within a repetition"
        first, _ = _first(body)
        if low != high and first & after:
            self.doubtful += high > 1
            self.optional += high <= 1
        self.see(body, after | first if high > 1 else after, within=within or (high > 1 and not low == high <= FEW))


def _first(tree: Tree) -> tuple[frozenset[str], bool]:
    """Characters that what is in `tree` may begin with, and whether it may be empty."""
    found: frozenset[str] = frozenset()
    for what, value in tree:
        if what in _SINGLE:
            return found | _matching(what, value), False
        if what in (op.MAX_REPEAT, op.MIN_REPEAT, getattr(op, "POSSESSIVE_REPEAT", None)):
            inner, empty = _first(list(value[2]))
            found, empty = found | inner, empty or int(value[0]) == 0
        elif what is op.SUBPATTERN:
            inner, empty = _first(list(value[3]))
            found |= inner
        elif what is op.BRANCH:
            parts = [_first(list(branch)) for branch in value[1]]
            found, empty = found.union(*(part for part, _ in parts)), any(empty for _, empty in parts)
        elif what is op.AT:
            empty = True
        else:
            return _ANY, True
        if not empty:
            return found, False
    return found, True


def _matching(what: Any, value: Any) -> frozenset[str]:
    compiled = compiler.compile(parser.SubPattern(parser.State(), [(what, value)]))
    return frozenset(one for one in _CHARACTERS if compiled.fullmatch(one))
