"""Text lines of a walkthrough for screen and plain terminal: questions, blocks, waits, tables, output, prose.

All text of a view is sanitized here again: it comes from documents, servers and commands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from dba_console.core.units import human_duration
from dba_console.recording.plan import Prose
from dba_console.runbooks.run_view import (
    BlockView,
    OutputLine,
    Question,
    RunStatus,
    RunTable,
    RunView,
    StepState,
    StepView,
    WaitView,
    quote_for_typing,
)
from dba_console.watch.drawing.charts import plot
from dba_console.watch.drawing.text_elements import (
    Cell,
    Line,
    Span,
    Style,
    TableColumn,
    TableRow,
    clean,
    cut,
    drop_blank_columns,
    drop_spare_columns,
    line,
    line_width,
    table_lines,
    text_width,
    wrap,
    wrap_line,
)
from dba_console.watch.drawing.time_formats import time_of_day

# States of steps, blocks and runs: a symbol and a word; colour is never the only sign.

_STEPS: dict[StepState, tuple[str, Style]] = {
    "pending": ("·", "dim"),
    "running": ("▶", "key"),
    "ok": ("✓", "ok"),
    "failed": ("×", "crit"),
    "skipped": ("–", "dim"),
    "waiting": ("⧗", "changed"),
    "unknown": ("?", "warn"),
    "undone": ("←", "warn"),
}
_RUNS: dict[RunStatus, Style] = {
    "planned": "changed",
    "running": "",
    "waiting": "warn",
    "paused": "warn",
    "interrupted": "warn",
    "done": "ok",
    "failed": "crit",
    "aborted": "warn",
}


def step_symbol(state: StepState) -> Span:
    """Return the one-cell symbol of a state of a step or block."""
    sign, style = _STEPS.get(state, ("?", "warn"))
    return Span(sign, style)


def step_style(state: StepState) -> Style:
    """Return the style of text about a step or block in that state."""
    return _STEPS.get(state, ("?", "warn"))[1]


def run_word(view: RunView) -> Span:
    """Return the text of the run's state: `rehearsal, waiting`."""
    words: str = "waiting" if view.question is not None else view.state
    if view.mode == "rehearse":
        words = f"rehearsal, {words}"
    return Span(words, "warn" if view.question is not None else _RUNS.get(view.state, "warn"))


EXACT_LINES = 200
"""Maximum lines shown of what runs; the whole text is in the run's directory."""
_ANSWER_HINTS = re.compile(r"(?i)\btype [`\"]")
"""Matches a question whose own text says what to type. The text of a failure may contain a server message such as `type
"x" does not exist`."""
_NUMBER = re.compile(r"[-+−~]?[\d.,]+( ?[a-zA-Zµ%/]+)?|\?|")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z|[-+]\d\d(:?\d\d)?)")


def texts(text: str, cells: int, style: Style = "", indent: str = "") -> list[Line]:
    """Return text of several lines, each wrapped to the width; blank lines stay."""
    width = max(1, cells - len(indent))
    pieces = [piece for one in text.splitlines() for piece in wrap(clean(one.expandtabs(4)), width)]
    return [line(indent, Span(piece, style)) for piece in pieces]


# Questions


def question_lines(question: Question, cells: int, *, by_letter: bool = False) -> list[Line]:
    """Return a question with its options and how to answer; `by_letter`: on a screen where one letter is an answer."""
    letters = {answer: letter for letter, answer in answer_letters(question).items()} if by_letter else {}
    lines = texts(question.text, cells, "warn")
    if question.kind == "second" and question.first_by:
        lines += texts(f"{question.first_by} has confirmed; a second operator must confirm at another console.", cells)
    for option in question.options:
        reason = "  (with a reason)" if option.needs_reason else ""
        letter = letters.get(option.key)
        head = f"  {f'{letter}  ' if letter else ''}{clean(option.key)}  "
        first, *rest = wrap(clean(option.text) + reason, max(8, cells - len(head)))
        lines.append(line(Span(head, "key"), first))
        lines += [line(" " * len(head) + piece) for piece in rest]
    if question.kind not in ("failed", "settle") and _ANSWER_HINTS.search(question.text):
        return lines
    listed = [letters[option.key] for option in question.options if option.key in letters]
    press = f"Press {_either(listed)}. " if listed else ""
    return [*lines, *texts(press + how_to_answer(question), cells, "dim")]


