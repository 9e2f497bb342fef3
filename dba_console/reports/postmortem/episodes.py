"""Findings of a session as episodes: from the event that raised one to the event that ended it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dba_console.core.errors import UsageError
from dba_console.reports.postmortem.timeline import text_of
from dba_console.watch.samples.event import Event

_RANKS = {"critical": 2, "warning": 1}
LEAD_US = 600_000_000
"""Shown before an incident: ten minutes of normal operation."""
LAG_US = 300_000_000


@dataclass(slots=True)
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

    def is_named(self, name: str) -> bool:
        """Return whether the name is its id, its rule, or one of the findings joined with it."""
        names = {self.id, self.rule, *self.parts}
        return name in names or name in {part.partition(":")[0] for part in names}


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


# The span of a report.


class RunSpan(NamedTuple):
    """A run of a runbook, from its first to its last record."""

    run: str
    runbook: str
    began_us: int
    last_us: int
    ending: str
    """How it ended; empty if it has not."""


class ReportScope(NamedTuple):
    """What a report covers."""

    from_us: int
    to_us: int
    core_us: tuple[int, int]
    """The incident itself, without the minutes before and after."""
    episodes: list[Episode]
    """Findings open within the core: of warning or critical severity, or, if there are none of these, all."""
    own: list[Episode]
    """Those that make up the incident: its times are theirs."""
    main: Episode | None
    chosen: str
    """How it was chosen."""
    run: RunSpan | None = None
    """The run that the report is about; None: it is about findings."""


def scope_of_span(episodes: Sequence[Episode], from_us: int, to_us: int, chosen: str) -> ReportScope:
    """Return the scope between two given times."""
    found = _within(episodes, from_us, to_us)
    own = [one for one in found if one.since_us >= from_us - LEAD_US]
    core = (from_us, to_us)
    if own:
        first_us, last_us = min(one.since_us for one in own), max(one.end_us(to_us) for one in own)
        core = (max(from_us, first_us), min(to_us, last_us))
    return ReportScope(from_us, to_us, core, found, own, _main(own or found, to_us), chosen)


def scope_of_finding(
    episodes: Sequence[Episode], name: str, limits: tuple[int, int], at_us: int | None = None
) -> ReportScope:
    """Return the scope of the episode of a finding that was open at that time, else of the last one.

    Raises UsageError if it was never raised.
    """
    named = [one for one in episodes if one.is_named(name)]
    if not named:
        known = ", ".join(dict.fromkeys(one.id for one in episodes)) or "none"
        raise UsageError(f"no finding {name!r} in this session", hint=f"findings of this session: {known}")
    open_then = [one for one in named if at_us is not None and one.overlaps(at_us, at_us)]
    main = [*named, *open_then][-1]
    count = "" if len(named) == 1 else f", number {named.index(main) + 1} of {len(named)} times"
    return scope_of_core(episodes, (main.since_us, main.end_us(limits[1])), limits, f"finding {main.id}{count}", main)


def scope_of_core(
    episodes: Sequence[Episode],
    core: tuple[int, int],
    limits: tuple[int, int],
    chosen: str,
    main: Episode | None = None,
) -> ReportScope:
    """Return the scope of what happened between two times, with the minutes before and after that were recorded."""
    first_us, last_us = limits
    found = _within(episodes, *core)
    if main is not None and main not in found:  # an info finding beside more severe ones
        found = [main, *found]
    own = [one for one in found if one.since_us >= core[0] - LEAD_US and (main is None or _is_joined(one, main))]
    core = max(first_us, min([core[0], *(one.since_us for one in own)])), min(last_us, core[1])
    from_us, to_us = max(first_us, core[0] - LEAD_US), min(last_us, core[1] + LAG_US)
    return ReportScope(from_us, to_us, core, found, own, main or _main(own or found, to_us), chosen)


def scope_of_run(episodes: Sequence[Episode], run: RunSpan, limits: tuple[int, int]) -> ReportScope:
    """Return the scope of a run, with the minutes before and after that were recorded."""
    core = run.began_us, run.last_us
    found = _within(episodes, *core)
    own = [one for one in found if one.since_us >= run.began_us]
    from_us, to_us = max(limits[0], core[0] - LEAD_US), min(limits[1], core[1] + LAG_US)
    return ReportScope(from_us, to_us, core, found, own, _main(own or found, to_us), f"run {run.run}", run)


def scope_of_session(episodes: Sequence[Episode], limits: tuple[int, int]) -> ReportScope:
    """Return the scope from the first to the last finding; without findings the whole session."""
    found = _within(episodes, *limits)
    if not found:
        return ReportScope(*limits, limits, [], [], None, "the whole session: no finding was raised")
    core = (min(one.since_us for one in found), max(one.end_us(limits[1]) for one in found))
    return scope_of_core(episodes, core, limits, "from the first to the last finding of the session")


def _is_joined(one: Episode, main: Episode) -> bool:
    return one is main or one.id in main.parts or main.id in one.parts


def _within(episodes: Sequence[Episode], from_us: int, to_us: int) -> list[Episode]:
    found = [one for one in episodes if one.overlaps(from_us, to_us)]
    return [one for one in found if one.urgent] or found


def _main(episodes: Sequence[Episode], to_us: int) -> Episode | None:
    """Return the most severe one; of several the longest."""
    return max(episodes, key=lambda one: (one.rank, one.end_us(to_us) - one.since_us), default=None)
