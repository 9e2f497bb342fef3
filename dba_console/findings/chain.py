"""Causes joined: what one rule sees because of what another sees is one finding, not two alarms.

A link says that an effect may have a cause, and with which word they are joined. The finding is named after its root
cause, for that is what a runbook answers; its sentence begins with what the operator feels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dba_console.findings.links import LINKS, Link
from dba_console.findings.signal import RANKS
from dba_console.findings.tracks import Key, Track
from dba_console.samples.findings import Severity


@dataclass(frozen=True, slots=True)
class Joined:
    """A root cause with everything it explains. `path` leads from the head of the sentence to the root."""

    path: tuple[Track, ...]
    others: tuple[Track, ...]
    """Further effects of the same causes, beside the path."""
    named: Track
    """The one it is called after: the root cause, unless its effect keeps its name."""

    @property
    def root(self) -> Track:
        return self.path[-1]

    @property
    def tracks(self) -> tuple[Track, ...]:
        return (*self.path, *self.others)

    @property
    def severity(self) -> Severity:
        return max((track.signal.severity for track in self.tracks), key=RANKS.__getitem__)


def join(tracks: Sequence[Track], causes: Mapping[Key, Track], links: Iterable[Link] = LINKS) -> list[Joined]:
    """One Joined per root cause; a track without a cause stands alone. Every track is in exactly one."""
    roots: dict[Key, list[Track]] = {}
    for track in tracks:
        roots.setdefault(_path(track, causes)[-1].key, []).append(track)
    return [_joined(group, causes, links) for group in roots.values()]


def text_of(joined: Joined, word_of: Callable[[Track, Track], str]) -> str:
    """The sentence: what is felt, then why, then why that. Further effects stand at the end."""
    path = joined.path
    if len(path) == 1:
        text = path[0].signal.text
    else:
        text = path[0].signal.as_effect
        for effect, cause in pairwise(path):
            text += word_of(effect, cause) + cause.signal.as_cause
    return text + "".join(f"; {track.signal.as_effect}" for track in joined.others)


def word_between(effect: Track, cause: Track, links: Iterable[Link] = LINKS) -> str:
    """The word that joins the two."""
    return next(
        (one.word for one in links if (one.effect, one.cause) == (effect.rule.name, cause.rule.name)), " because "
    )


def causes_of(
    tracks: Sequence[Track], links: Iterable[Link] = LINKS, held: Mapping[Key, Sequence[Key]] | None = None
) -> dict[Key, Track]:
    """Effect -> its cause: the first link, in the order of their declaration, that fits or did so before.

    `held` has the causes of each effect as they were, nearest first. What was joined stays with what is left of them.
    """
    by_rule: dict[str, list[Track]] = {}
    for track in tracks:
        by_rule.setdefault(track.rule.name, []).append(track)
    before = held or {}
    found: dict[Key, Track] = {}
    for link in links:
        for effect in by_rule.get(link.effect, ()):
            if effect.key not in found:
                cause = _cause(effect, by_rule.get(link.cause, ()), link, before, found)
                if cause is not None:
                    found[effect.key] = cause
    _stay(tracks, before, found)
    return found


def paths_of(causes: Mapping[Key, Track]) -> dict[Key, tuple[Key, ...]]:
    """The causes of each effect, nearest first: what `causes_of` takes as `held`."""
    held = {}
    for effect in causes:
        path = []
        cause = causes.get(effect)
        while cause is not None:
            path.append(cause.key)
            cause = causes.get(cause.key)
        held[effect] = tuple(path)
    return held


def _cause(
    effect: Track, causes: Iterable[Track], link: Link, held: Mapping[Key, Sequence[Key]], found: Mapping[Key, Track]
) -> Track | None:
    for cause in causes:
        if cause.key == effect.key or _leads(cause, effect, found):
            continue
        if held.get(effect.key, ())[:1] == (cause.key,) or link.fits(effect.signal, cause.signal):
            return cause
    return None


def _stay(tracks: Sequence[Track], held: Mapping[Key, Sequence[Key]], found: dict[Key, Track]) -> None:
    """Keep with the rest of its causes what no link explains any more: an end is no reason for new alarms."""
    by_key = {track.key: track for track in tracks}
    for track in tracks:
        if track.key not in found:
            left = (by_key[key] for key in held.get(track.key, ()) if key in by_key)
            cause = next((one for one in left if not _leads(one, track, found)), None)
            if cause is not None:
                found[track.key] = cause


def _leads(start: Track, to: Track, causes: Mapping[Key, Track]) -> bool:
    """Whether following causes from `start` comes to `to`: a circle is no explanation."""
    at: Track | None = start
    while at is not None:
        if at.key == to.key:
            return True
        at = causes.get(at.key)
    return False


def _path(track: Track, causes: Mapping[Key, Track]) -> list[Track]:
    path = [track]
    while (cause := causes.get(path[-1].key)) is not None:
        path.append(cause)
    return path


def _joined(group: list[Track], causes: Mapping[Key, Track], links: Iterable[Link]) -> Joined:
    """The path told is the longest, of several the most severe one's."""
    paths = [_path(track, causes) for track in group]
    told = max(paths, key=lambda path: (len(path), RANKS[path[0].signal.severity], -path[0].since_us))
    keys = {track.key for track in told}
    others = tuple(track for track in group if track.key not in keys)
    return Joined(tuple(told), others, _named(told, links))


def _named(path: Sequence[Track], links: Iterable[Link]) -> Track:
    """What the finding is called: its root cause, or the effect nearest the head that keeps its name."""
    keeping = {(link.effect, link.cause) for link in links if link.keeps_name}
    return next(
        (effect for effect, cause in pairwise(path) if (effect.rule.name, cause.rule.name) in keeping), path[-1]
    )