def how_to_answer(question: Question) -> str:
    """Return what must be typed. Neither Enter alone nor waiting ever answers a question."""
    match question.kind:
        case "ack":
            return "Type `y` to confirm, n to decline."
        case "start":
            return "Type `yes` to start, no to cancel."
        case "yes":
            return "Type `yes` to confirm, no to decline."
        case "type" | "second":
            return f"Type {quote_for_typing(clean(question.expects))} to confirm."
        case "manual":
            return "Type what you did and what you saw; it is recorded as a note."
        case "input":
            return "Type the value; it is not shown and not recorded." if question.secret else "Type the value."
        case _:
            return _by_key(question)


def _by_key(question: Question) -> str:
    keys = [quote_for_typing(clean(option.key)) for option in question.options]
    named = _either(keys)
    reason = next((option for option in question.options if option.needs_reason), None)
    more = f"; with a reason: {quote_for_typing(clean(reason.key) + ' REASON')}" if reason else ""
    return f"Type {named}{more}." if named else "Type your answer."


def _either(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)


def answer_letters(question: Question) -> dict[str, str]:
    """Map a letter to the answer that it gives. No letter begins another answer, so each can also be typed in full.

    >>> from dba_console.runbooks.run_view import Option
    >>> options = tuple(Option(key=key, text="") for key in ("source", "limit", "sessions", "none"))
    >>> answer_letters(Question(id=1, kind="choose", text="", options=options))
    {'l': 'limit', 'n': 'none', 'o': 'source', 'e': 'sessions'}
    """
    if question.kind == "ack":
        return {"y": "y", "n": "n"}
    if question.kind not in _LETTER_KINDS:
        return {}
    first_letters = Counter(option.key[:1] for option in question.options)
    keys = [option.key for option in question.options if not option.needs_reason]
    letters = {key[0]: key for key in keys if first_letters[key[:1]] == 1}
    for key in keys:
        free = (sign for sign in key if sign.isalnum() and sign not in first_letters and sign not in letters)
        if key not in letters.values() and (letter := next(free, None)) is not None:
            letters[letter] = key
    return letters


_LETTER_KINDS = ("choose", "failed", "settle")
"""Kinds of questions whose options can be chosen by one letter, unless they need a reason. Answers that revert steps or
continue without a journal are typed as words.
"""


def prompt_of(question: Question) -> str:
    """Return the short prompt before the typed answer."""
    match question.kind:
        case "ack":
            return "y or n"
        case "yes" | "start":
            return "type `yes`"
        case "type" | "second":
            return f"type {quote_for_typing(clean(question.expects))}"
        case "manual":
            return "note"
        case "input":
            return "value"
        case _:
            return "/".join(clean(option.key) for option in question.options) or "answer"


# Blocks


def block_lines(block: BlockView, cells: int, *, full: bool) -> list[Line]:
    """Return the lines of a block: state, title, times and note; with `full` also the exact text of what runs."""
    title = clean(block.title)
    times = block_times(block)
    words = wrap(f"{title}{f'  {times}' if times else ''}", max(1, cells - 2))
    lead = [line(step_symbol(block.state), " ", Span(words[0], "title" if full else ""))]
    lines = [*lead, *(line("  ", Span(word, "title" if full else "")) for word in words[1:])]
    if full and block.exact:
        lines += exact_lines(block.exact, block.kind, cells)
    if block.note:
        style: Style = step_style(block.state) if block.state in ("failed", "unknown") else "dim"
        lines += texts(block.note, cells, style, "  ")
    return lines


def exact_lines(exact: str, kind: str, cells: int) -> list[Line]:
    """Return the exact text of what runs, with `$` before a command."""
    shown = exact.rstrip().splitlines()[:EXACT_LINES]
    left = len(exact.rstrip().splitlines()) - len(shown)
    lead = "$ " if kind == "run" else "  "
    lines: list[Line] = []
    for one in shown:
        for piece in wrap(clean(one.expandtabs(4)), max(1, cells - 2)):
            lines.append(line(lead, Span(piece, "key")))
            lead = "  "
    return [*lines, *([line(Span(f"  … {left} more lines", "dim"))] if left > 0 else [])]


