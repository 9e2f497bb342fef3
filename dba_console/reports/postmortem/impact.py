"""The impact of an incident in numbers, each computed from the samples between two times.

A reading counts for the time until the next one; across a gap it counts for one tick. What cannot be computed is listed
with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from dba_console.clusters.subject.readings import ClusterNow
from dba_console.core.units import human_bytes, human_duration
from dba_console.recording.points import Point
from dba_console.recording.recording import Recording
from dba_console.reports.postmortem.facts import Measured
from dba_console.reports.postmortem.lock_episodes import LockEpisodeReader
from dba_console.reports.postmortem.timeline import text_of
from dba_console.watch.block_devices import derive_devices
from dba_console.watch.connections.panel import usable_of
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import PartReading, Picture, PictureFacts
from dba_console.watch.frames.rates import pair
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.console import AgentHealth

BASELINE_US = 1_800_000_000
"""Typical values come from at most the half hour before the incident."""
BASELINE_MIN_S = 60.0
"""Less than a minute before the incident is not typical of anything."""
OUTAGE = "Time without a connection of the console"
_GAP_TICKS = 3
_CLOCK_SET_US = 2_000_000
"""A clock that is further ahead of the monotonic one was set."""
_EMPTY = ChartHistory()


def measure_impact(recording: Recording, from_us: int, to_us: int, locks: LockEpisodeReader) -> list[Measured]:
    """Return the numbers of the incident between two times. `locks` is given the same pictures."""
    points = dict(recording.points(from_us, to_us))
    counters = (_Slots(), _Outages(), _LockWaits(), _IoStalls(), _Poolers(), _Replication())
    transactions = _DatabaseCounters(from_us)
    for picture, held_s in _held(recording.pictures(from_us - BASELINE_US, to_us)):
        transactions.add(picture)
        if picture.wall_us >= from_us:
            for counter in (*counters, locks):
                counter.add(picture, points.get(picture.wall_us, {}), held_s)
    found = [one for counter in counters[:2] for one in counter.numbers()]
    found += transactions.numbers()
    return found + [one for counter in counters[2:] for one in counter.numbers()]


def _held(pictures: Iterator[Picture]) -> Iterator[tuple[Picture, float]]:
    """Yield each picture with the seconds it stands for."""
    before: Picture | None = None
    for picture in pictures:
        if before is not None:
            yield before, _seconds_to(before, picture)
        before = picture
    if before is not None:
        yield before, before.tick_us / 1e6


def _seconds_to(before: Picture, after: Picture) -> float:
    elapsed_us, tick_us = after.mono_us - before.mono_us, before.tick_us or 1_000_000
    same_clock = before.boot == after.boot and 0 < elapsed_us <= _GAP_TICKS * tick_us
    return (elapsed_us if same_clock else tick_us) / 1e6


class _Slots:
    """Time in which all ordinary connection slots were in use, and connections refused for lack of one."""

    def __init__(self) -> None:
        self._refused = 0
        self._refusals: tuple[str, int] | None = None
        """The agent's count at the last reading."""
        self._server: object = None
        self._usable: int | None = None
        self._full_s = self._known_s = 0.0
        self._most: tuple[float, int, int | None] | None = None

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        self._count_refusals(picture)
        server, used = picture.current.get("pg.server"), point.get("connections.used")
        if server is not self._server:
            self._server, self._usable = server, usable_of(PictureFacts(picture, _EMPTY))
        if used is None:
            return
        if self._most is None or used > self._most[0]:
            self._most = used, picture.wall_us, self._usable
        if self._usable:
            self._known_s += held_s
            self._full_s += held_s if used >= self._usable else 0.0

    def _count_refusals(self, picture: Picture) -> None:
        own = picture.now("self", AgentHealth)
        if own is None or own.slot_refusals is None:
            return
        before, self._refusals = self._refusals, (picture.boot, own.slot_refusals)
        if before is not None and before[0] == picture.boot:
            self._refused += max(0, own.slot_refusals - before[1])

    def numbers(self) -> Iterator[Measured]:
        yield from self._use()
        if self._refused:
            source = "attempts of the console itself (SQLSTATE 53300); those of clients are only in the server's log"
            yield Measured("Refused connections", f"at least {self._refused}", source)
        elif self._full_s:
            why = "no statistics view counts them; the server's log does (SQLSTATE 53300)"
            yield Measured("Refused connections", None, why)

    def _use(self) -> Iterator[Measured]:
        if self._most is None:
            yield Measured("Connections", None, "pg_stat_activity could not be read during the incident")
            return
        most, at_us, usable = self._most
        of = "" if usable is None else f" of {usable} usable by ordinary roles"
        yield Measured("Most connections", f"{most:.0f}{of}", "pg_stat_activity, pg_settings", at_us)
        if not self._known_s:
            yield Measured("At the connection limit", None, "max_connections or its reserves could not be read")
            return
        full = f"{human_duration(self._full_s)} of {human_duration(self._known_s)}"
        source = "readings in which used ≥ max_connections minus the reserved slots"
        yield Measured("All ordinary connection slots in use", full, source)


