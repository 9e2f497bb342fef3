"""Arguments taken apart as getopt_long does it, and as they may be shown: with every secret masked."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from dba_console.probes.jobs.connstring import without_secrets
from dba_console.probes.jobs.optstrings import LONG, SHORT
from dba_console.redact import MASK

MOST_VALUES = 1000
"""Values of one option that are kept: a generated command line may name more tables."""
_OPEN_SETTINGS = frozenset(
    ("ON_ERROR_STOP", "ON_ERROR_ROLLBACK", "VERBOSITY", "SHOW_CONTEXT", "AUTOCOMMIT", "FETCH_COUNT", "ECHO", "QUIET")
)
"""Variables of psql's own; any other may be a script's password."""


@dataclass(slots=True)
class Read:
    """Options in their order as letters or long names, operands, and which word holds what."""

    options: list[tuple[str, str]] = field(default_factory=list)
    operands: list[tuple[str, int]] = field(default_factory=list)
    """With their places in `shown`."""
    unknown: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """The words as they may be shown."""

    def value(self, *names: str) -> str | None:
        """The last value given, as getopt loops leave it."""
        return next((value for name, value in reversed(self.options) if name in names), None)

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options[: 4 * MOST_VALUES] if key == name)[:MOST_VALUES]

    def given(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)


@cache
def _letters(kind: str) -> dict[str, bool]:
    """Letter -> whether it takes a value."""
    text = SHORT[kind]
    return {sign: text[at + 1 : at + 2] == ":" for at, sign in enumerate(text) if sign != ":"}


@cache
def _longs(kind: str) -> dict[str, tuple[str, bool]]:
    """Long name -> the letter or name it is read as, and whether it takes a value."""
    found, letters = {}, _letters(kind)
    for word in LONG[kind].split():
        name, _, letter = word.partition("=")
        if letter:
            found[name] = letter, letters.get(letter, False)
        else:
            found[name.rstrip(":")] = name.rstrip(":"), name.endswith(":")
    return found


def read_words(kind: str, words: Sequence[str]) -> Read:
    """As getopt_long reads it: options and operands in any order, up to `--`."""
    read = Read(shown=[posixpath.basename(word) for word in words[:1]])
    left = list(words[:0:-1])
    doubtful = False
    while left:
        word = left.pop()
        if word == "--":
            read.shown.append(word)
            for operand in reversed(left):
                _operand(read, operand, doubtful=False)
            break
        if word.startswith("--"):
            doubtful = _long(kind, read, word, left)
        elif word.startswith("-") and word != "-":
            doubtful = _cluster(kind, read, word, left)
        else:
            _operand(read, word, doubtful=doubtful)
            doubtful = False
    _mask_surplus(kind, read)
    return read


def _long(kind: str, read: Read, word: str, left: list[str]) -> bool:
    """One long option, perhaps abbreviated. True: an operand that follows may be no operand."""
    name, equals, value = word[2:].partition("=")
    known = _longs(kind)
    fitting = [name] if name in known else [one for one in known if one.startswith(name)]
    meanings = {known[one] for one in fitting}
    if len(meanings) != 1:
        read.unknown.append(without_secrets(f"--{name}"))
        read.shown.append(without_secrets(word))
        return not equals
    [(key, takes)] = meanings
    if takes and not equals:
        read.shown.append(f"--{name}")
        _taken(read, kind, key, left)
        return False
    read.options.append((key, value))
    if equals:
        read.shown.append(f"--{name}={_shown_value(kind, key, value)}" if takes else f"--{name}={MASK}")
    else:
        read.shown.append(word)
    return key == "W"


def _cluster(kind: str, read: Read, word: str, left: list[str]) -> bool:
    """Letters behind one dash: the first that takes a value takes the rest of the word, or the next one."""
    letters = _letters(kind)
    for at, letter in enumerate(word[1:], 1):
        rest = word[at + 1 :]
        if letter not in letters:
            read.unknown.append(f"-{letter}")
        elif letters[letter]:
            if rest:
                read.options.append((letter, rest))
                read.shown.append(word[: at + 1] + _shown_value(kind, letter, rest))
            else:
                read.shown.append(word)
                _taken(read, kind, letter, left)
            return False
        else:
            read.options.append((letter, ""))
            if letter == "W" and rest:
                # People write their password there; getopt reads it as letters.
                read.shown.append(word[: at + 1] + MASK)
                return True
    read.shown.append(word)
    return word.endswith("W") or word[-1] not in letters


def _taken(read: Read, kind: str, key: str, left: list[str]) -> None:
    value = left.pop() if left else ""
    read.options.append((key, value))
    read.shown.append(_shown_value(kind, key, value))


def _operand(read: Read, word: str, *, doubtful: bool) -> None:
    """`doubtful`: it stands behind -W, or behind an option nobody knows, and may be a secret or that option's value."""
    if doubtful:
        read.shown.append(MASK)
        return
    read.operands.append((word, len(read.shown)))
    read.shown.append(without_secrets(word))


def _mask_surplus(kind: str, read: Read) -> None:
    """Operands the program has no use for: psql ignores them, so a password may stand there for hours."""
    most = {"psql": 2, "pgcopydb": 2, "pg_dumpall": 0, "pg_basebackup": 0}.get(kind, 1)
    if kind not in ("pg_restore", "pgcopydb"):
        most -= read.given("d")
    if kind == "psql":
        most -= read.given("U")
    for _, place in read.operands[max(0, most) :]:
        read.shown[place] = MASK
    del read.operands[max(0, most) :]


def _shown_value(kind: str, key: str, value: str) -> str:
    if kind == "psql" and key == "v":
        name, equals, _ = value.partition("=")
        return value if name in _OPEN_SETTINGS or not equals else f"{name}={MASK}"
    return without_secrets(value)
