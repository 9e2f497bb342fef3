"""The braces of a fence or a heading: `{kind word attribute attribute=value attribute="a value" #name}`."""

from __future__ import annotations

from msgspec import Struct

QUOTES = "\"'"


class BracesError(Exception):
    """Braces that cannot be read; the message is the rest of a sentence."""


class Braces(Struct, frozen=True):
    """What stood between them."""

    words: tuple[str, ...] = ()
    """Those without a value, in their order; the first names the kind of a block."""
    values: dict[str, str] = {}
    name: str = ""
    """`#name`."""


def split(info: str) -> tuple[str, str | None]:
    """What stands before the braces, and the text between them; None where there are none.

    >>> split("sql {check}"), split("sql")
    (('sql', 'check'), ('sql', None))
    """
    start = info.find("{")
    if start < 0:
        if "}" in info:
            raise BracesError("a brace is closed that was never opened")
        return info.strip(), None
    before, rest = info[:start].strip(), info[start + 1 :]
    end = _closing(rest)
    if rest[end + 1 :].strip():
        raise BracesError(f"something follows the braces: {rest[end + 1 :].strip()!r}")
    return before, rest[:end]


def read(text: str) -> Braces:
    """The words and values of it. Raises BracesError.

    >>> read('change confirm=type:"drop it" each #kill')
    Braces(words=('change', 'each'), values={'confirm': 'type:drop it'}, name='kill')
    """
    words: list[str] = []
    values: dict[str, str] = {}
    name = ""
    for token, quoted_from in _tokens(text):
        key, equals, value = token.partition("=")
        if token.startswith("#"):
            if name or equals:
                raise BracesError(f"{token!r} is a second name" if name else f"{token!r} is not a name")
            name = token[1:]
        elif equals and (quoted_from is None or quoted_from > len(key)):
            if not key or key in values:
                raise BracesError(f"{key!r} is given twice" if key else f"{token!r} has no name before its sign =")
            values[key] = value
        else:
            words.append(token)
    return Braces(tuple(words), values, name)


def _closing(text: str) -> int:
    """Where the braces end, counted outside quotes."""
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote = sign
        elif sign == "{":
            raise BracesError("a brace stands within braces; put it in quotes if it is part of a value")
        elif sign == "}":
            return at
    raise BracesError(f"a quote {quote} is never closed" if quote else "the brace is never closed")


def _tokens(text: str) -> list[tuple[str, int | None]]:
    """Tokens between blanks, quotes taken off; with each where its first quote stood, None where it has none."""
    tokens: list[tuple[str, int | None]] = []
    token, quoted, quote = "", None, ""
    for sign in [*text, " "]:
        if quote:
            if sign == quote:
                quote = ""
            else:
                token += sign
        elif sign in QUOTES:
            quote, quoted = sign, len(token) if quoted is None else quoted
        elif sign.isspace():
            if token or quoted is not None:
                tokens.append((token, quoted))
            token, quoted = "", None
        else:
            token += sign
    return tokens
