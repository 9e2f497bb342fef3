"""Problems of a runbook document: line, message and hint."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason why a document cannot be run."""

    line: int
    """Counted from 1; 0: the head, or the whole document."""
    text: str
    hint: str = ""
    rule: str = ""
    """Lint rule that reported it; empty: the format itself."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text

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
