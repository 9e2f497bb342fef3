"""The picture: the last two readings of every part, accumulated from samples in order.

Live, paused and replayed frames are derived from pictures only, so a screen works the same for all of them. Readings
are decoded on demand and cached: a panel that is not drawn costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

from msgspec import DecodeError

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.samples import postgres
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Part, Sample
from dba_console.watch.session_states import CLIENT, count_waiting, is_client

T = TypeVar("T")


class PartReading:
    """One reading of a part with its times; decoded once, on demand."""

    __slots__ = ("_decoded", "_value", "boot", "damaged", "part", "wall_us")

    def __init__(self, part: Part, boot: str, wall_us: int) -> None:
        self.part = part
        self.boot = boot
        self.wall_us = wall_us
        """Wall time at which it was read, from the sample's two clocks."""
        self.damaged = False
        """It could not be decoded: another version wrote it, or the file is damaged. Known after the first access."""
        self._decoded = False
        self._value: Any = None

    def value(self) -> Any:
        """Return the reading as its struct; None if missing or not decodable."""
        if not self._decoded:
            try:
                self._value = self.part.decode()
            except DecodeError:
                self.damaged = True
            self._decoded = True
        return self._value


class Picture:
    """What is known after a sample. Immutable: `with_sample` returns a new picture.

    `latest` is the newest part of each name whatever its status; `current` and `previous` are the last two with a
    reading, so one timeout does not lose the rate that follows it.
    """

    __slots__ = ("boot", "current", "latest", "mono_us", "previous", "seq", "settled", "step_us", "tick_us", "wall_us")

    def __init__(self) -> None:
        self.seq = 0
        self.wall_us = 0
        self.mono_us = 0
        self.boot = ""
        self.step_us = 0
        """Distance to the previous sample. 0 before the second."""
        self.settled = False
        """Whether two distances are known."""
        self.tick_us = 0
        """The tick length: of two consecutive distances the longer, at its minimum so far. A sample has the time of its
        tick's end, so after a long tick the next one follows soon. 0 before the second sample."""
        self.latest: dict[str, PartReading] = {}
        self.current: dict[str, PartReading] = {}
        self.previous: dict[str, PartReading] = {}

    def with_sample(self, sample: Sample) -> Picture:
        """Return the picture after `sample`. Parts older than the known ones (a key sample's repeats) change nothing.

        A sample of another agent run (its `boot` differs) starts without previous readings: counters and clocks of two
        runs cannot be subtracted.
        """
        picture = Picture()
        picture.seq, picture.wall_us, picture.mono_us = sample.seq, sample.wall_us, sample.mono_us
        picture.boot = sample.boot
        if sample.boot == self.boot:
            picture.step_us = max(0, sample.mono_us - self.mono_us)
            picture.tick_us = self._tick_length(picture.step_us)
            picture.settled = self.settled or bool(picture.step_us and self.step_us)
            picture.latest = dict(self.latest)
            picture.current = dict(self.current)
            picture.previous = dict(self.previous)
        for part in sample.parts:
            picture._add_part(part, sample)
        return picture

    def _tick_length(self, step_us: int) -> int:
        """Return the tick length after one more distance."""
        if not step_us or not self.step_us:
            return self.tick_us or step_us
        longer_us = max(step_us, self.step_us)
        return min(longer_us, self.tick_us) if self.settled else longer_us

    def _add_part(self, part: Part, sample: Sample) -> None:
        known = self.latest.get(part.name)
        if known is not None and known.part.at_us >= part.at_us:
            return
        reading = PartReading(part, sample.boot, sample.wall_us - (sample.mono_us - part.at_us))
        self.latest[part.name] = reading
        if part.reading is not None:
            if part.name in self.current:
                self.previous[part.name] = self.current[part.name]
            self.current[part.name] = reading

    def now(self, name: str, kind: type[T]) -> T | None:
        """Return the newest reading of the part, None if there is none."""
        reading = self.current.get(name)
        value = None if reading is None else reading.value()
        return value if isinstance(value, kind) else None

    def before(self, name: str, kind: type[T]) -> T | None:
        """Return the reading before it, None on the first tick."""
        reading = self.previous.get(name)
        value = None if reading is None else reading.value()
        return value if isinstance(value, kind) else None

    def without(self, prefix: str) -> Picture:
        """Return the picture without the parts whose name has that prefix."""
        picture = copy(self)
        picture.latest, picture.current, picture.previous = (
            {name: part for name, part in parts.items() if not name.startswith(prefix)}
            for parts in (self.latest, self.current, self.previous)
        )
        return picture

    def elapsed_s(self, name: str) -> float | None:
        """Return the seconds between the last two readings of the part, None without two."""
        new, old = self.current.get(name), self.previous.get(name)
        if new is None or old is None:
            return None
        return (new.part.at_us - old.part.at_us) / 1e6

    def age_s(self, name: str) -> float | None:
        """Return the age of the newest reading at the time of the sample, in seconds."""
        reading = self.current.get(name)
        return None if reading is None else max(0.0, (self.mono_us - reading.part.at_us) / 1e6)


# Facts that several panels derive from one picture: settings, sessions by pid, lock waits, the server's clock. Created
# for each frame and computed on first use.

_UNIT_BYTES = {"B": 1, "kB": 1 << 10, "8kB": 8 << 10, "16kB": 16 << 10, "32kB": 32 << 10, "MB": 1 << 20}


