"""The devices that hold something of the server, reading by reading: whether they answer, and how fast."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dba_console.findings.usual import Usual
from dba_console.frames.devices import derive_devices
from dba_console.frames.rates import delta
from dba_console.harmless import clean
from dba_console.samples import host

_WINDOW = 10
"""Readings the present is measured over."""


@dataclass(frozen=True, slots=True)
class Place:
    """What lies on a device."""

    holds: tuple[str, ...]
    direct: bool
    """A file system of the server lies on it, and not only on a device that stands on it."""


def is_servers(held: str) -> bool:
    """Whether PostgreSQL needs it to go on: not an archive, a log or a recording."""
    return held in ("data", "wal", "temp") or held.startswith("tablespace:")


_FIRST = ("data", "wal", "temp")


def _rank(held: str) -> tuple[int, str]:
    return (_FIRST.index(held) if held in _FIRST else len(_FIRST)), held


def server_places(disks: host.Disks, mounts: host.Mounts) -> dict[str, Place]:
    """Device -> what of the server lies on it, also where it stands under another one."""
    direct = {mount.device for mount in mounts.mounts if any(is_servers(held) for held in mount.holds)}
    return {
        row.name: Place(tuple(sorted(set(row.holds), key=_rank)), row.name in direct)
        for row in derive_devices(disks, None, mounts)
        if any(is_servers(held) for held in row.holds)
    }


@dataclass(slots=True)
class Step:
    """What a device did between two readings. Milliseconds are summed over requests."""

    seconds: float
    reads: float
    read_ms: float
    writes: float
    write_ms: float
    queue: float
    util_pct: float


@dataclass(slots=True)
class Watched:
    """One device over time."""

    name: str
    place: Place
    disk: host.Disk | None = None
    answered_us: int = 0
    """Monotonic time of the last reading in which it had completed something, or had nothing to complete."""
    wrote_us: int = 0
    """The same for a completed write."""
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    read_ms: Usual = field(default_factory=Usual)
    write_ms: Usual = field(default_factory=Usual)
    queue: Usual = field(default_factory=Usual)
    busy_since_us: int | None = None
    """Since when it has been saturated in every reading."""

    def look(self, disk: host.Disk, seconds: float | None, mono_us: int) -> None:
        """Take in one reading; `seconds` since the one before, None where there is none it may be compared with."""
        before, self.disk = self.disk, disk
        step = None if before is None or seconds is None else _step(disk, before, seconds)
        if step is None or before is None:
            self.answered_us = self.wrote_us = mono_us
            self.busy_since_us = None
            return
        self.steps.append(step)
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
        """Requests of the kind (reads, writes) per second over the last readings."""
        count: float = sum(getattr(step, kind) for step in self.steps)
        return count / (sum(step.seconds for step in self.steps) or 1.0)

    def last_await_ms(self, kind: str) -> float:
        """The same of the last reading alone; 0 where there was no request."""
        if not self.steps:
            return 0.0
        count: float = getattr(self.steps[-1], f"{kind}s")
        took: float = getattr(self.steps[-1], f"{kind}_ms")
        return took / count if count else 0.0

    def await_ms(self, kind: str) -> float | None:
        """Milliseconds a request of the kind took on average over the last readings; None where there was none."""
        count = sum(getattr(step, f"{kind}s") for step in self.steps)
        took: float = sum(getattr(step, f"{kind}_ms") for step in self.steps)
        return took / count if count else None


def _completed(disk: host.Disk) -> tuple[int, ...]:
    return disk.reads, disk.writes, disk.discards or 0, disk.flushes or 0


def _step(new: host.Disk, old: host.Disk, seconds: float) -> Step | None:
    reads, writes = delta(new.reads, old.reads), delta(new.writes, old.writes)
    read_ms, write_ms = delta(new.read_ms, old.read_ms, wraps=True), delta(new.write_ms, old.write_ms, wraps=True)
    busy, weighted = delta(new.io_ms, old.io_ms, wraps=True), delta(new.weighted_ms, old.weighted_ms, wraps=True)
    if None in (reads, writes, read_ms, write_ms, busy, weighted) or (new.major, new.minor) != (old.major, old.minor):
        return None  # it went and came back: its counters began anew
    assert reads is not None and writes is not None and read_ms is not None and write_ms is not None
    assert busy is not None and weighted is not None
    return Step(seconds, reads, read_ms, writes, write_ms, weighted / seconds / 1000, min(100.0, busy / seconds / 10))


class Devices:
    """Every device of the server."""

    def __init__(self) -> None:
        self.watched: dict[str, Watched] = {}
        self.places_known = False
        self._key: object = None

    @property
    def direct(self) -> list[Watched]:
        """The devices file systems of the server lie on, as far as they have been read."""
        return [one for one in self.watched.values() if one.place.direct and one.disk is not None]

    def place(self, disks: host.Disks, mounts: host.Mounts | None) -> None:
        """Find out anew which devices are the server's, where mounts changed or devices came and went."""
        if mounts is None:
            return
        key = (
            [(mount.path, mount.device, mount.holds) for mount in mounts.mounts if mount.holds],
            [(disk.name, disk.underlying) for disk in disks.devices],
        )
        if key == self._key:
            return
        self._key, places = key, server_places(disks, mounts)
        self.places_known = bool(places)
        known = self.watched
        self.watched = {
            name: known[name] if name in known and known[name].place == place else Watched(name, place)
            for name, place in places.items()
        }

    def look(self, disks: host.Disks, seconds: float | None, mono_us: int) -> None:
        for disk in disks.devices:
            watched = self.watched.get(disk.name)
            if watched is not None:
                watched.look(disk, seconds, mono_us)

    def unanswered(self, for_s: float, mono_us: int) -> list[Watched]:
        """Devices with requests in flight that have completed none for so long, the longest first."""
        latest = mono_us - int(for_s * 1e6)
        silent = [
            one for one in self.watched.values()
            if one.disk is not None and one.disk.in_flight and one.answered_us <= latest
        ]  # fmt: skip
        return sorted(silent, key=lambda one: (one.answered_us, one.name))

    def busiest(self) -> Watched | None:
        """The device that was busy for most of the last seconds; None where none was."""
        busy = [one for one in self.watched.values() if one.steps and any(step.util_pct for step in one.steps)]
        return max(busy, key=lambda one: sum(step.util_pct for step in one.steps), default=None)


def holding(watched: Iterable[Watched], held: Iterable[str]) -> Watched | None:
    """The first device that holds one of these."""
    wanted = set(held)
    return next((one for one in watched if wanted & set(one.place.holds)), None)


_TOLD = ("archive", "backup")
"""Told beside what the server needs to go on; its log and the console's own recording are not."""


def _names(holds: Iterable[str]) -> str:
    told = [held for held in holds if is_servers(held) or held in _TOLD]
    return ", ".join("WAL" if held == "wal" else clean(held) for held in told)


def described(watched: Watched) -> str:
    """The device with what it holds: `vda (data, WAL)`."""
    return f"{clean(watched.name)} ({_names(watched.place.holds)})"
