"""Changes of a run as lines for people. Pure: what a plain terminal says when something happened."""

from __future__ import annotations

from collections.abc import Callable

from dba_console.cli.running.view_changes import Change
from dba_console.decoding import convert
from dba_console.panels.text_elements import Line, Span, Style, clean, line
from dba_console.panels.time_formats import time_of_day
from dba_console.panels.wrapping import wrap_lines
from dba_console.plans.run_view import BlockView, OutputLine, Question, RunTable, WaitView
from dba_console.walkthrough.prose import prose_lines
from dba_console.walkthrough.symbols import step_symbol
from dba_console.walkthrough.text import (
    block_lines,
    output_line,
    prompt_of,
    question_lines,
    short_time,
    taken_time,
    texts,
    values_table,
    waiting_lines,
)

MAX_WHOLE_ROWS = 20
"""So many rows that do not fit are told whole: lines of text can be scrolled back to."""


def change_lines(change: Change, at_us: int, cells: int) -> list[Line]:
    """The lines that tell of it; none for an event this version does not know."""
    formatter = _FORMATTERS.get(str(change.get("event")))
    return [] if formatter is None else wrap_lines(formatter(change, at_us, cells), cells)


def _run(change: Change, at_us: int, cells: int) -> list[Line]:
    what = "rehearsal of" if change["mode"] == "rehearse" else "run of"
    by = f", begun by {change['who']}" if change["who"] else ""
    lines = [
        *texts(f"{what} {change['runbook']}: {change['title']}", cells, "title"),
        *texts(f"{change['run']}{by}", cells, "dim"),
        *texts(f"on {change['place']}{': ' + change['identity'] if change['identity'] else ''}", cells, "key"),
        *(texts(f"kept in {change['directory']}", cells, "dim") if change["directory"] else []),
    ]
    if change["text"]:
        lines += [(), *prose_lines(change["text"], cells), ()]
    for number, step in enumerate(change["steps"], start=1):
        usual = f"  ~{short_time(step['usual_s'])}" if (step["usual_s"] or 0.0) >= 0.5 else ""
        lines += texts(f"{number:>3} {step['title']}{usual}", cells)
    return [*lines, ()]


def _state(change: Change, at_us: int, cells: int) -> list[Line]:
    if change["state"] in ("paused", "running"):
        return []  # its record says by whom and why
    return _timed_lines(at_us, f"the run is {change['state']}", cells)


def _driver(change: Change, at_us: int, cells: int) -> list[Line]:
    who = change["driver"]
    return _timed_lines(at_us, f"{who} drives this run now" if who else "nobody drives this run now", cells)


def _step(change: Change, at_us: int, cells: int) -> list[Line]:
    again = f", round {change['round']}" if change["round"] > 1 else ""
    taken = ""
    if change["elapsed_s"] and change["state"] != "running":
        usual = f", usual {taken_time(change['usual_s'])}: {change['usual_from']}" if change["usual_s"] else ""
        taken = f" ({taken_time(change['elapsed_s'])}{usual})"
    note = f": {clean(change['text'])}" if change["text"] else ""
    what = f"step {change['number']} {clean(change['title'])}{again}: {change['state']}{taken}{note}"
    lines = [line(Span(f"{time_of_day(at_us)} ", "dim"), step_symbol(change["state"]), " ", Span(what, "title"))]
    if change["point_of_no_return"] and change["state"] in ("running", "waiting"):
        lines += texts("from this step there is no way back", cells, "warn")
    return [*lines, *(prose_lines(change["prose"], cells) if change["prose"] else [])]


def _record(change: Change, at_us: int, cells: int) -> list[Line]:
    if change["kind"] not in _SHOWN_RECORDS:
        return []
    style: Style = "warn" if change["severity"] == "warning" else ""
    return texts(f"{time_of_day(change['wall_us'])} {change['text']}", cells, style)


def _block(change: Change, at_us: int, cells: int) -> list[Line]:
    ended = change["state"] in _ENDED
    if ended and not change["exact"]:
        return []  # its record tells how it ended
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
    rows = "Rows with ● are acted on: /x NUMBER leaves one out, or takes it in again." if question.rows else ""
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
    held = "" if waiting.hold_for_s is None else f", has held {short_time(waiting.holds_s or 0.0)}"
    left = f", left {waiting.left}" if waiting.left else ""
    return _timed_lines(at_us, f"waits: {waiting.values or waiting.text}{held}{left}", cells)


def _progress(change: Change, at_us: int, cells: int) -> list[Line]:
    return _timed_lines(at_us, change["text"], cells)


def _journal(change: Change, at_us: int, cells: int) -> list[Line]:
    text = (
        f"the journal of this run: {change['text']}" if change["text"] else "the journal of this run is on disk again"
    )
    return texts(text, cells, "warn" if change["text"] else "ok")


def _ended(change: Change, at_us: int, cells: int) -> list[Line]:
    """How it ended comes last: whoever gets a job's output by mail reads its end."""
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
"""Records that say what no view may have shown: a view is sent now and then, and a block may be gone by then."""
_FORMATTERS: dict[str, Callable[[Change, int, int], list[Line]]] = {
    "run": _run, "state": _state, "driver": _driver, "step": _step, "block": _block, "table": _table,
    "measures": _table, "question": _question_lines, "waiting": _waiting, "progress": _progress, "journal": _journal,
    "ended": _ended, "line": _line, "record": _record, "word": _message, "refused": _message, "answer": _answer,
}  # fmt: skip
