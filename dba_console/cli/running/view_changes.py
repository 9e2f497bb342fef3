"""What happened to a run between two views of it. Pure; each change is an object of plain JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dba_console.plans.run_view import ENDED_STATES, BlockView, Question, RunView, StepView
from dba_console.samples.event import Event

Change = dict[str, Any]
"""`event` says which: record, run, state, driver, step, block, table, measures, question, waiting, progress, journal,
ended; and of the client itself: line, answer, refused, word.
"""

_SILENT_STATES = ("pending",)


def view_changes(before: RunView | None, now: RunView) -> list[Change]:
    """What to tell, in the order in which it is read: where the run is, what is shown, what is asked, how it ended."""
    found: list[Change] = []
    if before is None:
        found.append(_run_change(now))
    else:
        found += _state_changes(before, now)
    found += _step_changes(before, now)
    found += _block_changes(before, now)
    for change in _table_changes(before, now):
        found.insert(_table_position(found, change["table"]["block"], now), change)
    found += _activity_changes(before, now)
    if now.question is not None and (before is None or before.question != now.question):
        found.append(_question_change(now.question, now))
    if is_over(now) and (before is None or not is_over(before)):
        found.append(
            {"event": "ended", "run": now.run, "state": now.state, "text": now.ending,
             "summary": msgspec.to_builtins(now.summary)}
        )  # fmt: skip
    return found


def record_change(event: Event) -> Change:
    """A record of the run's journal, as the session tells it."""
    known = {name: event.details.get(name) for name in ("run", "seq", "step", "block", "execution", "state")}
    return {
        "event": "record", **known, "kind": event.kind, "wall_us": event.wall_us, "tag": event.tag,
        "severity": event.severity, "who": event.who, "text": event.text,
    }  # fmt: skip


def is_over(view: RunView) -> bool:
    """The run has come to its end, and nothing more is asked."""
    return view.state in ENDED_STATES and view.question is None


def _run_change(now: RunView) -> Change:
    steps = [{"id": step.id, "title": step.title, "usual_s": step.usual_s} for step in now.steps]
    return {
        "event": "run", "run": now.run, "runbook": now.runbook, "title": now.title, "mode": now.mode,
        "state": now.state, "target": now.target, "place": now.place or now.target, "identity": now.identity,
        "who": now.who, "driver": now.driver, "directory": now.directory, "text": now.prose, "steps": steps,
    }  # fmt: skip


def _state_changes(before: RunView, now: RunView) -> Iterator[Change]:
    # That it waits for an answer is told by the question; that it runs, by what it does.
    quiet = {before.state, now.state} <= {"planned", "running", "waiting"}
    if before.state != now.state and not quiet and not is_over(now):
        yield {"event": "state", "run": now.run, "state": now.state}
    if before.driver != now.driver:
        yield {"event": "driver", "run": now.run, "driver": now.driver}


def _step_changes(before: RunView | None, now: RunView) -> Iterator[Change]:
    known: dict[str, StepView] = {} if before is None else {step.id: step for step in before.steps}
    for number, step in enumerate(now.steps, start=1):
        was = known.get(step.id)
        same = was is not None and (was.state, was.note, was.round) == (step.state, step.note, step.round)
        silent = step.state in _SILENT_STATES and (was is None or was.state in _SILENT_STATES)
        # A question within a step is told as the question it is.
        within = was is not None and {was.state, step.state} == {"running", "waiting"} and was.round == step.round
        if not same and not silent and not within:
            yield {
                "event": "step", "run": now.run, "step": step.id, "number": number, "title": step.title,
                "state": step.state, "text": step.note, "round": step.round, "elapsed_s": step.elapsed_s,
                "usual_s": step.usual_s, "usual_from": step.usual_from, "point_of_no_return": step.point_of_no_return,
                "prose": now.step_prose if step.id == now.current and _is_new_step(before, now) else "",
            }  # fmt: skip


def _is_new_step(before: RunView | None, now: RunView) -> bool:
    return before is None or before.current != now.current


def _block_changes(before: RunView | None, now: RunView) -> Iterator[Change]:
    known: dict[str, BlockView] = {} if before is None else {block.id: block for block in before.blocks}
    asked_block = "" if now.question is None else now.question.block
    for block in now.blocks:
        was = known.get(block.id)
        same = was is not None and (was.state, was.note, was.exact) == (block.state, block.note, block.exact)
        if same or (block.state in _SILENT_STATES and block.id != asked_block) or block == was:
            continue
        first = was is None or was.state in _SILENT_STATES or was.exact != block.exact
        yield {
            "event": "block", "run": now.run, "step": now.current, "block": block.id, "kind": block.kind,
            "title": block.title, "state": block.state, "text": block.note, "exact": block.exact if first else "",
            "elapsed_s": block.elapsed_s, "usual_s": block.usual_s,
        }  # fmt: skip


def _table_changes(before: RunView | None, now: RunView) -> Iterator[Change]:
    """Rows that are new, what was measured and what was looked at."""
    if now.measures is not None and (before is None or before.measures != now.measures):
        yield {"event": "measures", "run": now.run, "table": {"block": "", **msgspec.to_builtins(now.measures)}}
    if now.table is not None and (before is None or before.table != now.table):
        yield {"event": "table", "run": now.run, "table": {"block": "", **msgspec.to_builtins(now.table)}}


def _table_position(found: list[Change], block: str, now: RunView) -> int:
    """Where in what is told the rows of a block belong: right after it, though the run may be further on by now."""
    step = block.partition("/")[0]
    of_it = [
        place
        for place, change in enumerate(found, 1)
        if (change["event"], change.get("block")) == ("block", block)
        or (change["event"], change.get("step")) == ("step", step)
    ]
    if of_it:
        return of_it[-1]
    if not block or any(one.id == block for one in now.blocks):
        return len(found)
    return next((place for place, one in enumerate(found) if one["event"] in ("step", "block")), len(found))


def _activity_changes(before: RunView | None, now: RunView) -> Iterator[Change]:
    if now.waiting is not None and (before is None or before.waiting != now.waiting):
        yield {
            "event": "waiting", "run": now.run, "block": now.block, "waiting": msgspec.to_builtins(now.waiting),
            "begins": before is None or before.waiting is None or before.block != now.block,
        }  # fmt: skip
    # What a command says of itself is its output, which is told line by line.
    commanding = any(block.id == now.block and block.kind == "run" for block in now.blocks)
    if now.progress and not commanding and (before is None or before.progress != now.progress):
        yield {"event": "progress", "run": now.run, "block": now.block, "text": now.progress,
               "begins": before is None or not before.progress or before.block != now.block}  # fmt: skip
    if (before is None and now.journal) or (before is not None and before.journal != now.journal):
        yield {"event": "journal", "run": now.run, "text": now.journal}


def _question_change(question: Question, now: RunView) -> Change:
    return {"event": "question", "run": now.run, **_question_fields(question)}


def _question_fields(question: Question) -> Change:
    fields: Change = msgspec.to_builtins(question)
    return {"question": fields.pop("id"), **fields}
