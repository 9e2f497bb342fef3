"""Problems of a runbook document: line, message and hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from msgspec import Struct

LISTED = 16
"""Maximum number of names listed in one hint."""


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason why a document cannot be run."""

    line: int
    """Counted from 1; 0 from a rule that checks the head."""
    text: str
    hint: str = ""
    rule: str = ""
    """Lint rule that reported it; empty: the format itself."""

    def formatted(self, source: str) -> str:
        """Return `FILE:LINE: message`, with the hint on a second line."""
        sentence = f"{source}:{self.line}: {self.text}"
        return f"{sentence}\n  hint: {self.hint}" if self.hint else sentence


class Problems:
    """Collects problems, so that one check reports all of them."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, line: int, text: str, hint: str = "", rule: str = "") -> None:
        self._found.append(Problem(line=line, text=text, hint=hint, rule=rule))

    def extend(self, problems: Iterable[Problem]) -> None:
        self._found.extend(problems)

    def __bool__(self) -> bool:
        return bool(self._found)

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems without duplicates, ordered by line."""
        return tuple(sorted(dict.fromkeys(self._found), key=lambda problem: problem.line))


def suggest(name: str, known: Iterable[str], *, what: str = "it can be") -> str:
    """Return `did you mean X?` if a known name is close, else the list of names if it is short.

    >>> suggest("chek", ["check", "wait"]), suggest("zzz", ["check", "wait"])
    ('did you mean check?', 'it can be check, wait')
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"{what} {', '.join(names)}" if 0 < len(names) <= LISTED else ""
