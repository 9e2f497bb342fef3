"""Live pictures of a target: from the agent that watches it, else read by this process.

Reading in this process leaves nothing behind: no recording, no agent, and the connection is closed at the end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from msgspec import structs

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.find_or_start import find_agent, should_replace
from dba_console.agent.protocol import EventMessage, SampleMessage
from dba_console.cli.stderr import print_diagnostic
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.config import Config
from dba_console.core.errors import ConnectError, ConsoleError, PermissionDenied
from dba_console.core.target import Target
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import decode_sample

AGENT_TIMEOUT_S = 15.0
"""An agent ticks each second whatever hangs; one without messages for this long is stopped or gone."""
FIRST_VIEW_TIMEOUT_S = 6.0
"""Maximum wait for a first complete picture: longer than a connection attempt may take."""
MAX_EVENTS = 200
RATE_PARTS = ("pg.activity", "host.cpu", "host.disks", "host.vmstat")
"""Parts that are read each second and shown as rates."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """The picture and events after a tick."""

    picture: Picture
    point: dict[str, float] = field(default_factory=dict)
    """The chart values of the tick."""
    events: tuple[Event, ...] = ()


class LiveSource(Protocol):
    from_agent: bool
    """An agent has been watching; otherwise watching starts with this command."""
    session: str | None
    """Directory of the agent's recording; None if nothing is recorded."""
    source: str
    """Where the data comes from, as text."""

    @property
    def is_complete(self) -> bool:
        """Return whether no part is awaited that the next tick may bring for the first time."""

    def next_view(self) -> LiveView:
        """Wait for the next tick and return its view. Raises ConnectError when there will be none."""


@contextmanager
def open_live(target: Target, config: Config, *, clock: Clock = SYSTEM) -> Iterator[LiveSource]:
    """Open the running agent of the target if there is one, else start a collector in this process."""
    agent = _attach_to_agent(target)
    if agent is not None:
        try:
            yield agent
        finally:
            agent.close()
        return
    own = _OwnSource(target, config, clock)
    try:
        yield own
    finally:
        own.close()


def first_view(live: LiveSource, *, clock: Clock = SYSTEM) -> LiveView:
    """Return the first view with rates, or the current one after FIRST_VIEW_TIMEOUT_S; the rest is then unknown."""
    until = clock.mono_us() + int(FIRST_VIEW_TIMEOUT_S * 1e6)
    view = live.next_view()
    while not (_has_rates(view.picture) and live.is_complete) and clock.mono_us() < until:
        view = live.next_view()
    return view


def _has_rates(picture: Picture) -> bool:
    """Return whether all per-second parts were read twice: an agent may tick four times a second, each part once."""
    if "pg.activity" not in picture.latest or "self" not in picture.previous:
        return False
    known = (name for name in RATE_PARTS if (newest := picture.latest.get(name)) and newest.part.reading is not None)
    return all(name in picture.previous for name in known)


def _attach_to_agent(target: Target) -> _AgentSource | None:
    try:
        path = find_agent(target)
        return None if path is None else _usable(_AgentSource(path), target)
    except PermissionDenied as error:
        # Reading without an agent is still useful.
        print_diagnostic(f"warning: the agent is not used: {error}")
        return None
    except ConsoleError:
        # It may be ending or stopped.
        return None


def _usable(agent: _AgentSource, target: Target) -> _AgentSource | None:
    """Return None for an agent that could never connect if this command may be able to."""
    if not should_replace(agent.agent_description, target.conninfo):
        return agent
    agent.close()
    return None


class _AgentSource:
    from_agent = True
    is_complete = True

    def __init__(self, path: Path) -> None:
        self._client = AgentClient.connect(path, role="show")
        self.agent_description = self._client.agent_description
        self.session = self.agent_description.session
        self.source = f"the running agent (pid {self.agent_description.pid})"
        self._picture = Picture()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def next_view(self) -> LiveView:
        while True:
            try:
                message = self._client.receive(AGENT_TIMEOUT_S)
            except AgentConnectionLost as lost:
                raise ConnectError(f"lost the connection to the agent: {lost}", hint="run the command again") from None
            if message is None:
                raise ConnectError(
                    f"no message from the agent for {AGENT_TIMEOUT_S:.0f} s", hint="is it stopped (SIGSTOP)?"
                )
            if isinstance(message, EventMessage):
                self._events.append(message.event)
            elif isinstance(message, SampleMessage):
                self._picture = self._picture.with_sample(decode_sample(message.data))
                return LiveView(self._picture, message.point, tuple(self._events))

    def close(self) -> None:
        self._client.close()


class _OwnSource:
    from_agent = False

    def __init__(self, target: Target, config: Config, clock: Clock) -> None:
        from dba_console.agent.collector import Collector  # loads the driver, which an agent's reader does not need
        from dba_console.agent.finding_service import FindingService
        from dba_console.agent.job_service import JobService
        from dba_console.agent.target_lock import acknowledgements_path

        self.session: str | None = None
        self.source = "read by this command"
        self._collector = Collector(target, config, clock=clock)
        self._jobs = JobService(target.key, self._collector.server, clock, keep=False)
        self._collector.sources.append(self._jobs)
        self._finding_service = FindingService(config.findings, acknowledgements_path(target.key), clock, keep=False)
        self._finding_service.load_rules()
        self._clock = clock
        self._next_tick_us = clock.mono_us()
        self._picture = Picture()
        self._pause = threading.Event()

    @property
    def is_complete(self) -> bool:
        return not self._jobs.is_waiting_for_observation and (
            self._collector.cluster is None or self._collector.cluster.settled
        )

    def next_view(self) -> LiveView:
        self._pause.wait(max(0.0, (self._next_tick_us - self._clock.mono_us()) / 1e6))
        # Missed ticks are skipped: ticks right after each other would read the same moment.
        self._next_tick_us = max(self._next_tick_us, self._clock.mono_us()) + int(self._collector.interval_s * 1e6)
        sample = self._collector.tick()
        self._picture = self._picture.with_sample(sample)
        part, _ = self._finding_service.tick(self._picture)
        if part is not None:
            self._picture = self._picture.with_sample(structs.replace(sample, parts=[part]))
        return LiveView(self._picture, self._finding_service.point or {})

    def close(self) -> None:
        self._finding_service.close()
        self._collector.close()
