"""What several panels ask of one picture: settings, sessions by pid, who waits behind whom, the server's clock.

Made anew for each frame, computed when first asked for, so that no panel pays for another's question.
"""

from __future__ import annotations

from functools import cached_property

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.picture import Picture
from dba_console.samples import postgres

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
