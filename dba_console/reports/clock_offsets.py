"""Offset between the clocks of two recording hosts, measured from what both recorded.

One server seen by both: each reading of its clock bounds the offset of that server to the host. A primary and its
standby: a WAL position cannot be received before it was written, nor be reported as flushed before it was. Bounds of
many readings are intersected; where they contradict each other (a clock was set), the offset is not known. Without such
readings, two clocks that both kernels call synchronized differ by at most the sum of their errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dba_console.core.units import human_duration
from dba_console.recording.recording import Recording
from dba_console.watch.frames.picture import PartReading, Picture
from dba_console.watch.replication.readings import Replication
from dba_console.watch.samples import host, postgres

MARGIN_US = 600_000_000
"""Readings from ten minutes around the incident: clocks that are not synchronized drift."""
SLACK_US = 1000
"""A reading is stored with the host's clocks read one after the other."""


class ClockOffset(NamedTuple):
    """What to add to the other session's times to get those of the first; None: not known."""

    offset_us: int | None
    error_us: int | None
    how: str


def offset_text(offset: ClockOffset) -> str:
    """Return the offset with how it is known.

    >>> offset_text(ClockOffset(-1_500, 300, "readings")), offset_text(ClockOffset(None, None, "no reading"))
    ('-1.5 ms ± 0.3 ms (readings)', 'not known: no reading; times are as recorded')
    """
    if offset.offset_us is None:
        return f"not known: {offset.how}; times are as recorded"
    if not offset.offset_us and not offset.error_us:
        return f"0 ({offset.how})"
    return f"{signed(offset.offset_us)} ± {signed(offset.error_us or 0)[1:]} ({offset.how})"


def signed(offset_us: int) -> str:
    """Return a difference of times with its sign.

    >>> signed(-1_500), signed(2_500_000)
    ('-1.5 ms', '+2.500 s')
    """
    return f"{offset_us / 1e3:+.1f} ms" if abs(offset_us) < 1_000_000 else f"{offset_us / 1e6:+.3f} s"


class _Bounds(NamedTuple):
    """The offset is between the two; None: no bound."""

    low_us: int | None
    high_us: int | None

    def and_(self, other: _Bounds) -> _Bounds:
        lows = [one for one in (self.low_us, other.low_us) if one is not None]
        highs = [one for one in (self.high_us, other.high_us) if one is not None]
        return _Bounds(max(lows, default=None), min(highs, default=None))

    @property
    def consistent(self) -> bool:
        return self.low_us is None or self.high_us is None or self.low_us <= self.high_us


class _WalReading(NamedTuple):
    """Positions of a server at a time of its recording host."""

    begun_us: int
    ended_us: int
    standby: bool
    lsn: int
    """Primary: written; standby: received and flushed."""
    reported_lsn: int | None
    """Primary: the position that every standby has reported as flushed."""


class _HostReadings(NamedTuple):
    servers: set[tuple[str, int]]
    """System identifier and start of each server that was read."""
    clock: _Bounds
    """Server's clock less the host's."""
    wal: list[_WalReading]
    clock_error_us: int | None
    """Largest error that the kernel gave for the host's clock; None if it was not synchronized at any reading."""


def measure_offset(reference: Recording, other: Recording, from_us: int, to_us: int) -> ClockOffset:
    """Return the offset of the other recording's clock near a span of the reference."""
    boots = [one.meta.boot_id for one in (reference, other) if one.meta is not None and one.meta.boot_id]
    if len(boots) == 2 and boots[0] == boots[1]:
        return ClockOffset(0, 0, "both sessions were recorded on one host, by one clock")
    span = from_us - MARGIN_US, to_us + MARGIN_US
    ours = _read(reference.pictures(*span))
    theirs = _read(other.pictures(*span))
    found = _by_server(ours, theirs)
    if found.offset_us is None and ours.clock_error_us is not None and theirs.clock_error_us is not None:
        error_us = ours.clock_error_us + theirs.clock_error_us
        return ClockOffset(0, error_us, "both kernels report a synchronized clock, with these errors")
    return found


def _by_server(ours: _HostReadings, theirs: _HostReadings) -> ClockOffset:
    """Return the offset as the readings of the servers bound it."""
    if not ours.servers or not theirs.servers:
        return ClockOffset(None, None, "a session has no reading of its server near that time")
    if ours.servers == theirs.servers and len(ours.servers) == 1:
        return _offset(_difference(theirs.clock, ours.clock), "readings of the clock of the same server")
    our_clusters, their_clusters = ({identifier for identifier, _ in one.servers} for one in (ours, theirs))
    if our_clusters & their_clusters:
        forward, backward = _wal_bounds(ours.wal, theirs.wal), _wal_bounds(theirs.wal, ours.wal)
        return _offset(forward.and_(_negative(backward)), "WAL positions of primary and standby")
    why = "the sessions observe servers of different clusters, and their hosts do not both report a synchronized clock"
    return ClockOffset(None, None, why)


