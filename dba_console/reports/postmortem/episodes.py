"""Findings of a session as episodes: from the event that raised one to the event that ended it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dba_console.reports.postmortem.timeline import text_of
from dba_console.watch.samples.event import Event

_RANKS = {"critical": 2, "warning": 1}
_FOREVER_US = 1 << 62


@dataclass(slots=True, eq=False)
class Episode:
    """One finding, from raised to ended."""

    id: str
    rule: str
    severity: str
    """The highest."""
    since_us: int
    raised: Event
    worst: Event
    """The last event that reported it with that severity."""
    end: Event | None = None
    ended_as: str = ""
    """cleared, joined; empty: open at the end of the recording."""
    parts: set[str] = field(default_factory=set)
    chain: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    runbook: str = ""

    @property
    def urgent(self) -> bool:
        return self.severity in _RANKS

    @property
    def rank(self) -> int:
        return _RANKS.get(self.severity, 0)

    def end_us(self, otherwise: int) -> int:
        """Return when it ended, `otherwise` if it did not."""
        return otherwise if self.end is None else self.end.wall_us

    def overlaps(self, from_us: int, to_us: int) -> bool:
        return self.since_us <= to_us and self.end_us(to_us) >= from_us

    @property
    def rules(self) -> set[str]:
        """Return the rules of it and of the findings joined with it."""
        return {self.rule, *(part.partition(":")[0] for part in (self.id, *self.parts))}

    def is_joined(self, other: Episode) -> bool:
        """Return whether one of the two was part of the other while both were open."""
        known = other.id in self.parts or self.id in other.parts
        return known and self.overlaps(other.since_us, other.end_us(_FOREVER_US))

    def is_named(self, name: str) -> bool:
        """Return whether the name is its id, its rule, or one of the findings joined with it."""
        return name in {self.id, *self.parts} or name in self.rules


def read_episodes(events: Iterable[Event]) -> list[Episode]:
    """Return the episodes in the order they were raised. Events are in recording order."""
    episodes: list[Episode] = []
    active: dict[str, Episode] = {}
    for event in events:
        kind = event.kind.removeprefix("finding.")
        name = str(event.details.get("id") or "")
        if kind == event.kind or not name:
            continue
        if kind in ("raised", "changed"):
            episode = active.get(name)
            if episode is None:
                episode = active[name] = _new_episode(name, event)
                episodes.append(episode)
            _update(episode, event)
        elif kind in ("cleared", "joined") and (ended := active.pop(name, None)) is not None:
            ended.end, ended.ended_as = event, kind
    return episodes


def _new_episode(name: str, event: Event) -> Episode:
    since_us = event.details.get("since_us")
    since_us = since_us if isinstance(since_us, int) and 0 < since_us <= event.wall_us else event.wall_us
    rule = text_of(str(event.details.get("name") or name.partition(":")[0]))
    return Episode(text_of(name), rule, "info", since_us, event, event)


def _update(episode: Episode, event: Event) -> None:
    details = event.details
    severity = str(details.get("severity") or event.severity)
    if _RANKS.get(severity, 0) >= episode.rank:
        episode.severity, episode.worst = text_of(severity), event
    chain, also = (_texts(details.get(name)) for name in ("chain", "also"))
    episode.parts.update(chain, also)
    # The path with the most causes is the most that was known.
    if len(chain) + len(also) >= len(episode.chain) + len(episode.also):
        episode.chain, episode.also = chain, also
    episode.runbook = text_of(str(details.get("runbook") or "")) or episode.runbook


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text_of(str(one)) for one in value) if isinstance(value, list) else ()
