"""The agent process: lock, recording, socket, ticks, end. Connects the services, which do the work."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import structs

from dba_console import __version__
from dba_console.agent.collector import Collector
from dba_console.agent.console_connection import ConsoleConnection
from dba_console.agent.finding_service import FindingService
from dba_console.agent.job_service import JobService
from dba_console.agent.listener import Listener
from dba_console.agent.protocol import (
    PROTOCOL,
    Acknowledge,
    AgentDescription,
    EndIfRefused,
    EventMessage,
    Mark,
    Message,
    Note,
    Notice,
    Silence,
    pack,
    pack_sample,
)
from dba_console.agent.recording_service import RecordingService
from dba_console.agent.runs.run_context import RunContext
from dba_console.agent.runs.run_service import RunService
from dba_console.agent.target_lock import TargetLock, acknowledgements_path, socket_path
from dba_console.core import paths
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.config import Config
from dba_console.core.errors import ConsoleError, SessionError
from dba_console.core.fast_start import finish_fast_start
from dba_console.core.redact import redact
from dba_console.core.target import Target, without_secrets
from dba_console.core.units import human_duration, parse_duration
from dba_console.recording.sample_block import key_sample
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.postgres import Server
from dba_console.watch.samples.sample import Sample, encode_sample

if TYPE_CHECKING:
    from dba_console.watch.frames.model import Frame

# Server changes between two readings, as event texts. Pure.

_IGNORED_SETTINGS = frozenset({"transaction_read_only", "in_hot_standby", "application_name"})
"""Settings that change with the connection, or are reported elsewhere."""


def server_changes(before: Server, after: Server) -> Iterator[str]:
    """Yield one sentence per relevant change: identity, role, version, restart, settings."""
    if before.system_identifier and after.system_identifier and before.system_identifier != after.system_identifier:
        identifiers = f"{before.system_identifier} became {after.system_identifier}"
        yield f"another cluster answers now: system identifier {identifiers}"
    if before.version_num != after.version_num:
        yield f"server version changed from {before.version} to {after.version}"
    if before.start_us != after.start_us:
        yield "the server was restarted"
    if before.in_recovery != after.in_recovery:
        yield "the standby was promoted: it is a primary now" if before.in_recovery else "the primary became a standby"
    if before.timeline is not None and after.timeline is not None and before.timeline != after.timeline:
        yield f"timeline changed from {before.timeline} to {after.timeline}"
    yield from _setting_changes(before, after)


def _setting_changes(before: Server, after: Server) -> Iterator[str]:
    old = {setting.name: setting.value for setting in before.settings}
    new = {setting.name: setting.value for setting in after.settings}
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name] and name not in _IGNORED_SETTINGS:
            yield redact(f"setting {name} changed from {old[name] or 'empty'} to {new[name] or 'empty'}")


def connection_slot_text(server: Server) -> str:
    """Return the text of the connect event: server, role and the slot that the console uses."""
    how = {
        "regular": "an ordinary connection slot",
        "reserved_role": "a slot of reserved_connections, because all ordinary ones are in use",
        "superuser": "a slot of superuser_reserved_connections, because all ordinary ones are in use",
    }.get(server.seat, server.seat)
    role = "standby" if server.in_recovery else "primary"
    through = f" through {server.through}" if server.through else ""
    return f"connected to PostgreSQL {server.version}, {role}, as {server.current_user}{through}: uses {how}"


# Events that only show between ticks: outages, changes of the server, clock jumps, stuck lanes.

CLOCK_JUMP_US = 2_000_000
"""Jump of the wall clock against the monotonic clock between two ticks that means it was set, not slewed (NTP slews by
at most 500 ppm)."""


class TickEvents:
    """Compares each tick with the one before and yields the events."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._last: Sample | None = None
        self._server: Server | None = None
        self._outage: str | None = "new"
        self._lanes: frozenset[str] = frozenset()

    def events(self, sample: Sample) -> Iterator[Event]:
        """Yield the events of this tick, in reading order."""
        if self._last is not None:
            yield from self._clock_events(self._last, sample)
        self._last = sample
        for kind, severity, text in (*self._server_events(), *self._lane_events()):
            yield Event(wall_us=sample.wall_us, mono_us=sample.mono_us, kind=kind, severity=severity, text=text)

    def _clock_events(self, last: Sample, now: Sample) -> Iterator[Event]:
        elapsed = now.mono_us - last.mono_us
        jump = now.wall_us - last.wall_us - elapsed
        if abs(jump) > CLOCK_JUMP_US:
            text = f"the host's clock was set {'forward' if jump > 0 else 'back'} by {human_duration(abs(jump) / 1e6)}"
            yield Event(
                wall_us=now.wall_us, mono_us=now.mono_us, kind="clock.jump", severity="warning", text=text,
                details={"jump_us": jump},
            )  # fmt: skip

    def _server_events(self) -> Iterator[tuple[str, str, str]]:
        outage, server = self._collector.server.outage, self._collector.server.server
        kind = None if outage is None else outage.kind
        if kind != self._outage:
            if outage is not None and kind != "new":
                blind = kind == "no_slots"
                yield ("server.blind" if blind else "server.lost", "warning", outage.text)
            elif outage is None and server is not None:
                yield ("server.connected", "info", connection_slot_text(server))
            self._outage = kind
        if server is not None and server is not self._server:
            if self._server is not None:
                for text in server_changes(self._server, server):
                    yield ("server.changed", "warning", text)
            self._server = server

    def _lane_events(self) -> Iterator[tuple[str, str, str]]:
        lanes = frozenset(self._collector.host.stuck)
        for name in sorted(lanes - self._lanes):
            yield ("lane.stuck", "warning", f"{name} does not answer; its panel shows its last state and its age")
        for name in sorted(self._lanes - lanes):
            yield ("lane.recovered", "info", f"{name} answers again")
        self._lanes = lanes


