"""Answers and row selections from options (`--confirm`, `--yes`, `--choose`, `--leave-out`), and a runbook's inputs.

`--confirm STEP[/BLOCK]=TEXT` answers the questions of a step, or of one of its blocks. Several answers for one place
are used in order, the last one repeatedly. `--failed` of `resume` answers one failure, the next one that is asked
about: that of the run as it was left. `--choose` and `--leave-out STEP[/BLOCK]=COLUMN=VALUE` select rows. Nothing
else is ever answered. Pure, except for reading inputs.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from dba_console.cli.stderr import print_diagnostic
from dba_console.core.errors import ConsoleError, UsageError, suggest
from dba_console.core.stream_masking import too_short
from dba_console.recording.plan import Input, Plan
from dba_console.runbooks.run_view import Question, RunTable
from dba_console.runbooks.values import as_written, typed, value_of

START, UNDO, JOURNAL = "start", "undo", "journal"
"""Questions that belong to no step."""
_WITHOUT_STEP = (START, UNDO, JOURNAL)


class AnswerMismatch(Exception):
    """A given answer does not fit the question; the text says why."""


class RowSelection(NamedTuple):
    """Rows named by an option."""

    step_or_block: str
    """A step, or one of its blocks."""
    option: Literal["--choose", "--leave-out"]
    column: str
    """Empty for `--choose` with `value` `all` or `none`."""
    value: str

    def __str__(self) -> str:
        return f"{self.option} {self.step_or_block}={self.column}{'=' if self.column else ''}{self.value}"


class GivenAnswers:
    """Answers given as options. Remembers which of them it has used."""

    def __init__(
        self,
        confirmed: Iterable[tuple[str, str]] = (),
        *,
        yes: bool = False,
        selections: Iterable[RowSelection] = (),
        failed: str | None = None,
    ) -> None:
        self._failed = failed
        self._selections = tuple(selections)
        self._given: dict[str, list[str]] = {}
        for step_or_block, text in confirmed:
            self._given.setdefault(step_or_block, []).append(text)
        self._used: dict[str, int] = {}
        self._yes = yes

    @property
    def is_given(self) -> bool:
        """Return whether any answer was given, which also confirms the start; each action asks separately."""
        return self._yes or bool(self._given) or bool(self._selections)

    def answer_for(self, question: Question) -> str | None:
        """Return the given answer to a question, or None. Raises AnswerMismatch."""
        if question.kind == "failed" and self._failed is not None:
            text, self._failed = self._failed, None
            if text not in (keys := [option.key for option in question.options]):
                raise AnswerMismatch(f"--failed {text} does not fit: use one of {', '.join(keys)}")
            return text
        given = self._next_given(question)
        if given is None:
            return self._implied_answer(question)
        step_or_block, text = given
        accepted = _accepted_answers(question)
        if accepted and text.strip() not in accepted:
            raise AnswerMismatch(f"--confirm {step_or_block}={text} does not fit: {accepted[0]!r} is required")
        return "y" if question.kind == "ack" else text

    def rows_for(self, question: Question, table: RunTable | None) -> tuple[int, ...] | None:
        """Return the indexes of the rows to act on if the current choice differs from the given one, else None. Raises
        AnswerMismatch if a named row does not exist.
        """
        if not question.rows or table is None or not table.chosen:
            return None
        places = (question.block, table.block, question.step, table.block.partition("/")[0])
        given = next(
            (found for place in places if (found := [one for one in self._selections if one.step_or_block == place])),
            [],
        )
        chosen = {place for place, one in enumerate(table.chosen) if one}
        if any(one.option == "--choose" for one in given):
            chosen = set[int]().union(*(_selected_rows(one, table) for one in given if one.option == "--choose"))
        for one in given:
            if one.option == "--leave-out":
                chosen -= _selected_rows(one, table)
        wanted = tuple(sorted(chosen))
        return None if wanted == tuple(place for place, one in enumerate(table.chosen) if one) else wanted

    def _next_given(self, question: Question) -> tuple[str, str] | None:
        """Return the next given answer and its step or block."""
        for step_or_block in _answer_keys(question):
            given = self._given.get(step_or_block)
            if given:
                used = self._used.get(step_or_block, 0)
                self._used[step_or_block] = used + 1
                return step_or_block, given[min(used, len(given) - 1)]
        return None

    def _implied_answer(self, question: Question) -> str | None:
        if question.kind == "start" and self.is_given:
            return "yes"
        return "y" if question.kind == "ack" and self._yes else None


def _answer_keys(question: Question) -> tuple[str, ...]:
    """Return the keys under which an answer may have been given, the narrowest first."""
    match question.kind:
        case "start" | "undo" | "journal":
            return (question.kind,)
        case "failed" | "settle" | "second":
            # A failure is decided when it happens, and a second operator must be another person.
            return ()
        case _:
            return (question.block, question.step) if question.block else (question.step,)


def _accepted_answers(question: Question) -> tuple[str, ...]:
    """Return the accepted answers; empty if only the agent can decide."""
    match question.kind:
        case "ack":
            return ("y", "yes", "ack")
        case "yes" | "start":
            return ("yes",)
        case "type":
            return (question.expects,)
        case "choose":
            return tuple(option.key for option in question.options)
        case _:
            return ()


def _selected_rows(selection: RowSelection, table: RunTable) -> set[int]:
    """Return the indexes of the named rows. Raises AnswerMismatch if there are none."""
    if not selection.column:
        return set(range(len(table.chosen))) if selection.value == "all" else set()
    if selection.column not in table.columns:
        raise AnswerMismatch(f"{selection} does not fit: the rows have {', '.join(table.columns)}")
    at = table.columns.index(selection.column)
    found = {place for place, row in enumerate(table.rows) if row[at] == selection.value}
    if not found:
        raise AnswerMismatch(f"{selection} does not fit: no row has {selection.column} {selection.value}")
    return found


def parse_row_selections(choose: Sequence[str], leave_out: Sequence[str], plan: Plan | None) -> list[RowSelection]:
    """Parse `STEP=COLUMN=VALUE` and `STEP/BLOCK=COLUMN=VALUE`, and for `--choose` also `STEP=all` and `STEP=none`.

    Raises UsageError if it names no row, or if the step does not act on rows that can be chosen.
    """
    found = []
    given = [*((text, "--choose") for text in choose), *((text, "--leave-out") for text in leave_out)]
    for text, option in given:
        step_or_block, _, rest = text.partition("=")
        column, sign, value = (one.strip() for one in rest.partition("="))
        if not sign and option == "--choose" and column in ("all", "none"):
            column, value = "", column
        elif not sign or not step_or_block.strip() or not column or not value:
            raise UsageError(f"{option} {text!r} is not STEP=COLUMN=VALUE", hint=f"as in {option} end-them=pid=4711")
        step_or_block = (
            step_or_block.strip()
            if plan is None
            else _require_row_choice(_require_step_or_block(step_or_block.strip(), plan), plan)
        )
        found.append(RowSelection(step_or_block, "--choose" if option == "--choose" else "--leave-out", column, value))
    return found


def _require_row_choice(step_or_block: str, plan: Plan) -> str:
    """Return the step or block if one of its actions acts on rows that can be chosen. Raises UsageError."""
    from dba_console.runbooks.row_choice import acts_on_preview

    bound = [
        (block.id, preview.id) for _, block in plan.blocks() if (preview := acts_on_preview(plan, block)) is not None
    ]
    known = [name for pair in bound for one in pair for name in (one, one.partition("/")[0])]
    if step_or_block in known:
        return step_or_block
    steps = ", ".join(dict.fromkeys(act.partition("/")[0] for act, _ in bound))
    raise UsageError(f"{step_or_block} of runbook {plan.id} does not act on rows that can be chosen",
                     hint=f"these steps do: {steps}" if steps else "none of its steps does")  # fmt: skip


def parse_confirmations(given: Sequence[str], plan: Plan | None) -> list[tuple[str, str]]:
    """Parse `STEP=TEXT` and `STEP/BLOCK=TEXT`. Raises UsageError if there is no text, or no such step or block."""
    found = []
    for one in given:
        step_or_block, sign, text = one.partition("=")
        step_or_block, text = step_or_block.strip(), text.strip()
        if not sign or not step_or_block or not text:
            raise UsageError(f"--confirm {one!r} is not STEP=TEXT", hint="as in --confirm drop-it=db2")
        if plan is not None:
            step_or_block = _require_step_or_block(step_or_block, plan)
        found.append((step_or_block, text))
    return found


def _require_step_or_block(step_or_block: str, plan: Plan) -> str:
    steps = [step.id for step in plan.steps]
    blocks = [block.id for _, block in plan.blocks()]
    if step_or_block in steps or step_or_block in blocks or step_or_block in _WITHOUT_STEP:
        return step_or_block
    hint = suggest(step_or_block, [*steps, *_WITHOUT_STEP, *blocks]) or f"its steps are {', '.join(steps)}"
    raise UsageError(f"runbook {plan.id} has no step {step_or_block!r}", hint=hint)


# Inputs of a runbook: from the command line or asked for on the terminal; secrets never as an argument.

ENVIRONMENT_PREFIX = "DBA_CONSOLE_INPUT_"


def read_inputs(plan: Plan, given: Mapping[str, str], *, ask: bool, secrets_only: bool = False) -> dict[str, str]:
    """Return every given value as it was written, after checking it; optional values may be missing.

    With `ask`, missing ones are asked for on the terminal. Raises UsageError.
    """
    texts = dict(given)
    for one in plan.inputs:
        if one.secret:
            _refuse_secret_argument(one, given)
            if (from_environment := os.environ.get(ENVIRONMENT_PREFIX + one.name.upper())) is not None:
                texts[one.name] = from_environment
        elif secrets_only:
            continue
        if one.name not in texts and ask and (text := _ask(one)) is not None:
            texts[one.name] = text
        if one.secret and one.name in texts and too_short(texts[one.name]):
            print_diagnostic(f"warning: {one.name} is too short to be masked in the recording")
    if secrets_only:
        unknown = set(given) - {one.name for one in plan.inputs if one.secret}
        if unknown:
            raise UsageError(f"{min(unknown)} was given when the run started", hint="a resumed run keeps its inputs")
        return texts
    typed(plan, texts)
    return texts


def _refuse_secret_argument(one: Input, given: Mapping[str, str]) -> None:
    if one.name in given:
        raise UsageError(
            f"{one.name} is secret: every user of this host could read it in the arguments of this command (ps)",
            hint=f"omit it to be asked for it, or set {ENVIRONMENT_PREFIX}{one.name.upper()}",
        )


def _ask(one: Input) -> str | None:
    """Ask until the value is valid; Enter takes the default, if any. None: no value."""
    default = "" if one.default is None else f" [{as_written(one, one.default)}]"
    choices = f" ({', '.join(one.choices)})" if one.choices else ""
    help_text = f" - {one.help}" if one.help else ""
    while True:
        text = _read(f"{one.name}{choices}{help_text}{default}: ", secret=one.secret)
        if not text and (one.default is not None or not one.required):
            return None
        try:
            value_of(one, text)
            return text
        except ConsoleError as error:
            print_diagnostic(str(error))


def _read(prompt: str, *, secret: bool) -> str:
    """Read a line from the terminal. Raises UsageError at the end of input."""
    if secret:
        return getpass.getpass(prompt, stream=sys.stderr)
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise UsageError("the inputs were not given", hint="give them with --input NAME=VALUE")
    return line.strip()
