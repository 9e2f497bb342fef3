"""Changes of a run between two of its views, and how they are printed: as text lines or as JSON objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from dba_console.cli.formatting import print_json
from dba_console.cli.frame_output import terminal_width
from dba_console.cli.stdout import put
from dba_console.core.decoding import convert
from dba_console.recording.plan import Prose
from dba_console.runbooks.run_view import (
    ENDED_STATES,
    BlockView,
    OutputLine,
    Question,
    RunTable,
    RunView,
    StepView,
    WaitView,
)
from dba_console.runbooks.walkthrough_text import (
    block_lines,
    output_line,
    prompt_of,
    prose_lines,
    question_lines,
    short_time,
    step_symbol,
    taken_time,
    texts,
    values_table,
    waiting_lines,
)
from dba_console.watch.panels.text_elements import Line, Span, Style, clean, line, line_text, wrap_lines
from dba_console.watch.panels.time_formats import time_of_day
from dba_console.watch.samples.event import Event

Change = dict[str, Any]
"""A JSON object. `event` is its kind: record, run, state, driver, step, block, table, measures, question, waiting,
progress, journal, ended; and of the client: line, answer, refused, word.
"""

_SILENT_STATES = ("pending",)


def view_changes(before: RunView | None, now: RunView) -> list[Change]:
    """Return the changes in reading order: position, tables, activity, question, end."""
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
    """Return a record of the run's journal, as it is in the session."""
    known = {name: event.details.get(name) for name in ("run", "seq", "step", "block", "execution", "state")}
    return {
        "event": "record", **known, "kind": event.kind, "wall_us": event.wall_us, "tag": event.tag,
        "severity": event.severity, "who": event.who, "text": event.text,
    }  # fmt: skip


def is_over(view: RunView) -> bool:
    """Return whether the run has ended and no question is open."""
    return view.state in ENDED_STATES and view.question is None


def _run_change(now: RunView) -> Change:
    steps = [{"id": step.id, "title": step.title, "usual_s": step.usual_s} for step in now.steps]
    return {
        "event": "run", "run": now.run, "runbook": now.runbook, "title": now.title, "mode": now.mode,
        "state": now.state, "target": now.target, "place": now.place or now.target, "identity": now.identity,
        "who": now.who, "driver": now.driver, "directory": now.directory, "steps": steps,
        "text": msgspec.to_builtins(now.prose),
    }  # fmt: skip