class _Outages:
    """Time without a connection of the console itself, with its reasons."""

    _TEXTS = {"no_slots": "no slot left", "silent": "no answer", "lost": "connection lost"}

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        own = picture.now("self", AgentHealth)
        if own is not None and own.outage is not None:
            kind = f"{own.outage} {own.refused_by or ''}".strip()
            self._seconds[kind] = self._seconds.get(kind, 0.0) + held_s

    def numbers(self) -> Iterator[Measured]:
        if not self._seconds:
            return
        reasons = []
        for kind, seconds in self._seconds.items():
            name, _, by = kind.partition(" ")
            whose = f" by the {text_of(by)}'s limit" if by else ""
            reasons.append(f"{self._TEXTS.get(name, text_of(name))}{whose} {human_duration(seconds)}")
        total = human_duration(sum(self._seconds.values()))
        yield Measured(OUTAGE, f"{total} ({', '.join(reasons)})", "readings of the console's own state")


class _DatabaseCounters:
    """Transactions during the incident, against the typical rate before it; sessions that did not end normally."""

    def __init__(self, from_us: int) -> None:
        self._from_us = from_us
        self._last: tuple[PartReading, dict[int, DatabaseStat]] | None = None
        self._rates: list[float] = []
        self._before_s = self._seconds = 0.0
        self._count = 0
        self._ended: Counter[str] = Counter()

    def add(self, picture: Picture) -> None:
        reading = picture.current.get("pg.databases")
        if reading is None or (self._last is not None and reading is self._last[0]):
            return
        stats = reading.value()
        if not isinstance(stats, DatabaseStats):
            return
        last, self._last = self._last, (reading, {row.oid: row for row in stats.rows})
        if last is None or last[0].boot != reading.boot:
            return  # the first reading of an agent
        before, old = last
        counts = [_transactions(row) - _transactions(old.get(row.oid)) for row in stats.rows]
        if min(counts, default=0) < 0:
            return  # the statistics of a database were reset
        seconds, count = (reading.part.at_us - before.part.at_us) / 1e6, sum(counts)
        if before.wall_us >= self._from_us:
            self._add_ended(stats.rows, old)
        if not 0 < seconds <= 30:
            return
        if reading.wall_us < self._from_us:
            self._rates.append(count / seconds)
            self._before_s += seconds
        elif before.wall_us >= self._from_us:
            self._seconds += seconds
            self._count += count

    def _add_ended(self, rows: list[DatabaseStat], old: dict[int, DatabaseStat]) -> None:
        for row in rows:
            before = old.get(row.oid)
            for name in _ENDED_SESSIONS:
                now, then = getattr(row, name), 0 if before is None else getattr(before, name)
                if now is not None and then is not None:
                    self._ended[name] += max(0, now - then)

    def numbers(self) -> Iterator[Measured]:
        yield from self._rate()
        name = "Sessions that did not end normally"
        if self._ended:
            counts = [f"{self._ended[one]} {how}" for one, how in _ENDED_SESSIONS.items() if self._ended[one]]
            yield Measured(name, ", ".join(counts) or "none", _ENDED_SOURCE)
        elif self._seconds:
            yield Measured(name, None, "pg_stat_database counts them from PostgreSQL 14 on; they were not recorded")

    def _rate(self) -> Iterator[Measured]:
        name, view = "Transactions", "pg_stat_database, xact_commit + xact_rollback"
        if not self._seconds:
            yield Measured(name, None, "pg_stat_database was not read twice during the incident")
            return
        counted = f"{self._count} in {human_duration(self._seconds)} ({self._count / self._seconds:.1f}/s)"
        yield Measured(name, counted, view)
        name = "Transactions below the typical rate"
        if self._before_s < BASELINE_MIN_S:
            before = f"only {human_duration(self._before_s)} were" if self._before_s else "nothing was"
            yield Measured(name, None, f"{before} recorded before the incident: too little for a typical rate")
            return
        usual = median(self._rates)
        lacking = usual * self._seconds - self._count
        source = f"{view}; typical: {usual:.1f}/s, median of the {human_duration(self._before_s)} before"
        if lacking <= 0:
            yield Measured(name, "none: the rate was not below it", source)
        else:
            share = 100.0 * lacking / (usual * self._seconds)
            yield Measured(name, f"{lacking:.0f} ({share:.0f} % of those expected)", source)


