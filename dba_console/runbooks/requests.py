"""What the walk asks of the world, and what it is told: the walk itself performs no I/O.

    request = walk.send(None)
    while True: request = walk.send(reply to request)

Everything the walk knows of the past are the records it had written; begun again with them it goes on where it was.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from dba_console.recording.plan import Block, BlockCondition
from dba_console.recording.plan import JournalRecord as JournalRecord
from dba_console.runbooks.run_view import Option, QuestionKind, RunTable


class WriteRequest(Struct, frozen=True):
    """Append this record to the journal, synced before the reply. Reply: None."""

    record: JournalRecord


class ReadRequest(Struct, frozen=True, kw_only=True):
    """Read the world for a block: run a check, measure, preview, or one of its tests. Reply: Seen."""

    block: Block
    purpose: Literal["check", "measure", "preview", "when", "done", "until", "while", "needs"]
    test: BlockCondition | None = None
    """Of the purposes that are tests; else the block's own code is meant."""


class AskRequest(Struct, frozen=True, kw_only=True):
    """Put a question to the operator and wait as long as it takes. Reply: Answer."""

    kind: QuestionKind
    text: str
    step: str = ""
    block: str = ""
    expects: str = ""
    options: tuple[Option, ...] = ()
    people: int = 1
    secret: bool = False
    rows: str = ""
    """The preview of whose rows some can be left out instead of an answer (`OperatorInterrupt`, verb `choose`)."""


class ExecuteRequest(Struct, frozen=True, kw_only=True):
    """Execute an acting block; its intent has been written. Reply: Outcome."""

    block: Block
    execution: int
    """Counted from 1 for each block, over rounds and retries."""
    intent: JournalRecord
    undo_of: dict[str, Any] | None = None
    """What the execution that is taken back left for its undo."""


class SettleRequest(Struct, frozen=True, kw_only=True):
    """An intent without result was found: what can be said of its end by evidence? Reply: Outcome (state unknown where
    nothing tells)."""

    block: Block
    execution: int
    intent: JournalRecord


class RevertSettingsRequest(Struct, frozen=True, kw_only=True):
    """Put back what the run has set for a time (`temporary`) on the server of this block. Doing it twice does no harm.
    Reply: Outcome (state unknown where the server does not answer)."""

    block: Block


class PauseRequest(Struct, frozen=True, kw_only=True):
    """Let time pass: until the next look of a wait, or the next round. Reply: Passed."""

    seconds: float
    until_us: int | None = None
    """Wall clock, where a point in time is meant."""


class RejectRequest(Struct, frozen=True):
    """The last answer does not do; told to who gave it. Reply: None."""

    text: str


Request = (
    WriteRequest
    | ReadRequest
    | AskRequest
    | ExecuteRequest
    | SettleRequest
    | RevertSettingsRequest
    | PauseRequest
    | RejectRequest
)


class ReadResult(Struct, frozen=True, kw_only=True):
    """What a look saw."""

    holds: bool | None = None
    """None: it could not be told; never taken for yes."""
    text: str = ""
    """The values looked at, with unit and age, or the error."""
    values: dict[str, Any] = {}
    """Name -> number or text; what `measure` keeps."""
    table: RunTable | None = None
    rows: tuple[dict[str, Any], ...] = ()
    """Of a preview: all of them, as JSON can hold them."""
    error: str | None = None
    """The look itself failed: the check fails."""
    machine_s: float = 0.0

    def append_to(self, text: str) -> str:
        """`words`, and behind them why or what was seen, where there is anything to say."""
        detail = self.error or self.text
        return f"{text}: {detail}" if detail else text


class Answer(Struct, frozen=True, kw_only=True):
    """What a person said."""

    text: str
    who: str
    second: str = ""
    """Who confirmed as second person."""
    human_s: float = 0.0


class Outcome(Struct, frozen=True, kw_only=True):
    """How an execution ended."""

    state: Literal["ok", "failed", "unknown", "stopped", "refused"]
    text: str
    values: dict[str, Any] = {}
    """Results by name, `exit`, `rows`, `first_line`…; before and after of an action."""
    undo: dict[str, Any] | None = None
    """What would be needed to take it back."""
    evidence: str = ""
    machine_s: float = 0.0
    table: RunTable | None = None
    """What it did, where that is more than a sentence; shown until something else is looked at, and kept."""
    again: bool = False
    """Of an act that was settled: it was not begun, or a part of it was done, and doing it again goes on from there.
    Where its agent was killed it is looked at, confirmed and done, without a decision of a person about a failure."""


class TimePassed(Struct, frozen=True, kw_only=True):
    """Time went by."""

    seconds: float
    wall_us: int


class OperatorInterrupt(Struct, frozen=True, kw_only=True):
    """Instead of a reply to Ask, Pause or Look: the operator wants something else. Nothing was answered."""

    verb: Literal["pause", "skip", "abort", "jump", "undo", "choose"]
    who: str
    reason: str = ""
    step: str = ""
    """With `jump`."""
    block: str = ""
    """With `choose`: the preview."""
    look: int = 0
    """The look at it that gave the rows."""
    rows: tuple[int, ...] = ()
    """Places, from 0, of all rows that are to be acted on."""


Reply = None | ReadResult | Answer | Outcome | TimePassed | OperatorInterrupt
