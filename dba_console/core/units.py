"""Numbers with units as text: sizes, counts, durations and percentages, formatted and parsed.

Sizes are binary and written as in PostgreSQL (kB = 1024 bytes); durations as `250ms 5s 10m 2h 3d`.
An unknown number is shown as `?`, never as 0.
"""

from __future__ import annotations

import re

from dba_console.core.errors import UsageError

UNKNOWN = "?"

_SIZE_STEPS = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10))
_SIZE_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def human_bytes(count: float | None, *, per_s: bool = False) -> str:
    """Return bytes in the largest unit with a digit before the point: `4.1 GB`, `310 MB/s`, `0 B`, `?`.

    >>> human_bytes(4_402_341_478), human_bytes(-325_058_560, per_s=True), human_bytes(None)
    ('4.1 GB', '-310 MB/s', '?')
    """
    if count is None:
        return UNKNOWN
    suffix = "/s" if per_s else ""
    magnitude = abs(count)
    for unit, step in _SIZE_STEPS:
        # From 1000 of a unit the next one is used: 0.98 GB reads better than four digits of MB.
        if magnitude >= step * 1000 / 1024:
            value = count / step
            return f"{value:.0f} {unit}{suffix}" if abs(value) >= 99.95 else f"{value:.1f} {unit}{suffix}"
    return f"{count:.0f} B{suffix}"


def human_count(count: float | None, *, per_s: bool = False) -> str:
    """Return a number in at most four characters and a sign: `310`, `1.2k`, `81M`; with per_s `310/s`.

    >>> human_count(1234, per_s=True), human_count(0.4), human_count(81_000_000), human_count(None)
    ('1.2k/s', '0.4', '81M', '?')
    """
    if count is None:
        return UNKNOWN
    suffix = "/s" if per_s else ""
    for unit, step in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= step * 0.9995:
            value = count / step
            return f"{value:.0f}{unit}{suffix}" if abs(value) >= 9.95 else f"{value:.1f}{unit}{suffix}"
    if count == int(count) or abs(count) >= 9.95:
        return f"{count:.0f}{suffix}"
    return f"{count:.1f}{suffix}"


def human_duration(seconds: float | None) -> str:
    """Return a duration in its two largest units: `0.4s 42s 3m50s 1h02 12d4h`, `?` if unknown.

    >>> [human_duration(s) for s in (0.42, 42, 230, 3720, 1_051_200, None)]
    ['0.4s', '42s', '3m50s', '1h02', '12d4h', '?']
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return "-" + human_duration(-seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s" if whole % 60 else f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}"
    days, hours = divmod(whole // 3600, 24)
    return f"{days}d{hours}h" if hours and days < 100 else f"{days}d"


def human_pct(pct: float | None) -> str:
    """Return a percentage from 0 to 100: `2.1%`, `81%`, `?`. Never rounded up to 100 or down to 0.

    >>> [human_pct(share) for share in (2.14, 81.4, 99.97, 0.02, 0, 100, None)]
    ['2.1%', '81%', '99.9%', '<0.1%', '0%', '100%', '?']
    """
    if pct is None:
        return UNKNOWN
    if pct == 0:
        return "0%"
    if 0 < pct < 0.05:
        return "<0.1%"
    if 99.5 <= pct < 100:
        return f"{int(pct * 10) / 10:.1f}%"
    return f"{pct:.0f}%" if pct >= 9.95 else f"{pct:.1f}%"


def parse_size(text: str) -> int:
    """Return bytes from `64kB 10MB 1GB` (binary, as in PostgreSQL). Raises UsageError with the text.

    >>> parse_size("64kB"), parse_size("1 GB")
    (65536, 1073741824)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise UsageError(f"not a size: {text!r}", hint="write a number and B, kB, MB, GB or TB, as in 64kB or 1GB")
    return int(float(match[1]) * _SIZE_UNITS[match[2].lower()])


_LONGEST_DAYS = 36_500
"""A longer duration is a typing error, and the time before or after it may not be a date."""


def parse_duration(text: str) -> float:
    """Return seconds from `250ms 5s 10m 2h 3d` or a sequence (`1h30m`). Raises UsageError with the text.

    >>> parse_duration("250ms"), parse_duration("1h30m"), parse_duration("90")
    (0.25, 5400.0, 90.0)
    """
    stripped = text.strip()
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhd])", stripped)
    if re.fullmatch(r"\d+(?:\.\d+)?", stripped):
        pieces = [(stripped, "s")]
    elif not pieces or "".join(number + unit for number, unit in pieces) != stripped.replace(" ", ""):
        raise UsageError(f"not a duration: {text!r}", hint="write it as 250ms, 5s, 10m, 2h or 1h30m")
    seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in pieces)
    if seconds > _LONGEST_DAYS * _DURATION_UNITS["d"]:
        raise UsageError(f"duration too long: {text!r}", hint=f"the longest is {_LONGEST_DAYS}d, 100 years")
    return seconds
