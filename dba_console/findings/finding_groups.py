"""Causes joined: what one rule sees because of what another sees is one finding, not two alarms.

A link says that an effect may have a cause, and with which word they are joined. The finding is named after its root
cause, for that is what a runbook answers; its sentence begins with what the operator feels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dba_console.findings.causal_links import LINKS, CausalLink
from dba_console.findings.signal import SEVERITY_RANKS
from dba_console.findings.signal_tracking import Key, TrackedSignal
from dba_console.samples.findings import Severity


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """A root cause with everything it explains. `path` leads from the head of the sentence to the root."""

    path: tuple[TrackedSignal, ...]
    others: tuple[TrackedSignal, ...]
    """Further effects of the same causes, beside the path."""
    named_after: TrackedSignal
    """The one it is called after: the root cause, unless its effect keeps its name."""

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
    """One Joined per root cause; a track without a cause stands alone. Every track is in exactly one."""
    roots: dict[Key, list[TrackedSignal]] = {}
    for track in tracks:
        roots.setdefault(_path(track, causes)[-1].key, []).append(track)
    return [_make_group(group, causes, links) for group in roots.values()]


def group_text(joined: FindingGroup, word_of: Callable[[TrackedSignal, TrackedSignal], str]) -> str:
    """The sentence: what is felt, then why, then why that. Further effects stand at the end."""
    path = joined.path
    if len(path) == 1:
        text = path[0].signal.text
    else:
        text = path[0].signal.as_effect
        for effect, cause in pairwise(path):
            text += word_of(effect, cause) + cause.signal.as_cause
    return text + "".join(f"; {track.signal.as_effect}" for track in joined.others)


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
    """The causes of each effect, nearest first: what `find_causes` takes as `held`."""
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
    """Keep with the rest of its causes what no link explains any more: an end is no reason for new alarms."""
    by_key = {track.key: track for track in tracks}
    for track in tracks:
        if track.key not in found:
            left = (by_key[key] for key in held.get(track.key, ()) if key in by_key)
            cause = next((one for one in left if not _leads_to(one, track, found)), None)
            if cause is not None:
                found[track.key] = cause


def _leads_to(start: TrackedSignal, to: TrackedSignal, causes: Mapping[Key, TrackedSignal]) -> bool:
    """Whether following causes from `start` comes to `to`: a circle is no explanation."""
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
    """The path told is the longest, of several the most severe one's."""
    paths = [_path(track, causes) for track in group]
    path = max(paths, key=lambda path: (len(path), SEVERITY_RANKS[path[0].signal.severity], -path[0].since_us))
    keys = {track.key for track in path}
    others = tuple(track for track in group if track.key not in keys)
    return FindingGroup(tuple(path), others, _naming_signal(path, links))


def _naming_signal(path: Sequence[TrackedSignal], links: Iterable[CausalLink]) -> TrackedSignal:
    """What the finding is called: its root cause, or the effect nearest the head that keeps its name."""
    keeping = {(link.effect, link.cause) for link in links if link.keeps_name}
    return next(
        (effect for effect, cause in pairwise(path) if (effect.rule.name, cause.rule.name) in keeping), path[-1]
    )
