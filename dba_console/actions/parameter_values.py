"""Values of configuration parameters: when two texts mean the same, and how one is written so that it comes back.

Units and their base: PostgreSQL documentation, "Parameter Names and Values". Pure.
"""

from __future__ import annotations

import re

LIST_QUOTED = frozenset(
    ("local_preload_libraries", "search_path", "session_preload_libraries", "shared_preload_libraries",
     "temp_tablespaces", "unix_socket_directories")
)  # fmt: skip
"""Lists whose elements the server quotes one by one: written as a single literal, `a, b` would be one element of that
name (variable_is_guc_list_quote in src/fe_utils/string_utils.c)."""

_SIZES = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TIMES_US = {"us": 1, "ms": 1e3, "s": 1e6, "min": 6e7, "h": 3.6e9, "d": 8.64e10}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")
_TRUE = {"on", "true", "tru", "tr", "t", "yes", "ye", "y", "1"}
_FALSE = {"off", "of", "false", "fals", "fal", "fa", "f", "no", "n", "0"}
_ELEMENT = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",]*?))\s*(?:,|$)')


def setting_text(value: str | int | float | bool) -> str:
    """A setting of a runbook as the server reads it.

    >>> setting_text(True), setting_text(64), setting_text("64MB")
    ('on', '64', '64MB')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def parse_value(text: str, vartype: str, unit: str | None) -> object:
    """What a text means for a parameter of this type, so that two can be compared.

    >>> parse_value("64MB", "integer", "8kB") == parse_value("8192", "integer", "8kB")
    True
    >>> parse_value("1min", "integer", "ms"), parse_value("YES", "bool", None), parse_value(" Logical", "enum", None)
    (60000, True, 'logical')
    """
    if vartype == "bool":
        word = text.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else word
    if vartype == "enum":
        return text.strip().lower()
    if vartype in ("integer", "real") and (number := _parse_number(text, unit)) is not None:
        return round(number) if vartype == "integer" else number
    return text


def split_list(text: str) -> list[str]:
    """The elements of a list of names, without their quotes.

    >>> split_list('"$user", public'), split_list(''), split_list('a,"b, c"')
    (['$user', 'public'], [], ['a', 'b, c'])
    """
    found: list[str] = []
    position = 0
    while position < len(text):
        match = _ELEMENT.match(text, position)
        if match is None or match.end() == position:
            return [text]  # no list: the server is asked as it stands, and refuses it
        found.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end()
    return [] if found == [""] else found


def same_value(name: str, one: str | None, other: str | None, vartype: str, unit: str | None) -> bool:
    """Two values mean the same; None is `not set`."""
    if one is None or other is None:
        return one is other
    if name.lower() in LIST_QUOTED:
        return split_list(one) == split_list(other)
    return parse_value(one, vartype, unit) == parse_value(other, vartype, unit)


def _parse_number(text: str, unit: str | None) -> float | None:
    """In the base unit of the parameter; None for what is no number with a unit that fits."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number, given = float(match[1]), match[2]
    if not given or unit is None:
        return number if not given else None
    base = re.fullmatch(r"(\d*)(\w+)", unit)
    if base is None:
        return None
    for units in (_SIZES, _TIMES_US):
        if given in units and base[2] in units:
            return number * units[given] / (units[base[2]] * int(base[1] or 1))
    return None
