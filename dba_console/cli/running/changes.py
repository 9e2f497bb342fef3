"""Changes of a run between two of its views, and how they are printed: as text lines or as JSON objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import structs, to_builtins

from dba_console.cli.formatting import print_json
from dba_console.cli.frame_output import terminal_width
from dba_console.cli.stdout import put
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
from dba_console.watch.drawing.text_elements import Line, Span, Style, clean, line, line_text, wrap_lines
from dba_console.watch.drawing.time_formats import time_of_day
from dba_console.watch.samples.event import Event


class RunChange(NamedTuple):
    """A change as a JSON object and as text."""

    fields: dict[str, Any]
    """`event` is its kind: record, run, state, driver, step, block, table, measures, question, waiting, progress,
    journal, ended; and of the client: line, answer, refused, word.
    """
    draw: Callable[[int, int], list[Line]]
    """Returns its lines at a wall time, for a width in cells; empty if another change says the same."""


_SILENT_STATES = ("pending",)
MAX_WHOLE_ROWS = 20
"""Up to this many rows that do not fit are printed in full: text lines can be scrolled back."""


def view_changes(before: RunView | None, now: RunView) -> list[RunChange]:
    """Return the changes in reading order: position, tables, activity, question, end."""
    found: list[RunChange] = []
    if before is None:
        found.append(_run_change(now))
    else:
        found += _state_changes(before, now)
    found += _step_changes(before, now)
    found += _block_changes(before, now)
    for event, shown, table in (
        ("measures", None if before is None else before.measures, now.measures),
        ("table", None if before is None else before.table, now.table),
    ):
        if table is not None and table != shown:
            found.insert(_table_position(found, table.block, now), _table_change(event, table, now))
    found += _activity_changes(before, now)
    if now.question is not None and (before is None or before.question != now.question):
        found.append(_question_change(now.question, now))
    if is_over(now) and (before is None or not is_over(before)):
        found.append(
            RunChange(
                {"event": "ended", "run": now.run, "state": now.state, "text": now.ending,
                 "results": now.results, "summary": to_builtins(now.summary)},
                lambda at_us, cells: _ended_lines(now, cells),
            )
        )  # fmt: skip
    return found


def record_change(event: Event) -> RunChange:
    """Return a record of the run's journal, as it is in the session."""
    known = {name: event.details.get(name) for name in ("run", "seq", "step", "block", "execution", "state")}
    style: Style = "warn" if event.severity == "warning" else ""
    return RunChange(
        {"event": "record", **known, "kind": event.kind, "wall_us": event.wall_us, "tag": event.tag,
         "severity": event.severity, "who": event.who, "text": event.text},
        lambda at_us, cells: (
            texts(f"{time_of_day(event.wall_us)} {event.text}", cells, style) if event.kind in _SHOWN_RECORDS else []
        ),
    )  # fmt: skip


def message_change(text: str, event: str = "word", **fields: Any) -> RunChange:
    """Return a message of the client, or with another `event` one of the agent."""
    return RunChange({"event": event, **fields, "text": text}, lambda at_us, cells: texts(text, cells, "warn"))


def answer_change(run: str, question: int, text: str) -> RunChange:
    """Return an answer that was given as an option."""
    return _timed_change({"event": "answer", "run": run, "question": question, "text": text}, f"answered: {text}")


def line_change(run: str, block: str, one: OutputLine) -> RunChange:
    """Return a line of a command's output."""
    fields = {"event": "line", "run": run, "block": block, **structs.asdict(one)}
    return RunChange(fields, lambda at_us, cells: [output_line(one)])


def is_over(view: RunView) -> bool:
    """Return whether the run has ended and no question is open."""
    return view.state in ENDED_STATES and view.question is None


def _timed_change(fields: dict[str, Any], text: str) -> RunChange:
    """Return a change that is one text at its time; nothing is printed without a text."""
    return RunChange(fields, lambda at_us, cells: texts(f"{time_of_day(at_us)} {text}", cells) if text else [])


def _run_change(now: RunView) -> RunChange:
    steps = [{"id": step.id, "title": step.title, "usual_s": step.usual_s} for step in now.steps]
    return RunChange(
        {"event": "run", "run": now.run, "runbook": now.runbook, "title": now.title, "mode": now.mode,
         "state": now.state, "target": now.target, "place": now.place or now.target, "identity": now.identity,
         "who": now.who, "driver": now.driver, "directory": now.directory, "steps": steps,
         "text": to_builtins(now.prose)},
        lambda at_us, cells: _run_lines(now, cells),
    )  # fmt: skip


