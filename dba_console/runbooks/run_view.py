"""A run as a console shows it: sent whole by the agent whenever it changed. Bounded, redacted, harmless text."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

RunState = Literal["planned", "running", "waiting", "paused", "interrupted", "done", "failed", "aborted"]
StepState = Literal["pending", "running", "ok", "failed", "skipped", "waiting", "unknown", "undone"]
ENDED_STATES: frozenset[str] = frozenset({"done", "failed", "aborted"})

QuestionKind = Literal[
    "start",    # Start? default No
    "ack",      # a letter
    "yes",      # the word
    "type",     # the text in `expects`
    "choose",   # one of `options` by its key
    "manual",   # evidence: a line of text
    "input",    # a value
    "failed",   # a block failed: retry / skip (with reason) / abort
    "settle",   # an execution of unknown end: its state and a typed reason
    "undo",     # the steps that would be taken back: which, or none
    "journal",  # the disk of the session is stalled or full: go on with the journal in memory?
    "second",   # the second person types the text
]  # fmt: skip


class Option(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One possible answer."""

    key: str
    """What is typed."""
    text: str
    needs_reason: bool = False
    """The answer is `KEY reason`, and the reason may not be empty."""


def quote_for_typing(text: str) -> str:
    """A text as a question shows it where it wants it typed: between backticks, or quotes where it holds a backtick.

    >>> quote_for_typing("db2"), quote_for_typing("a `b`")
    ('`db2`', '"a `b`"')
    """
    return f'"{text}"' if "`" in text else f"`{text}`"


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the run waits for a person to say. It waits for ever: silence never acts."""

    id: int
    """Answers name it; an answer to another is refused."""
    kind: QuestionKind
    text: str
    step: str = ""
    block: str = ""
    expects: str = ""
    """The text to be typed, where one is asked for."""
    options: tuple[Option, ...] = ()
    secret: bool = False
    """What is typed is not echoed."""
    rows: str = ""
    """Id of the preview of whose rows some may be left out before it is answered; empty: of none."""
    default: Any = None
    since_us: int = 0
    first_by: str = ""
    """With `second`: who gave the first confirmation."""


class RunTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows a preview gave, or a measurement before and after."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int = 0
    """Rows there are; more than shown where cut."""
    title: str = ""
    """What the rows are; empty where the place says it."""
    block: str = ""
    """Id of the block they are of."""
    chosen: tuple[bool, ...] = ()
    """Of rows that are acted on: whether each of all `total` is; empty where they are only read."""
    look: int = 0
    """With `chosen`: which look at the preview gave them; a choice names it."""


class WaitView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wait: what it waits for, and how far it is."""

    text: str
    """The condition, as written."""
    values: str = ""
    """The values it looks at now, with units and ages."""
    trend: tuple[float | None, ...] = ()
    """The first of them at the last looks, oldest first."""
    holds_s: float | None = None
    """Seconds it has held so far, of `hold_for_s`."""
    hold_for_s: float | None = None
    until_us: int | None = None
    timeout_s: float | None = None
    left: str = ""
    """What is left, in words, with its grade: `12 sessions`, `about 40 s (estimated)`, `unknown`."""


class BlockView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block of the current step."""

    id: str
    kind: str
    title: str
    state: StepState
    exact: str = ""
    """What runs, verbatim: SQL with its values, argv, the action's own words."""
    note: str = ""
    """Its result in a sentence, or why it was skipped or failed."""
    usual_s: float | None = None
    elapsed_s: float | None = None


class StepView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step in the list."""

    id: str
    title: str
    state: StepState
    note: str = ""
    elapsed_s: float | None = None
    """Machine and human time of it so far."""
    human_s: float = 0.0
    usual_s: float | None = None
    usual_from: str = ""
    """`author` or `3 runs`."""
    point_of_no_return: bool = False
    round: int = 0
    """Counted from 1 where it is repeated."""


class RunView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of a run that a screen or a plain terminal needs."""

    run: str
    """Its id, the name of its directory."""
    runbook: str
    title: str
    mode: Literal["run", "rehearse"]
    state: RunState
    target: str
    """Name, as it has to be typed."""
    place: str = ""
    """The same, with the host where the name does not say it."""
    identity: str = ""
    """`system identifier 74…, primary, timeline 1, PG 15.18`."""
    who: str = ""
    """Who started it."""
    driver: str = ""
    """Login of the console whose answers count; others watch."""
    started_us: int = 0
    directory: str = ""
    prose: str = ""
    steps: tuple[StepView, ...] = ()
    current: str = ""
    """Id of the step under way."""
    step_prose: str = ""
    blocks: tuple[BlockView, ...] = ()
    """Of the current step."""
    block: str = ""
    """Id of the block under way."""
    question: Question | None = None
    waiting: WaitView | None = None
    table: RunTable | None = None
    measures: RunTable | None = None
    """Before, after, change."""
    panels: tuple[str, ...] = ()
    """Panels that matter for the step."""
    progress: str = ""
    """What an action or a long command says of itself now."""
    can_stop: bool = False
    """The block under way can be stopped by the operator."""
    journal: str = ""
    """Empty, or what is wrong with the journal: `in memory: the disk of the session is stalled`."""
    must_finish: bool = False
    """Ended here it would stay half done: its runbook reverts what is given up, and a point of no return is passed."""
    ending: str = ""
    """Why it ended, in a sentence."""
    summary: RunTable | None = None
    """After the end: per step planned, usual, actual, machine, human."""


class OutputLine(Struct, frozen=True, array_like=True):
    """A line of a command's output as it arrived."""

    wall_us: int
    stream: str
    """o or e."""
    tag: str
    text: str
