"""The pending revert service: temporary settings of runs on this server, and whether they are reverted.

The directory is checked in a lane every other second, by its modification time alone. The server is queried only about
reverts of ended runs, over its own connection, closed at once; a setting that is back is removed from the list.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dba_console.agent.server_service import ServerService
from dba_console.agent.source import TickSource
from dba_console.core import paths
from dba_console.core.clock import Clock
from dba_console.core.redact import redact
from dba_console.core.target import Target
from dba_console.watch.probes.deadline_lane import LaneTimeout, PolledCall
from dba_console.watch.samples.console import PendingRevertNow, PendingRevertsNow
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import PARTS, Part, make_part

PART = "reverts"
CHECK_INTERVAL_US = 2_000_000
"""Interval of checks of the directory: an ended run is reported this soon."""
FIRST_US = 1_500_000
"""Maximum wait of the first tick for the records, as for the server."""
UNKNOWN_RETRY_US = 10_000_000
"""Interval of queries to a server that did not report the state."""
FIRST_REPORT_LIMIT_US = 5_000_000
"""Maximum time for which an agent reports no records because it has not queried the server: settings that were never
set are removed by then."""
CHECK_TIMEOUT_US = 60_000_000
"""A longer check is abandoned: its disk or its server does not answer."""

CheckFingerprint = tuple[object, ...]
"""The inputs of a check: the same fingerprint means the same result, for a while."""
NOTHING_PENDING: CheckFingerprint = ("no pending reverts",)


class ServerFacts(NamedTuple):
    """What is known of the server without a query."""

    system_identifier: str | None
    data_directory: str | None
    start_us: int
    connected: bool


class PendingRevertCheck(NamedTuple):
    """The result of one check."""

    fingerprint: CheckFingerprint
    reverts: tuple[PendingRevertNow, ...]
    removed: tuple[str, ...]
    """Reverts removed because the old value is back, as sentences."""
    error: str | None


class PendingRevertService(TickSource):
    """Used by the tick only. `remove_reverted` is set by the agent; a command that checks once changes nothing."""

    def __init__(self, target: Target, server: ServerService, clock: Clock) -> None:
        self._target = target
        self._server = server
        self._clock = clock
        self._directory = paths.state_dir() / PART
        self._call: PolledCall[PendingRevertCheck | None] = PolledCall(PART, clock, CHECK_TIMEOUT_US)
        super().__init__(self._call)
        self._read_us = self._sent_us = self._first_us = 0
        self._reading: PendingRevertCheck | None = None
        self._events: list[Event] = []
        self.remove_reverted = False

    def finish(self, until_us: int) -> list[Part]:
        """Start a check if it is due; return the part if it is due or changed. The first call waits for the records,
        and for the server's states if it is connected, so that a command that reads once reports them too.
        """
        now_us = self._clock.mono_us()
        changed = self._collect_check(now_us)
        last_us = self._call.started_us
        if not self._call.pending and (self._reading is None or now_us - last_us >= CHECK_INTERVAL_US):
            first = last_us == 0
            self._start_check(now_us, asks=not first)
            changed = (first and self._collect_check(now_us, FIRST_US)) or changed
        if self._awaits_server_state(now_us):
            if not self._call.pending and self._server.connected:
                self._start_check(now_us, asks=True)
                changed = self._collect_check(now_us, FIRST_US) or changed
            if self.remove_reverted and self._awaits_server_state(now_us):
                return []
        reading = self._reading
        if reading is None or not (changed or now_us - self._sent_us >= PARTS[PART].every_s * 1_000_000):
            return []
        self._sent_us = now_us
        pending = PendingRevertsNow(self._clock.wall_us(), reading.reverts)
        return [make_part(PART, pending, at_us=now_us, note=reading.error)]

    def _awaits_server_state(self, now_us: int) -> bool:
        """Return whether the server is still to be queried for the first time about a record."""
        self._first_us = self._first_us or now_us
        reading = self._reading
        if reading is None or self._sent_us or now_us - self._first_us >= FIRST_REPORT_LIMIT_US:
            return False
        return any(revert.state == "unknown" and not revert.run_is_active for revert in reading.reverts)

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _start_check(self, now_us: int, *, asks: bool) -> None:
        last = self._reading
        due = last is None or now_us - self._read_us >= _recheck_after_us(last)
        fingerprint, known = None if last is None or due else last.fingerprint, self._server_facts()
        directory, target, remove_reverted = self._directory, self._target, self.remove_reverted
        self._call.start(lambda: _check(directory, target, known, fingerprint, asks, remove_reverted), now_us)

    def _collect_check(self, now_us: int, wait_us: int = 0) -> bool:
        """Return whether there is a new result; a running check is awaited for `wait_us`."""
        if not self._call.ended(now_us + wait_us):
            return False
        try:
            found = self._call.take()
        except LaneTimeout:
            return False
        except Exception as error:  # a disk or internal error: affects this part, not the tick
            found = PendingRevertCheck((), (), (), f"pending reverts cannot be read: {redact(str(error))}")
        if found is None:
            return False
        before, self._reading, self._read_us = self._reading, found, now_us
        self._events += [self._event(text) for text in found.removed]
        return before is None or (before.reverts, before.error) != (found.reverts, found.error)

    def _server_facts(self) -> ServerFacts:
        server, connected = self._server.server, self._server.connected
        if server is None:
            return ServerFacts(None, None, 0, connected)
        return ServerFacts(server.system_identifier, server.data_directory, server.start_us, connected)

    def _event(self, text: str) -> Event:
        clock = self._clock
        return Event(wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="setting.returned", text=text)


def _recheck_after_us(last: PendingRevertCheck) -> int:
    """Return the time in microseconds after which the check is repeated even without a change."""
    unknown = any(revert.state == "unknown" for revert in last.reverts)
    return UNKNOWN_RETRY_US if unknown else PARTS[PART].every_s * 1_000_000


def _check(
    directory: Path,
    target: Target,
    server: ServerFacts,
    known: CheckFingerprint | None,
    query_server: bool,
    remove_reverted: bool,
) -> PendingRevertCheck | None:
    """Return the check, None if `known` is still current. Raises OSError."""
    try:
        with os.scandir(directory) as entries:
            any_pending = any(entry.name.endswith(".json") for entry in entries)
    except FileNotFoundError:
        any_pending = False
    if not any_pending:
        return None if known == NOTHING_PENDING else PendingRevertCheck(NOTHING_PENDING, (), (), None)
    from dba_console.agent.pending_reverts_check import (
        check_pending_reverts,  # loads the actions, which an agent without a run does not need
    )

    return check_pending_reverts(directory, target, server, known, query_server, remove_reverted)