def _state_changes(before: RunView, now: RunView) -> Iterator[Change]:
    # The question shows that it waits for an answer; its activity shows that it runs.
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
        # A question within a step is shown as a question.
        within = was is not None and {was.state, step.state} == {"running", "waiting"} and was.round == step.round
        if not same and not silent and not within:
            prose = now.step_prose if step.id == now.current and _is_new_step(before, now) else ()
            yield {
                "event": "step", "run": now.run, "step": step.id, "number": number, "title": step.title,
                "state": step.state, "text": step.note, "round": step.round, "elapsed_s": step.elapsed_s,
                "usual_s": step.usual_s, "usual_from": step.usual_from, "point_of_no_return": step.point_of_no_return,
                "prose": msgspec.to_builtins(prose),
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
    """Yield new rows: measurements and previews."""
    if now.measures is not None and (before is None or before.measures != now.measures):
        yield {"event": "measures", "run": now.run, "table": {"block": "", **msgspec.to_builtins(now.measures)}}
    if now.table is not None and (before is None or before.table != now.table):
        yield {"event": "table", "run": now.run, "table": {"block": "", **msgspec.to_builtins(now.table)}}


def _table_position(found: list[Change], block: str, now: RunView) -> int:
    """Return the index for the rows of a block: right after it, even if the run is further on."""
    step = block.partition("/")[0]
    positions = [
        index
        for index, change in enumerate(found, 1)
        if (change["event"], change.get("block")) == ("block", block)
        or (change["event"], change.get("step")) == ("step", step)
    ]
    if positions:
        return positions[-1]
    if not block or any(one.id == block for one in now.blocks):
        return len(found)
    return next((index for index, one in enumerate(found) if one["event"] in ("step", "block")), len(found))


def _activity_changes(before: RunView | None, now: RunView) -> Iterator[Change]:
    if now.waiting is not None and (before is None or before.waiting != now.waiting):
        yield {
            "event": "waiting", "run": now.run, "block": now.block, "waiting": msgspec.to_builtins(now.waiting),
            "begins": before is None or before.waiting is None or before.block != now.block,
        }  # fmt: skip
    # The progress of a command is its output, which is printed line by line.
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


# Changes as text lines. Pure.

MAX_WHOLE_ROWS = 20
"""Up to this many rows that do not fit are printed in full: text lines can be scrolled back."""


def change_lines(change: Change, at_us: int, cells: int) -> list[Line]:
    """Return the lines of a change; empty for an event unknown to this version."""
    formatter = _FORMATTERS.get(str(change.get("event")))
    return [] if formatter is None else wrap_lines(formatter(change, at_us, cells), cells)


def _run(change: Change, at_us: int, cells: int) -> list[Line]:
    what = "rehearsal of" if change["mode"] == "rehearse" else "run of"
    by = f", started by {change['who']}" if change["who"] else ""
    lines = [
        *texts(f"{what} {change['runbook']}: {change['title']}", cells, "title"),
        *texts(f"{change['run']}{by}", cells, "dim"),
        *texts(f"on {change['place']}{': ' + change['identity'] if change['identity'] else ''}", cells, "key"),
        *(texts(f"stored in {change['directory']}", cells, "dim") if change["directory"] else []),
    ]
    if change["text"]:
        lines += [(), *prose_lines(_prose(change["text"]), cells), ()]
    for number, step in enumerate(change["steps"], start=1):
        usual = f"  ~{short_time(step['usual_s'])}" if (step["usual_s"] or 0.0) >= 0.5 else ""
        lines += texts(f"{number:>3} {step['title']}{usual}", cells)
    return [*lines, ()]


def _prose(texts: object) -> tuple[Prose, ...]:
    return convert(texts, tuple[Prose, ...])


def _state(change: Change, at_us: int, cells: int) -> list[Line]:
    if change["state"] in ("paused", "running"):
        return []  # its record has the operator and the reason
    return _timed_lines(at_us, f"the run is {change['state']}", cells)


def _driver(change: Change, at_us: int, cells: int) -> list[Line]:
    who = change["driver"]
    return _timed_lines(at_us, f"{who} controls this run now" if who else "no console controls this run now", cells)


def _step(change: Change, at_us: int, cells: int) -> list[Line]:
    again = f", round {change['round']}" if change["round"] > 1 else ""
    duration = ""
    if change["elapsed_s"] and change["state"] != "running":
        usual = f", typical {taken_time(change['usual_s'])}: {change['usual_from']}" if change["usual_s"] else ""
        duration = f" ({taken_time(change['elapsed_s'])}{usual})"
    note = f": {clean(change['text'])}" if change["text"] else ""
    what = f"step {change['number']} {clean(change['title'])}{again}: {change['state']}{duration}{note}"
    lines = [line(Span(f"{time_of_day(at_us)} ", "dim"), step_symbol(change["state"]), " ", Span(what, "title"))]
    if change["point_of_no_return"] and change["state"] in ("running", "waiting"):
        lines += texts("point of no return: this step cannot be undone", cells, "warn")
    return [*lines, *prose_lines(_prose(change["prose"]), cells)]


def _record(change: Change, at_us: int, cells: int) -> list[Line]:
    if change["kind"] not in _SHOWN_RECORDS:
        return []
    style: Style = "warn" if change["severity"] == "warning" else ""
    return texts(f"{time_of_day(change['wall_us'])} {change['text']}", cells, style)


def _block(change: Change, at_us: int, cells: int) -> list[Line]:
    ended = change["state"] in _ENDED
    if ended and not change["exact"]:
        return []  # its record has the outcome
    block = BlockView(
        id=change["block"], kind=change["kind"], title=change["title"], state=change["state"], exact=change["exact"],
        note="" if ended else change["text"], usual_s=change["usual_s"], elapsed_s=change["elapsed_s"],
    )  # fmt: skip
    return block_lines(block, cells, full=bool(change["exact"]))


def _table(change: Change, at_us: int, cells: int) -> list[Line]:
    return values_table(convert(change["table"], RunTable), cells, few=MAX_WHOLE_ROWS)


def _question_lines(change: Change, at_us: int, cells: int) -> list[Line]:
    fields = {**change, "id": change["question"]}
    question = convert(fields, Question)
    rows = "Rows with ● are chosen: /x NUMBER leaves a row out, or includes it again." if question.rows else ""
    return [
        (),
        *question_lines(question, cells),
        *texts(rows, cells, "dim"),
        line(Span(f"{prompt_of(question)} >", "key")),
    ]


def _waiting(change: Change, at_us: int, cells: int) -> list[Line]:
    waiting = convert(change["waiting"], WaitView)
    if change["begins"]:
        return waiting_lines(waiting, cells)
    held = "" if waiting.hold_for_s is None else f", condition true for {short_time(waiting.holds_s or 0.0)}"
    left = f", {waiting.left} left" if waiting.left else ""
    return _timed_lines(at_us, f"waiting: {waiting.values or waiting.text}{held}{left}", cells)


def _progress(change: Change, at_us: int, cells: int) -> list[Line]:
    return _timed_lines(at_us, change["text"], cells)


def _journal(change: Change, at_us: int, cells: int) -> list[Line]:
    text = f"journal of this run: {change['text']}" if change["text"] else "the journal of this run is on disk again"
    return texts(text, cells, "warn" if change["text"] else "ok")


def _ended(change: Change, at_us: int, cells: int) -> list[Line]:
    """Return the summary, then how it ended: the end of the output is read first, as in a mailed job log."""
    table = [] if change["summary"] is None else values_table(convert(change["summary"], RunTable), cells)
    return [(), *table, *texts(change["text"] or change["state"], cells, "title")]


def _line(change: Change, at_us: int, cells: int) -> list[Line]:
    return [output_line(OutputLine(change["wall_us"], change["stream"], change["tag"], change["text"]))]


def _message(change: Change, at_us: int, cells: int) -> list[Line]:
    return texts(change["text"], cells, "warn")


def _answer(change: Change, at_us: int, cells: int) -> list[Line]:
    return _timed_lines(at_us, f"answered: {change['text']}", cells)


def _timed_lines(at_us: int, text: str, cells: int) -> list[Line]:
    return texts(f"{time_of_day(at_us)} {text}", cells)


_ENDED = ("ok", "failed", "skipped", "unknown", "undone")
_SHOWN_RECORDS = frozenset({
    "block.seen", "block.result", "block.settled", "block.skipped", "wait.held", "choose.taken", "rows.chosen",
    "repeat.round", "input.given", "undo.settings", "undo.began", "undo.ended", "deviation", "person.took",
    "run.paused", "run.resumed", "run.interrupted", "run.restart", "journal.fallback", "journal.home",
})  # fmt: skip
"""Records that no view may have shown: views are sent at intervals, and a block may be over by then."""
_FORMATTERS: dict[str, Callable[[Change, int, int], list[Line]]] = {
    "run": _run, "state": _state, "driver": _driver, "step": _step, "block": _block, "table": _table,
    "measures": _table, "question": _question_lines, "waiting": _waiting, "progress": _progress, "journal": _journal,
    "ended": _ended, "line": _line, "record": _record, "word": _message, "refused": _message, "answer": _answer,
}  # fmt: skip


# Printing changes on stdout: text lines, or one JSON object per line.

PIPE_WIDTH = 160
"""Columns of a line if stdout is not a terminal: a pipe does not wrap, and a table needs some width."""


def change_printer(*, json: bool) -> Callable[[Change, int], None]:
    """Return the function that prints a change at the time `at_us` on stdout."""
    return _print_json if json else _print_text


def _print_json(change: Change, at_us: int) -> None:
    at = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    print_json({"at": at, **change})


def _print_text(change: Change, at_us: int) -> None:
    cells = terminal_width() if sys.stdout.isatty() else PIPE_WIDTH
    for text_line in change_lines(change, at_us, cells):
        put(line_text(text_line))