_ENDED_SESSIONS = {
    "sessions_abandoned": "lost their client",
    "sessions_fatal": "ended by a fatal error",
    "sessions_killed": "terminated by an administrator",
}
_ENDED_SOURCE = "pg_stat_database; of refused connections only those by the limit of a database are in it"
"""PostgreSQL: pgstat_shutdown_hook counts a backend that knows its database, CheckMyDatabase refuses after that."""


def _transactions(row: DatabaseStat | None) -> int:
    return 0 if row is None else row.xact_commit + row.xact_rollback


class _LockWaits:
    def __init__(self) -> None:
        self._most: tuple[float, int] | None = None
        self._session_s = 0.0
        self._longest: tuple[float, int, str] | None = None
        self._unknown = self._clock_was_set = False
        self._server: PartReading | None = None
        self._set_at_us: int | None = None
        """What the server's clock was when it was set forward: a wait that began earlier cannot be measured."""

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        self._follow_clock(picture)
        waiting = point.get("locks.waiting")
        if not waiting:
            return
        self._session_s += waiting * held_s
        if self._most is None or waiting > self._most[0]:
            self._most = waiting, picture.wall_us
        locks, reading = picture.now("pg.locks", postgres.Locks), picture.current.get("pg.locks")
        if locks is None or reading is None:
            return
        now_us = self._server_time_us(reading)
        for waiter in locks.waiters:
            if waiter.wait_start is None or now_us is None:
                self._unknown = True
                continue
            if self._set_at_us is not None and waiter.wait_start <= self._set_at_us:
                self._clock_was_set = True
                continue
            seconds = (now_us - waiter.wait_start) / 1e6
            if self._longest is None or seconds > self._longest[0]:
                on = text_of(waiter.relation or waiter.locktype)
                self._longest = seconds, picture.wall_us, f"pid {waiter.pid} for {text_of(waiter.mode)} on {on}"

    def _follow_clock(self, picture: Picture) -> None:
        reading = picture.current.get("pg.server")
        if reading is None or reading is self._server or not isinstance(server := reading.value(), postgres.Server):
            return
        expected_us = self._server_time_us(reading)
        if expected_us is not None and server.now_us - expected_us > _CLOCK_SET_US:
            self._set_at_us = expected_us
        self._server = reading

    def _server_time_us(self, reading: PartReading) -> int | None:
        """Return the server's clock at a reading, by its last reading and the agent's monotonic clock."""
        server = None if self._server is None or self._server.boot != reading.boot else self._server
        value = None if server is None else server.value()
        if server is None or not isinstance(value, postgres.Server):
            return None
        return value.now_us + reading.part.at_us - server.part.at_us

    def numbers(self) -> Iterator[Measured]:
        if self._most is None:
            return
        most, at_us = self._most
        yield Measured(
            "Most sessions waiting for locks", f"{most:.0f}", "pg_stat_activity, wait_event_type Lock", at_us
        )
        total = human_duration(self._session_s)
        yield Measured("Time spent waiting for locks, all sessions", total, "sessions waiting × time, from readings")
        if self._longest is not None:
            seconds, at_us, who = self._longest
            text = f"{human_duration(max(0.0, seconds))} ({who})"
            yield Measured("Longest lock wait", text, "pg_locks.waitstart", at_us)
        elif self._clock_was_set:
            yield Measured("Longest lock wait", None, "the server's clock was set forward during the waits")
        elif self._unknown:
            yield Measured("Longest lock wait", None, "pg_locks.waitstart needs PostgreSQL 14")