def _offset(bounds: _Bounds, how: str) -> ClockOffset:
    low_us, high_us = bounds
    if not bounds.consistent:
        return ClockOffset(None, None, f"{how} contradict each other: a clock was set, or drifts")
    if low_us is None or high_us is None:
        known = [
            f"{word} {human_duration(abs(one) / 1e6)} {'ahead' if one < 0 else 'behind'}"
            for word, one in (("at most", low_us), ("at least", high_us))
            if one is not None
        ]
        return ClockOffset(None, None, f"{how} do not bound it" + (f" ({', '.join(known)})" if known else ""))
    return ClockOffset((low_us + high_us) // 2, (high_us - low_us + 1) // 2, how)


def _negative(bounds: _Bounds) -> _Bounds:
    return _Bounds(*(None if one is None else -one for one in (bounds.high_us, bounds.low_us)))


def _difference(one: _Bounds, other: _Bounds) -> _Bounds:
    low = None if one.low_us is None or other.high_us is None else one.low_us - other.high_us
    high = None if one.high_us is None or other.low_us is None else one.high_us - other.low_us
    return _Bounds(low, high)


def _read(pictures: Iterable[Picture]) -> _HostReadings:
    servers: set[tuple[str, int]] = set()
    clock = _Bounds(None, None)
    wal: list[_WalReading] = []
    errors_us: list[int | None] = []
    seen: dict[str, int] = {}
    for picture in pictures:
        for name in ("pg.server", "pg.replication", "host.settings"):
            reading = picture.current.get(name)
            if reading is None or seen.get(name) == reading.part.at_us:
                continue
            seen[name] = reading.part.at_us
            value = reading.value()
            begun_us, ended_us = _asked_us(picture, reading) - SLACK_US, reading.wall_us + SLACK_US
            if isinstance(value, postgres.Server) and value.system_identifier:
                servers.add((value.system_identifier, value.start_us))
            if isinstance(value, postgres.Server | Replication):
                clock = clock.and_(_Bounds(value.now_us - ended_us, value.now_us - begun_us))
            if isinstance(value, Replication):
                wal += _wal_reading(value, begun_us, ended_us)
            if isinstance(value, host.HostSettings):
                errors_us.append(value.clock_error_us)
    known = [one for one in errors_us if one is not None]
    return _HostReadings(servers, clock, wal, max(known) if known and len(known) == len(errors_us) else None)


def _asked_us(picture: Picture, reading: PartReading) -> int:
    """Return the host's time before the question was sent: the questions of a tick are sent together."""
    since_us = reading.part.at_us - (picture.tick_us or 1_000_000)
    parts = [one.part for name, one in picture.current.items() if name.startswith("pg.")]
    together = [part.at_us - part.took_us for part in parts if since_us < part.at_us <= reading.part.at_us]
    return reading.wall_us - (reading.part.at_us - min(together, default=reading.part.at_us))


def _wal_reading(now: Replication, begun_us: int, ended_us: int) -> list[_WalReading]:
    lsn = now.receive_lsn if now.in_recovery else now.lsn
    if lsn is None:
        return []
    flushed = [row.flush_lsn for row in now.standbys if row.flush_lsn is not None]
    return [_WalReading(begun_us, ended_us, now.in_recovery, lsn, min(flushed) if flushed else None)]


def _wal_bounds(primary: Sequence[_WalReading], standby: Sequence[_WalReading]) -> _Bounds:
    """Return bounds of what to add to the standby's host clock to get that of the primary's host."""
    received = [one for one in standby if one.standby]
    written = [one for one in primary if not one.standby]
    positions = [one.lsn for one in received]
    if not received or positions != sorted(positions):
        return _Bounds(None, None)
    low: int | None = None
    high: int | None = None
    for one in written:
        # The first position beyond what was written by then was received later than that.
        later = bisect_right(positions, one.lsn)
        if later < len(received):
            bound_us = one.begun_us - received[later].ended_us
            low = bound_us if low is None else max(low, bound_us)
        # What had not reached a position that every standby had reported by then was read earlier than that.
        earlier = -1 if one.reported_lsn is None else bisect_right(positions, one.reported_lsn - 1) - 1
        if earlier >= 0:
            bound_us = one.ended_us - received[earlier].begun_us
            high = bound_us if high is None else min(high, bound_us)
    return _Bounds(low, high)