def _run_lines(now: RunView, cells: int) -> list[Line]:
    what = "rehearsal of" if now.mode == "rehearse" else "run of"
    by = f", started by {now.who}" if now.who else ""
    lines = [
        *texts(f"{what} {now.runbook}: {now.title}", cells, "title"),
        *texts(f"{now.run}{by}", cells, "dim"),
        *texts(f"on {now.place or now.target}{': ' + now.identity if now.identity else ''}", cells, "key"),
        *(texts(f"stored in {now.directory}", cells, "dim") if now.directory else []),
    ]
    if now.prose:
        lines += [(), *prose_lines(now.prose, cells), ()]
    for number, step in enumerate(now.steps, start=1):
        usual = f"  ~{short_time(step.usual_s)}" if step.usual_s is not None and step.usual_s >= 0.5 else ""
        lines += texts(f"{number:>3} {step.title}{usual}", cells)
    return [*lines, ()]


def _state_changes(before: RunView, now: RunView) -> Iterator[RunChange]:
    # The question shows that it waits for an answer; its activity shows that it runs.
    quiet = {before.state, now.state} <= {"planned", "running", "waiting"}
    if before.state != now.state and not quiet and not is_over(now):
        # The record of a pause or of its end has the operator and the reason.
        text = "" if now.state in ("paused", "running") else f"the run is {now.state}"
        yield _timed_change({"event": "state", "run": now.run, "state": now.state}, text)
    if before.driver != now.driver:
        who = now.driver
        text = f"{who} controls this run now" if who else "no console controls this run now"
        yield _timed_change({"event": "driver", "run": now.run, "driver": who}, text)


def _step_changes(before: RunView | None, now: RunView) -> Iterator[RunChange]:
    known: dict[str, StepView] = {} if before is None else {step.id: step for step in before.steps}
    new_step = before is None or before.current != now.current
    for number, step in enumerate(now.steps, start=1):
        was = known.get(step.id)
        same = was is not None and (was.state, was.note, was.round) == (step.state, step.note, step.round)
        silent = step.state in _SILENT_STATES and (was is None or was.state in _SILENT_STATES)
        # A question within a step is shown as a question.
        within = was is not None and {was.state, step.state} == {"running", "waiting"} and was.round == step.round
        if not same and not silent and not within:
            prose = now.step_prose if step.id == now.current and new_step else ()
            yield _step_change(number, step, prose, now)


def _step_change(number: int, step: StepView, prose: tuple[Prose, ...], now: RunView) -> RunChange:
    return RunChange(
        {"event": "step", "run": now.run, "step": step.id, "number": number, "title": step.title,
         "state": step.state, "text": step.note, "round": step.round, "elapsed_s": step.elapsed_s,
         "usual_s": step.usual_s, "usual_from": step.usual_from, "point_of_no_return": step.point_of_no_return,
         "prose": to_builtins(prose)},
        lambda at_us, cells: _step_lines(number, step, prose, at_us, cells),
    )  # fmt: skip


def _step_lines(number: int, step: StepView, prose: tuple[Prose, ...], at_us: int, cells: int) -> list[Line]:
    again = f", round {step.round}" if step.round > 1 else ""
    duration = ""
    if step.elapsed_s and step.state != "running":
        usual = f", typical {taken_time(step.usual_s)}: {step.usual_from}" if step.usual_s else ""
        duration = f" ({taken_time(step.elapsed_s)}{usual})"
    # Of a step that is ok the note says which blocks were skipped, as the lines of these blocks did.
    note = f": {clean(step.note)}" if step.note and step.state != "ok" else ""
    what = f"step {number} {clean(step.title)}{again}: {step.state}{duration}{note}"
    lines = [line(Span(f"{time_of_day(at_us)} ", "dim"), step_symbol(step.state), " ", Span(what, "title"))]
    if step.point_of_no_return and step.state in ("running", "waiting"):
        lines += texts("point of no return: this step cannot be undone", cells, "warn")
    return [*lines, *prose_lines(prose, cells)]


def _block_changes(before: RunView | None, now: RunView) -> Iterator[RunChange]:
    known: dict[str, BlockView] = {} if before is None else {block.id: block for block in before.blocks}
    asked_block = "" if now.question is None else now.question.block
    for block in now.blocks:
        was = known.get(block.id)
        same = was is not None and (was.state, was.note, was.exact) == (block.state, block.note, block.exact)
        if same or (block.state in _SILENT_STATES and block.id != asked_block) or block == was:
            continue
        first = was is None or was.state in _SILENT_STATES or was.exact != block.exact
        yield _block_change(block if first else structs.replace(block, exact=""), now)


def _block_change(block: BlockView, now: RunView) -> RunChange:
    ended = block.state in ("ok", "failed", "skipped", "unknown", "undone")
    # Its record has the outcome.
    drawn = structs.replace(block, note="") if ended else block
    return RunChange(
        {"event": "block", "run": now.run, "step": now.current, "block": block.id, "kind": block.kind,
         "title": block.title, "state": block.state, "text": block.note, "exact": block.exact,
         "elapsed_s": block.elapsed_s, "usual_s": block.usual_s},
        lambda at_us, cells: [] if ended and not block.exact else block_lines(drawn, cells, full=bool(block.exact)),
    )  # fmt: skip


