"""What each rule has been seeing, and for how long: hysteresis in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dba_console.findings.rule import Rule
from dba_console.findings.signal import Signal

Key = tuple[str, str]
"""Rule and subject."""


@dataclass(slots=True)
class TrackedSignal:
    """One signal over the ticks in which it was seen."""

    rule: Rule
    signal: Signal
    since_us: int
    """Wall time it began: what the signal says, else when it was first seen."""
    first_us: int
    """Monotonic times it was first and last seen; the first is earlier where the server says since when it lasts."""
    last_us: int
    at_us: int
    """Wall time of the numbers."""
    raised: bool = False
    present: bool = True
    """Its rule saw it when last asked; else it waits to be cleared."""

    @property
    def key(self) -> Key:
        return self.rule.name, self.signal.subject

    @property
    def id(self) -> str:
        """The id of a finding of its own: `rule`, or `rule:subject`."""
        return f"{self.rule.name}:{self.signal.subject}" if self.signal.subject else self.rule.name


class SignalTracker:
    """Every signal seen, raised or on its way to be."""

    def __init__(self) -> None:
        self._tracks: dict[Key, TrackedSignal] = {}

    @property
    def raised(self) -> list[TrackedSignal]:
        return [track for track in self._tracks.values() if track.raised]

    @property
    def pending(self) -> list[TrackedSignal]:
        """What is seen and has not lasted long enough to be raised."""
        return [track for track in self._tracks.values() if not track.raised]

    def has(self, rule: Rule) -> bool:
        """Whether anything the rule saw is followed. Most rules see nothing most of the time."""
        return any(track.rule is rule for track in self._tracks.values())

    def open_keys(self) -> set[Key]:
        return {key for key, track in self._tracks.items() if track.raised}

    def update(self, rule: Rule, signals: Iterable[Signal], wall_us: int, mono_us: int) -> None:
        """Take in everything the rule sees in this tick."""
        seen = set()
        for signal in signals:
            key = (rule.name, signal.subject)
            if key in seen:
                continue  # one subject is one finding, whatever a rule says twice
            seen.add(key)
            track = self._tracks.get(key)
            if track is None:
                since_us = wall_us if signal.since_us is None else min(signal.since_us, wall_us)
                track = self._tracks[key] = TrackedSignal(rule, signal, since_us, mono_us, mono_us, wall_us)
            track.signal, track.last_us, track.at_us, track.present = signal, mono_us, wall_us, True
            if signal.since_us is not None:
                track.since_us = min(signal.since_us, wall_us)
            track.first_us = min(track.first_us, mono_us - int(signal.lasted_s * 1e6))
            track.raised = track.raised or mono_us - track.first_us >= rule.raise_after_s * 1e6
        for key in [key for key, track in self._tracks.items() if track.rule is rule and key not in seen]:
            self._mark_absent(key, mono_us)

    def _mark_absent(self, key: Key, mono_us: int) -> None:
        track = self._tracks[key]
        track.present = False
        if not track.raised or mono_us - track.last_us >= track.rule.clear_after_s * 1e6:
            del self._tracks[key]

    def after_gap(self, mono_us: int) -> None:
        """Nothing was read for a while: what was about to be raised begins anew, what is raised is not yet gone."""
        for key, track in list(self._tracks.items()):
            if track.raised:
                track.last_us = mono_us
            else:
                del self._tracks[key]
