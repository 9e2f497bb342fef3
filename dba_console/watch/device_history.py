"""Devices of the server, reading by reading: whether they complete requests, how fast, and who waits for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from dba_console.core.sanitize import clean
from dba_console.watch.block_devices import derive_devices
from dba_console.watch.findings.phrases import belongs_to_server, holds_server
from dba_console.watch.findings.rule import RuleContext
from dba_console.watch.frames.rates import delta
from dba_console.watch.samples import host, postgres
from dba_console.watch.session_states import ACTIVE, is_client

# The typical value of a number on this host: the median of its minutes, without the last one, so that a problem that
# has just started does not distort it.

MINUTES = 10
_MINUTE_US = 60_000_000


@dataclass(slots=True)
class TypicalValue:
    """One number over time: medians of whole minutes, and values of the current minute."""

    minutes: deque[float] = field(default_factory=lambda: deque(maxlen=MINUTES + 1))
    _values: list[float] = field(default_factory=list)
    _begun_us: int = 0

    def add(self, value: float, mono_us: int) -> None:
        if not self._begun_us:
            self._begun_us = mono_us
        elif mono_us - self._begun_us >= _MINUTE_US:
            if self._values:
                self.minutes.append(median(self._values))
            self._values, self._begun_us = [], mono_us
        self._values.append(value)

    def value(self, least_minutes: int) -> float | None:
        """Return the median of the minutes except the last; None before there are `least_minutes`."""
        known = list(self.minutes)[:-1]
        return median(known) if len(known) >= least_minutes else None


_WINDOW = 10
"""Number of readings for the current values."""


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """What of the server is stored on a device."""

    holds: tuple[str, ...]
    direct: bool
    """A file system of the server is on the device itself, not only on a device stacked on it."""


_FIRST = ("data", "wal", "temp")


def _rank(held: str) -> tuple[int, str]:
    return (_FIRST.index(held) if held in _FIRST else len(_FIRST)), held


def find_server_devices(disks: host.Disks, mounts: host.Mounts) -> dict[str, DevicePlacement]:
    """Return device -> what of the server is on it, including underlying devices."""
    direct = {mount.device for mount in mounts.mounts if holds_server(mount)}
    return {
        row.name: DevicePlacement(tuple(sorted(set(row.holds), key=_rank)), row.name in direct)
        for row in derive_devices(disks, None, mounts)
        if any(belongs_to_server(held) for held in row.holds)
    }


@dataclass(slots=True)
class DeviceInterval:
    """What a device did between two readings. Milliseconds are summed over requests."""

    seconds: float
    reads: float
    read_ms: float
    writes: float
    write_ms: float
    queue: float
    util_pct: float


@dataclass(slots=True)
class DeviceHistory:
    """One device over time."""

    name: str
    placement: DevicePlacement
    disk: host.Disk | None = None
    answered_us: int = 0
    """Monotonic time of the last reading with a completed request, or with none pending."""
    wrote_us: int = 0
    """The same for a completed write."""
    intervals: deque[DeviceInterval] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    read_ms: TypicalValue = field(default_factory=TypicalValue)
    write_ms: TypicalValue = field(default_factory=TypicalValue)
    queue: TypicalValue = field(default_factory=TypicalValue)
    busy_since_us: int | None = None
    """Monotonic time since when it has been saturated in every reading."""

    def update(self, disk: host.Disk, seconds: float | None, mono_us: int) -> None:
        """Add a reading; `seconds` since the previous one, None if they cannot be compared."""
        before, self.disk = self.disk, disk
        step = None if before is None or seconds is None else _interval(disk, before, seconds)
        if step is None or before is None:
            self.answered_us = self.wrote_us = mono_us
            self.busy_since_us = None
            return
        self.intervals.append(step)
        if _completed(disk) != _completed(before) or not (disk.in_flight and before.in_flight):
            self.answered_us = mono_us
        if step.writes:
            self.wrote_us = mono_us
        if step.reads:
            self.read_ms.add(step.read_ms / step.reads, mono_us)
        if step.writes:
            self.write_ms.add(step.write_ms / step.writes, mono_us)
        self.queue.add(step.queue, mono_us)

    def per_s(self, kind: str) -> float:
        """Return requests of the kind (reads, writes) per second over the last readings."""
        count: float = sum(getattr(step, kind) for step in self.intervals)
        return count / (sum(step.seconds for step in self.intervals) or 1.0)

    def last_await_ms(self, kind: str) -> float:
        """Return the same for the last reading alone; 0 without requests."""
        if not self.intervals:
            return 0.0
        count: float = getattr(self.intervals[-1], f"{kind}s")
        took: float = getattr(self.intervals[-1], f"{kind}_ms")
        return took / count if count else 0.0

    def await_ms(self, kind: str) -> float | None:
        """Return the mean milliseconds per request of the kind over the last readings; None without requests."""
        count = sum(getattr(step, f"{kind}s") for step in self.intervals)
        took: float = sum(getattr(step, f"{kind}_ms") for step in self.intervals)
        return took / count if count else None


def _completed(disk: host.Disk) -> tuple[int, ...]:
    return disk.reads, disk.writes, disk.discards or 0, disk.flushes or 0


def _interval(new: host.Disk, old: host.Disk, seconds: float) -> DeviceInterval | None:
    reads, writes = delta(new.reads, old.reads), delta(new.writes, old.writes)
    read_ms, write_ms = delta(new.read_ms, old.read_ms, wraps=True), delta(new.write_ms, old.write_ms, wraps=True)
    busy, weighted = delta(new.io_ms, old.io_ms, wraps=True), delta(new.weighted_ms, old.weighted_ms, wraps=True)
    if None in (reads, writes, read_ms, write_ms, busy, weighted) or (new.major, new.minor) != (old.major, old.minor):
        return None  # it was removed and added again: its counters restarted
    assert reads is not None and writes is not None and read_ms is not None and write_ms is not None
    assert busy is not None and weighted is not None
    return DeviceInterval(
        seconds, reads, read_ms, writes, write_ms, weighted / seconds / 1000, min(100.0, busy / seconds / 10)
    )


class ServerDevices:
    """Every device of the server."""

    def __init__(self) -> None:
        self.histories: dict[str, DeviceHistory] = {}
        self.placement_known = False
        self._key: object = None

    @property
    def with_file_system(self) -> list[DeviceHistory]:
        """The devices with a file system of the server, if they have been read."""
        return [one for one in self.histories.values() if one.placement.direct and one.disk is not None]

    def assign(self, disks: host.Disks, mounts: host.Mounts | None) -> None:
        """Determine the server's devices again if mounts or devices changed."""
        if mounts is None:
            return
        key = (
            [(mount.path, mount.device, mount.holds) for mount in mounts.mounts if mount.holds],
            [(disk.name, disk.underlying) for disk in disks.devices],
        )
        if key == self._key:
            return
        self._key, places = key, find_server_devices(disks, mounts)
        self.placement_known = bool(places)
        known = self.histories
        self.histories = {
            name: known[name] if name in known and known[name].placement == place else DeviceHistory(name, place)
            for name, place in places.items()
        }

    def update(self, disks: host.Disks, seconds: float | None, mono_us: int) -> None:
        for disk in disks.devices:
            watched = self.histories.get(disk.name)
            if watched is not None:
                watched.update(disk, seconds, mono_us)

    def find_unresponsive(self, for_s: float, mono_us: int) -> list[DeviceHistory]:
        """Return devices with requests in flight that completed none for `for_s` seconds, the longest first."""
        latest = mono_us - int(for_s * 1e6)
        silent = [
            one for one in self.histories.values()
            if one.disk is not None and one.disk.in_flight and one.answered_us <= latest
        ]  # fmt: skip
        return sorted(silent, key=lambda one: (one.answered_us, one.name))

    def busiest(self) -> DeviceHistory | None:
        """Return the device with the highest utilisation over the last readings; None if all were idle."""
        busy = [
            one for one in self.histories.values() if one.intervals and any(step.util_pct for step in one.intervals)
        ]
        return max(busy, key=lambda one: sum(step.util_pct for step in one.intervals), default=None)