# Lifetime of an agent and its end. Signals reach the loop through a pipe, never through a lock.


class StopRequest:
    """A request to stop, with its reason. `wait` sleeps until it comes or the time is up."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def request(self, reason: str) -> None:
        """Ask the loop to stop; the first reason is kept. Safe in signal handlers and from any thread."""
        if self.reason is None:
            self.reason = reason
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of requests

    def wait(self, seconds: float) -> bool:
        """Return True when asked to stop."""
        if self.reason is None and seconds > 0:
            select.select([self._read], [], [], seconds)
        return self.reason is not None

    def install_signal_handlers(self, *, ignore_hangup: bool) -> None:
        """SIGTERM and SIGINT stop the agent in order; SIGHUP too, unless it has no terminal to lose."""

        def asked(number: int, _frame: FrameType | None) -> None:
            self.request(f"stopped by {signal.Signals(number).name}")

        signal.signal(signal.SIGTERM, asked)
        signal.signal(signal.SIGINT, asked)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore_hangup else asked)


class GracePeriod:
    """Ends an agent without consoles `seconds` after the last console left; None: never."""

    def __init__(self, seconds: float | None, now_us: int) -> None:
        self.seconds = seconds
        self._alone_since: int | None = now_us

    def is_over(self, consoles: int, now_us: int) -> bool:
        """Return True if the last console left longer ago than the grace time."""
        if consoles:
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = now_us
        return self.seconds is not None and now_us - self._alone_since >= self.seconds * 1e6


# The latest readings, so that a new console gets all parts at once.


class LatestSample:
    """The picture after the last tick; written by the tick, read by the listener's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._picture = Picture()
        self._last: Sample | None = None

    def absorb(self, sample: Sample) -> Picture:
        """Add the sample; return the new picture."""
        with self._lock:
            self._picture = self._picture.with_sample(sample)
            self._last = sample
            return self._picture

    def picture(self) -> Picture:
        """Return the latest picture; it is never modified, only replaced."""
        with self._lock:
            return self._picture

    def key_sample(self) -> Sample | None:
        """Return the last sample with the last two readings of every part; None before the first tick."""
        with self._lock:
            return None if self._last is None else key_sample(self._last, self._picture)


RULES_LOAD_DELAY_S = 0.5
"""The rules are loaded this long after the first picture."""
FRAME_MIN_WAIT_US = 5_000_000
"""Minimum wait of a run for a frame read after its last action; older frames are not used."""
FRAME_WAIT_TICKS = 3
"""Minimum wait in ticks, for long intervals: the current tick has started too early, the next may be missed."""
EVENTS_KEPT = 200
"""Latest events sent to a new console; older ones are in the session."""


