"""Screen layout of a walkthrough: steps left, current step right, output below, panels at the bottom.

Designed for 80×24: questions and waits are always shown completely, prose and output get the remaining lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dba_console.runbooks.run_view import ENDED_STATES, OutputLine, RunView
from dba_console.runbooks.walkthrough_text import (
    block_lines,
    output_line,
    prose_lines,
    question_lines,
    run_word,
    short_time,
    step_line,
    taken_time,
    texts,
    values_table,
    waiting_lines,
)
from dba_console.watch.drawing.boxes import Box, draw_boxes
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import (
    Line,
    Span,
    Style,
    clean,
    fit_line,
    line,
    line_width,
    scrolled_lines,
    wrap_lines,
)
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame

Pane = Literal["step", "whole", "output", "steps"]
"""whole: the step alone over the full width, for wide rows."""
_UNDRIVEN = ENDED_STATES | {"interrupted"}
PANES: tuple[Pane, ...] = ("step", "whole", "output", "steps")
_OUTPUT_LEAST, _TALL = 3, 30
_MIN_LINES_FOR_NOTICE = 6
"""Minimum number of lines for a `more lines` notice at the top."""
FEW_ROWS, MOST_ROWS = 5, 1000
"""Maximum rows shown vertically if they do not fit: beside the steps, and with the step over the full width."""
_STEPS_NARROW, _STEPS_WIDE, _WIDE = 26, 40, 110


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Options of the view of a run."""

    pane: Pane = "step"
    """The part that gets the space."""
    top: int | None = None
    """First line shown of that part; None: follow the run."""
    yours: bool = True
    """This console controls the run: its answers count."""
    may_answer: bool = True
    """This console may answer the open question: because it controls the run, or as the second operator."""
    why_not: str = ""
    """Why it may not answer."""
    dropped: int = 0
    """Lines of output this console did not receive."""
    row: int | None = None
    """Index of the row with the cursor, if rows can be chosen."""


@dataclass(frozen=True, slots=True)
class LaidOutLines:
    """The lines, and the scroll range of the part that has the space."""

    lines: list[Line]
    top: int
    most: int
    page: int


def walkthrough(
    view: RunView, output: Sequence[OutputLine], panels: Sequence[Line], options: ViewOptions, width: int, height: int
) -> LaidOutLines:
    """Return the run in exactly `height` lines. `panels`: lines of the relevant panels, most important first."""
    foot = [fit_line(one, width) for one in panels[: 1 if height < _TALL else 4]]
    head = [title_line(view, options, width)]
    if view.journal:
        head.append(fit_line(line(Span(f" ! journal: {clean(view.journal)}", "crit")), width))
    rows_left = height - len(head) - len(foot)
    if options.pane == "output":
        laid = _output(output, options, width, rows_left)
    elif options.pane == "steps":
        laid = _scrolled(_step_table(view, width), options.top or 0, rows_left)
    elif view.state in ENDED_STATES:
        laid = _scrolled(ended_lines(view, width), options.top or 0, rows_left)
    else:
        laid = _step(view, output, options, width, rows_left)
    lines = [*head, *(fit_line(one, width) for one in laid.lines)]
    lines += [()] * (height - len(foot) - len(lines))
    return LaidOutLines([*lines, *foot], laid.top, laid.most, laid.page)


# Title line


def title_line(view: RunView, options: ViewOptions, cells: int) -> Line:
    """Return `─ cache-drop on db2 · step 4 of 6 · waiting ───`, with a notice if another console controls the run."""
    parts: list[Line] = [
        line(Span(f"{clean(view.runbook)} on {clean(view.place or view.target)}", "title")),
        line(_place(view)),
        line(run_word(view)),
    ]
    if not options.yours and view.state not in _UNDRIVEN:
        parts.append(line(Span(f"controlled by {_driver(view).partition(' from ')[0]}", "warn")))
    spans: list[Span] = [Span("─ ", "dim")]
    for part in parts:
        if part:
            spans += [*([Span(" · ", "dim")] if len(spans) > 1 else []), *part]
    rest = max(0, cells - line_width(tuple(spans)) - 1)
    return fit_line((*spans, Span(" " + "─" * rest, "dim")), cells)


