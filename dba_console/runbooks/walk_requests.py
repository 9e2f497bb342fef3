"""Requests of the walk and the replies to them. The walk performs no I/O.

    request = walk.send(None)
    while True: request = walk.send(reply to request)

The walk depends only on its records; restarted with them it continues where it stopped.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from dba_console.actions.action_preview import ActionPreview
from dba_console.recording.plan import Block, BlockCondition, JournalRecord
from dba_console.runbooks.run_view import Option, QuestionKind, RunTable


class WriteRequest(Struct, frozen=True):
    """Append this record to the journal and sync it. Reply: None."""

    record: JournalRecord


class ReadRequest(Struct, frozen=True, kw_only=True):
    """Run a block's check, measurement or preview, or one of its conditions. Reply: ReadResult."""

    block: Block
    purpose: Literal["check", "measure", "preview", "when", "done", "until", "while", "needs"]
    test: BlockCondition | None = None
    """The condition to evaluate; None: the block's own code."""


class AskRequest(Struct, frozen=True, kw_only=True):
    """Ask the operator and wait without a timeout. Reply: Answer."""

    kind: QuestionKind
    text: str
    step: str = ""
    block: str = ""
    expects: str = ""
    options: tuple[Option, ...] = ()
    people: int = 1
    secret: bool = False
    rows: str = ""
    """The preview whose rows can be chosen instead of an answer (`OperatorInterrupt`, verb `choose`)."""


class ExecuteRequest(Struct, frozen=True, kw_only=True):
    """Execute a changing block whose intent has been recorded. Reply: Outcome."""

    block: Block
    execution: int
    """Counted from 1 per block, over rounds and retries."""
    intent: JournalRecord
    undo_of: dict[str, Any] | None = None
    """Undo data of the execution that is reverted."""


class SettleRequest(Struct, frozen=True, kw_only=True):
    """Find evidence for the outcome of an intent without result. Reply: Outcome (state unknown if there is no
    evidence)."""

    block: Block
    execution: int
    intent: JournalRecord


class RevertSettingsRequest(Struct, frozen=True, kw_only=True):
    """Revert the temporary settings of the run (`temporary`) on the server of this block. Idempotent. Reply: Outcome
    (state unknown if the server does not answer)."""

    block: Block


class PauseRequest(Struct, frozen=True, kw_only=True):
    """Wait for the next check of a wait or the next round. Reply: TimePassed."""

    seconds: float
    until_us: int | None = None
    """Wall clock, if the end is a point in time."""


class RejectRequest(Struct, frozen=True):
    """Reject the last answer with a reason. Reply: None."""

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
    """Result of a read request."""

    holds: bool | None = None
    """None: unknown; never counts as true."""
    text: str = ""
    """The values that were read, with unit and age, or the error."""
    values: dict[str, Any] = {}
    """Name -> number or text; recorded by `measure`."""
    table: RunTable | None = None
    rows: tuple[dict[str, Any], ...] = ()
    """All rows of a preview, JSON-serializable."""
    action_preview: ActionPreview | None = None
    """What an action would do; its values are JSON-serializable."""
    error: str | None = None
    """The read itself failed: the check fails."""
    machine_s: float = 0.0

    def append_to(self, text: str) -> str:
        """Return `text: detail` with the error or the values, if there are any."""
        detail = self.error or self.text
        return f"{text}: {detail}" if detail else text


class Answer(Struct, frozen=True, kw_only=True):
    """Answer of the operator."""

    text: str
    who: str
    second: str = ""
    """The second operator who confirmed."""
    human_s: float = 0.0


class Outcome(Struct, frozen=True, kw_only=True):
    """Outcome of an execution."""

    state: Literal["ok", "failed", "unknown", "stopped", "refused"]
    text: str
    values: dict[str, Any] = {}
    """Results by name, `exit`, `rows`, `first_line`…; before and after of an action."""
    undo: dict[str, Any] | None = None
    """Data needed to revert it."""
    evidence: str = ""
    machine_s: float = 0.0
    table: RunTable | None = None
    """Details of what it did; recorded, and shown until the next rows are read."""
    again: bool = False
    """Of a settled execution: it did not start or was partly done, and can be executed again to continue. After a kill
    of the agent it is previewed, confirmed and executed again, without a failure question."""


class TimePassed(Struct, frozen=True, kw_only=True):
    """A pause has ended."""

    seconds: float
    wall_us: int


class OperatorInterrupt(Struct, frozen=True, kw_only=True):
    """Reply to AskRequest, PauseRequest or ReadRequest if the operator interrupts instead of answering."""

    verb: Literal["pause", "skip", "abort", "jump", "undo", "choose"]
    who: str
    reason: str = ""
    step: str = ""
    """With `jump`."""
    block: str = ""
    """With `choose`: the preview."""
    look: int = 0
    """Number of the preview that returned the rows."""
    rows: tuple[int, ...] = ()
    """Indexes, from 0, of all rows to act on."""


Reply = None | ReadResult | Answer | Outcome | TimePassed | OperatorInterrupt