class _IoStalls:
    """Time in which tasks were stalled on I/O and memory, and in which a device with requests completed none."""

    def __init__(self) -> None:
        self._reading: object = None
        self._stalled_us: dict[str, int] = {}
        self._known_us = 0
        self._devices: dict[str, float] = {}

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        both, reading = pair(picture, "host.pressure", host.Pressure), picture.current.get("host.pressure")
        if both is not None and reading is not self._reading:
            self._reading = reading
            self._known_us += int(both.seconds * 1e6)
            for name, new, old in (
                ("I/O", both.new.io_full, both.old.io_full),
                ("memory", both.new.memory_full, both.old.memory_full),
            ):
                if new is not None and old is not None and new.total_us >= old.total_us:
                    self._stalled_us[name] = self._stalled_us.get(name, 0) + new.total_us - old.total_us
        self._add_devices(picture, held_s)

    def _add_devices(self, picture: Picture, held_s: float) -> None:
        disks = pair(picture, "host.disks", host.Disks)
        if disks is None:
            return
        before = {row.name: row for row in disks.old.devices}
        stuck = [
            row
            for row in disks.new.devices
            if row.in_flight and (old := before.get(row.name)) and (row.reads, row.writes) == (old.reads, old.writes)
        ]
        if not stuck:
            return
        names = {row.name for row in stuck}
        for device in derive_devices(disks.new, disks, picture.now("host.mounts", host.Mounts)):
            if device.name in names and {"data", "wal"}.intersection(device.holds):
                name = f"{device.name} ({', '.join(device.holds)})"
                self._devices[name] = self._devices.get(name, 0.0) + held_s

    def numbers(self) -> Iterator[Measured]:
        for name, stalled_us in self._stalled_us.items():
            of = f"{human_duration(stalled_us / 1e6)} of {human_duration(self._known_us / 1e6)}"
            if stalled_us:
                yield Measured(f"All tasks stalled on {name}", of, "/proc/pressure, total of the full line")
        for name, seconds in self._devices.items():
            text = f"Requests in flight on {text_of(name)}, none completed"
            yield Measured(text, human_duration(seconds), "/proc/diskstats, readings without a completed read or write")


class _Poolers:
    def __init__(self) -> None:
        self._clients: tuple[int, int, str] | None = None
        self._wait: tuple[float, int, str] | None = None

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        cluster = picture.now("cluster", ClusterNow)
        for pooler in () if cluster is None else cluster.poolers:
            for row in () if pooler.error else pooler.databases:
                name = text_of(f"{pooler.name}, database {row.name}")
                if row.clients_waiting and (self._clients is None or row.clients_waiting > self._clients[0]):
                    self._clients = row.clients_waiting, picture.wall_us, name
                if row.longest_wait_s and (self._wait is None or row.longest_wait_s > self._wait[0]):
                    self._wait = row.longest_wait_s, picture.wall_us, name

    def numbers(self) -> Iterator[Measured]:
        if self._clients is not None:
            count, at_us, name = self._clients
            yield Measured("Most clients waiting in a pooler", f"{count} ({name})", "PgBouncer, SHOW POOLS", at_us)
        if self._wait is not None:
            seconds, at_us, name = self._wait
            text = f"{human_duration(seconds)} ({name})"
            yield Measured("Longest wait in a pooler", text, "PgBouncer, SHOW POOLS", at_us)


class _Replication:
    def __init__(self) -> None:
        self._worst: dict[str, tuple[float, int]] = {}

    def add(self, picture: Picture, point: Point, held_s: float) -> None:
        for name in ("replication.lag_bytes", "replication.lag_s"):
            value = point.get(name)
            if value and (name not in self._worst or value > self._worst[name][0]):
                self._worst[name] = value, picture.wall_us

    def numbers(self) -> Iterator[Measured]:
        for name, (value, at_us) in self._worst.items():
            text = human_bytes(value) if name.endswith("_bytes") else human_duration(value)
            if text == human_duration(0.0):
                continue
            unit = "bytes" if name.endswith("_bytes") else "time"
            source = "pg_stat_replication or the standby's positions"
            yield Measured(f"Largest replication lag, {unit}", text, source, at_us)