def _driver(view: RunView) -> str:
    return clean(view.driver) or "another console"


def _place(view: RunView) -> str:
    ids = [step.id for step in view.steps]
    return f"step {ids.index(view.current) + 1} of {len(ids)}" if view.current in ids else ""


# Steps beside the current step


def _step(
    view: RunView, output: Sequence[OutputLine], options: ViewOptions, width: int, rows_left: int
) -> LaidOutLines:
    deciding = _asks_for_rows(view) and width < _WIDE
    alone = deciding or options.pane == "whole" or len(view.steps) < 2
    left = 0 if alone else _STEPS_WIDE if width >= _WIDE else _STEPS_NARROW
    right = width - 1 if alone else width - left - 2
    question_part = asked_lines(view, right, options)
    few = MOST_ROWS if options.pane == "whole" else FEW_ROWS
    parts = _body_parts(view, right, few, options.row)
    step_lines = [line for part in parts for line in part]
    least = _least_output(view, output, options, deciding=deciding)
    upper = max(3, min(rows_left - least, max(len(step_lines) + len(question_part), len(view.steps))))
    question_part = question_part[: max(1, upper - 1)]
    cursor = next((at for at, one in enumerate(step_lines) if one and one[0].style == "selected"), None)
    if cursor is None:
        follow = _follow(view, right, few, upper - len(question_part), len(parts[0]))
    else:  # with the rest of its row, and not hidden by a `more lines` notice
        follow = cursor + max(2, (upper - len(question_part)) // 2)
    body = _scrolled(step_lines, options.top, upper - len(question_part), follow=follow)
    lines_of_step = [*body.lines, *[()] * (upper - len(question_part) - len(body.lines)), *question_part]
    boxes = [Box(left + 1 if left else 0, 0, right + 1, upper, None, lines_of_step)]
    if left:
        boxes.append(Box(0, 0, left, upper, None, _steps_shown(view, left - 2, upper)))
    lines = draw_boxes(boxes, width, upper)
    below = rows_left - upper
    if below > 0:
        lines += _tail(output, options, width, below)
    return LaidOutLines(lines, body.top, body.most, body.page)


def _least_output(view: RunView, output: Sequence[OutputLine], options: ViewOptions, *, deciding: bool) -> int:
    """Return the lines of output kept beside a step that needs more: only its title while a question is open."""
    if not output or options.pane != "step" or deciding:
        return 0
    return 1 if view.question is not None else _OUTPUT_LEAST + 1


def _asks_for_rows(view: RunView) -> bool:
    """Return whether the operator must read rows to choose some or to decide: on a small screen they get the space."""
    question = view.question
    return question is not None and view.table is not None and (bool(question.rows) or question.kind == "choose")


def asked_lines(view: RunView, cells: int, options: ViewOptions) -> list[Line]:
    """Return what is always shown completely: progress, a wait, the question."""
    lines: list[Line] = []
    if view.state == "interrupted":
        message = "The agent ended during this run. Commands already started continue; nothing else runs."
        choices = ("R resumes it: unknown outcomes are determined first.", "E ends it.")
        lines += [(), *texts(message, cells, "warn"), *(line for choice in choices for line in texts(choice, cells))]
    if view.waiting is not None:
        lines += waiting_lines(view.waiting, cells)
    if view.progress:
        stop = "  (X stops it)" if view.can_stop else ""
        lines += texts(view.progress + stop, cells, "changed")
    if view.question is not None:
        lines += [(), *question_lines(view.question, cells, by_letter=options.may_answer)]
        if view.question.rows and options.may_answer:
            lines += texts("Rows with ● are chosen: ↓ moves to a row, x adds or removes it.", cells, "dim")
        if view.question.kind == "failed" and options.yours:
            lines += texts("Or esc, then J: continue at another step, U: end and choose what to revert.", cells, "dim")
        if not options.may_answer:
            lines += texts(options.why_not or f"controlled by {_driver(view)}; press T to take over.", cells, "warn")
    return lines


def body_lines(view: RunView, cells: int, few: int = FEW_ROWS) -> list[Line]:
    """Return the whole step: title, prose, blocks and their rows."""
    return [line for part in _body_parts(view, cells, few) for line in part]


def _body_parts(view: RunView, cells: int, few: int, selected: int | None = None) -> tuple[list[Line], list[Line]]:
    """Return the lines up to the end of the current block, and the lines after it."""
    step = next((step for step in view.steps if step.id == view.current), None)
    if step is None:
        lines = [line(Span(clean(view.title), "title")), *texts(view.identity, cells, "dim"), ()]
        lines += prose_lines(view.prose, cells)
        checked = [checked_line for block in view.blocks for checked_line in block_lines(block, cells, full=False)]
        return [*lines, *([(), line(Span("Checked on this server", "title")), *checked] if checked else [])], []
    lines = [line(Span(clean(step.title), "title"))]
    if step.point_of_no_return:
        lines += texts("Point of no return: this step and earlier ones cannot be reverted.", cells, "warn")
    lines += prose_lines(view.step_prose, cells)
    after: list[Line] = []
    before = True
    for block in view.blocks:
        now = block.id == view.block
        (lines if before else after).extend([*([()] if now else []), *block_lines(block, cells, full=now)])
        if now:
            lines += _tables(view, cells, few, selected)
            before = False
    if before:
        lines += _tables(view, cells, few, selected)
    return lines, after


def _tables(view: RunView, cells: int, few: int, selected: int | None = None) -> list[Line]:
    lines: list[Line] = []
    measured = any(block.kind == "measure" for block in view.blocks)
    if view.table is not None:
        lines += [(), *values_table(view.table, cells, few=few, selected=selected)]
    if measured and view.measures is not None:
        lines += [(), *values_table(view.measures, cells)]
    return lines


def _follow(view: RunView, cells: int, few: int, rows_left: int, end: int) -> int:
    """Return the last line to show: the end of the current block. Of rows that do not fit, the first ones are shown,
    below the column names.
    """
    rows = len(_tables(view, cells, few))
    return min(end, end - rows + rows_left - 1) if rows else end


def _steps_shown(view: RunView, cells: int, rows: int) -> list[Line]:
    """Return the list of steps, scrolled to the current one."""
    lines = [step_line(number, step, cells) for number, step in enumerate(view.steps, 1)]
    ids = [step.id for step in view.steps]
    now = ids.index(view.current) if view.current in ids else 0
    top = max(0, min(now - rows // 2, len(lines) - rows))
    shown = lines[top : top + rows]
    if len(lines) > top + rows:
        shown[-1] = line(Span(f"… {len(lines) - top - rows + 1} more steps", "dim"))
    return shown


def _step_table(view: RunView, width: int) -> list[Line]:
    """Return all steps in full width, with state, note and times."""
    lines: list[Line] = []
    for number, step in enumerate(view.steps, 1):
        lines.append(step_line(number, step, min(width - 2, 78)))
        note = clean(step.note)
        usual = "" if step.usual_s is None else f"typical {taken_time(step.usual_s)} ({step.usual_from or 'author'})"
        human = f"operator {short_time(step.human_s)}" if step.human_s >= 0.5 else ""
        return_ = "point of no return" if step.point_of_no_return else ""
        note_text = " · ".join(filter(None, (step.state, note, usual, human, return_)))
        lines += texts(note_text, width - 2, "dim", "    ")
    return lines


# Output


def _output(output: Sequence[OutputLine], options: ViewOptions, width: int, rows_left: int) -> LaidOutLines:
    most = max(0, len(output) - rows_left + 1)
    top = most if options.top is None else min(options.top, most)
    head = _output_title(output, options, width)
    shown = wrap_lines(map(output_line, output[top : top + rows_left - 1]), width)
    # A wrapped line takes several here; at the end, the last ones are shown completely.
    shown = shown[: rows_left - 1] if top < most else shown[-(rows_left - 1) :]
    return LaidOutLines([head, *shown], top, most, max(1, rows_left - 2))


def _tail(output: Sequence[OutputLine], options: ViewOptions, width: int, rows_left: int) -> list[Line]:
    """Return the newest output lines below a title."""
    lines = [output_line(one) for one in output[-(rows_left - 1) :]] if rows_left > 1 else []
    return [_output_title(output, options, width), *lines]


def _output_title(output: Sequence[OutputLine], options: ViewOptions, width: int) -> Line:
    count = f"{len(output)} lines" if len(output) != 1 else "1 line"
    dropped = f", {options.dropped} not shown" if options.dropped else ""
    text = f"─ output, {count}{dropped} " if output or options.dropped else "─ no output yet "
    return line(Span(text + "─" * max(0, width - len(text)), "dim"))


# The end


def ended_lines(view: RunView, width: int) -> list[Line]:
    """Return the lines of an ended run: result, times per step, measurements before and after."""
    cells = width - 2
    style: Style = "ok" if view.state == "done" else "crit" if view.state == "failed" else "warn"
    lines = [(), *texts(view.ending or f"The run is {view.state}.", cells, style)]
    if view.mode == "rehearse":
        lines += texts("The output (tab) shows what each step would do.", cells)
    if view.results:
        lines += [(), *(one for text in view.results for one in texts(text, cells))]
    if view.summary is not None:
        lines += [(), *values_table(view.summary, cells)]
    if view.measures is not None:
        lines += [(), *values_table(view.measures, cells)]
    if view.directory:
        name = view.directory.rstrip("/").rpartition("/")[2]
        lines += [(), *texts(f"report: dba-console runbook runs {name}", cells, "dim")]
        lines += texts(f"stored in {view.directory}", cells, "dim")
    return [line(" ", *one) if one else () for one in lines]


def _scrolled(lines: list[Line], top: int | None, rows_left: int, follow: int | None = None) -> LaidOutLines:
    """Return `rows_left` lines from `top` on; None: scrolled so that line `follow` is the last one shown."""
    most = max(0, len(lines) - rows_left)
    first = _followed(len(lines), rows_left, follow) if top is None else top
    first = max(0, min(first, most))
    shown = scrolled_lines(lines, first, rows_left, indent="")
    if first > 0 and rows_left >= _MIN_LINES_FOR_NOTICE:
        shown[0] = line(Span(f"… ↑ {first + 1} more lines", "dim"))
    return LaidOutLines(shown, first, most, max(1, rows_left - 1))


def _followed(lines: int, rows_left: int, follow: int | None) -> int:
    """Return the first line if line `follow` is the last one shown; one more if the last line is a `more` notice."""
    last = 0 if follow is None else follow
    return last - rows_left + (1 if rows_left < lines and rows_left <= last < lines else 0)


# Panels relevant for a step, one line each; shown during the whole run.

ALWAYS = ("connections", "io")
"""Default panels: what a change may break first."""


def panel_lines(frame: Frame | None, history: ChartHistory, names: Sequence[str], width: int) -> list[Line]:
    """Return one line per panel, starting with its title; unknown names are ignored."""
    if frame is None:
        return []
    lines: list[Line] = []
    for name in [name for name in names if name in PANELS] or ALWAYS:
        title = f" {PANELS[name].title}: "
        laid = PANELS[name].compact(frame, max(10, width - len(title)), 2, history)
        first_line = next((one for one in laid if not _heads(one)), (Span("no data", "dim"),))
        lines.append(line(Span(title, "head"), *first_line))
    return lines


def _heads(one: Line) -> bool:
    """Return whether a line only contains column names."""
    return all(span.style == "head" for span in one)
