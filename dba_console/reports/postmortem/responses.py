"""How operators responded to an incident: acknowledgements, notes, and runs that address it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dba_console.core.units import human_duration
from dba_console.recording.plan import JournalRecord
from dba_console.recording.run_reader import StoredRun
from dba_console.recording.run_records import STARTED
from dba_console.reports.postmortem.scope import ReportScope
from dba_console.reports.postmortem.timeline import MAX_NAME, text_of
from dba_console.watch.samples.event import Event

_MARKS = {"finding.acknowledged": "acknowledged", "finding.silenced": "silenced"}
_NOTES = {"note": "note", "mark": "mark"}
_QUOTED = 60
"""Characters of a note that are quoted."""


class Response(NamedTuple):
    """An act of a person that shows that the incident was known."""

    at_us: int
    how: str


class AnsweringRun(NamedTuple):
    """A run that was about the incident. Times are those of the report."""

    run: str
    first: Response
    changes: tuple[tuple[int, str, bool], ...]
    """When a change of it was completed, with its block, and whether its step is the point of no return."""


def answering_runs(runs: Iterable[tuple[StoredRun, int]], scope: ReportScope) -> list[AnsweringRun]:
    """Return the runs that answer a finding of the incident or act on its subject, after it began and before it ended.

    With each run, what is to be added to its times.
    """
    rules = {rule for one in scope.own for rule in one.rules}
    runbooks = {one.runbook for one in scope.own if one.runbook}
    parts = {part for one in scope.own for part in (one.id, *one.parts)}
    subjects = [subject for part in parts if len(subject := part.partition(":")[2]) > 1]
    found = []
    for run, shift_us in runs:
        if run.about.mode != "run":
            continue
        answers = run.about.runbook in runbooks or (run.plan is not None and rules.intersection(run.plan.answers))
        within = [one for one in run.records if scope.core_us[0] <= one.wall_us + shift_us <= scope.core_us[1]]
        if answers:
            first = next((one for one in within if one.kind == STARTED), None)
            what = "which answers it, was started"
        else:
            first = next((one for one in within if one.kind == "block.intent" and _names(one, subjects)), None)
            what = "which acted on its subject, did so first"
        if first is None:
            continue
        by = f" by {text_of(first.who)[:MAX_NAME]}" if first.who else ""
        how = f"run {text_of(run.directory.name)}, {what}{by}"
        final = {step.id for step in (() if run.plan is None else run.plan.steps) if step.point_of_no_return}
        changes = tuple(
            (one.wall_us + shift_us, one.block, one.block.partition("/")[0] in final)
            for one in run.records
            if one.kind == "block.result" and one.state == "ok" and one.wall_us >= first.wall_us
        )
        found.append(AnsweringRun(run.directory.name, Response(first.wall_us + shift_us, how), changes))
    return found


def _names(record: JournalRecord, subjects: Sequence[str]) -> bool:
    """Return whether an intent names one of the subjects as a word."""
    text = f"{record.text} {record.fields.get('statement', '')} {record.fields.get('params', '')}"
    return any(re.search(rf"(?<![\w.]){re.escape(one)}(?![\w.])", text) for one in subjects)


def first_response(
    scope: ReportScope, detected_us: int, events: Sequence[Event], runs: Sequence[AnsweringRun]
) -> Response | None:
    """Return the first act about the incident until it ended; None if none was recorded."""
    found = [*_marks_and_notes(scope, detected_us, events), *(one.first for one in runs)]
    return min(found, key=lambda one: one.at_us, default=None)


def _marks_and_notes(scope: ReportScope, detected_us: int, events: Sequence[Event]) -> Iterator[Response]:
    names = {name for one in scope.own for name in (one.id, *one.parts)} | {r for one in scope.own for r in one.rules}
    for event in events:
        # By the time of recording: a note about an earlier time does not show that it was known then.
        if event.who is None or not detected_us <= event.wall_us <= scope.core_us[1]:
            continue
        by = f"by {text_of(event.who)[:MAX_NAME]} (event {event.seq})"
        if event.kind in _MARKS and str(event.details.get("id")) in names:
            yield Response(event.wall_us, f"finding {text_of(str(event.details['id']))} {_MARKS[event.kind]} {by}")
        elif event.kind in _NOTES:
            text = text_of(event.text)
            quoted = text if len(text) <= _QUOTED else text[:_QUOTED] + "…"
            yield Response(event.wall_us, f"first {_NOTES[event.kind]} {by}: {quoted}")


def last_change(runs: Sequence[AnsweringRun], until_us: int) -> str:
    """Return the last change of these runs until then, in words, preferably one at a point of no return; empty if there
    was none."""
    changes = [
        (final, at_us, one.run, block) for one in runs for at_us, block, final in one.changes if at_us <= until_us
    ]
    if not changes:
        return ""
    _, at_us, run, block = max(changes)
    return f"{text_of(block)} of run {text_of(run)}, {human_duration((until_us - at_us) / 1e6)} earlier"