class Agent:
    """Runs the ticks and sends their results to the recording and to the consoles."""

    def __init__(
        self, target: Target, config: Config, recording: RecordingService, clock: Clock, grace_s: float | None,
        *, foreground: bool = False,
    ) -> None:  # fmt: skip
        self._target, self._clock, self._recording = target, clock, recording
        self._conninfo = without_secrets(target.conninfo)
        self.stop = StopRequest()
        self._foreground = foreground
        self._grace = GracePeriod(grace_s, clock.mono_us())
        self._started_us = clock.wall_us()
        self._collector = Collector(target, config, clock=clock)
        self._collector.extend_self_part = self._extend_self_part
        self._collector.pending_reverts.remove_reverted = True
        self._collector.sources.append(JobService(target.key, self._collector.server, clock))
        self._watcher = TickEvents(self._collector)
        self._latest = LatestSample()
        self._finding_service = FindingService(config.findings, acknowledgements_path(target.key), clock)
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._listener = Listener(
            socket_path(target.key), clock, welcome=self._welcome, request=self._request, left=self._console_left
        )
        self._ticked = threading.Condition()
        context = RunContext(
            target=target, config=config, clock=clock, session=lambda: recording.open_directory, frame=self._frame,
            is_server_here=lambda: self._collector.host.is_here, emit=self._emit, put_lines=recording.put_lines,
            recording_error=lambda: recording.error,
        )  # fmt: skip
        self._runs = RunService(context, recording.sessions, self._listener.push_to_each)
        recording.announce = self._broadcast_event
        recording.begin(self._collector.boot)
        self._collector.host.session = recording.directory
        self._listener.start()

    def run(self, for_s: float | None) -> None:
        """Tick until asked to stop, until `for_s` seconds are over, or until the grace time has passed."""
        interval_us = int(self._collector.interval_s * 1e6)
        begun = due = self._clock.mono_us()
        self._tick(0)
        # The console that started this agent is loading now; the rules are not needed before the second tick.
        if self.stop.wait(min(RULES_LOAD_DELAY_S, self._collector.interval_s / 2)):
            return
        self._finding_service.load_rules()
        finish_fast_start()
        self._runs.search_interrupted_runs()
        while True:
            now = self._clock.mono_us()
            # Missed ticks are skipped: they would all read the same moment.
            due += interval_us * max(1, -(-(now - due) // interval_us))
            if for_s is not None and due - begun > for_s * 1e6:
                self.stop.request("the requested time is over")
            if self._grace.is_over(self._listener.consoles + self._runs.busy, now):
                self.stop.request("no console was attached for the grace time")
            if self.stop.wait((due - now) / 1e6):
                return
            self._tick(self._clock.mono_us() - due)

    def close(self) -> None:
        """End in order: consoles are informed, the connection slot is released, the recording is completed."""
        reason = self.stop.reason or "ended"
        self._runs.close()
        self._collector.close()
        self._finding_service.close()
        self._recording.close(reason)
        self._listener.close(reason)

    def _tick(self, late_us: int) -> None:
        sample = self._collector.tick(late_us)
        part, concluded = self._finding_service.tick(self._latest.absorb(sample))
        if part is not None:
            sample = structs.replace(sample, parts=[*sample.parts, part])
            self._latest.absorb(sample)
        with self._ticked:
            self._ticked.notify_all()
        encoded = encode_sample(sample)
        point = self._finding_service.point
        self._listener.broadcast(pack_sample(encoded, point or {}), sample=True)
        self._recording.put_sample(sample, encoded, point)
        for event in (
            *self._watcher.events(sample),
            *self._collector.events(),
            *concluded,
        ):
            self._emit(event)

    def _frame(self, after_us: int) -> Frame | None:
        """Return the frame of a tick that started after that monotonic time; None if there is none in time."""
        interval_us, now = int(self._collector.interval_s * 1e6), self._clock.mono_us()
        timeout_us = _frame_timeout_us(interval_us)
        until_us = now + timeout_us
        after_us = max(after_us + interval_us if after_us else 0, now - timeout_us)
        with self._ticked:
            while (picture := self._latest.picture()).mono_us <= after_us:
                if (left_us := until_us - self._clock.mono_us()) <= 0:
                    return None
                self._ticked.wait(left_us / 1e6)
        return self._finding_service.frame(picture)

    def _emit_event(
        self, kind: str, text: str, *, who: str | None = None, occurred_us: int | None = None, author: str = ""
    ) -> None:
        self._emit(
            Event(
                wall_us=self._clock.wall_us(), mono_us=self._clock.mono_us(), kind=kind, text=redact(text), who=who,
                occurred_us=occurred_us, details={"author": author} if author else {},
            )
        )  # fmt: skip

    def _emit(self, event: Event) -> None:
        self._recording.put_event(event)
        self._broadcast_event(event)

    def _broadcast_event(self, event: Event) -> None:
        self._events.append(event)
        self._listener.broadcast(pack(EventMessage(event=event)))

    def _extend_self_part(self, own: AgentHealth) -> AgentHealth:
        return structs.replace(
            own,
            consoles=self._listener.consoles,
            readers_dropped=self._listener.slow_dropped,
            judged_us=self._finding_service.cpu_us,
            **self._recording.self_part_fields(),
        )

    def _welcome(self, peer: ConsoleConnection) -> tuple[AgentDescription, list[bytes]]:
        description = AgentDescription(
            protocol=PROTOCOL,
            version=__version__,
            pid=os.getpid(),
            boot=self._collector.boot,
            target=self._target.name,
            key=self._target.key,
            session=self._recording.directory,
            started_us=self._started_us,
            interval_s=self._collector.interval_s,
            grace_s=self._grace.seconds,
            consoles=self._listener.consoles,
            hostname=socket.gethostname(),
            runs=self._runs.open_runs(),
            conninfo=self._conninfo,
            refused=self._collector.server.login_refusal,
        )
        first = [pack(EventMessage(event=event)) for event in list(self._events)]
        key = self._latest.key_sample()
        if key is not None:
            first.append(pack_sample(encode_sample(key), self._finding_service.point or {}))
        first += self._runs.welcome(peer)
        if peer.greeting is not None and peer.greeting.role == "console":
            self._emit_event("console.attach", f"console attached: {peer.greeting.login}", who=peer.greeting.login)
        return description, first

    def _request(self, peer: ConsoleConnection, message: Message) -> None:
        if self._runs.request(peer, message):
            return
        who = peer.greeting.login if peer.greeting else None
        if isinstance(message, Mark):
            self._emit_event("mark", message.text or "mark", who=who, occurred_us=message.occurred_us)
        elif isinstance(message, Note) and message.text:
            self._emit_event("note", message.text, who=who, occurred_us=message.occurred_us, author=message.author)
        elif isinstance(message, Acknowledge | Silence):
            answer = self._finding_service.apply_request(message, who or "unknown")
            if isinstance(answer, str):
                peer.push(pack(Notice(kind="refused", text=answer)), sample=False)
            else:
                self._emit(answer)
        elif isinstance(message, EndIfRefused):
            if (why_not := self._why_not_replaced()) is not None:
                peer.push(pack(Notice(kind="refused", text=why_not)), sample=False)
            else:
                self.stop.request("PostgreSQL refused its login; an agent with other credentials replaces it")

    def _why_not_replaced(self) -> str | None:
        """Return why this agent stays although a caller with other credentials asks it to end; None if it ends."""
        if not self._collector.server.login_refusal:
            return "it is, or was, connected"
        if self._foreground:
            return "it was started by `dba-console record`"
        return "a run is active" if self._runs.busy else None

    def _console_left(self, peer: ConsoleConnection) -> None:
        self._runs.console_left(peer)
        if peer.greeting is not None and peer.greeting.role == "console":
            self._emit_event("console.detach", f"console left: {peer.greeting.login}", who=peer.greeting.login)


def run_agent(
    target: Target,
    config: Config,
    *,
    foreground: bool = False,
    for_s: float | None = None,
    sessions: Path | None = None,
    ready: Callable[[], None] | None = None,
) -> int:
    """Watch `target` until it is time to end; returns an exit code.

    `foreground` is `dba-console record`: it must record, has no grace time, and SIGHUP ends it. `ready` is called once
    consoles can attach. Raises ConsoleError if it cannot start; another running agent is an error only in the
    foreground.
    """
    lock = TargetLock(target.key)
    if not lock.acquire():
        if foreground:
            raise ConsoleError(
                f"an agent for {target.name} is already running (pid {lock.holder()})",
                hint="attach to it with `dba-console attach`, or end it with SIGTERM first",
            )
        if ready is not None:
            ready()
        return 0
    try:
        return _run_locked(target, config, foreground, for_s, sessions, ready)
    finally:
        lock.release()


def _run_locked(
    target: Target,
    config: Config,
    foreground: bool,
    for_s: float | None,
    sessions: Path | None,
    ready: Callable[[], None] | None,
) -> int:
    grace_text = config.agent.grace
    grace_s = None if foreground or grace_text == "forever" else parse_duration(grace_text)
    directory = sessions or (Path(config.recording.directory) if config.recording.directory else paths.sessions_dir())
    recording = RecordingService(directory, target, config.recording, parse_duration(config.agent.interval), SYSTEM)
    agent = Agent(target, config, recording, SYSTEM, grace_s, foreground=foreground)
    agent.stop.install_signal_handlers(ignore_hangup=not foreground)
    if ready is not None:
        ready()
    try:
        agent.run(for_s)
    finally:
        agent.close()
    if foreground and recording.error is not None:
        raise SessionError(f"nothing was recorded: {recording.error}", hint="name another directory with --sessions")
    return 0


def _frame_timeout_us(interval_us: int) -> int:
    """Return how long to wait for a frame of an agent with this tick interval.

    >>> _frame_timeout_us(250_000), _frame_timeout_us(10_000_000)
    (5000000, 30000000)
    """
    return max(FRAME_MIN_WAIT_US, FRAME_WAIT_TICKS * interval_us)
