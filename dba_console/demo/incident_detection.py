"""Rehearsal: causes an incident while an agent watches, and reads from the recording whether it was detected.

The incident begins after some normal ticks, because an agent treats the state in its first ticks as already present.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.find_or_start import find_agent
from dba_console.agent.protocol import EventMessage, Mark, SampleMessage
from dba_console.core.errors import ConnectError, SessionError
from dba_console.core.target import make_target
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.practice_server import PracticeGround
from dba_console.recording.recording import Recording
from dba_console.watch.samples.event import Event

# The verdict from the recorded events: which finding detected the incident, when, and which other findings were raised.

_EVENT_PREFIX = re.compile(r"finding (?:raised|changed)(?:, \w+)?: ")
OPEN_FINDING_KINDS = ("finding.raised", "finding.changed", "finding.joined")
"""Events that report an open finding, with its current text."""


@dataclass(frozen=True, slots=True)
class IncidentVerdict:
    """The result of an incident. `begun_us` and `cause_us`: when it began and when its cause was present, wall time."""

    expected_rule: str
    within_s: float
    present_at_start: bool
    begun_us: int
    cause_us: int
    detected: Event | None
    """The first event with the expected rule."""
    others: tuple[Event, ...]
    """Critical findings of other rules."""
    findings: tuple[Event, ...]
    """The last event of each finding that was raised and not joined into another, in order of appearance."""

    @property
    def after_s(self) -> float | None:
        """Seconds from the cause to the finding; negative if it was detected while the cause was being produced."""
        return None if self.detected is None else (self.detected.wall_us - self.cause_us) / 1e6

    @property
    def in_time(self) -> bool:
        return self.after_s is not None and self.after_s <= self.within_s

    def sentence(self) -> str:
        """Return when it was detected, and whether that was in time."""
        if self.detected is None:
            return f"{self.expected_rule} was not raised"
        began = (self.detected.wall_us - self.begun_us) / 1e6
        late = "" if self.in_time else f", later than {self.within_s:g} s after its cause"
        start = "the first sample" if self.present_at_start else "the incident began"
        return f"{self.expected_rule} raised at {clock_text(self.detected.wall_us)}, {began:.1f} s after {start}{late}"


def judge(events: Iterable[Event], incident: Incident, begun_us: int, cause_us: int) -> IncidentVerdict:
    """Return the verdict from the events recorded since an incident began."""
    open_findings = [event for event in events if event.kind in OPEN_FINDING_KINDS and event.wall_us >= begun_us]
    detected = next((event for event in open_findings if incident.finding in rules_of(event)), None)
    others = tuple(_other_criticals(open_findings, incident))
    last = {finding_id(event): event for event in open_findings}
    return IncidentVerdict(
        incident.finding, incident.within_s, incident.present_at_start, begun_us, cause_us, detected, others,
        tuple(event for event in last.values() if event.kind != "finding.joined"),
    )  # fmt: skip


def chain_of(event: Event) -> tuple[str, ...]:
    """Return the ids a finding consists of, including its own: `rule`, or `rule:subject`."""
    parts = [*(event.details.get("chain") or ()), *(event.details.get("also") or ())]
    return (finding_id(event), *(str(part) for part in parts))


def rules_of(event: Event) -> set[str]:
    """Return the rules a finding consists of."""
    return {part.partition(":")[0] for part in chain_of(event)}


def finding_id(event: Event) -> str:
    return str(event.details.get("id", ""))


def finding_text(event: Event) -> str:
    """Return a finding's text, without the prefix that it was raised."""
    return _EVENT_PREFIX.sub("", event.text, count=1)


def severity_of(event: Event) -> str:
    return str(event.details.get("severity", event.severity))


def clock_text(wall_us: int) -> str:
    """Return the local time of day, as on the screen."""
    return time.strftime("%H:%M:%S", time.localtime(wall_us / 1e6))


def _other_criticals(events: Sequence[Event], incident: Incident) -> Iterable[Event]:
    """Yield the first critical event of each finding that never became part of the incident's own.

    That the WAL is in memory is not one: the demo chose the directory of its server.
    """
    own = {"wal-on-tmpfs"} | {
        part for event in events if incident.finding in rules_of(event) for part in chain_of(event)
    }
    listed: set[str] = set()
    for event in events:
        identity = finding_id(event)
        if severity_of(event) == "critical" and identity not in own and identity not in listed:
            listed.add(identity)
            yield event


CALM_TICKS = 6
"""Samples an agent has taken when an incident begins: five seconds of normal operation."""

BEGUN = "begun"
"""The word in the recording's mark where an incident begins."""
MARK_S = 3.0
"""Timeout for the agent's confirmation of a mark."""


