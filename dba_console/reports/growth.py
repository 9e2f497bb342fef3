"""How databases, file systems and transaction ids grew over a period, and the dates at which they reach a limit. Pure.

A date is the trend of the period continued: the median of the slopes between all readings (Theil 1950, Sen 1968), which
one large delete or load does not move. It is not given further ahead than the readings can show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from dba_console.core.units import human_bytes, human_count, human_duration
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.safety.readings import Xids

MIN_READINGS = 4
MIN_DAYS = 0.5
"""Within hours, growth is chance."""
MAX_HORIZON_FACTOR = 20.0
"""No date further ahead than this many times the observed days: five months after a week."""
_DAY_US = 86_400_000_000
_DAY_S = 86_400.0


class Reading(NamedTuple):
    """Sizes and ages at one time."""

    at_us: int
    databases: dict[str, int]
    mounts: dict[str, tuple[int, int | None]]
    """Used bytes, and bytes available to an ordinary user."""
    next_xid: int | None
    xid_age: int | None
    xid_stop_age: int | None
    freeze_max_age: int | None
    system_identifier: str | None


class Growth(Struct, frozen=True, kw_only=True):
    """A size at the start and end of the period."""

    what: str
    """database or disk."""
    name: str
    from_us: int
    to_us: int
    first_bytes: int
    last_bytes: int
    per_day_bytes: float | None
    """By the trend; None: too few readings."""
    readings: int

    @property
    def change_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


class ComingDate(Struct, frozen=True, kw_only=True):
    """A limit that will be reached if the period's trend continues."""

    what: str
    at_us: int | None
    """None: already reached."""
    earliest_us: int | None = None
    latest_us: int | None = None
    based_on: str


def reading_of(frame: Frame, picture: Picture) -> Reading:
    """Return the sizes and ages known at that time."""
    xids = picture.now("pg.xids", Xids)
    used = [row for row in frame.disks.mounts if row.used_bytes is not None and row.holds]
    return Reading(
        frame.at_us,
        {row.name: row.bytes for row in frame.disks.databases if row.bytes is not None},
        {row.path: (row.used_bytes or 0, row.available_bytes) for row in used},
        None if xids is None else xids.next_xid,
        frame.safety.xid_age,
        frame.safety.xid_stop_age,
        frame.safety.freeze_max_age,
        frame.target.system_identifier,
    )


def growth_of(readings: Sequence[Reading]) -> list[Growth]:
    """Return the growth of every database and file system, the largest first. Readings are in order of time."""
    found = [
        *(_growth("database", name, _series((one.at_us, one.databases.get(name)) for one in readings))
          for name in {name for one in readings for name in one.databases}),
        *(_growth("disk", path, _series((one.at_us, one.mounts.get(path, (None, None))[0]) for one in readings))
          for path in {path for one in readings for path in one.mounts}),
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.what, -abs(one.change_bytes), one.name))


def coming_dates(readings: Sequence[Reading]) -> list[ComingDate]:
    """Return when disks fill and transaction ids reach their limits, by the trend of the readings."""
    return [*_full_disks(readings), *_wraparound(readings)]


def _full_disks(readings: Sequence[Reading]) -> Iterator[ComingDate]:
    for path in sorted({path for one in readings for path in one.mounts}):
        rows = [(one.at_us, one.mounts[path]) for one in readings if path in one.mounts]
        series = [(at_us, used) for at_us, (used, _) in rows]
        per_day, available = per_day_of(series), rows[-1][1][1]
        if per_day is None or per_day <= 0 or available is None:
            continue
        if (at_us := _reached(series, available / per_day)) is not None:
            yield ComingDate(
                what=f"{path} is full", at_us=at_us,
                based_on=f"{human_bytes(available)} free; {human_bytes(per_day)} a day over {_span_text(series)}",
            )  # fmt: skip


def _wraparound(readings: Sequence[Reading]) -> Iterator[ComingDate]:
    last = readings[-1] if readings else None
    if last is None or last.xid_age is None:
        return
    same = [one for one in readings if one.system_identifier == last.system_identifier]
    series = _series((one.at_us, one.next_xid) for one in same)
    per_day = per_day_of(series)
    if per_day is None or per_day <= 0:
        return
    based_on = f"{human_count(per_day)} transactions a day over {_span_text(series)}"
    for what, limit in (
        ("autovacuum is forced to freeze", last.freeze_max_age),
        ("transaction ids run out, unless a vacuum freezes", last.xid_stop_age),
    ):
        at_us = None if limit is None else _reached(series, (limit - last.xid_age) / per_day)
        if limit is not None and last.xid_age < limit and at_us is not None:
            age = f"oldest age {human_count(last.xid_age)} of {human_count(limit)}"
            yield ComingDate(what=what, at_us=at_us, based_on=f"{age}; {based_on}")


def per_day_of(series: Sequence[tuple[int, float]]) -> float | None:
    """Return the growth per day; None with too few readings.

    >>> hour = 3_600_000_000
    >>> per_day_of([(n * 6 * hour, n * 100.0) for n in range(5)]), per_day_of([(0, 1.0), (hour, 2.0)])
    (400.0, None)
    """
    if len(series) < MIN_READINGS or series[-1][0] - series[0][0] < MIN_DAYS * _DAY_US:
        return None
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(series)
        for later in series[place + 1 :]
        if later[0] > earlier[0]
    ]
    return median(slopes) * _DAY_US if slopes else None


def _reached(series: Sequence[tuple[int, float]], ahead_days: float) -> int | None:
    """Return the time that many days after the last reading; None if it is too far ahead to be shown by these."""
    observed_days = (series[-1][0] - series[0][0]) / _DAY_US
    if not 0 <= ahead_days <= MAX_HORIZON_FACTOR * observed_days:
        return None
    return series[-1][0] + int(ahead_days * _DAY_US)


def _series(points: Iterable[tuple[int, int | None]]) -> list[tuple[int, int]]:
    """Return the known values in order of time: a clock may have been set back."""
    return sorted((at_us, value) for at_us, value in points if value is not None)


def _growth(what: str, name: str, series: Sequence[tuple[int, int]]) -> Growth:
    return Growth(
        what=what, name=name, from_us=series[0][0], to_us=series[-1][0], first_bytes=series[0][1],
        last_bytes=series[-1][1], per_day_bytes=per_day_of(series), readings=len(series),
    )  # fmt: skip


def _span_text(series: Sequence[tuple[int, float]]) -> str:
    return f"{human_duration((series[-1][0] - series[0][0]) / 1e6)}, {len(series)} readings"
