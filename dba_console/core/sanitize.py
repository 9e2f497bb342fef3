"""Sanitizes text from servers, kernels and operators before it is shown or logged.

Control characters, escapes and bidirectional overrides become visible characters, so that a session's name cannot drive
a terminal, forge a log line or shift a table. The original stays recognisable.
"""

from __future__ import annotations

_CACHE_LIMIT = 8192
"""Cached characters: more than any site uses, and a bound for text made to fill memory."""

_BLANKS = frozenset((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000))
"""Blanks other than the space (Unicode category Zs)."""


class _PrintableMap(dict[int, int | str | None]):
    """Replacement per character, computed once: pictures for C0 controls, a space for odd blanks, nothing for variation
    selectors (terminals disagree on their width), U+FFFD for what hides, reorders or is not printable."""

    def __missing__(self, code: int) -> int | str | None:
        answer: int | str | None
        if code < 32 or code == 127:
            answer = 0x2421 if code == 127 else 0x2400 + code
        elif 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            answer = None
        elif code in _BLANKS:
            answer = " "
        else:
            answer = code if chr(code).isprintable() else 0xFFFD
        if len(self) < _CACHE_LIMIT:
            self[code] = answer
        return answer


_PRINTABLE = _PrintableMap()


def clean(text: str) -> str:
    """Return `text` as one printable line: controls become pictures, hiding or reordering characters U+FFFD.

    >>> clean("select 1;\\n\\x1b[2J\\x00"), clean("a\\u202eb")
    ('select 1;␊␛[2J␀', 'a�b')
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_PRINTABLE)


class _JsonEscapeMap(dict[int, int | str]):
    """Replacement per character of JSON: itself if printable, else its escape."""

    def __missing__(self, code: int) -> int | str:
        if chr(code).isprintable():
            answer: int | str = code
        elif code < 0x10000:
            answer = f"\\u{code:04x}"
        else:
            high, low = divmod(code - 0x10000, 0x400)
            answer = f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
        if len(self) < _CACHE_LIMIT:
            self[code] = answer
        return answer


_JSON_ESCAPES = _JsonEscapeMap()


def escape_json(json: str) -> str:
    r"""Return JSON on one line that cannot drive a terminal, with the same meaning: hiding or reordering characters and
    8-bit controls are written as `\uXXXX`.

    >>> escape_json('{"a":"b\u202ec\x9b2J\U000e0041"}')
    '{"a":"b\\u202ec\\u009b2J\\udb40\\udc41"}'
    """
    return json if json.isprintable() else json.translate(_JSON_ESCAPES)
