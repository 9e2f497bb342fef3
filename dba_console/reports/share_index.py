"""For shared copies: find names in text, as whole words in any case, and uncommon names also inside longer words."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

_WORD = re.compile(r"[^\W_]+")
_LETTERS = 3
"""Letters by which a name is looked up in longer words; one whose first word is shorter is not found there."""
_MOST_NAMES = 8
"""In one word."""
_KNOWN_WORDS = 100_000


class NameIndex:
    """Spellings of names, each with a value: what replaces it, or what it is a form of."""

    def __init__(self, ordinary: Container[str] = ()) -> None:
        """`ordinary`: longer words, in lower case, in which no name is found."""
        self._ordinary = ordinary
        self._values: dict[str, dict[str, str]] = {}
        """In lower case, then as spelled."""
        self._shapes: dict[str, set[tuple[int, int]]] = {}
        """By first word, or by the letters it begins with: characters before that word, and length of the name."""
        self._inside: set[str] = set()
        self._possible: dict[str, list[tuple[int, int]]] = {}
        """Where a name may be at a word of a text: start relative to that word, and length; first the longest."""

    def add(self, spelling: str, value: str, *, inside: bool = False) -> None:
        """Add a name; one without a letter or digit is not found in text. `inside`: also as a part of longer words."""
        lowered = _lowered(spelling)
        first = _WORD.search(lowered)
        if first is None:
            return
        self._values.setdefault(lowered, {})[spelling] = value
        shape = (first.start(), len(lowered))
        self._shapes.setdefault(first[0], set()).add(shape)
        if inside:
            self._inside.add(lowered)
            if len(first[0]) >= _LETTERS:
                self._shapes.setdefault(f"{first[0][:_LETTERS]}…", set()).add(shape)

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and value of every name in the text; they do not overlap."""
        lowered = _lowered(text)
        done = 0
        for word in _WORD.finditer(lowered):
            possible = self._possible.get(word[0])
            if possible is None:
                possible = self._possible_at(word[0])
            for offset, length in possible:
                start = word.start() + offset
                values = self._values.get(lowered[start : start + length]) if start >= done else None
                if values is not None and self._is_name(lowered, start, start + length):
                    done = start + length
                    yield start, done, values.get(text[start:done]) or next(iter(values.values()))

    def replace(self, text: str) -> str:
        """Return the text with every name replaced by its value."""
        for _ in range(_MOST_NAMES):
            parts: list[str] = []
            done, divided = 0, False
            for start, end, value in self.find(text):
                joined = _joins(text, start), _joins(text, end)
                parts += [text[done:start], "_" * (joined[0] and start > done), value, "_" * joined[1]]
                done, divided = end, divided or any(joined)
            text = "".join([*parts, text[done:]]) if parts else text
            if not divided:  # else what is left of a longer word may be a name
                break
        return text

    def _possible_at(self, word: str) -> list[tuple[int, int]]:
        found = {(-before, length) for before, length in self._shapes.get(word, ())}
        for at in () if word in self._ordinary else range(len(word) - _LETTERS + 1):
            shapes = self._shapes.get(f"{word[at : at + _LETTERS]}…", ())
            found |= {(at - before, length) for before, length in shapes}
        if len(self._possible) >= _KNOWN_WORDS:
            self._possible.clear()
        made = self._possible[word] = sorted(found, key=lambda one: (max(one[0], 0), -one[1]))
        return made

    def _is_name(self, lowered: str, start: int, end: int) -> bool:
        """Return whether the name there is no part of a longer word or number."""
        return not any(
            _joins(lowered, at) and (lowered[at - 1 : at + 1].isdecimal() or lowered[start:end] not in self._inside)
            for at in (start, end)
        )


def _joins(text: str, at: int) -> bool:
    """Return whether the characters on both sides belong to one word."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _lowered(text: str) -> str:
    """Return the text in lower case, of the same length."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower()[:1] or one for one in text)
