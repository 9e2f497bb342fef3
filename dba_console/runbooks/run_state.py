"""State of a run, replayed from the records of its journal. Only `current` and `waiting` are not from records; they are
lost with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dba_console.actions.action_preview import ActionPreview
from dba_console.core.target import with_host
from dba_console.recording.plan import JournalRecord, Plan, Step
from dba_console.runbooks.run_view import RunTable, WaitView

FINISHED = frozenset({"ok", "skipped", "undone"})
"""Final states of a block or step."""
END = "end"
"""Target of `goto` and `then` after the last step."""


@dataclass(slots=True)
class Execution:
    """An execution of a changing block: its intent and its outcome."""

    block: str
    number: int
    intent: JournalRecord
    item: str = ""
    """Key of its undo item; empty if it is not part of a revert."""
    state: str = "running"
    """running (no result recorded), ok, failed, stopped, refused, unknown."""
    text: str = ""
    undo: dict[str, Any] | None = None

    @property
    def open(self) -> bool:
        """Return whether its outcome is unknown: it must be settled before anything else."""
        return self.state in ("running", "unknown")


@dataclass(slots=True)
class BlockState:
    """State of a block in the current round of its step."""

    status: str = "pending"
    """pending, running, ok, failed, skipped, unknown."""
    note: str = ""
    confirmed: str = ""
    """Operator who confirmed a change that has not started yet."""
    executions: int = 0
    """Over all rounds and retries."""
    rows: tuple[dict[str, Any], ...] | None = None
    """Rows of a preview."""
    left_out: tuple[int, ...] = ()
    """Indexes of rows that are shown but not acted on."""
    preview_count: int = 0
    """Number of previews so far, over all rounds; a choice of rows refers to it."""
    kept: tuple[tuple[tuple[str, str], ...], ...] | None = None
    """Keys of the rows that the operator chose (`row_choice.row_key`). They apply to later previews, so that a new row
    is not acted on without a choice. None: no choice was made."""
    row: int = 0
    """The next row, of a change with `each`."""
    action_preview: ActionPreview | None = None
    """Preview of an action."""
    table: RunTable | None = None
    timed_out: bool = False
    due_us: int | None = None
    """When the next round of a repeat begins."""
    machine_s: float = 0.0
    human_s: float = 0.0

    def reset(self) -> None:
        """Reset to the start of a round; times and execution counts are kept."""
        self.status, self.note, self.confirmed, self.rows, self.row = "pending", "", "", None, 0
        self.action_preview, self.table, self.timed_out, self.due_us = None, None, False, None
        self.left_out = ()

    @property
    def chosen(self) -> tuple[dict[str, Any], ...] | None:
        """Return the rows of a preview that are acted on; None before the preview ran."""
        if self.rows is None or not self.left_out:
            return self.rows
        out = frozenset(self.left_out)
        return tuple(row for index, row in enumerate(self.rows) if index not in out)


@dataclass(slots=True)
class StepState:
    """State of a step in its current round; times are sums over all rounds."""

    status: str = "pending"
    note: str = ""
    round: int = 0
    started_us: int = 0
    ended_us: int = 0
    last_us: int = 0
    """Time of its last record."""
    passed: int = 0
    """Number of the record of its last change; steps are reverted in the reverse order."""
    machine_s: float = 0.0
    human_s: float = 0.0
    interrupted_s: float = 0.0


@dataclass(slots=True)
class Failure:
    """A failure that needs a decision."""

    block: str
    item: str = ""
    acted: bool = False
    """An execution failed, not a check or a confirmation before it."""
    declined: bool = False
    """The operator declined."""


@dataclass(slots=True)
class UndoPlan:
    """Revert of an aborted run: the steps offered, chosen and finished."""

    state: str
    """Final state of the run: failed or aborted."""
    reason: str
    who: str | None
    offered: tuple[str, ...]
    chosen: tuple[str, ...] | None = None
    """None: not answered yet."""
    active_step: str = ""
    finished: dict[str, str] = field(default_factory=dict)
    """Step -> undone, failed, skipped."""
    left: dict[str, str] = field(default_factory=dict)
    """Step -> why it was not completely reverted."""
    items: dict[str, str] = field(default_factory=dict)
    """Item of the current step -> ok, skipped."""
    settings: tuple[str, ...] = ()
    """Blocks with temporary settings, one per server: reverted before the question."""
    put_back: tuple[str, ...] = ()
    """Messages of that."""


@dataclass(slots=True)
class RunState:
    """State of a run."""

    plan: Plan
    run: str = ""
    mode: str = "run"
    target: str = ""
    identity: str = ""
    host: str = ""
    """Host of the server, or without a server the host where the run started."""
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
    """Why it is paused; empty if it is not."""
    interrupted: bool = False
    interrupted_us: int = 0
    """Since when, if known; 0 while it is not interrupted."""
    interrupted_s: float = 0.0
    """Seconds of all interruptions: from the last record before each one to the resumption."""
    blocks: dict[str, BlockState] = field(default_factory=dict)
    steps: dict[str, StepState] = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    """Results by name of their block, and inputs that are not secret."""
    measures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Values of each measurement, oldest first; the first and the last are compared."""
    figures: dict[str, float] = field(default_factory=dict)
    """Values measured by actions whose name ends in a unit: `write_outage_s`."""
    goto: str = ""
    """Step, or end, that a decision leads to; the steps before it are skipped."""
    asked: JournalRecord | None = None
    """Record of the open question."""
    failure: Failure | None = None
    undo: UndoPlan | None = None
    deviations: list[JournalRecord] = field(default_factory=list)
    start_human_s: float = 0.0
    records: int = 0
    table: RunTable | None = None
    """Rows of the last preview, for the next decision."""
    current: str = ""
    """Current block; this process only."""
    waiting: WaitView | None = None
    """Current wait; this process only."""

    def __post_init__(self) -> None:
        for step, block in self.plan.blocks():
            self.steps.setdefault(step.id, StepState())
            self.blocks[block.id] = BlockState()
        for step in self.plan.steps:
            self.steps.setdefault(step.id, StepState())

    @property
    def place(self) -> str:
        """Return the target name, with the host if the name does not contain it."""
        return with_host(self.target, self.host)

    @property
    def open_execution(self) -> Execution | None:
        """Return the execution with an unknown outcome; there is at most one."""
        last = self.executions[-1] if self.executions else None
        return last if last is not None and last.open else None

    @property
    def active_step(self) -> Step | None:
        """Return the step that has started and not ended."""
        return next((step for step in self.plan.steps if self.steps[step.id].status == "running"), None)

    def acted(self, step: Step) -> bool:
        """Return whether the step may have changed anything."""
        ids = {block.id for block in step.blocks}
        return any(one.block in ids and one.state != "refused" for one in self.executions if not one.item)
