"""The summary of an incident: its times and how each is known, a text, and questions that only people can answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dba_console.core.units import human_duration
from dba_console.reports.postmortem.episodes import Episode
from dba_console.reports.postmortem.facts import Cause, GapFacts, IncidentTime, Measured, ReportedRun, SessionFacts
from dba_console.reports.postmortem.impact import OUTAGE
from dba_console.reports.postmortem.responses import AnsweringRun, first_response, last_change
from dba_console.reports.postmortem.scope import ReportScope, RunSpan
from dba_console.watch.drawing.time_formats import format_rfc3339
from dba_console.watch.samples.event import Event

_NO_FINDING = "no finding above info was open in the span"
_PROMPTS = (
    "Which customers and services noticed it, and how? The numbers above are those of the database only.",
    "Why did it begin then? What had changed before: releases, load, data, hardware?",
    "What surprised those who were there? What did they believe at each decision, and on what grounds?",
    "Which of the conclusions of the console above are right, which are wrong, what did it miss?",
    "What went well, what went badly, where was luck involved?",
    "What would have shown it earlier, or shortened it?",
    "Which actions follow, who owns each, and until when?",
)


def find_moments(scope: ReportScope, events: Sequence[Event], runs: Sequence[AnsweringRun]) -> list[IncidentTime]:
    """Return began, detected, acknowledged, cleared and ended, each known or with the reason why not."""
    if scope.run is not None:
        return _moments_of_run(scope.run)
    began, detected = _began(scope), _detected(scope)
    moments = [
        began,
        detected,
        _acknowledged(scope, detected, events, runs),
        _cleared(scope, runs),
        _ended(scope),
    ]
    if began.at_us is None:
        return moments
    start_us = began.at_us
    return [
        IncidentTime(
            one.name, one.at_us, one.how, None if one.at_us is None else max(0.0, (one.at_us - start_us) / 1e6)
        )
        for one in moments
    ]


def _moments_of_run(run: RunSpan) -> list[IncidentTime]:
    lasted_s = (run.last_us - run.began_us) / 1e6
    began = IncidentTime("began", run.began_us, f"first record of run {run.run}", 0.0)
    if not run.ending:
        how = f"the run has not ended; its last record is {human_duration(lasted_s)} after the first"
        return [began, IncidentTime("ended", None, how)]
    return [began, IncidentTime("ended", run.last_us, f"last record of the run: {run.ending}", lasted_s)]


def _began(scope: ReportScope) -> IncidentTime:
    if not scope.own:
        return IncidentTime("began", None, _NO_FINDING)
    first = min(scope.own, key=lambda one: one.since_us)
    return IncidentTime("began", first.since_us, f"start of {first.id}, as its rule read it (event {first.raised.seq})")


def _detected(scope: ReportScope) -> IncidentTime:
    if not scope.own:
        return IncidentTime("detected", None, _NO_FINDING)
    first = min(scope.own, key=lambda one: one.raised.wall_us)
    return IncidentTime("detected", first.raised.wall_us, f"finding {first.id} was raised (event {first.raised.seq})")


def _acknowledged(
    scope: ReportScope, detected: IncidentTime, events: Sequence[Event], runs: Sequence[AnsweringRun]
) -> IncidentTime:
    detected_us = scope.core_us[0] if detected.at_us is None else detected.at_us
    first = first_response(scope, detected_us, events, runs)
    if first is None:
        why = "no acknowledgement, note or run about it was recorded before it ended"
        return IncidentTime("acknowledged", None, why)
    return IncidentTime("acknowledged", first.at_us, first.how)


def _cleared(scope: ReportScope, runs: Sequence[AnsweringRun]) -> IncidentTime:
    main = scope.main
    if main is None:
        return IncidentTime("cleared", None, _NO_FINDING)
    severe = [one for one in scope.own if one.rank == main.rank]
    last = max(severe, key=lambda one: one.end_us(1 << 62))
    if last.ended_as == "joined":  # it lasted as long as the one that it became part of
        last = max(scope.own, key=lambda one: one.end_us(1 << 62))
    if last.end is None or last.end.wall_us > scope.to_us:
        of = "recording" if last.end is None else "span"
        return IncidentTime("cleared", None, f"finding {last.id} was still open at the end of the {of}")
    change = last_change(runs, last.end.wall_us)
    after = f"; change before it: {change}" if change else ""
    return IncidentTime("cleared", last.end.wall_us, f"finding {last.id} was cleared (event {last.end.seq}){after}")


def _ended(scope: ReportScope) -> IncidentTime:
    if not scope.own:
        return IncidentTime("ended", None, _NO_FINDING)
    still_open = [one.id for one in scope.own if one.end is None or one.end.wall_us > scope.to_us]
    if still_open:
        return IncidentTime("ended", None, f"still open at the end: {', '.join(dict.fromkeys(still_open))}")
    ends = [one for one in scope.own if one.end is not None]
    last = max(ends, key=lambda one: one.end_us(0))
    seq = last.end.seq if last.end is not None else 0
    return IncidentTime("ended", last.end_us(0), f"its last finding, {last.id}, was cleared (event {seq})")


def title_of(scope: ReportScope, session: SessionFacts) -> str:
    """Return the title: what, where, when."""
    found = scope.main.id if scope.main is not None else "no finding"
    what = found if scope.run is None else scope.run.runbook
    where = session.target or session.id
    return f"Postmortem: {what} on {where}, {format_rfc3339(scope.core_us[0])[:10]}"


def summarize_incident(
    scope: ReportScope,
    session: SessionFacts,
    moments: Sequence[IncidentTime],
    impact: Sequence[Measured],
    causes: Sequence[Cause],
    runs: Sequence[ReportedRun],
) -> Iterator[str]:
    """Yield the sentences of the summary, from known facts only."""
    where = " on host ".join(filter(None, (session.target, session.host))) or f"session {session.id}"
    known = {one.name: one for one in moments}
    began, ended = known["began"], known["ended"]
    if scope.run is not None:
        lasted = f", {human_duration(ended.after_s)}: {scope.run.ending}" if scope.run.ending else f": {ended.how}"
        yield f"{where}: run of {scope.run.runbook}{lasted}."
        if scope.own:
            yield f"Findings raised meanwhile: {', '.join(dict.fromkeys(one.id for one in scope.own))}."
    elif began.at_us is None:
        yield f"{where}: {began.how}."
    else:
        yield f"{where}: {_sentence(causes, scope.main)}"
        lasted = f"lasted {human_duration(ended.after_s)}" if ended.at_us is not None else f"was {ended.how}"
        yield f"It began at {_utc(began.at_us)} UTC and {lasted}."
        yield "It was " + "; ".join(_after(known[name]) for name in ("detected", "acknowledged", "cleared")) + "."
    if scope.main is not None:
        yield f"This report is about {scope.chosen}."
    headline = [f"{one.name}: {one.value}" for one in impact if one.name in _HEADLINES and _is_notable(one)]
    if headline:
        yield ". ".join(headline) + "."
    for words, chosen in (("Runs about it", True), ("Other runs", False)):
        named = [f"{run.runbook} by {run.who or 'unknown'} ({run.state})" for run in runs if run.related is chosen]
        if named:
            yield f"{words}: {', '.join(named)}."


def _is_notable(one: Measured) -> bool:
    return one.session == 0 and one.value is not None and not one.is_zero and not one.value.startswith("0.")


_HEADLINES = frozenset(
    ("All ordinary connection slots in use", "Transactions below the typical rate", "Longest lock wait",
     "All tasks stalled on I/O", "Write outage", OUTAGE)
)  # fmt: skip


def _sentence(causes: Sequence[Cause], main: Episode | None) -> str:
    if main is None or not causes:
        return "no finding."
    text = causes[0].text
    return text if text.endswith((".", "…")) else f"{text}."


def _utc(wall_us: int) -> str:
    return format_rfc3339(wall_us)[:19].replace("T", " ")


def _after(moment: IncidentTime) -> str:
    if moment.at_us is None:
        return f"{moment.name}: not known ({moment.how})"
    return f"{moment.name} after {human_duration(moment.after_s)}"


def open_questions(
    scope: ReportScope, moments: Sequence[IncidentTime], runs: Sequence[ReportedRun], gaps: Sequence[GapFacts]
) -> Iterator[str]:
    """Yield what the recording cannot answer."""
    for one in moments:
        if one.at_us is None:
            yield (
                f"When was it {one.name}? The recording does not show it: {one.how}."
                if one.name != "began"
                else (f"When did it begin? The recording does not show it: {one.how}.")
            )
    for gap in gaps[:5]:
        lasted = human_duration(max(0, gap.to_us - gap.from_us) / 1e6)
        yield f"What happened from {_utc(gap.from_us)} UTC on for {lasted}? Nothing was recorded: {gap.reason}."
    for run in (one for one in runs if one.related):
        if run.deviations:
            yield f"Run {run.run} deviated from its document {len(run.deviations)} times: should the document change?"
        if run.state not in ("done", "running"):
            yield f"Run {run.run} ended as {run.state}: what was left half done?"
    yield from _PROMPTS
