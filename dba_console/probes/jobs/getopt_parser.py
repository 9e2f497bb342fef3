"""Arguments taken apart as getopt_long does it, and as they may be shown: with every secret masked."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from dba_console.probes.jobs.connection_strings import without_secrets
from dba_console.probes.jobs.option_tables import LONG_OPTIONS, SHORT_OPTIONS
from dba_console.redact import MASK

MAX_VALUES = 1000
"""Values of one option that are kept: a generated command line may name more tables."""
_OPEN_SETTINGS = frozenset(
    ("ON_ERROR_STOP", "ON_ERROR_ROLLBACK", "VERBOSITY", "SHOW_CONTEXT", "AUTOCOMMIT", "FETCH_COUNT", "ECHO", "QUIET")
)
"""Variables of psql's own; any other may be a script's password."""


@dataclass(slots=True)
class ParsedWords:
    """Options in their order as letters or long names, operands, and which word holds what."""

    options: list[tuple[str, str]] = field(default_factory=list)
    operands: list[tuple[str, int]] = field(default_factory=list)
    """With their places in `masked`."""
    unknown: list[str] = field(default_factory=list)
    masked: list[str] = field(default_factory=list)
    """The words as they may be shown."""

    def value(self, *names: str) -> str | None:
        """The last value given, as getopt loops leave it."""
        return next((value for name, value in reversed(self.options) if name in names), None)

    def values(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options[: 4 * MAX_VALUES] if key == name)[:MAX_VALUES]

    def given(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)


@cache
def _short_options(kind: str) -> dict[str, bool]:
    """Letter -> whether it takes a value."""
    text = SHORT_OPTIONS[kind]
    return {sign: text[at + 1 : at + 2] == ":" for at, sign in enumerate(text) if sign != ":"}


@cache
def _long_options(kind: str) -> dict[str, tuple[str, bool]]:
    """Long name -> the letter or name it is read as, and whether it takes a value."""
    found, letters = {}, _short_options(kind)
    for word in LONG_OPTIONS[kind].split():
        name, _, letter = word.partition("=")
        if letter:
            found[name] = letter, letters.get(letter, False)
        else:
            found[name.rstrip(":")] = name.rstrip(":"), name.endswith(":")
    return found


def parse_words(kind: str, words: Sequence[str]) -> ParsedWords:
    """As getopt_long reads it: options and operands in any order, up to `--`."""
    parsed = ParsedWords(masked=[posixpath.basename(word) for word in words[:1]])
    left = list(words[:0:-1])
    maybe_secret = False
    while left:
        word = left.pop()
        if word == "--":
            parsed.masked.append(word)
            for operand in reversed(left):
                _add_operand(parsed, operand, maybe_secret=False)
            break
        if word.startswith("--"):
            maybe_secret = _parse_long(kind, parsed, word, left)
        elif word.startswith("-") and word != "-":
            maybe_secret = _parse_short(kind, parsed, word, left)
        else:
            _add_operand(parsed, word, maybe_secret=maybe_secret)
            maybe_secret = False
    _mask_surplus(kind, parsed)
    return parsed


def _parse_long(kind: str, parsed: ParsedWords, word: str, left: list[str]) -> bool:
    """One long option, perhaps abbreviated. True: an operand that follows may be no operand."""
    name, equals, value = word[2:].partition("=")
    known = _long_options(kind)
    fitting = [name] if name in known else [one for one in known if one.startswith(name)]
    meanings = {known[one] for one in fitting}
    if len(meanings) != 1:
        parsed.unknown.append(without_secrets(f"--{name}"))
        parsed.masked.append(without_secrets(word))
        return not equals
    [(key, takes)] = meanings
    if takes and not equals:
        parsed.masked.append(f"--{name}")
        _take_value(parsed, kind, key, left)
        return False
    parsed.options.append((key, value))
    if equals:
        parsed.masked.append(f"--{name}={_masked_value(kind, key, value)}" if takes else f"--{name}={MASK}")
    else:
        parsed.masked.append(word)
    return key == "W"


def _parse_short(kind: str, parsed: ParsedWords, word: str, left: list[str]) -> bool:
    """Letters behind one dash: the first that takes a value takes the rest of the word, or the next one."""
    letters = _short_options(kind)
    for at, letter in enumerate(word[1:], 1):
        rest = word[at + 1 :]
        if letter not in letters:
            parsed.unknown.append(f"-{letter}")
        elif letters[letter]:
            if rest:
                parsed.options.append((letter, rest))
                parsed.masked.append(word[: at + 1] + _masked_value(kind, letter, rest))
            else:
                parsed.masked.append(word)
                _take_value(parsed, kind, letter, left)
            return False
        else:
            parsed.options.append((letter, ""))
            if letter == "W" and rest:
                # People write their password there; getopt reads it as letters.
                parsed.masked.append(word[: at + 1] + MASK)
                return True
    parsed.masked.append(word)
    return word.endswith("W") or word[-1] not in letters


def _take_value(parsed: ParsedWords, kind: str, key: str, left: list[str]) -> None:
    value = left.pop() if left else ""
    parsed.options.append((key, value))
    parsed.masked.append(_masked_value(kind, key, value))


def _add_operand(parsed: ParsedWords, word: str, *, maybe_secret: bool) -> None:
    """`maybe_secret`: it stands behind -W, or behind an option nobody knows, and may be a secret or that option's
    value."""
    if maybe_secret:
        parsed.masked.append(MASK)
        return
    parsed.operands.append((word, len(parsed.masked)))
    parsed.masked.append(without_secrets(word))


def _mask_surplus(kind: str, parsed: ParsedWords) -> None:
    """Operands the program has no use for: psql ignores them, so a password may stand there for hours."""
    most = {"psql": 2, "pgcopydb": 2, "pg_dumpall": 0, "pg_basebackup": 0}.get(kind, 1)
    if kind not in ("pg_restore", "pgcopydb"):
        most -= parsed.given("d")
    if kind == "psql":
        most -= parsed.given("U")
    for _, place in parsed.operands[max(0, most) :]:
        parsed.masked[place] = MASK
    del parsed.operands[max(0, most) :]


def _masked_value(kind: str, key: str, value: str) -> str:
    if kind == "psql" and key == "v":
        name, equals, _ = value.partition("=")
        return value if name in _OPEN_SETTINGS or not equals else f"{name}={MASK}"
    return without_secrets(value)