def block_times(block: BlockView) -> str:
    """Return `0:12, typical 0:02`: the duration so far and the typical duration."""
    shown = short_time if block.state in ("running", "waiting") else taken_time
    taken = "" if block.elapsed_s is None else shown(block.elapsed_s)
    usual = "" if block.usual_s is None else f"typical {taken_time(block.usual_s)}"
    return ", ".join(filter(None, (taken, usual)))


def short_time(seconds: float) -> str:
    """Return a short duration: `0:03`, `12:41`, `2h05`.

    >>> short_time(3.4), short_time(761), short_time(7530), short_time(200_000)
    ('0:03', '12:41', '2h05', '2d7h')
    """
    whole = int(seconds + 0.5)
    return f"{whole // 60}:{whole % 60:02d}" if whole < 3600 else human_duration(seconds)


def taken_time(seconds: float) -> str:
    """Return a short duration, below one second in tenths, because the changes of a cutover are that fast.

    >>> taken_time(0.34), taken_time(3.4)
    ('0.3s', '0:03')
    """
    return human_duration(seconds) if seconds < 0.95 else short_time(seconds)


# Waits


def waiting_lines(waiting: WaitView, cells: int) -> list[Line]:
    """Return the lines of a wait: condition, current value with its trend, time held, remaining time."""
    lines = [*texts(f"waiting until {waiting.text}", cells, "changed")]
    curve = trend(waiting.trend, min(20, cells // 3))
    if waiting.values or curve:
        lines += wrap_line(line("now ", Span(clean(waiting.values or "?")), Span(f"  {curve}", "bar")), cells)
    if waiting.hold_for_s is not None:
        held_text = human_duration(waiting.holds_s or 0.0)
        lines += texts(f"condition true for {held_text} of {human_duration(waiting.hold_for_s)}", cells)
    left = f"remaining: {waiting.left}" if waiting.left else ""
    timeout_text = "" if waiting.timeout_s is None else f"timeout {human_duration(waiting.timeout_s)}"
    until = "" if waiting.until_us is None else f"until {time_of_day(waiting.until_us)}"
    if times_text := " · ".join(filter(None, (left, until, timeout_text))):
        lines += texts(times_text, cells, "dim")
    return lines


def trend(values: Sequence[float | None], cells: int) -> str:
    """Return the last values as bars scaled between their minimum and maximum, blank for an unknown value.

    >>> trend((1, 2, None, 3), 8), trend((5, 5), 8), trend((), 8)
    ('▁▄ ▇', '▁▁', '')
    """
    shown = values[-cells:] if cells > 0 else ()
    numbers = [value for value in shown if value is not None]
    return plot(shown, min(numbers), max(numbers), 1)[0] if numbers else ""


# Tables and output


CHOSEN = "●"
"""Mark of the chosen rows, as in the table of sessions."""


def values_table(
    table: RunTable, cells: int, most: int = 1000, *, few: int = 0, selected: int | None = None
) -> list[Line]:
    """Return rows of a preview, of measurements or of the summary, with the number of rows not shown. Rows that can be
    chosen have a number, chosen ones also a mark; `selected` is the index of the row with the cursor.

    Up to `few` rows that do not fit are shown vertically, so that nothing is cut. Otherwise time columns are omitted
    before a column is cut, and key columns are cut last.
    """
    count = len(table.columns)
    rows = [tuple(_short_moment(text) for text in (*row, *[""] * count)[:count]) for row in table.rows[:most]]
    marks = table.chosen[: len(rows)]
    lines = [_title(table)] if table.title or marks else []
    names = [clean(name) for name in table.columns]
    if len(rows) <= few and not _fits(names, rows, cells - (len(_number(0, marks)) + 1 if marks else 0)):
        lines += _row_blocks(names, rows, cells, marks, selected)
    else:
        lines += _side_by_side(names, rows, cells, marks, selected)
    left = max(table.total, len(table.rows)) - len(rows)
    return [*lines, *([line(Span(f"… {left} more rows", "dim"))] if left > 0 else [])]


def _title(table: RunTable) -> Line:
    """Return the title of the rows and how many are chosen."""
    chosen = f"{sum(table.chosen)} of {len(table.chosen)} chosen {CHOSEN}" if table.chosen else ""
    gap = "  " if table.title and chosen else ""
    return line(Span(chosen, "changed"), gap, Span(clean(table.title), "head"))


def _number(index: int, marks: Sequence[bool]) -> str:
    """Return number and mark of a row: ` 3 ●`."""
    return f"{index + 1:>{len(str(len(marks)))}} {CHOSEN if marks[index] else ' '}"


def _side_by_side(
    names: Sequence[str], rows: Sequence[Sequence[str]], cells: int, marks: Sequence[bool] = (),
    selected: int | None = None,
) -> list[Line]:  # fmt: skip
    """Return one line per row under the column names, and the names of time columns that are not shown."""
    if marks and rows:
        marks_width = len(_number(0, marks)) + 1
        lines = _side_by_side(names, rows, cells - marks_width)
        # Column names, rows, then the columns not shown.
        for index in range(len(rows)):
            mark = Span(_number(index, marks) + " ", "changed" if marks[index] else "dim")
            lines[index + 1] = _selected((mark, *lines[index + 1])) if index == selected else (mark, *lines[index + 1])
        lines[0] = (Span(" " * marks_width), *lines[0])
        return lines
    if not rows:
        return [line(Span("no rows", "dim"))]
    cell_texts = [tuple(_in_one_line(text) for text in row) for row in rows]
    spare = _SPARE if "sum" in names else {}
    columns = [
        _column(place, name, [row[place] for row in cell_texts], spare.get(name, 0)) for place, name in enumerate(names)
    ]
    shown = [TableRow(str(place), tuple(Cell(text) for text in row)) for place, row in enumerate(cell_texts)]
    column_ids = {column.id for column in drop_spare_columns(*drop_blank_columns(columns, shown), cells)[0]}
    blank = {column.id for column in columns} - {column.id for column in drop_blank_columns(columns, shown)[0]}
    times = [column.title for column in columns if column.spare == _TIMES and column.id not in column_ids | blank]
    return [
        *table_lines(columns, shown, cells),
        *(texts(f"not shown, no space: {', '.join(times)}", cells, "dim") if times else []),
    ]


def _selected(spans: Line) -> Line:
    return tuple(Span(text, "selected") for text, _ in spans)


def _row_blocks(
    names: Sequence[str], rows: Sequence[Sequence[str]], cells: int, marks: Sequence[bool] = (),
    selected: int | None = None,
) -> list[Line]:  # fmt: skip
    """Return each row as names and values: short values side by side, long and multi-line ones on separate lines, times
    last.
    """
    lines: list[Line] = []
    for number, row in enumerate(rows, 1):
        if len(rows) > 1 or marks:
            mark = marks[number - 1] if marks else False
            head = line(Span(f"─ {number} of {len(rows)} ", "dim"), Span(f"{CHOSEN} " if mark else "", "changed"))
            head = line(*head, Span("─" * max(0, min(cells, 40) - line_width(head)), "dim"))
            lines.append(_selected(head) if number - 1 == selected else head)
        pairs = [(name, text.strip("\n")) for name, text in zip(names, row, strict=True) if text]
        shown_pairs = [pair for pair in pairs if not _SHORT_MOMENT.fullmatch(pair[1])]
        lines += _pairs([*shown_pairs, *(pair for pair in pairs if pair not in shown_pairs)], cells)
    return lines


def _pairs(pairs: Sequence[tuple[str, str]], cells: int) -> list[Line]:
    lines: list[Line] = []
    taken = 0
    for name, text in pairs:
        needed = text_width(name) + 1 + text_width(clean(text))
        if "\n" in text or needed > cells:
            head = Span(f"{name} ", "dim")
            if "\n" in text:
                lines += [line(head), *texts(text, cells, "", "  ")]
            else:
                lines += wrap_line(line(head, clean(text)), cells)
            taken = 0
        elif taken and taken + 3 + needed <= cells:
            lines[-1] = (*lines[-1], *line(Span(f" · {name} ", "dim"), clean(text)))
            taken += 3 + needed
        else:
            lines.append(line(Span(f"{name} ", "dim"), clean(text)))
            taken = needed
    return lines


def _fits(names: Sequence[str], rows: Sequence[Sequence[str]], cells: int) -> bool:
    """Return whether every row fits on one line."""
    if any("\n" in text for row in rows for text in row):
        return False
    widest = [max(map(text_width, (name, *values))) for name, *values in zip(names, *rows, strict=True) if any(values)]
    return sum(widest) + len(widest) - 1 <= cells


def _in_one_line(text: str) -> str:
    return clean(" ".join(text.split()) if "\n" in text else text)


def _short_moment(text: str) -> str:
    """Return a timestamp in this host's time zone without the year, and without the date if it is today; any other text
    unchanged.
    """
    if not _MOMENT.fullmatch(text):
        return text
    try:
        moment = datetime.fromisoformat(text.replace(" UTC", "+00:00")).astimezone()
    except (ValueError, OverflowError, OSError):
        return text
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if today else "%m-%d %H:%M:%S")


_SHORT_MOMENT = re.compile(r"(\d\d-\d\d )?\d\d:\d\d:\d\d")
_TIMES = 9
"""Time columns are dropped first if there is not enough space."""
_SPARE = {"rate": 4, "objects": 3, "sum": 2, "size": 1}
"""Columns of a dump's or restore's times that are dropped if there is no space for the object names; highest first."""
_KEY_COLUMNS = re.compile(
    r"(?i)pid|.*name|.*role|user.*|owner|appl.*|.*slot.*|relation|table|index|schema|.*database|client.*|gid|.*path|file|object|part"
)
"""Names of columns that identify a row."""


def _column(index: int, name: str, cells: Sequence[str], spare: int) -> TableColumn:
    numbers = bool(cells) and all(_NUMBER.fullmatch(text.strip()) for text in cells)
    widest = max([text_width(name), *map(text_width, cells)])
    times = any(cells) and all(_SHORT_MOMENT.fullmatch(text) for text in cells if text not in ("", "-"))
    return TableColumn(
        str(index), name, min(widest, 60), right=numbers, spare=_TIMES if times else spare,
        keep=_KEY_COLUMNS.fullmatch(name) is not None,
    )  # fmt: skip


_PROGRESS_MESSAGE = re.compile(
    r"(?:pg_dump|pg_dumpall|pg_restore|pg_basebackup): (?!error|warning|detail|hint|from TOC)"
)
"""Progress messages of these programs on standard error with --verbose: not errors."""


def output_line(one: OutputLine) -> Line:
    """Return `14:58:02 CACHEDROP: text`; a line of standard error has `!` instead of the colon."""
    error = one.stream == "e"
    head = Span(f"{time_of_day(one.wall_us)} {clean(one.tag)}{' !' if error else ':'} ", "dim")
    return line(
        head, Span(clean(one.text.expandtabs(8)), "warn" if error and not _PROGRESS_MESSAGE.match(one.text) else "")
    )


# Steps


def step_line(number: int, step: StepView, cells: int) -> Line:
    """Return `✓ 2 before              0:01` in exactly `cells` cells; the title is cut, the time is not."""
    taken = "" if step.elapsed_s is None else short_time(step.elapsed_s)
    if step.state == "pending" and step.usual_s is not None and step.usual_s >= 0.5:
        taken = f"~{short_time(step.usual_s)}"
    again = f" ×{step.round}" if step.round > 1 else ""
    title_width = max(1, cells - 3 - len(str(number)) - len(taken) - (1 if taken else 0))
    style: Style = "title" if step.state in ("running", "waiting") else step_style(step.state)
    title = cut(clean(step.title) + again, title_width)
    gap = " " * max(0, cells - 3 - len(str(number)) - text_width(title) - len(taken))
    return line(step_symbol(step.state), Span(f" {number} ", "dim"), Span(title, style), gap, Span(taken, "dim"))


# The text of a runbook: paragraphs are wrapped, code keeps its lines. It is sanitized, so that it cannot control the
# terminal.


def prose_lines(prose: Sequence[Prose], cells: int) -> list[Line]:
    """Return the text in lines of at most `cells` cells."""
    lines: list[Line] = []
    for one in prose:
        if one.gap and lines:
            lines.append(())
        if one.kind == "code":
            lines += [piece for text in one.text.splitlines() for piece in wrap_line(_code_line(text), cells)]
        elif one.kind == "heading":
            lines += wrap_line(line(Span(clean(one.text), "title")), cells)
        else:
            lead = clean(one.lead)
            pieces = wrap(clean(one.text), max(8, cells - len(lead)))
            lines += [line((" " * len(lead) if place else lead) + piece) for place, piece in enumerate(pieces)]
    return lines


def _code_line(text: str) -> Line:
    return line(Span("  " + clean(text), "key"))
