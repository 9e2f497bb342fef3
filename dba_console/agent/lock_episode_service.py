"""The lock episode service: follows the readings of locks, and adds who blocked whom to the sample.

It is a part of the sample, so every console, also one that attaches late, and a replay that jumps show the same.
"""

from __future__ import annotations

from dba_console.agent.server_service import ServerService
from dba_console.agent.source import TickSource
from dba_console.watch.locks.episodes import LockEpisodeTracker
from dba_console.watch.samples.postgres import Locks, Sessions
from dba_console.watch.samples.sample import PARTS, Part, make_part

PART = "locks.episodes"


class LockEpisodeService(TickSource):
    """Comes after the server in the order of the sources. Used by the tick only."""

    def __init__(self, server: ServerService, interval_s: float) -> None:
        super().__init__()
        self._server = server
        self._tracker = LockEpisodeTracker(int(interval_s * 1e6))
        self._read_us = self._sent_us = 0
        self._changed = False

    def finish(self, until_us: int) -> list[Part]:
        """Return the part if it changed: while sessions wait at its interval, else at once."""
        locks, activity = self._server.newest.get("pg.locks"), self._server.newest.get("pg.activity")
        if locks is None or locks.at_us <= self._read_us:
            return []
        reading: Locks = locks.decode()
        sessions: Sessions | None = None if activity is None else activity.decode()
        server_us = None if activity is None or sessions is None else sessions.now_us + locks.at_us - activity.at_us
        self._read_us = locks.at_us
        self._changed |= self._tracker.add(reading, sessions, locks.at_us, server_us)
        due_us = self._sent_us + PARTS[PART].every_s * 1_000_000
        if not self._changed or (self._sent_us and reading.waiters and locks.at_us < due_us):
            return []
        self._changed, self._sent_us = False, locks.at_us
        return [make_part(PART, self._tracker.reading(), at_us=locks.at_us)]
