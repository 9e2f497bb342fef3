"""Amounts as people write them in expressions, and as they are told with the unit of the field they belong to."""

from __future__ import annotations

import re
from typing import Any

from dba_console.units import human_bytes, human_count, human_duration, human_pct, parse_duration, parse_size

_TEXT = r"\"[^\"]*\"|'[^']*'"
_AMOUNT = r"(?<![\w.])\d+(?:\.\d+)?(?:TB|GB|MB|kB|B|ms|min|[smhd]|%)(?![\w(])"
_EITHER = re.compile(f"({_TEXT})|({_AMOUNT})")
_SIZE = re.compile(r"[\d.]+(?:TB|GB|MB|kB|B)")
_NEAR = re.compile(r"(?<![\w.])\d+(?:\.\d+)?[A-Za-z]\w*")


def replace_units(text: str) -> str:
    """The expression with amounts as plain numbers: bytes, seconds, percent from 0 to 100.

    >>> replace_units("io.read_bytes_per_s < 1MB and x > 10% and y == '5s' and z < 1.5h")
    "io.read_bytes_per_s < 1048576 and x > 10 and y == '5s' and z < 5400.0"
    """
    return _EITHER.sub(lambda match: match[1] or _number(match[2]), text)


def unknown_unit(text: str) -> str | None:
    """The first amount whose unit is none: `5mb`, `3x`."""
    match = _NEAR.search(re.sub(_TEXT, "''", replace_units(text)))
    return match[0] if match and not re.fullmatch(r"\d+(\.\d+)?e\d+", match[0]) else None


def format_value(name: str, value: Any) -> str:
    """A value as its field's name says it is measured.

    >>> (format_value("memory.cached_change_bytes_per_s", -325058560), format_value("safety.xid_pct", 12.5),
    ...  format_value("x.y", None))
    ('-310 MB/s', '12%', 'unknown')
    """
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _format_number(name, value)
    if isinstance(value, (list, tuple)):
        shown = ", ".join(format_value(name, one) for one in value[:5])
        return f"[{shown}{', …' if len(value) > 5 else ''}]"
    return str(value)[:120]


def _format_number(name: str, value: float) -> str:
    last = name.rpartition(".")[2]
    if last.endswith("bytes_per_s"):
        return human_bytes(value, per_s=True)
    if last.endswith("bytes"):
        return human_bytes(value)
    if last.endswith("_per_s"):
        return human_count(value, per_s=True)
    if last.endswith(("_pct", "avg10")):
        return human_pct(value)
    if last.endswith("_s"):
        return human_duration(value)
    if last.endswith("_ms"):
        return f"{value:.1f} ms"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(amount: str) -> str:
    if amount.endswith("%"):
        return amount[:-1]
    return str(parse_size(amount)) if _SIZE.fullmatch(amount) else str(parse_duration(amount))
