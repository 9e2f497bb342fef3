"""What every part of the walk goes by: its plan and state, and the four ways to speak to the world."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from dba_console.plans.plan import Block, BlockCondition, Plan
from dba_console.plans.run_view import Option, QuestionKind
from dba_console.runbook.apply_records import apply
from dba_console.runbook.requests import (
    Answer,
    AskRequest,
    JournalRecord,
    OperatorInterrupt,
    PauseRequest,
    ReadRequest,
    ReadResult,
    RejectRequest,
    Reply,
    Request,
    TimePassed,
    WriteRequest,
)
from dba_console.runbook.run_state import OpenQuestion, RunState

Purpose = Literal["check", "measure", "preview", "when", "done", "until", "while"]
T = TypeVar("T")
Turn = Generator[Request, Reply, T]
"""A piece of the walk that comes to a T."""


class WalkInterrupted(Exception):
    """The operator wants something else than what was asked, looked at or waited for."""

    def __init__(self, interrupt: OperatorInterrupt) -> None:
        super().__init__(interrupt.verb)
        self.interrupt = interrupt


@dataclass(slots=True)
class WalkContext:
    """One walk."""

    plan: Plan
    state: RunState
    now: Callable[[], int]
    """Wall clock in microseconds."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Values of the inputs, secret ones too; an input asked for on the way is put here."""

    def write(
        self,
        kind: str,
        text: str,
        *,
        block: Block | None = None,
        step: str = "",
        state: str = "",
        who: str | None = None,
        execution: int = 0,
        **fields: Any,
    ) -> Turn[JournalRecord]:
        """Put a record on disk, and only then go by it."""
        step = step or (self.plan.block(block.id)[0].id if block is not None else "")
        record = JournalRecord(
            kind=kind,
            text=text,
            step=step,
            block=block.id if block is not None else "",
            execution=execution,
            round=self.state.steps[step].round if step in self.state.steps else 0,
            state=state,
            who=who,
            fields=msgspec.to_builtins(fields),
            wall_us=self.now(),
        )
        yield WriteRequest(record)
        apply(self.state, record)
        return record

    def read_block(self, block: Block, purpose: Purpose, test: BlockCondition | None = None) -> Turn[ReadResult]:
        """Read the world. Raises Interrupted."""
        self.state.current = block.id
        reply = yield ReadRequest(block=block, purpose=purpose, test=test)
        return _expected(reply, ReadResult)

    def pause(self, seconds: float, until_us: int | None = None) -> Turn[TimePassed]:
        """Let time pass. Raises Interrupted."""
        reply = yield PauseRequest(seconds=seconds, until_us=until_us)
        return _expected(reply, TimePassed)

    def ask(
        self,
        kind: QuestionKind,
        text: str,
        *,
        block: Block | None = None,
        expects: str = "",
        options: tuple[Option, ...] = (),
        people: int = 1,
        secret: bool = False,
        rows: str = "",
    ) -> Turn[Answer]:
        """Put a question; told to the journal once, however often it is put again. Raises Interrupted."""
        step = self.plan.block(block.id)[0].id if block is not None else ""
        block_id = block.id if block is not None else ""
        self.state.current = block_id
        if not _is_open(self.state.asked, kind, block_id):
            yield from self.write("block.asked", text, block=block, question=kind)
        reply = yield AskRequest(
            kind=kind,
            text=text,
            step=step,
            block=block_id,
            expects=expects,
            options=options,
            people=people,
            secret=secret,
            rows=rows,
        )
        return _expected(reply, Answer)

    def answered(
        self,
        kind: QuestionKind,
        given: Answer,
        text: str,
        *,
        block: Block | None = None,
        state: str = "",
        **fields: Any,
    ) -> Turn[JournalRecord]:
        """Record what was answered, and the time the person took. A secret is not what `fields` may hold."""
        if given.second:
            fields["second"] = given.second
        return (
            yield from self.write(
                "block.answered",
                text,
                block=block,
                state=state,
                who=given.who,
                question=kind,
                human_s=given.human_s,
                **fields,
            )
        )

    def reject(self, text: str) -> Turn[None]:
        """Tell who answered that it does not do."""
        yield RejectRequest(text)


def _is_open(question: OpenQuestion | None, kind: str, block: str) -> bool:
    return question is not None and (question.kind, question.block) == (kind, block)


def _expected(reply: Reply, kind: type[T]) -> T:
    if isinstance(reply, OperatorInterrupt):
        raise WalkInterrupted(reply)
    if not isinstance(reply, kind):
        raise TypeError(f"the walk was told {type(reply).__name__}, not {kind.__name__}")
    return reply
