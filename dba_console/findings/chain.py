"""Causes joined: what one rule sees because of what another sees is one finding, not two alarms.

A link says that an effect may have a cause, and with which word they are joined. The finding is named after its root
cause, for that is what a runbook answers; its sentence begins with what the operator feels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    others: tuple[Track, ...] = ()
    """Further effects of the same causes, beside the path."""

    @property
    def root(self) -> Track:
        return self.path[-1]

    @property
    def tracks(self) -> tuple[Track, ...]:
        return (*self.path, *self.others)

    @property
    def severity(self) -> Severity:
        return max((track.signal.severity for track in self.tracks), key=RANKS.__getitem__)


def join(tracks: Sequence[Track], links: Iterable[Link] = LINKS) -> list[Joined]:
    """One Joined per root cause; a track no link leads from stands alone. Every track is in exactly one."""
    causes = _causes(tracks, links)
    roots: dict[Key, list[Track]] = {}
    for track in tracks:
        roots.setdefault(_root(track, causes).key, []).append(track)
    return [_joined(next(one for one in group if one.key == key), group, causes) for key, group in roots.items()]


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


def _causes(tracks: Sequence[Track], links: Iterable[Link]) -> dict[Key, Track]:
    """Effect -> its cause: the first link, in the order of their declaration, that fits."""
    by_rule: dict[str, list[Track]] = {}
    for track in tracks:
        by_rule.setdefault(track.rule.name, []).append(track)
    found: dict[Key, Track] = {}
    for link in links:
        for effect in by_rule.get(link.effect, ()):
            if effect.key in found:
                continue
            for cause in by_rule.get(link.cause, ()):
                if (
                    cause.key != effect.key
                    and link.fits(effect.signal, cause.signal)
                    and not _leads(cause, effect, found)
                ):
                    found[effect.key] = cause
                    break
    return found


def _leads(start: Track, to: Track, causes: dict[Key, Track]) -> bool:
    """Whether following causes from `start` comes to `to`: a circle is no explanation."""
    at: Track | None = start
    while at is not None:
        if at.key == to.key:
            return True
        at = causes.get(at.key)
    return False


def _root(track: Track, causes: dict[Key, Track]) -> Track:
    while (cause := causes.get(track.key)) is not None:
        track = cause
    return track


def _path(track: Track, causes: dict[Key, Track]) -> list[Track]:
    path = [track]
    while (cause := causes.get(path[-1].key)) is not None:
        path.append(cause)
    return path


def _joined(root: Track, group: list[Track], causes: dict[Key, Track]) -> Joined:
    """The path told is the longest, of several the most severe one's."""
    paths = [_path(track, causes) for track in group]
    told = max(paths, key=lambda path: (len(path), RANKS[path[0].signal.severity], -path[0].since_us))
    keys = {track.key for track in told}
    return Joined(tuple(told), tuple(track for track in group if track.key not in keys))
