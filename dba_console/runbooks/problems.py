"""What is wrong with a document: where, what, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from msgspec import Struct

LISTED = 16
"""Names told in one hint."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that keeps a document from being run."""

    line: int
    """Counted from 1; 0 from a rule that looks at the head."""
    text: str
    hint: str = ""
    rule: str = ""
    """Which rule of the lint said so; empty: the format itself."""

    def formatted(self, source: str) -> str:
        """`FILE:LINE: sentence`, and the hint after it on a line of its own."""
        sentence = f"{source}:{self.line}: {self.text}"
        return f"{sentence}\n  hint: {self.hint}" if self.hint else sentence


class Problems:
    """Collects what is found, so that one reading names everything."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, line: int, text: str, hint: str = "", rule: str = "") -> None:
        self._found.append(Problem(line=line, text=text, hint=hint, rule=rule))

    def extend(self, problems: Iterable[Problem]) -> None:
        self._found.extend(problems)

    def __bool__(self) -> bool:
        return bool(self._found)

    def sorted(self) -> tuple[Problem, ...]:
        """Each once, in the order of their lines."""
        return tuple(sorted(dict.fromkeys(self._found), key=lambda problem: problem.line))


def suggest(name: str, known: Iterable[str], *, what: str = "it can be") -> str:
    """`did you mean X?` where a known name is close, else all of them where they are few.

    >>> suggest("chek", ["check", "wait"]), suggest("zzz", ["check", "wait"])
    ('did you mean check?', 'it can be check, wait')
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"{what} {', '.join(names)}" if 0 < len(names) <= LISTED else ""