def first_holding(watched: Iterable[DeviceHistory], held: Iterable[str]) -> DeviceHistory | None:
    """Return the first device that holds one of these."""
    wanted = set(held)
    return next((one for one in watched if wanted & set(one.placement.holds)), None)


_ALSO_SHOWN = ("archive", "backup")
"""Shown besides what the server needs to run; its log and the console's recording are not."""


def _contents_text(holds: Iterable[str]) -> str:
    shown = [held for held in holds if belongs_to_server(held) or held in _ALSO_SHOWN]
    return ", ".join("WAL" if held == "wal" else clean(held) for held in shown)


def device_text(watched: DeviceHistory) -> str:
    """Return the device with what it holds: `vda (data, WAL)`."""
    return f"{clean(watched.name)} ({_contents_text(watched.placement.holds)})"


# Sessions whose statements wait for I/O, without bulk work that is limited by the disk anyway.
#
# A dump, a bulk load or an index build always waits for I/O, and so do a hundred short commits a second; neither is a
# stall. In a stall, statements of ordinary sessions wait now and have been running for a while.

_IO_LOCKS = frozenset(("walwrite", "walwritelock", "bufferio", "buffer_io"))
"""Waits for another process's I/O: LWLock WALWrite (WALWriteLock to 12), IPC BufferIO (LWLock buffer_io to 13)."""
_TOOLS = ("pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "vacuumdb", "reindexdb", "clusterdb")
_BULK = (
    "copy", "create index", "create unique index", "create table", "reindex", "vacuum", "cluster", "analyze",
    "alter table", "refresh", "create database", "drop", "truncate", "checkpoint",
)  # fmt: skip
_BACKGROUND = frozenset(("checkpointer", "background writer", "walwriter", "archiver", "startup", "walsummarizer"))


def waits_for_io(row: postgres.Activity) -> bool:
    """Whether it is active and waits for a file, or for a process that does."""
    if row.state not in ACTIVE or row.wait_event_type is None:
        return False
    return row.wait_event_type == "IO" or (row.wait_event or "").lower() in _IO_LOCKS


def is_bulk(row: postgres.Activity) -> bool:
    """Whether it is a tool or statement that reads or writes for as long as it runs."""
    if row.application.startswith(_TOOLS):
        return True
    return row.query[:40].lstrip().lower().startswith(_BULK)


def count_waiting_sessions(rows: Iterable[postgres.Activity], now_us: int, for_s: float) -> int:
    """Count client sessions whose statement waits for I/O and was sent `for_s` seconds ago or earlier."""
    latest = now_us - int(for_s * 1e6)
    return sum(
        waits_for_io(row) and row.query_start is not None and row.query_start <= latest
        and is_client(row) and not is_bulk(row)
        for row in rows
    )  # fmt: skip


def background_or_bulk(s: RuleContext, pids: Iterable[int]) -> set[int]:
    """Return those processes that nothing waits for: background processes, bulk work, the console's probe."""
    found = set()
    for pid in pids:
        row = s.facts.by_pid.get(pid)
        if row is not None and (row.backend_type in _BACKGROUND or is_bulk(row)):
            found.add(pid)
    return found


def awaited_storage(s: RuleContext, pids: Iterable[int]) -> Iterator[str]:
    """Yield the kind of storage these processes wait for, by their wait event."""
    for pid in pids:
        row = s.facts.by_pid.get(pid)
        event = "" if row is None or row.wait_event is None else row.wait_event.lower()
        if event.startswith("wal"):
            yield "wal"
        elif event.startswith("buffile"):
            yield "temp"
        elif event.startswith(("datafile", "slru", "relation", "aio")):
            yield "data"
