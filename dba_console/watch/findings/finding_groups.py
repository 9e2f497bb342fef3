"""Group signals by cause: an effect and its cause become one finding instead of two alarms.

A causal link names an effect, a cause and the conjunction between their sentences. The finding is named after its root
cause, because the runbook treats that; its sentence starts with the effect the operator notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dba_console.watch import subjects
from dba_console.watch.findings.rule import SEVERITY_RANKS, CausalLink, Rule, Signal
from dba_console.watch.samples.findings import Severity

LINKS = tuple(link for family in subjects.families().values() for link in family.links)
"""Which rule explains which, most likely cause first: each link is declared by the subject of its effect."""


# Signals over time: when each was first and last seen, and whether it is raised (hysteresis in time).

Key = tuple[str, str]
"""Rule and subject."""


@dataclass(slots=True)
class TrackedSignal:
    """One signal over the ticks in which it was present."""

    rule: Rule
    signal: Signal
    since_us: int
    """Wall time of its start: as the signal states, else when it was first seen."""
    first_us: int
    """Monotonic times of the first and last sighting; the first is earlier if the signal states how long it lasted."""
    last_us: int
    at_us: int
    """Wall time of the numbers."""
    raised: bool = False
    present: bool = True
    """Its rule reported it at the last check; otherwise it waits to be cleared."""

    @property
    def key(self) -> Key:
        return self.rule.name, self.signal.subject

    @property
    def id(self) -> str:
        """The finding id if it is not grouped: `rule`, or `rule:subject`."""
        return f"{self.rule.name}:{self.signal.subject}" if self.signal.subject else self.rule.name


class SignalTracker:
    """All signals present, raised or pending."""

    def __init__(self) -> None:
        self._tracks: dict[Key, TrackedSignal] = {}

    @property
    def raised(self) -> list[TrackedSignal]:
        return [track for track in self._tracks.values() if track.raised]

    @property
    def pending(self) -> list[TrackedSignal]:
        """Signals that have not lasted long enough to be raised."""
        return [track for track in self._tracks.values() if not track.raised]

    def has(self, rule: Rule) -> bool:
        """Whether any signal of the rule is tracked; most rules have none most of the time."""
        return any(track.rule is rule for track in self._tracks.values())

    def open_keys(self) -> set[Key]:
        return {key for key, track in self._tracks.items() if track.raised}

    def update(self, rule: Rule, signals: Iterable[Signal], wall_us: int, mono_us: int) -> None:
        """Record all signals of the rule in this tick."""
        seen = set()
        for signal in signals:
            key = (rule.name, signal.subject)
            if key in seen:
                continue  # one subject is one finding
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
        """After a time without readings, pending signals start over and raised ones are not cleared yet."""
        for key, track in list(self._tracks.items()):
            if track.raised:
                track.last_us = mono_us
            else:
                del self._tracks[key]


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """A root cause with all its effects. `path` leads from the first effect of the sentence to the root."""

    path: tuple[TrackedSignal, ...]
    others: tuple[TrackedSignal, ...]
    """Further effects of the same causes, beside the path."""
    named_after: TrackedSignal
    """The signal that names the finding: the root cause, unless its effect keeps its name."""

    @property
    def root(self) -> TrackedSignal:
        return self.path[-1]

    @property
    def tracks(self) -> tuple[TrackedSignal, ...]:
        return (*self.path, *self.others)

    @property
    def severity(self) -> Severity:
        return max((track.signal.severity for track in self.tracks), key=SEVERITY_RANKS.__getitem__)


def group_by_cause(
    tracks: Sequence[TrackedSignal], causes: Mapping[Key, TrackedSignal], links: Iterable[CausalLink] = LINKS
) -> list[FindingGroup]:
    """Return one group per root cause; a signal without a cause is its own group. Each is in exactly one."""
    roots: dict[Key, list[TrackedSignal]] = {}
    for track in tracks:
        roots.setdefault(_path(track, causes)[-1].key, []).append(track)
    return [_make_group(group, causes, links) for group in roots.values()]


def group_text(group: FindingGroup, conjunction_of: Callable[[TrackedSignal, TrackedSignal], str]) -> str:
    """Return the sentence: the effect, then its cause, then the cause of that. Further effects follow at the end."""
    path = group.path
    if len(path) == 1:
        text = path[0].signal.text
    else:
        text = path[0].signal.as_effect
        for effect, cause in pairwise(path):
            text += conjunction_of(effect, cause) + cause.signal.as_cause
    return text + "".join(f"; {track.signal.as_effect}" for track in group.others)


def conjunction_between(effect: TrackedSignal, cause: TrackedSignal, links: Iterable[CausalLink] = LINKS) -> str:
    """The word that joins the two."""
    return next(
        (one.conjunction for one in links if (one.effect, one.cause) == (effect.rule.name, cause.rule.name)),
        " because ",
    )


def find_causes(
    tracks: Sequence[TrackedSignal],
    links: Iterable[CausalLink] = LINKS,
    held: Mapping[Key, Sequence[Key]] | None = None,
) -> dict[Key, TrackedSignal]:
    """Effect -> its cause: the first link, in the order of their declaration, that fits or did so before.

    `held` has the causes of each effect as they were, nearest first. What was joined stays with what is left of them.
    """
    by_rule: dict[str, list[TrackedSignal]] = {}
    for track in tracks:
        by_rule.setdefault(track.rule.name, []).append(track)
    before = held or {}
    found: dict[Key, TrackedSignal] = {}
    for link in links:
        for effect in by_rule.get(link.effect, ()):
            if effect.key not in found:
                cause = _find_cause(effect, by_rule.get(link.cause, ()), link, before, found)
                if cause is not None:
                    found[effect.key] = cause
    _keep_known_causes(tracks, before, found)
    return found


def cause_paths(causes: Mapping[Key, TrackedSignal]) -> dict[Key, tuple[Key, ...]]:
    """Return the causes of each effect, nearest first: the `held` of `find_causes`."""
    held = {}
    for effect in causes:
        path = []
        cause = causes.get(effect)
        while cause is not None:
            path.append(cause.key)
            cause = causes.get(cause.key)
        held[effect] = tuple(path)
    return held


def _find_cause(
    effect: TrackedSignal,
    causes: Iterable[TrackedSignal],
    link: CausalLink,
    held: Mapping[Key, Sequence[Key]],
    found: Mapping[Key, TrackedSignal],
) -> TrackedSignal | None:
    for cause in causes:
        if cause.key == effect.key or _leads_to(cause, effect, found):
            continue
        if held.get(effect.key, ())[:1] == (cause.key,) or link.applies(effect.signal, cause.signal):
            return cause
    return None


def _keep_known_causes(
    tracks: Sequence[TrackedSignal], held: Mapping[Key, Sequence[Key]], found: dict[Key, TrackedSignal]
) -> None:
    """Keep signals with their remaining causes when no link applies any more: an end must not raise new alarms."""
    by_key = {track.key: track for track in tracks}
    for track in tracks:
        if track.key not in found:
            left = (by_key[key] for key in held.get(track.key, ()) if key in by_key)
            cause = next((one for one in left if not _leads_to(one, track, found)), None)
            if cause is not None:
                found[track.key] = cause


def _leads_to(start: TrackedSignal, to: TrackedSignal, causes: Mapping[Key, TrackedSignal]) -> bool:
    """Whether the causes of `start` lead to `to`: prevents cycles."""
    at: TrackedSignal | None = start
    while at is not None:
        if at.key == to.key:
            return True
        at = causes.get(at.key)
    return False


def _path(track: TrackedSignal, causes: Mapping[Key, TrackedSignal]) -> list[TrackedSignal]:
    path = [track]
    while (cause := causes.get(path[-1].key)) is not None:
        path.append(cause)
    return path


def _make_group(
    group: list[TrackedSignal], causes: Mapping[Key, TrackedSignal], links: Iterable[CausalLink]
) -> FindingGroup:
    """The path shown is the longest; among several that of the most severe signal."""
    paths = [_path(track, causes) for track in group]
    path = max(paths, key=lambda path: (len(path), SEVERITY_RANKS[path[0].signal.severity], -path[0].since_us))
    keys = {track.key for track in path}
    others = tuple(track for track in group if track.key not in keys)
    return FindingGroup(tuple(path), others, _naming_signal(path, links))


def _naming_signal(path: Sequence[TrackedSignal], links: Iterable[CausalLink]) -> TrackedSignal:
    """Return the signal that names the finding: its root cause, or the first effect that keeps its name."""
    keeping = {(link.effect, link.cause) for link in links if link.keeps_name}
    return next(
        (effect for effect, cause in pairwise(path) if (effect.rule.name, cause.rule.name) in keeping), path[-1]
    )
