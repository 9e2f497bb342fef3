"""The time span of a postmortem, and its incident: one finding with its causes and effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dba_console.core.errors import UsageError
from dba_console.core.units import human_duration
from dba_console.reports.postmortem.episodes import Episode

LEAD_US = 600_000_000
"""Shown before an incident: ten minutes of normal operation."""
LAG_US = 300_000_000
OUTAGES = frozenset(("server-down", "no-primary", "split-brain", "postmaster-stopped"))
"""Rules that report that clients cannot use the server."""


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
    own: list[Episode]
    """The main finding and those joined with it: the times of the incident are theirs."""
    main: Episode | None
    others: list[Episode]
    """Further findings of the session, those within the span first: of warning or critical severity, or, if there are
    none of these, all."""
    chosen: str
    """How it was chosen."""
    run: RunSpan | None = None
    """The run that the report is about; None: it is about findings."""
    spanned: bool = False
    """All of the span was asked for."""

    def contains(self, wall_us: int) -> bool:
        """Return whether a time is within the span."""
        return self.from_us <= wall_us <= self.to_us


def scope_of_session(episodes: Sequence[Episode], limits: tuple[int, int]) -> ReportScope:
    """Return the scope of the most severe finding of the session; the whole session if none is above info."""
    found = [one for one in episodes if one.urgent]
    if not found:
        above = " above info" if episodes else ""
        whole = f"the whole session: no finding{above} was raised"
        return ReportScope(*limits, limits, [], None, _rest(episodes, [], limits), whole)
    own, why = _choose(found, limits)
    return _scope_of_incident(episodes, own, _main(own, limits[1]), limits, why)


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
    own = next(found for found in _incidents(episodes) if main in found)
    return _scope_of_incident(episodes, own, main, limits, f"finding {main.id}, as asked{count}")


def scope_of_span(episodes: Sequence[Episode], from_us: int, to_us: int) -> ReportScope:
    """Return the scope between two given times, about the most severe finding that was open in it."""
    found, span = [one for one in episodes if one.urgent and one.overlaps(from_us, to_us)], (from_us, to_us)
    asked = "the span that was asked for"
    if not found:
        return ReportScope(
            *span, span, [], None, _rest(episodes, [], span), f"{asked}: no finding above info was open", spanned=True
        )
    own, why = _choose(found, span)
    core = max(from_us, min(one.since_us for one in own)), min(to_us, max(one.end_us(to_us) for one in own))
    return ReportScope(
        *span, core, own, _main(own, to_us), _rest(episodes, own, span), f"{asked}, in it {why}", spanned=True
    )


def scope_of_run(episodes: Sequence[Episode], run: RunSpan, limits: tuple[int, int]) -> ReportScope:
    """Return the scope of a run, with the minutes before and after that were recorded."""
    core = run.began_us, run.last_us
    limits = min(limits[0], core[0]), max(limits[1], core[1])  # it may have begun or ended in another session
    span = max(limits[0], core[0] - LEAD_US), min(limits[1], core[1] + LAG_US)
    raised = [one for one in episodes if one.urgent and one.overlaps(*core) and one.since_us >= core[0]]
    return ReportScope(*span, core, raised, None, _rest(episodes, raised, span), f"run {run.run}", run)


def _scope_of_incident(
    episodes: Sequence[Episode], own: list[Episode], main: Episode, limits: tuple[int, int], chosen: str
) -> ReportScope:
    core = (
        max(limits[0], min(one.since_us for one in own)),
        min(limits[1], max(one.end_us(limits[1]) for one in own)),
    )
    span = max(limits[0], core[0] - LEAD_US), min(limits[1], core[1] + LAG_US)
    return ReportScope(*span, core, own, main, _rest(episodes, own, span), chosen)


def _rest(episodes: Sequence[Episode], own: Sequence[Episode], span: tuple[int, int]) -> list[Episode]:
    left = [one for one in episodes if one not in own]
    left = [one for one in left if one.urgent] or left
    return sorted(left, key=lambda one: (not one.overlaps(*span), -one.rank))


def _incidents(episodes: Sequence[Episode]) -> Iterator[list[Episode]]:
    """Yield the findings that are joined with each other, directly or through others; each finding once."""
    by_id = defaultdict[str, list[Episode]](list)
    for one in episodes:
        for name in {one.id, *one.parts}:
            by_id[name].append(one)
    seen: set[int] = set()
    for first in episodes:
        if id(first) in seen:
            continue
        found = [first]
        seen.add(id(first))
        for one in found:  # which grows
            for other in (other for name in (one.id, *one.parts) for other in by_id[name]):
                if id(other) not in seen and one.is_joined(other):
                    seen.add(id(other))
                    found.append(other)
        yield sorted(found, key=lambda one: one.since_us)


class _Weight(NamedTuple):
    """What decides which incident a report is about, in this order."""

    rank: int
    outage: bool
    passing: bool
    """False: a lasting condition, open before the first sample and after the last one."""
    seconds: float


def _choose(episodes: Sequence[Episode], limits: tuple[int, int]) -> tuple[list[Episode], str]:
    """Return the incident that the report is about, and why it was chosen."""
    weighed = [(_weigh(own, limits), own) for own in _incidents(episodes)]
    best, own = max(weighed, key=lambda one: one[0])
    main = _main(own, limits[1])
    return own, f"finding {main.id}, {_why(best, [weight for weight, _ in weighed], main.severity)}"


def _weigh(own: Sequence[Episode], limits: tuple[int, int]) -> _Weight:
    first_us, last_us = min(one.since_us for one in own), max(one.end_us(limits[1]) for one in own)
    lasting = first_us <= limits[0] and any(one.end is None for one in own)
    seconds = (min(last_us, limits[1]) - max(first_us, limits[0])) / 1e6
    return _Weight(max(one.rank for one in own), any(one.rules & OUTAGES for one in own), not lasting, seconds)


def _why(best: _Weight, weights: Sequence[_Weight], severity: str) -> str:
    if len(weights) == 1:
        return "the only one above info"
    noun = "critical finding" if severity == "critical" else severity
    equal = [one for one in weights if one.rank == best.rank]
    if len(equal) == 1:
        return f"the only {noun} of {len(weights)}"
    of = f"of {len(equal)} {noun}s"
    outages = [one for one in equal if one.outage == best.outage]
    if best.outage and len(outages) == 1:
        return f"{of} the only one that reports an outage"
    if best.outage and len(outages) < len(equal):
        of += f", {len(outages)} of which report an outage,"
    if best.passing and sum(one.passing for one in outages) == 1:
        return f"{of} the only one that was not open all the time"
    if best.passing and not all(one.passing for one in outages):
        of += " without those that were open all the time,"
    return f"{of} the one that was open the longest: {human_duration(best.seconds)}"


def _main(own: Sequence[Episode], to_us: int) -> Episode:
    """Return the most severe one; of several the longest."""
    return max(own, key=lambda one: (one.rank, one.end_us(to_us) - one.since_us))
