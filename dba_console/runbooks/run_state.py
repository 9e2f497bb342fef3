"""What is known of a run: the records of its journal, folded. Nothing here is known in any other way but `current` and
`waiting`, which only say what is going on at this moment and are lost with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dba_console.core.target import with_host
from dba_console.recording.plan import Plan, Step
from dba_console.runbooks.requests import JournalRecord
from dba_console.runbooks.run_view import RunTable, WaitView

FINISHED = frozenset({"ok", "skipped", "undone"})
"""States of a block or step with which nothing is left to do."""
END = "end"
"""The place after the last step, as `goto` and `then` name it."""


@dataclass(slots=True)
class Execution:
    """One act, or an attempt at one: what was intended, and how it ended as far as is known."""

    block: str
    number: int
    intent: JournalRecord
    item: str = ""
    """Key of the item of the undo it belongs to; empty while walking forward."""
    state: str = "running"
    """running (no result on record), ok, failed, stopped, refused, unknown."""
    text: str = ""
    undo: dict[str, Any] | None = None

    @property
    def open(self) -> bool:
        """Its end is not known: nothing else may happen before it is settled."""
        return self.state in ("running", "unknown")


@dataclass(slots=True)
class BlockState:
    """A block in the present round of its step."""

    status: str = "pending"
    """pending, running, ok, failed, skipped, unknown."""
    note: str = ""
    confirmed: str = ""
    """Who confirmed an act that has not begun yet."""
    executions: int = 0
    """Over all rounds and retries."""
    rows: tuple[dict[str, Any], ...] | None = None
    """What a preview gave."""
    left_out: tuple[int, ...] = ()
    """Places of those of its rows that are shown and not acted on."""
    preview_count: int = 0
    """How often it gave rows, over all rounds: what a choice among them is bound to."""
    kept: tuple[tuple[tuple[str, str], ...], ...] | None = None
    """What the rows are known by that a person chose (`rows.known_by`): it holds when it is looked at anew, so that a
    row that is new is not acted on unasked. None: nobody chose."""
    row: int = 0
    """The next row, of a change that is executed for each."""
    sight: dict[str, Any] | None = None
    """What an action saw before the question."""
    table: RunTable | None = None
    timed_out: bool = False
    due_us: int | None = None
    """When the next round of a repeat begins."""
    machine_s: float = 0.0
    human_s: float = 0.0

    def reset(self) -> None:
        """Not run yet, as at the beginning of a round; what it took and how often it ran is kept."""
        self.status, self.note, self.confirmed, self.rows, self.row = "pending", "", "", None, 0
        self.sight, self.table, self.timed_out, self.due_us = None, None, False, None
        self.left_out = ()

    @property
    def chosen(self) -> tuple[dict[str, Any], ...] | None:
        """The rows of a preview that are acted on; None before it gave any."""
        if self.rows is None or not self.left_out:
            return self.rows
        out = frozenset(self.left_out)
        return tuple(row for index, row in enumerate(self.rows) if index not in out)


@dataclass(slots=True)
class StepState:
    """A step in its present round; times are sums over all rounds."""

    status: str = "pending"
    note: str = ""
    round: int = 0
    started_us: int = 0
    ended_us: int = 0
    last_us: int = 0
    """When it was last heard of."""
    passed: int = 0
    """Number of the record with which it last did something: the order in which steps are taken back."""
    machine_s: float = 0.0
    human_s: float = 0.0
    interrupted_s: float = 0.0


@dataclass(slots=True)
class OpenQuestion:
    """The question that is open."""

    kind: str
    text: str
    step: str = ""
    block: str = ""
    since_us: int = 0


@dataclass(slots=True)
class Failure:
    """What failed and has not been decided upon."""

    block: str
    item: str = ""
    acted: bool = False
    """An execution failed, and not a look or a confirmation before it."""
    declined: bool = False
    """A person said no."""


@dataclass(slots=True)
class UndoPlan:
    """The end of a run that is given up: what was offered to be taken back, and what of it is still to be done."""

    state: str
    """What the run will have ended as: failed or aborted."""
    reason: str
    who: str | None
    offered: tuple[str, ...]
    chosen: tuple[str, ...] | None = None
    """None: not answered yet."""
    active_step: str = ""
    finished: dict[str, str] = field(default_factory=dict)
    """Step -> undone, failed, skipped."""
    left: dict[str, str] = field(default_factory=dict)
    """Step -> what of it was left as it is, and why."""
    items: dict[str, str] = field(default_factory=dict)
    """Item of the step under way -> ok, skipped."""
    settings: tuple[str, ...] = ()
    """Blocks that have set something for a time, one for each server: put back before anything is asked."""
    put_back: tuple[str, ...] = ()
    """What came of that, in sentences."""


@dataclass(slots=True)
class RunState:
    """A run, as its records tell it."""

    plan: Plan
    run: str = ""
    mode: str = "run"
    target: str = ""
    identity: str = ""
    host: str = ""
    """The server's, or where there is none the one the run was begun on."""
    who: str = ""
    planned_us: int = 0
    shipped: bool = False
    """Its document comes with the console."""
    started: bool = False
    started_us: int = 0
    ended: str = ""
    """done, failed or aborted; empty while it has not ended."""
    ended_us: int = 0
    ending: str = ""
    paused: str = ""
    """Why, where it is paused."""
    interrupted: bool = False
    interrupted_us: int = 0
    """Since when, as far as is known; 0 while it is not."""
    interrupted_s: float = 0.0
    """Seconds of all interruptions: from the last record before each one to the resumption."""
    blocks: dict[str, BlockState] = field(default_factory=dict)
    steps: dict[str, StepState] = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    """Results by the name their block gave them, and inputs that are no secret."""
    measures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What each measure gave, oldest first; the first and the last are what is compared."""
    figures: dict[str, float] = field(default_factory=dict)
    """What actions measured, where the name says in what: `write_outage_s`."""
    goto: str = ""
    """The step, or the end, a decision leads to; what stands before it is skipped."""
    asked: OpenQuestion | None = None
    failure: Failure | None = None
    undo: UndoPlan | None = None
    deviations: list[JournalRecord] = field(default_factory=list)
    start_human_s: float = 0.0
    records: int = 0
    table: RunTable | None = None
    """Rows of the last preview: what is decided next is decided on them."""
    current: str = ""
    """Block under way, of this process only."""
    waiting: WaitView | None = None
    """Of the wait under way, of this process only."""

    def __post_init__(self) -> None:
        for step, block in self.plan.blocks():
            self.steps.setdefault(step.id, StepState())
            self.blocks[block.id] = BlockState()
        for step in self.plan.steps:
            self.steps.setdefault(step.id, StepState())

    @property
    def place(self) -> str:
        """The target as it is called, with its host where its name does not say it."""
        return with_host(self.target, self.host)

    @property
    def open_execution(self) -> Execution | None:
        """The act whose end is not known. There is never more than one."""
        last = self.executions[-1] if self.executions else None
        return last if last is not None and last.open else None

    @property
    def active_step(self) -> Step | None:
        """The step that was started and has not ended."""
        return next((step for step in self.plan.steps if self.steps[step.id].status == "running"), None)

    def acted(self, step: Step) -> bool:
        """Whether anything of the step may have changed the world."""
        ids = {block.id for block in step.blocks}
        return any(one.block in ids and one.state != "refused" for one in self.executions if not one.item)
