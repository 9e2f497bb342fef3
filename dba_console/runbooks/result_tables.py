"""Text tables of preview rows and measurements, and quantities with units."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dba_console.core.units import human_bytes, human_count, human_duration, human_pct, parse_duration, parse_size
from dba_console.runbooks.run_view import RunTable

# Quantities: parse units in expressions, and format values with the unit of their field.

_TEXT = r"\"[^\"]*\"|'[^']*'"
_AMOUNT = r"(?<![\w.])\d+(?:\.\d+)?(?:TB|GB|MB|kB|B|ms|min|[smhd]|%)(?![\w(])"
_EITHER = re.compile(f"({_TEXT})|({_AMOUNT})")
_SIZE = re.compile(r"[\d.]+(?:TB|GB|MB|kB|B)")
_NEAR = re.compile(r"(?<![\w.])\d+(?:\.\d+)?[A-Za-z]\w*")


def replace_units(text: str) -> str:
    """Return the expression with quantities as plain numbers: bytes, seconds, percent from 0 to 100.

    >>> replace_units("io.read_bytes_per_s < 1MB and x > 10% and y == '5s' and z < 1.5h")
    "io.read_bytes_per_s < 1048576 and x > 10 and y == '5s' and z < 5400.0"
    """
    return _EITHER.sub(lambda match: match[1] or _number(match[2]), text)


def unknown_unit(text: str) -> str | None:
    """Return the first quantity with an unknown unit: `5mb`, `3x`."""
    match = _NEAR.search(re.sub(_TEXT, "''", replace_units(text)))
    return match[0] if match and not re.fullmatch(r"\d+(\.\d+)?e\d+", match[0]) else None


def format_value(name: str, value: Any) -> str:
    """Return a value with the unit that the name of its field implies.

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


MOST_ROWS = 200
MOST_CHARACTERS = 200
"""Maximum characters of a cell if there are many rows."""
WHOLE_CHARACTERS = 10_000
"""Maximum characters of a cell if there are few rows: a statement must be readable before it is cancelled."""
TABLE_CHARACTERS = 50_000
"""Maximum characters of all cells of a column."""
NULL = "-"
"""Text of NULL in a row from the server: known to be empty, unlike `?`."""
TIMES = ("_start", "_at", "_us", "_change")
"""Suffixes of columns that contain a time."""
WITH_UNIT = ("_bytes", "_bytes_per_s", "_per_s", "_pct", "_s", "_ms")
"""Suffixes of measures that imply a unit (`format_value`)."""
FIRST_TIME_US = 10**15
"""A smaller number is not a time: it would be before 2001."""


def cell(value: Any, column: str = "", *, most: int = MOST_CHARACTERS) -> str:
    """Return a value as text of at most `most` characters; unknown is `?`, microseconds since 1970 become a time."""
    if value is None:
        return "?"
    if column.endswith(TIMES) and isinstance(value, int) and value > FIRST_TIME_US:
        return datetime.fromtimestamp(value / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if isinstance(value, float):
        value = _number_text(value)
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    text = text.strip('"') if not isinstance(value, str) else text
    return text if len(text) <= most else text[: most - 1] + "…"


def counted(number: int, noun: str = "row") -> str:
    """Return `1 row`, `5 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def table_of(rows: Sequence[Mapping[str, Any]], title: str = "", block: str = "") -> RunTable | None:
    """Return the rows with the columns of the first; None if there are no rows."""
    if not rows:
        return None
    columns = tuple(rows[0])
    most = min(WHOLE_CHARACTERS, max(MOST_CHARACTERS, TABLE_CHARACTERS // len(rows)))

    def text_of(row: Mapping[str, Any], column: str) -> str:
        return NULL if row.get(column) is None else cell(row[column], column, most=most)

    shown = tuple(tuple(text_of(row, column) for column in columns) for row in rows[:MOST_ROWS])
    return RunTable(columns=columns, rows=shown, total=len(rows), title=title, block=block)


def comparison(measures: Mapping[str, Sequence[Mapping[str, Any]]]) -> RunTable | None:
    """Return the first and last measurement, and the change if both are numbers. If measured once, `after` is empty.

    A value has the name of its measurement only if two measurements have a value of its name.
    """
    lines: list[tuple[str, ...]] = []
    names = Counter(key for taken in measures.values() for key in taken[0])
    for name, values_taken in measures.items():
        first, last = values_taken[0], values_taken[-1] if len(values_taken) > 1 else None
        for key, before in first.items():
            after = last.get(key) if last is not None else None
            lines.append(
                (
                    key if names[key] == 1 else f"{name}.{key}",
                    _measure(before, key),
                    _measure(after, key) if last is not None else "",
                    _change(before, after, key),
                )
            )
    if not lines:
        return None
    first_column = "before" if any(len(taken) > 1 for taken in measures.values()) else "measured"
    return RunTable(columns=("value", first_column, "after", "change"), rows=tuple(lines[:MOST_ROWS]), total=len(lines))


def _measure(value: Any, key: str) -> str:
    """Return a measured value, with the unit if its name implies one.

    >>> _measure(335544320, "wal_files_bytes"), _measure(335544320, "bytes"), _measure(335544320, "rows")
    ('320 MB', '320 MB', '335544320')
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return format_value(key, value) if number and _has_unit(key) else cell(value, key)


def figures_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers whose name ends in a unit.

    >>> figures_of({"write_outage_s": 0.28, "read_outage_s": None, "left": 3})
    {'write_outage_s': 0.28}
    """
    return {
        name: float(value)
        for name, value in values.items()
        if name.endswith(WITH_UNIT) and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _has_unit(key: str) -> bool:
    return f"_{key}".endswith(WITH_UNIT)


def _change(before: Any, after: Any, key: str) -> str:
    if isinstance(before, bool) or isinstance(after, bool):
        return ""
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return ""
    change = after - before
    shown = format_value(key, change) if _has_unit(key) else _number_text(change)
    return f"{'+' if change > 0 else ''}{shown}"


def _number_text(value: float) -> str:
    """Return a measured number for display: fractions with four significant digits, whole numbers unchanged.

    >>> _number_text(135.63812), _number_text(0.020023), _number_text(1234567), _number_text(1234567.8)
    ('135.6', '0.02002', '1234567', '1234568')
    """
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