class PictureFacts:
    """A picture, the chart history before it, and facts used by more than one panel."""

    def __init__(self, picture: Picture, history: ChartHistory, events: Sequence[Event] = ()) -> None:
        self.history = history
        self.events = events
        """Of the session, oldest first."""
        # A database of another host is never shown with this host's numbers, whatever was read.
        server = picture.now("pg.server", postgres.Server)
        elsewhere = server is not None and server.local is False
        self.picture = picture.without("host.") if elsewhere else picture
        self.server = server
        """The server's identity as last read; kept when the connection is lost."""

    def was_read_now(self, name: str) -> bool:
        """Check whether the part was read for this sample and not for an earlier one."""
        reading = self.picture.current.get(name)
        if reading is None:
            return False
        picture = self.picture
        return picture.mono_us - reading.part.at_us < (picture.step_us or picture.tick_us or 1_000_000)

    @cached_property
    def settings(self) -> dict[str, postgres.Setting]:
        return {} if self.server is None else {setting.name: setting for setting in self.server.settings}

    def setting(self, name: str) -> str | None:
        """Return the value of a setting as text, None if unknown."""
        known = self.settings.get(name)
        return None if known is None else known.value

    def number(self, name: str) -> int | None:
        """Return the value of an integer setting in its own unit, None if unknown or not an integer."""
        try:
            return int(self.setting(name) or "")
        except ValueError:
            return None

    def size(self, name: str) -> int | None:
        """Return the value of a memory setting in bytes."""
        number = self.number(name)
        if number is None:
            return None
        factor = _UNIT_BYTES.get(self.settings[name].unit or "B")
        return None if factor is None else number * factor

    @cached_property
    def major(self) -> int | None:
        return None if self.server is None else self.server.version_num // 10000

    @cached_property
    def sessions(self) -> postgres.Sessions | None:
        return self.picture.now("pg.activity", postgres.Sessions)

    @cached_property
    def by_pid(self) -> dict[int, postgres.Activity]:
        return {} if self.sessions is None else {row.pid: row for row in self.sessions.rows}

    @cached_property
    def clients(self) -> list[postgres.Activity]:
        """Sessions that take one of max_connections; empty if unknown."""
        rows = () if self.sessions is None else self.sessions.rows
        return [row for row in rows if row.backend_type == CLIENT or is_client(row)]

    @cached_property
    def waiting_clients(self) -> int | None:
        """How many of them wait for a lock; None if unknown, because the state of one is hidden."""
        if self.sessions is None or None in [row.state for row in self.clients]:
            return None
        return count_waiting(self.clients)

    @cached_property
    def is_blind(self) -> bool:
        """Whether process titles are newer than any session data of the server."""
        titles, activity = self.picture.current.get("host.titles"), self.picture.current.get("pg.activity")
        return titles is not None and (activity is None or titles.part.at_us > activity.part.at_us)

    @cached_property
    def waiters(self) -> list[postgres.LockWaiter] | None:
        """Lock waiters; empty if newer session data shows no wait; None if unknown."""
        locks = self.picture.now("pg.locks", postgres.Locks)
        read = self.picture.current.get("pg.locks")
        seen = self.picture.current.get("pg.activity")
        if self.sessions is None or seen is None or (read is not None and read.part.at_us >= seen.part.at_us):
            return None if locks is None else locks.waiters
        if not self.sessions.hidden and not any(row.wait_event_type == "Lock" for row in self.sessions.rows):
            return []
        return None if locks is None else locks.waiters

    @cached_property
    def blocked_by(self) -> dict[int, list[int]]:
        """Waiter -> its blockers."""
        return {waiter.pid: waiter.blocked_by for waiter in self.waiters or ()}

    @cached_property
    def _blockers(self) -> set[int]:
        return set().union(*self.blocked_by.values())

    def count_blocked(self, pids: set[int]) -> int:
        """Return the number of sessions blocked by these, directly or indirectly; these not counted.

        In a queue each waiter is blocked by all before it, the holder of the lock first: of a thousand lists of a
        thousand only the beginnings are read.
        """
        if self._blockers.isdisjoint(pids):
            return 0
        reached = set(pids)
        unreached = [(pid, blockers) for pid, blockers in self.blocked_by.items() if pid not in pids]
        while True:
            left = []
            for pid, blockers in unreached:
                if reached.isdisjoint(blockers):
                    left.append((pid, blockers))
                else:
                    reached.add(pid)
            if len(left) == len(unreached):
                return len(reached) - len(pids)
            unreached = left

    @cached_property
    def server_now_us(self) -> int | None:
        """The server's clock at the time of the sample: its newest reading plus the monotonic time since."""
        newest: tuple[int, int] | None = None
        for name in ("pg.activity", "pg.replication", "pg.archiver", "pg.xids", "pg.server"):
            reading = self.picture.current.get(name)
            if reading is not None and (newest is None or reading.part.at_us > newest[0]):
                now_us = getattr(reading.value(), "now_us", 0)
                if now_us:
                    newest = (reading.part.at_us, now_us)
        return None if newest is None else newest[1] + self.picture.mono_us - newest[0]

    def server_time_us(self, name: str) -> int | None:
        """Return the server's clock at the time the part was read."""
        reading = self.picture.current.get(name)
        if reading is None or self.server_now_us is None:
            return None
        return self.server_now_us - (self.picture.mono_us - reading.part.at_us)

    @cached_property
    def in_recovery(self) -> bool | None:
        """Whether the server is a standby, by the newest part that contains it: it may be promoted at any time."""
        replication = self.picture.current.get("pg.replication")
        server = self.picture.current.get("pg.server")
        if replication is None or (server is not None and server.part.at_us > replication.part.at_us):
            return None if self.server is None else self.server.in_recovery
        return getattr(replication.value(), "in_recovery", None)