def _table_change(event: str, table: RunTable, now: RunView) -> RunChange:
    """Return new rows: measurements or a preview."""
    return RunChange(
        {"event": event, "run": now.run, "table": {"block": "", **to_builtins(table)}},
        lambda at_us, cells: values_table(table, cells, few=MAX_WHOLE_ROWS),
    )


def _table_position(found: list[RunChange], block: str, now: RunView) -> int:
    """Return the index for the rows of a block: right after it, even if the run is further on."""
    places = {"block": block, "step": block.partition("/")[0]}
    kinds = [one.fields["event"] for one in found]
    positions = [
        index
        for index, (kind, one) in enumerate(zip(kinds, found, strict=True), 1)
        if kind in places and one.fields[kind] == places[kind]
    ]
    if positions:
        return positions[-1]
    if not block or any(one.id == block for one in now.blocks):
        return len(found)
    return next((index for index, kind in enumerate(kinds) if kind in places), len(found))


def _activity_changes(before: RunView | None, now: RunView) -> Iterator[RunChange]:
    same_block = before is not None and before.block == now.block
    if now.waiting is not None and (before is None or before.waiting != now.waiting):
        yield _waiting_change(now.waiting, now, begins=before is None or before.waiting is None or not same_block)
    # The progress of a command is its output, which is printed line by line.
    commanding = any(block.id == now.block and block.kind == "run" for block in now.blocks)
    if now.progress and not commanding and (before is None or before.progress != now.progress):
        begins = before is None or not before.progress or not same_block
        fields = {"event": "progress", "run": now.run, "block": now.block, "text": now.progress, "begins": begins}
        yield _timed_change(fields, now.progress)
    if now.journal != ("" if before is None else before.journal):
        text = f"journal of this run: {now.journal}" if now.journal else "the journal of this run is on disk again"
        style: Style = "warn" if now.journal else "ok"
        yield RunChange(
            {"event": "journal", "run": now.run, "text": now.journal}, lambda at_us, cells: texts(text, cells, style)
        )


def _waiting_change(waiting: WaitView, now: RunView, *, begins: bool) -> RunChange:
    held = "" if waiting.hold_for_s is None else f", condition true for {short_time(waiting.holds_s or 0.0)}"
    left = f", remaining: {waiting.left}" if waiting.left else ""
    change = _timed_change(
        {"event": "waiting", "run": now.run, "block": now.block, "waiting": to_builtins(waiting), "begins": begins},
        f"waiting: {waiting.values or waiting.text}{held}{left}",
    )
    return change._replace(draw=lambda at_us, cells: waiting_lines(waiting, cells)) if begins else change


def _question_change(question: Question, now: RunView) -> RunChange:
    fields: dict[str, Any] = to_builtins(question)
    return RunChange(
        {"event": "question", "run": now.run, "question": fields.pop("id"), **fields},
        lambda at_us, cells: _question_lines(question, cells),
    )


def _question_lines(question: Question, cells: int) -> list[Line]:
    rows = "Rows with ● are chosen: /x NUMBER leaves a row out, or includes it again." if question.rows else ""
    return [
        (),
        *question_lines(question, cells),
        *texts(rows, cells, "dim"),
        line(Span(f"{prompt_of(question)} >", "key")),
    ]


def _ended_lines(now: RunView, cells: int) -> list[Line]:
    """Return the summary, the results, and how it ended: the end is read first, as in a mailed job log."""
    table = [] if now.summary is None else values_table(now.summary, cells)
    results = [one for text in now.results for one in texts(text, cells)]
    return [(), *table, *results, *texts(now.ending or now.state, cells, "title")]


_SHOWN_RECORDS = frozenset({
    "block.seen", "block.result", "block.settled", "block.skipped", "wait.held", "choose.taken", "rows.chosen",
    "repeat.round", "input.given", "undo.settings", "undo.began", "undo.ended", "deviation", "person.took",
    "run.paused", "run.resumed", "run.interrupted", "run.restart", "journal.fallback", "journal.home",
})  # fmt: skip
"""Records that no view may have shown: views are sent at intervals, and a block may be over by then."""


# Printing changes on stdout: text lines, or one JSON object per line.

PIPE_WIDTH = 160
"""Columns of a line if stdout is not a terminal: a pipe does not wrap, and a table needs some width."""


def change_lines(change: RunChange, at_us: int, cells: int) -> list[Line]:
    """Return the lines of a change, none wider than `cells`."""
    return wrap_lines(change.draw(at_us, cells), cells)


def print_change_as_json(change: RunChange, at_us: int) -> None:
    """Print the change at the wall time `at_us` as one JSON object."""
    at = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    print_json({"at": at, **change.fields})


def print_change(change: RunChange, at_us: int) -> None:
    """Print the change at the wall time `at_us` as text lines."""
    cells = terminal_width() if sys.stdout.isatty() else PIPE_WIDTH
    for text_line in change_lines(change, at_us, cells):
        put(line_text(text_line))
