"""View of a run, sent by the agent to consoles whenever it changes. Its text is bounded, redacted and sanitized."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from dba_console.recording.plan import Prose

RunStatus = Literal["planned", "running", "waiting", "paused", "interrupted", "done", "failed", "aborted"]
StepState = Literal["pending", "running", "ok", "failed", "skipped", "waiting", "unknown", "undone"]
ENDED_STATES: frozenset[str] = frozenset({"done", "failed", "aborted"})

QuestionKind = Literal[
    "start",    # Start? default No
    "ack",      # y
    "yes",      # yes
    "type",     # the text in `expects`
    "choose",   # one of `options` by its key
    "manual",   # a note: a line of text
    "input",    # a value
    "failed",   # a block failed: retry / skip (with reason) / abort
    "settle",   # an execution with unknown outcome: its state and a typed reason
    "undo",     # which steps to revert, or none
    "journal",  # the disk of the session is stalled or full: continue with the journal in memory?
    "second",   # the second operator types the text
]  # fmt: skip


class Option(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One possible answer."""

    key: str
    """What is typed."""
    text: str
    needs_reason: bool = False
    """The answer is `KEY reason`; the reason must not be empty."""


def quote_for_typing(text: str) -> str:
    """Return a text to be typed as a question shows it: in backticks, or in quotes if it contains a backtick.

    >>> quote_for_typing("db2"), quote_for_typing("a `b`")
    ('`db2`', '"a `b`"')
    """
    return f'"{text}"' if "`" in text else f"`{text}`"


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open question of a run. It has no timeout: no answer never means consent."""

    id: int
    """Answers contain it; an answer to another question is refused."""
    kind: QuestionKind
    text: str
    step: str = ""
    block: str = ""
    expects: str = ""
    """The text that must be typed, if there is one."""
    options: tuple[Option, ...] = ()
    secret: bool = False
    """What is typed is not echoed."""
    rows: str = ""
    """Id of the preview whose rows can be excluded before the answer; empty: none."""
    since_us: int = 0
    first_by: str = ""
    """With `second`: the operator who confirmed first."""


class RunTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a preview, or a measurement before and after."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int = 0
    """Number of rows; more than shown if the table is cut."""
    title: str = ""
    """What the rows are; may be empty."""
    block: str = ""
    """Id of their block."""
    chosen: tuple[bool, ...] = ()
    """Whether each of the `total` rows is acted on; empty if they are only read."""
    look: int = 0
    """With `chosen`: number of the preview that returned them; a choice refers to it."""


class WaitView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A wait and its progress."""

    text: str
    """The condition, as written."""
    values: str = ""
    """Its current values, with units and ages."""
    trend: tuple[float | None, ...] = ()
    """Recent values of the first one, oldest first."""
    holds_s: float | None = None
    """Seconds that the condition has held, of `hold_for_s`."""
    hold_for_s: float | None = None
    until_us: int | None = None
    timeout_s: float | None = None
    left: str = ""
    """Remaining time or value, with its quality: `12 sessions`, `about 40 s (estimated)`, `unknown`."""


class BlockView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block of the current step."""

    id: str
    kind: str
    title: str
    """From the document, else what its kind is called."""
    state: StepState
    exact: str = ""
    """Exact text of what runs: SQL with its values, argv, the action's own text."""
    note: str = ""
    """Its result, or why it was skipped or failed."""
    usual_s: float | None = None
    elapsed_s: float | None = None


class StepView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step in the list."""

    id: str
    title: str
    state: StepState
    note: str = ""
    elapsed_s: float | None = None
    """Machine and operator time so far."""
    human_s: float = 0.0
    usual_s: float | None = None
    usual_from: str = ""
    """`author` or `3 runs`."""
    point_of_no_return: bool = False
    round: int = 0
    """Counted from 1 if it is repeated, else 0."""


class RunView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about a run that a screen or a plain terminal needs."""

    run: str
    """Its id, the name of its directory."""
    runbook: str
    title: str
    mode: Literal["run", "rehearse"]
    state: RunStatus
    target: str
    """Name, as it must be typed."""
    place: str = ""
    """The same, with the host if the name does not contain it."""
    identity: str = ""
    """`system identifier 74…, primary, timeline 1, PG 15.18`."""
    who: str = ""
    """Who started it."""
    driver: str = ""
    """Login of the console that controls the run; others watch."""
    started_us: int = 0
    directory: str = ""
    prose: tuple[Prose, ...] = ()
    steps: tuple[StepView, ...] = ()
    current: str = ""
    """Id of the current step."""
    step_prose: tuple[Prose, ...] = ()
    blocks: tuple[BlockView, ...] = ()
    """Of the current step."""
    block: str = ""
    """Id of the current block."""
    question: Question | None = None
    waiting: WaitView | None = None
    table: RunTable | None = None
    measures: RunTable | None = None
    """Before, after, change."""
    panels: tuple[str, ...] = ()
    """Panels relevant for the step."""
    progress: str = ""
    """Current progress of an action or a long command."""
    can_stop: bool = False
    """The operator can stop the current block."""
    journal: str = ""
    """Empty, or the problem with the journal: `in memory: the disk of the session is stalled`."""
    must_finish: bool = False
    """An abort now would leave it half done: its runbook has `reverts`, and a point of no return is passed."""
    ending: str = ""
    """Why it ended."""
    summary: RunTable | None = None
    """After the end, per step: planned, typical, actual, machine and operator time."""
    results: tuple[str, ...] = ()
    """After the end: what its actions measured (how long clients could not write), and what its last one reported."""


class OutputLine(Struct, frozen=True, array_like=True):
    """A line of a command's output."""

    wall_us: int
    stream: str
    """o or e."""
    tag: str
    text: str
