"""Find learnt names in text: whole words, the longest first, in any case."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_Names = dict[tuple[int, int], dict[str, dict[str, str]]]
"""Names with one first word: by length and by characters before that word, then in lower case, then as spelled."""


class NameIndex:
    """Names and what replaces them."""

    def __init__(self) -> None:
        self._words: dict[str, _Names] = {}

    def add(self, spelling: str, replacement: str) -> None:
        """Add a name; one without a letter or digit is not found in text."""
        lowered = _lowered(spelling)
        first = _WORD.search(lowered)
        if first is not None:
            sizes = self._words.setdefault(first[0], {})
            sizes.setdefault((len(spelling), first.start()), {}).setdefault(lowered, {})[spelling] = replacement

    def complete(self) -> None:
        """Call once when all names are added: the longest are tried first."""
        self._words = {word: dict(sorted(sizes.items(), reverse=True)) for word, sizes in self._words.items()}

    def replace(self, text: str) -> str:
        """Return the text with every name replaced."""
        lowered = _lowered(text)
        parts: list[str] = []
        done = 0
        for word in _WORD.finditer(lowered):
            if word.start() < done:
                continue
            names = self._words.get(word[0])
            found = None if names is None else _match(names, text, lowered, word.start(), done)
            if found is not None:
                start, end, replacement = found
                parts += [text[done:start], replacement]
                done = end
        return "".join([*parts, text[done:]]) if parts else text


def _match(names: _Names, text: str, lowered: str, start: int, done: int) -> tuple[int, int, str] | None:
    """Return the longest name at a word: its start, its end, its pseudonym."""
    for (length, before), spelled in names.items():
        begin = start - before
        found = spelled.get(lowered[begin : begin + length]) if begin >= done else None
        if found is not None and not (begin + length < len(text) and _joins(text, begin + length)):
            replacement = found.get(text[begin : begin + length]) or next(iter(found.values()))
            return begin, begin + length, replacement
    return None


def _joins(text: str, end: int) -> bool:
    """Return whether a name that ends here is a part of a longer word."""
    return text[end - 1].isalnum() and text[end].isalnum()


def _lowered(text: str) -> str:
    """Return the text in lower case, of the same length."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower()[:1] or one for one in text)
