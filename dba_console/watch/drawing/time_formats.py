"""Times as shown to the operator: the host's local time, to the second."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache

from dba_console.core.units import UNKNOWN


def time_of_day(wall_us: int) -> str:
    """Return the local time of day, `14:57:29`."""
    return _local_time(wall_us, "%H:%M:%S")


def hour_and_minute(wall_us: int) -> str:
    """Return the local time of day to the minute, `14:57`."""
    return _local_time(wall_us, "%H:%M")


def date_and_time(wall_us: int) -> str:
    """Return local date and time, `2026-11-19 14:53:07`."""
    return _local_time(wall_us, "%Y-%m-%d %H:%M:%S")


def date_text(wall_us: int) -> str:
    """Return the local date, `2026-11-19`: for times known only to the day."""
    return _local_time(wall_us, "%Y-%m-%d")


def _local_time(wall_us: int, shape: str) -> str:
    try:
        return time.strftime(shape, time.localtime(wall_us // 1_000_000))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def format_rfc3339(wall_us: int) -> str:
    """Return UTC with microseconds, as the contract writes `at`.

    >>> format_rfc3339(1_795_186_387_123_456)
    '2026-11-20T14:53:07.123456Z'
    """
    try:
        return datetime.fromtimestamp(wall_us // 1_000_000, UTC).strftime(
            f"%Y-%m-%dT%H:%M:%S.{wall_us % 1_000_000:06d}Z"
        )
    except (OverflowError, ValueError, OSError):
        return "1970-01-01T00:00:00.000000Z"


@lru_cache(maxsize=1024)
def parse_rfc3339(text: str | None) -> int | None:
    """Return the microseconds since 1970 of an RFC 3339 time, None if it is not one.

    >>> parse_rfc3339("2026-11-20T14:53:07.123456Z"), parse_rfc3339("soon")
    (1795186387123456, None)
    """
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        known = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        since = known - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def local_time_of_day(text: str | None) -> str:
    """Return the local time of day of an RFC 3339 time, `?` if it is not one."""
    parsed = parse_rfc3339(text)
    return UNKNOWN if parsed is None else time_of_day(parsed)


def local_date_and_time(text: str | None) -> str:
    """Return local date and time of an RFC 3339 time, `?` if it is not one."""
    parsed = parse_rfc3339(text)
    return UNKNOWN if parsed is None else date_and_time(parsed)


def stopwatch(seconds: float) -> str:
    """Return `00:12:41`; negative times below an hour as `-00:42`: a duration, not a time of day.

    >>> stopwatch(761), stopwatch(-42)
    ('00:12:41', '-00:42')
    """
    sign, whole = ("-", int(-seconds)) if seconds < 0 else ("", int(seconds))
    hours, rest = divmod(whole, 3600)
    if sign and not hours:
        return f"-{rest // 60:02d}:{rest % 60:02d}"
    return f"{sign}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
