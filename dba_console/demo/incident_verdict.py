"""Whether an incident was seen, from the events of the recording: which finding, in which second, and what else."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dba_console.demo.incidents.incident import Incident
from dba_console.samples.event import Event

_EVENT_PREFIX = re.compile(r"finding (?:raised|changed)(?:, \w+)?: ")
OPEN_FINDING_KINDS = ("finding.raised", "finding.changed", "finding.joined")
"""Events that say a finding is open, with what it says now."""


@dataclass(frozen=True, slots=True)
class IncidentVerdict:
    """What an incident led to. `begun_us` and `cause_us`: when it began and when its cause was there, wall time."""

    expected_rule: str
    within_s: float
    present_at_start: bool
    begun_us: int
    cause_us: int
    detected: Event | None
    """The first event that names the wanted rule."""
    others: tuple[Event, ...]
    """Critical findings that say something else."""
    findings: tuple[Event, ...]
    """The last word on each finding that was raised and stayed one of its own, in the order they came up."""

    @property
    def after_s(self) -> float | None:
        """Seconds from the cause to the finding; negative where it was seen while the cause came about."""
        return None if self.detected is None else (self.detected.wall_us - self.cause_us) / 1e6

    @property
    def in_time(self) -> bool:
        return self.after_s is not None and self.after_s <= self.within_s

    def sentence(self) -> str:
        """In which second it was seen, and whether that was in time."""
        if self.detected is None:
            return f"{self.expected_rule} was not raised"
        began = (self.detected.wall_us - self.begun_us) / 1e6
        late = "" if self.in_time else f", later than {self.within_s:g} s after its cause was there"
        start = "the first sample" if self.present_at_start else "the incident began"
        return f"{self.expected_rule} raised at {clock_text(self.detected.wall_us)}, {began:.1f} s after {start}{late}"


def judge(events: Iterable[Event], incident: Incident, begun_us: int, cause_us: int) -> IncidentVerdict:
    """The verdict of what was recorded since an incident began."""
    open_findings = [event for event in events if event.kind in OPEN_FINDING_KINDS and event.wall_us >= begun_us]
    detected = next((event for event in open_findings if incident.finding in rules_of(event)), None)
    others = tuple(_other_criticals(open_findings, incident))
    last = {finding_id(event): event for event in open_findings}
    return IncidentVerdict(
        incident.finding, incident.within_s, incident.present_at_start, begun_us, cause_us, detected, others,
        tuple(event for event in last.values() if event.kind != "finding.joined"),
    )  # fmt: skip


def chain_of(event: Event) -> tuple[str, ...]:
    """The ids a finding is made of, its own among them: `rule`, or `rule:subject`."""
    parts = [*(event.details.get("chain") or ()), *(event.details.get("also") or ())]
    return (finding_id(event), *(str(part) for part in parts))


def rules_of(event: Event) -> set[str]:
    """The rules a finding is made of."""
    return {part.partition(":")[0] for part in chain_of(event)}


def finding_id(event: Event) -> str:
    return str(event.details.get("id", ""))


def finding_text(event: Event) -> str:
    """What a finding says, without the word that it was raised."""
    return _EVENT_PREFIX.sub("", event.text, count=1)


def severity_of(event: Event) -> str:
    return str(event.details.get("severity", event.severity))


def clock_text(wall_us: int) -> str:
    """Local time of day, as on the screen."""
    return time.strftime("%H:%M:%S", time.localtime(wall_us / 1e6))


def _other_criticals(news: Sequence[Event], incident: Incident) -> Iterable[Event]:
    """The first critical word of each finding that never became part of the incident's own."""
    own = {part for event in news if incident.finding in rules_of(event) for part in chain_of(event)}
    listed: set[str] = set()
    for event in news:
        identity = finding_id(event)
        if severity_of(event) == "critical" and identity not in own and identity not in listed:
            listed.add(identity)
            yield event
