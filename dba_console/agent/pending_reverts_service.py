"""The debts' side of the agent: what runs have set for a time on this server, and whether it is back.

The directory is looked at in a lane, every other second by its time alone. The server is asked only about debts whose
run is over, over a connection of its own that is given back at once; a debt that turns out to be paid is struck out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dba_console.agent.server_service import ServerService
from dba_console.core import paths
from dba_console.core.clock import Clock
from dba_console.core.redact import redact
from dba_console.core.target import Target
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.samples.console import PendingRevertNow, PendingRevertsNow
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import PARTS, Part, make_part

PART = DEBTS = "debts"
CHECK_INTERVAL_US = 2_000_000
"""Between two looks at the directory: a run that has ended is told so soon."""
FIRST_US = 1_500_000
"""The first tick waits so long for what is on record, as it does for the server."""
UNKNOWN_RETRY_US = 10_000_000
"""A server that did not say how things stand is asked again so soon."""
FIRST_REPORT_LIMIT_US = 5_000_000
"""An agent says nothing of what is on record until it has asked the server, for so long at most: what was never set is
struck out by then."""
CHECK_TIMEOUT_US = 60_000_000
"""A look that takes longer is given up: its disk or its server does not answer."""

CheckFingerprint = tuple[object, ...]
"""What a reading depends on: the same signs, the same reading, for a while."""
NOTHING_PENDING: CheckFingerprint = ("nothing is owed by anybody",)


class ServerFacts(NamedTuple):
    """What is known of the server without asking it."""

    system_identifier: str | None
    data_directory: str | None
    start_us: int
    connected: bool


class PendingRevertCheck(NamedTuple):
    """What was found in one look."""

    fingerprint: CheckFingerprint
    debts: tuple[PendingRevertNow, ...]
    removed: tuple[str, ...]
    """Debts that turned out to be paid, in sentences."""
    error: str | None


class PendingRevertService:
    """Used by the tick alone. `remove_reverted` is the agent's: a command that looks once leaves everything as it
    is."""

    def __init__(self, target: Target, server: ServerService, clock: Clock, directory: Path | None = None) -> None:
        self._target, self._server, self._clock = target, server, clock
        self._directory = directory or paths.state_dir() / DEBTS
        self._lane = Lane(PART, clock)
        self._job: PendingCall[PendingRevertCheck | None] | None = None
        self._begun_us = self._read_us = self._sent_us = self._first_us = 0
        self._reading: PendingRevertCheck | None = None
        self._events: list[Event] = []
        self.remove_reverted = False

    @property
    def stuck(self) -> int:
        return self._lane.stuck

    def tick(self) -> list[Part]:
        """Look, where it is time to; the part, where it is due or something changed. The first time what is on record
        is waited for, and what the server says of it where that is connected: also a command that looks only once tells
        of it.
        """
        now_us = self._clock.mono_us()
        changed = self._collect_check(now_us)
        if self._job is None and (self._reading is None or now_us - self._begun_us >= CHECK_INTERVAL_US):
            first = self._begun_us == 0
            self._start_check(now_us, asks=not first)
            changed = (first and self._collect_check(now_us, FIRST_US)) or changed
        if self._awaits_server_state(now_us):
            if self._job is None and self._server.connected:
                self._start_check(now_us, asks=True)
                changed = self._collect_check(now_us, FIRST_US) or changed
            if self.remove_reverted and self._awaits_server_state(now_us):
                return []
        reading = self._reading
        if reading is None or not (changed or now_us - self._sent_us >= PARTS[PART].every_s * 1_000_000):
            return []
        self._sent_us = now_us
        told = PendingRevertsNow(self._clock.wall_us(), reading.debts)
        return [make_part(PART, told, at_us=now_us, note=reading.error)]

    def _awaits_server_state(self, now_us: int) -> bool:
        """Whether the server is still to be asked for the first time about something that is on record."""
        self._first_us = self._first_us or now_us
        reading = self._reading
        if reading is None or self._sent_us or now_us - self._first_us >= FIRST_REPORT_LIMIT_US:
            return False
        return any(debt.state == "unknown" and not debt.run_is_active for debt in reading.debts)

    def events(self) -> list[Event]:
        """What happened since last asked."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self._lane.close()

    def _start_check(self, now_us: int, *, asks: bool) -> None:
        last = self._reading
        due = last is None or now_us - self._read_us >= _recheck_after_us(last)
        signs, known = None if last is None or due else last.fingerprint, self._server_facts()
        directory, target, strikes = self._directory, self._target, self.remove_reverted
        try:
            self._job = self._lane.start(lambda: _check(directory, target, known, signs, asks, strikes))
        except LaneTimeout:
            return
        self._begun_us = now_us

    def _collect_check(self, now_us: int, wait_us: int = 0) -> bool:
        """Whether there is another reading than before; one under way is waited for so long."""
        if self._job is None:
            return False
        if not self._job.ready(now_us + wait_us):
            if now_us - self._begun_us > CHECK_TIMEOUT_US:
                self._lane.abandon()
                self._job = None
            return False
        job, self._job = self._job, None
        try:
            found = job.result(0)
        except Exception as error:  # a disk, or a defect of ours: it costs this part, and not the tick
            found = PendingRevertCheck((), (), (), f"what has to be put back cannot be read: {redact(str(error))}")
        if found is None:
            return False
        before, self._reading, self._read_us = self._reading, found, now_us
        self._events += [self._event(text) for text in found.removed]
        return before is None or (before.debts, before.error) != (found.debts, found.error)

    def _server_facts(self) -> ServerFacts:
        server, connected = self._server.server, self._server.connected
        if server is None:
            return ServerFacts(None, None, 0, connected)
        return ServerFacts(server.system_identifier, server.data_directory, server.start_us, connected)

    def _event(self, text: str) -> Event:
        clock = self._clock
        return Event(wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="setting.returned", text=text)


def _recheck_after_us(last: PendingRevertCheck) -> int:
    """After so long it is read again, though nothing seems to have changed."""
    unknown = any(debt.state == "unknown" for debt in last.debts)
    return UNKNOWN_RETRY_US if unknown else PARTS[PART].every_s * 1_000_000


def _check(
    directory: Path, target: Target, server: ServerFacts, known: CheckFingerprint | None, asks: bool, strikes: bool
) -> PendingRevertCheck | None:
    """The reading; None where it would be the one whose signs are known. Raises OSError."""
    try:
        with os.scandir(directory) as entries:
            owed = any(entry.name.endswith(".json") for entry in entries)
    except FileNotFoundError:
        owed = False
    if not owed:
        return None if known == NOTHING_PENDING else PendingRevertCheck(NOTHING_PENDING, (), (), None)
    from dba_console.agent.pending_reverts_check import (
        check_pending_reverts,  # loads the actions, which an agent without a run does without
    )

    return check_pending_reverts(directory, target, server, known, asks, strikes)