class TriggeredIncident:
    """An incident caused while an agent watches `dsn`: `begin` calls `cause` and marks the time in the recording;
    without a `cause` it is already present. `say` gets a message when it begins and when the cause is present."""

    def __init__(
        self, dsn: str, name: str, title: str, cause: Callable[[], None] | None, say: Callable[[str], None]
    ) -> None:
        self.name = name
        self._title = title
        self._cause = cause
        self._target = make_target(dsn)
        self._say = say
        self._session: Path | None = None
        self._begun_us = 0
        self._cause_us = 0

    @property
    def begun(self) -> bool:
        return self._begun_us > 0

    def wait_calm(self, ticks: int, keep_waiting: Callable[[], bool]) -> bool:
        """Return True after `ticks` ticks of the agent; False as soon as `keep_waiting` returns False."""
        seen = 0
        client: AgentClient | None = None
        try:
            while seen < ticks:
                if not keep_waiting():
                    return False
                client = client or self._attach()
                if client is None:
                    time.sleep(0.1)
                    continue
                try:
                    seen += isinstance(client.receive(0.5), SampleMessage)
                except AgentConnectionLost:  # it comes back, or `keep_waiting` ends the wait
                    client.close()
                    client = None
            return True
        finally:
            if client is not None:
                client.close()

    def begin(self) -> None:
        """Cause it, and mark the time in the recording; one already present is only marked."""
        word = "present" if self._cause is None else BEGUN
        self._mark(f"incident {word}: {self.name}")
        self._begun_us = self._cause_us = _now_us()
        self._say(f"{clock_text(self._begun_us)} incident {word}: {self.name}: {self._title}")
        if self._cause is None:
            return
        self._cause()
        self._cause_us = _now_us()
        took = (self._cause_us - self._begun_us) / 1e6
        self._say(f"{clock_text(self._cause_us)} the cause is present, after {took:.1f} s")

    def _mark(self, text: str) -> None:
        client = self._attach()
        if client is not None:
            try:
                client.send(Mark(text=text))
                _wait_for_mark(client, text)
            except AgentConnectionLost:
                pass  # the mark is optional; without the agent the verdict says what is missing
            finally:
                client.close()

    def _attach(self) -> AgentClient | None:
        """Return a connection to the agent, None while it does not answer yet."""
        path = find_agent(self._target)
        if path is None:
            return None
        try:
            client = AgentClient.connect(path, role="show")
        except ConnectError:
            return None
        if client.agent_description.session is not None:
            self._session = Path(client.agent_description.session)
        return client


class Rehearsal(TriggeredIncident):
    """An incident on a running practice ground, with a verdict from the findings in the recording. `dsn` is the agent's
    target, by default the ground's."""

    def __init__(
        self, ground: PracticeGround, incident: Incident, say: Callable[[str], None], dsn: str | None = None
    ) -> None:
        cause = None if incident.present_at_start else partial(incident.cause, ground)
        super().__init__(ground.dsn if dsn is None else dsn, incident.name, incident.title, cause, say)
        self._incident = incident

    @property
    def recorded_s(self) -> float:
        """Seconds of the recording since the cause was present; 0 without a recording."""
        try:
            recording = Recording.open(self._session) if self._session is not None else None
        except SessionError:
            recording = None  # created, but not readable yet
        if recording is None:
            return 0.0
        last_us = recording.last_us
        recording.close()
        return max(0.0, (last_us - self._cause_us) / 1e6)

    def verdict(self) -> IncidentVerdict:
        """Return the verdict from the recording so far. Raises SessionError if it is not readable."""
        if self._session is None or not self.begun:
            return judge([], self._incident, self._begun_us, self._cause_us)
        recording = Recording.open(self._session)
        try:
            if self._incident.present_at_start:
                self._begun_us = self._cause_us = recording.first_us
            return judge(recording.events(self._begun_us), self._incident, self._begun_us, self._cause_us)
        finally:
            recording.close()


def recorded_verdict(directory: Path, incident: Incident) -> IncidentVerdict:
    """Return the verdict from a shipped recording. Raises SessionError if it cannot be read."""
    recording = Recording.open(directory)
    try:
        events = recording.events()
        mark = f"incident {BEGUN}: {incident.name}"
        begun_us = next((one.wall_us for one in events if one.kind == "mark" and mark in one.text), recording.first_us)
        return judge(events, incident, begun_us, begun_us)
    finally:
        recording.close()


def _wait_for_mark(client: AgentClient, text: str) -> None:
    """Wait until the agent confirms the mark: closing a connection with unread messages may discard what was sent."""
    until = time.monotonic() + MARK_S
    while (left := until - time.monotonic()) > 0:
        message = client.receive(left)
        if isinstance(message, EventMessage) and message.event.kind == "mark" and message.event.text == text:
            return


def _now_us() -> int:
    return time.time_ns() // 1000
