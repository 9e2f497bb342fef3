"""The picture: the last two readings of every part, gathered from samples in order.

Live, paused and replayed frames are made from pictures alone, so a screen cannot tell where its samples came from.
Readings are decoded when asked for and kept: a panel that is not drawn costs nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

from msgspec import DecodeError

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.samples import postgres
from dba_console.watch.samples.sample import Part, Sample

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
        """It could not be decoded: another version wrote it, or the file is damaged. Known once it was asked for."""
        self._decoded = False
        self._value: Any = None

    def value(self) -> Any:
        """The reading as its struct; None where there is none or it cannot be decoded."""
        if not self._decoded:
            try:
                self._value = self.part.decode()
            except DecodeError:
                self.damaged = True
            self._decoded = True
        return self._value


class Picture:
    """What is known after a sample. `with_sample` returns a new picture; none is ever changed.

    `latest` is the newest part of each name whatever its status; `current` and `previous` are the last two that carry
    a reading, so one timeout does not lose the rate that follows it.
    """

    __slots__ = ("boot", "current", "latest", "mono_us", "previous", "seq", "settled", "step_us", "tick_us", "wall_us")

    def __init__(self) -> None:
        self.seq = 0
        self.wall_us = 0
        self.mono_us = 0
        self.boot = ""
        self.step_us = 0
        """Distance to the sample before. 0 before the second."""
        self.settled = False
        """Whether two distances were seen."""
        self.tick_us = 0
        """What a tick is here: the shortest two distances that follow each other, the longer of them. A sample has the
        time of its tick's end, so after one that took long the next comes soon. 0 before the second sample."""
        self.latest: dict[str, PartReading] = {}
        self.current: dict[str, PartReading] = {}
        self.previous: dict[str, PartReading] = {}

    def with_sample(self, sample: Sample) -> Picture:
        """The picture after `sample`. Parts older than what is known (a key sample's repeats) change nothing.

        A sample of another agent run (its `boot` differs) starts with no previous readings: counters and clocks of two
        runs are not subtracted from each other.
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
        """What a tick is, after one more distance."""
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
        """The newest reading of the part, None where there is none."""
        reading = self.current.get(name)
        value = None if reading is None else reading.value()
        return value if isinstance(value, kind) else None

    def before(self, name: str, kind: type[T]) -> T | None:
        """The reading before it, None on the first tick."""
        reading = self.previous.get(name)
        value = None if reading is None else reading.value()
        return value if isinstance(value, kind) else None

    def without(self, prefix: str) -> Picture:
        """The picture without the parts whose name begins so."""
        picture = Picture()
        picture.seq, picture.wall_us, picture.mono_us = self.seq, self.wall_us, self.mono_us
        picture.boot, picture.tick_us, picture.step_us = self.boot, self.tick_us, self.step_us
        picture.settled = self.settled
        picture.latest = {name: part for name, part in self.latest.items() if not name.startswith(prefix)}
        picture.current = {name: part for name, part in self.current.items() if not name.startswith(prefix)}
        picture.previous = {name: part for name, part in self.previous.items() if not name.startswith(prefix)}
        return picture

    def elapsed_s(self, name: str) -> float | None:
        """Seconds between the last two readings of the part, None where there are not two."""
        new, old = self.current.get(name), self.previous.get(name)
        if new is None or old is None:
            return None
        return (new.part.at_us - old.part.at_us) / 1e6

    def age_s(self, name: str) -> float | None:
        """How old the newest reading is at the time of the sample, in seconds."""
        reading = self.current.get(name)
        return None if reading is None else max(0.0, (self.mono_us - reading.part.at_us) / 1e6)


# What several panels ask of one picture: settings, sessions by pid, who waits behind whom, the server's clock.
#
# Made anew for each frame, computed when first asked for, so that no panel pays for another's question.

_UNIT_BYTES = {"B": 1, "kB": 1 << 10, "8kB": 8 << 10, "16kB": 16 << 10, "32kB": 32 << 10, "MB": 1 << 20}


class PictureFacts:
    """A picture, the minutes before it, and what follows from both for more than one panel."""

    def __init__(self, picture: Picture, history: ChartHistory) -> None:
        self.history = history
        # Another host's database never stands beside this host's numbers, whatever was read.
        server = picture.now("pg.server", postgres.Server)
        elsewhere = server is not None and server.local is False
        self.picture = picture.without("host.") if elsewhere else picture
        self.server = server
        """Who the server is, as last read; stays known when the connection is lost."""

    @cached_property
    def settings(self) -> dict[str, postgres.Setting]:
        return {} if self.server is None else {setting.name: setting for setting in self.server.settings}

    def setting(self, name: str) -> str | None:
        """The value of a setting as text, None where it is not known."""
        known = self.settings.get(name)
        return None if known is None else known.value

    def number(self, name: str) -> int | None:
        """The value of an integer setting in its own unit, None where it is not known or no integer."""
        try:
            return int(self.setting(name) or "")
        except ValueError:
            return None

    def size(self, name: str) -> int | None:
        """The value of a memory setting in bytes."""
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
    def waiters(self) -> list[postgres.LockWaiter] | None:
        """Who waits for a lock; nobody where a newer look at the sessions shows no wait; None where it is not known."""
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
        """Waiter -> those it waits for."""
        return {waiter.pid: waiter.blocked_by for waiter in self.waiters or ()}

    @cached_property
    def _waiting_for(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for pid, blockers in self.blocked_by.items():
            for blocker in blockers:
                found.setdefault(blocker, []).append(pid)
        return found

    def count_blocked(self, pids: set[int]) -> int:
        """Sessions that wait behind these, at first hand or through others; themselves not counted."""
        if not self.blocked_by:
            return 0
        seen: set[int] = set()
        open_pids = list(pids)
        while open_pids:
            for waiter in self._waiting_for.get(open_pids.pop(), ()):
                if waiter not in seen and waiter not in pids:
                    seen.add(waiter)
                    open_pids.append(waiter)
        return len(seen)

    @cached_property
    def server_now_us(self) -> int | None:
        """The server's clock at the time of the sample: its newest reading and the monotonic time since."""
        newest: tuple[int, int] | None = None
        for name in ("pg.activity", "pg.replication", "pg.archiver", "pg.xids", "pg.server"):
            reading = self.picture.current.get(name)
            if reading is not None and (newest is None or reading.part.at_us > newest[0]):
                now_us = getattr(reading.value(), "now_us", 0)
                if now_us:
                    newest = (reading.part.at_us, now_us)
        return None if newest is None else newest[1] + self.picture.mono_us - newest[0]

    def server_time_us(self, name: str) -> int | None:
        """The server's clock at the moment the part was read."""
        reading = self.picture.current.get(name)
        if reading is None or self.server_now_us is None:
            return None
        return self.server_now_us - (self.picture.mono_us - reading.part.at_us)

    @cached_property
    def in_recovery(self) -> bool | None:
        """Whether the server is a standby, by the newest part that says so: it may be promoted at any time."""
        replication = self.picture.current.get("pg.replication")
        server = self.picture.current.get("pg.server")
        if replication is None or (server is not None and server.part.at_us > replication.part.at_us):
            return None if self.server is None else self.server.in_recovery
        value = replication.value()
        return value.in_recovery if isinstance(value, postgres.Replication) else None
