"""Context of a walk, the step-by-step execution of a plan: its state, and the requests to write a record, read, pause
or ask. Also what all blocks share: abort, questions, records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from dba_console.recording.plan import Block, BlockCondition, Confirmation, JournalRecord, Plan, plan_hash
from dba_console.runbooks.apply_records import apply
from dba_console.runbooks.preview_rows import no_return_notice, revertible_steps, unreverted_settings
from dba_console.runbooks.run_state import END, RunState
from dba_console.runbooks.run_view import Option, QuestionKind, quote_for_typing
from dba_console.runbooks.walk_requests import (
    Answer,
    AskRequest,
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

Purpose = Literal["check", "measure", "preview", "when", "done", "until", "while"]
T = TypeVar("T")
Turn = Generator[Request, Reply, T]
"""A part of the walk that returns a T."""


class WalkInterrupted(Exception):
    """The operator interrupted a question, a read or a wait."""

    def __init__(self, interrupt: OperatorInterrupt) -> None:
        super().__init__(interrupt.verb)
        self.interrupt = interrupt


@dataclass(slots=True)
class WalkContext:
    """Plan, state and inputs of one walk."""

    plan: Plan
    state: RunState
    now: Callable[[], int]
    """Wall clock in microseconds."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Values of the inputs, including secrets; an input asked for during the run is added here."""

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
        """Write a record to disk, then apply it to the state."""
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
        """Read a block's condition, values or rows. Raises WalkInterrupted."""
        self.state.current = block.id
        reply = yield ReadRequest(block=block, purpose=purpose, test=test)
        return _expected(reply, ReadResult)

    def pause(self, seconds: float, until_us: int | None = None) -> Turn[TimePassed]:
        """Wait. Raises WalkInterrupted."""
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
        """Ask the operator; the question is recorded once, even if it is asked again. Raises WalkInterrupted."""
        step = self.plan.block(block.id)[0].id if block is not None else ""
        block_id = block.id if block is not None else ""
        self.state.current = block_id
        asked = self.state.asked
        if asked is None or (asked.fields.get("question"), asked.block) != (kind, block_id):
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

    def choose(
        self,
        kind: QuestionKind,
        text: str,
        options: tuple[Option, ...],
        *,
        block: Block | None = None,
        rows: str = "",
    ) -> Turn[tuple[Answer, Option, str]]:
        """Ask until one of the options is chosen; return the answer, the option and its reason. Raises
        WalkInterrupted."""
        while True:
            answer = yield from self.ask(kind, text, block=block, options=options, rows=rows)
            try:
                return answer, *chosen(options, answer.text)
            except NotAnAnswer as why:
                yield from self.reject(str(why))

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
        """Record an answer and the operator's time. `fields` must not contain a secret."""
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
        """Reject the last answer with the reason."""
        yield RejectRequest(text)


def _expected(reply: Reply, kind: type[T]) -> T:
    if isinstance(reply, OperatorInterrupt):
        raise WalkInterrupted(reply)
    if not isinstance(reply, kind):
        raise TypeError(f"the walk received {type(reply).__name__}, not {kind.__name__}")
    return reply


# Abort of a run: revert temporary settings, offer to revert the steps that can be reverted, then end.

MOST_SAID = 400
"""Maximum characters of a command's output in the last line of a run."""


def abort_run(context: WalkContext, state: str, reason: str, who: str | None) -> Turn[None]:
    """End the run after its temporary settings are reverted and a revert of its steps is offered. A second abort,
    during the revert, ends it immediately."""
    undo = context.state.undo
    if undo is not None:
        yield from end_run(context, undo.state, f"{undo.reason}; revert aborted: {reason}", who)
        return
    steps = [step.id for step in revertible_steps(context.plan, context.state)]
    settings = [block.id for block in unreverted_settings(context.plan, context.state)]
    if stays := no_return_notice(context.plan, context.state):
        reason = f"{reason}; {stays}"
    if steps or settings:
        text = f"run {state}: {reason}"
        text += "; temporary settings are reverted now" if settings else ""
        text += f"; can be reverted: {', '.join(steps)}" if steps else ""
        yield from context.write(
            "undo.offered", text, state=state, who=who, steps=steps, reason=reason, settings=settings
        )
    else:
        yield from end_run(context, state, reason, who)


def failure_text(context: WalkContext) -> str:
    """Return what failed or has an unknown outcome, in one line: block, title and reason. Empty if there is neither."""
    failure, execution = context.state.failure, context.state.open_execution
    if failure is None and execution is None:
        return ""
    _, block = context.plan.block(failure.block if failure is not None else execution.block)  # type: ignore[union-attr]
    label = f" (“{block.title}”)" if block.title else ""
    if failure is None:
        return f"outcome of {block.id}{label} unknown"
    note = context.state.blocks[block.id].note.removeprefix(f"{block.id}: ")
    error_text = " · ".join(" ".join(one.split()) for one in note.splitlines() if one.strip())
    return f"{block.id}{label}: {error_text if len(error_text) <= MOST_SAID else error_text[: MOST_SAID - 1] + '…'}"


def end_run(context: WalkContext, state: str, reason: str, who: str | None = None) -> Turn[None]:
    """Write the last record of a run."""
    yield from context.write("run.ended", f"run {state}: {reason}" if reason else f"run {state}", state=state, who=who)


# Texts of questions, and parsing of answers: an ambiguous answer is rejected.

ACKNOWLEDGED = "y"
"""Answer that confirms an `ack`."""
DECLINED = frozenset({"n", "no"})
YES = "yes"

COUNTED = " (the number affected)"
NAMED = " (the target name)"

GO_ON = Option(key="continue", text="continue the run")
GIVE_UP = Option(key="abort", text="abort the run")
PAUSED = (GO_ON, GIVE_UP)
NONE = Option(key="none", text="skip it")
"""The only answer if no row is chosen."""


class NotAnAnswer(Exception):
    """The typed text is not a valid answer; the message says why."""


def chosen(options: Iterable[Option], text: str) -> tuple[Option, str]:
    """Return the chosen option and the given reason. Raises NotAnAnswer."""
    key, _, reason = text.strip().partition(" ")
    by_key = {option.key: option for option in options}
    option = by_key.get(key)
    if option is None:
        one_of = "one of " if len(by_key) > 1 else ""
        raise NotAnAnswer(f"invalid answer {key!r}: expected {one_of}{', '.join(by_key)}")
    reason = reason.strip()
    if option.needs_reason and not reason:
        raise NotAnAnswer(f"{key} needs a reason: {key} REASON")
    return option, reason


def confirms(confirmation: Confirmation, expects: str, text: str) -> bool:
    """Return True if confirmed, False if declined. Raises NotAnAnswer."""
    typed = text.strip()
    accepted = {"ack": ACKNOWLEDGED, "yes": YES, "type": expects}[confirmation.level]
    if not accepted:
        raise NotAnAnswer("cannot confirm: the text to type is unknown")
    if typed == accepted or (confirmation.level == "ack" and typed.lower() in (ACKNOWLEDGED, YES)):
        return True
    if typed.lower() in DECLINED:
        return False
    raise NotAnAnswer(
        f"{typed!r} is not {accepted!r}; nothing was changed" if typed else "no text typed; nothing was changed"
    )


def confirms_start(text: str) -> bool:
    """Return whether to start. Raises NotAnAnswer."""
    typed = text.strip().lower()
    if typed == YES:
        return True
    if typed in DECLINED:
        return False
    raise NotAnAnswer(f"type {quote_for_typing(YES)} to start, no to cancel")


def expected(confirmation: Confirmation, state: RunState, count: int | None, name: str = "") -> str:
    """Return the text that must be typed; empty if it is unknown, and then nothing confirms. `name`: the single object
    it acts on."""
    if confirmation.level == "ack":
        return ACKNOWLEDGED
    if confirmation.level == "yes":
        return YES
    if confirmation.text == "target":
        return state.target
    if confirmation.text == "name" and name:
        return name
    if confirmation.text in ("count", "name"):
        return "" if count is None else str(count)
    return confirmation.text


def confirmation_text(
    what: str, confirmation: Confirmation, expects: str, target: str, part: str = "", name: str = ""
) -> str:
    """Return the question before a change: what, where, which `part` of the rows, and how to confirm."""
    where = ", ".join(filter(None, (f"On {target}" if target else "", part)))
    where = f" {where}:" if where else ""
    what = f"{what.rstrip().rstrip('.?!')}.{where} "
    if confirmation.level == "ack":
        how = f"press {ACKNOWLEDGED} to confirm, n to decline"
    else:
        # What `name` is, a directory, a node or a loss, the question itself says.
        kinds = {"count": COUNTED, "target": NAMED, "name": "" if name else COUNTED}
        kind = kinds.get(confirmation.text, "") if confirmation.level == "type" else ""
        how = f"type {quote_for_typing(expects or '?')}{kind} to confirm, no to decline"
    how = how if where else how[0].upper() + how[1:]
    return what + how + ("; a second operator must type it too" if confirmation.people > 1 else "")


def after_failure(*, timed_out: bool, may_skip: bool, input_names: Iterable[str] = ()) -> tuple[Option, ...]:
    """Return the options after a failure; `input_names`: the inputs of its step that the block uses."""
    options = [Option(key="retry", text="check again and retry")]
    if names := ", ".join(input_names):
        options.append(Option(key="input", text=f"enter {names} again, then retry"))
    if timed_out:
        options.append(Option(key="wait", text="wait for the same time again"))
    if may_skip:
        options.append(Option(key="skip", text="skip it", needs_reason=True))
    return (*options, GIVE_UP)


SETTLING = (
    Option(key="again", text="check the evidence again"),
    Option(key="ok", text="it succeeded", needs_reason=True),
    Option(key="failed", text="it did not happen", needs_reason=True),
    GIVE_UP,
)


def place(goto: str) -> str:
    return "the end" if goto == END else goto


# Records written outside the walk: before it starts, or after an interruption.


def planned(
    plan: Plan,
    *,
    run: str,
    mode: Literal["run", "rehearse"],
    target: str,
    who: str,
    identity: str = "",
    inputs: Mapping[str, Any] | None = None,
    **fields: Any,
) -> JournalRecord:
    """Return the first record of a run: document, server, operator. Secret inputs are not included."""
    secret = {one.name for one in plan.inputs if one.secret}
    shown_inputs = {name: value for name, value in (inputs or {}).items() if name not in secret}
    return JournalRecord(
        kind="run.planned",
        text=f"runbook {plan.id}: {'rehearsal' if mode == 'rehearse' else 'run'} planned by {who} on {target or '?'}",
        who=who,
        fields={
            "run": run,
            "runbook": plan.id,
            "title": plan.title,
            "mode": mode,
            "target": target,
            "identity": identity,
            "inputs": shown_inputs,
            "sha256": plan.sha256,
            "plan_sha256": plan_hash(plan),
            **fields,
        },
    )


def interrupted(text: str, since_us: int | None = None) -> JournalRecord:
    """Return the record that marks an unfinished run whose agent is gone."""
    return JournalRecord(kind="run.interrupted", text=text, fields={} if since_us is None else {"since_us": since_us})


def resumed(who: str) -> JournalRecord:
    """Return the record before an interrupted run continues: previews and confirmations are repeated."""
    return JournalRecord(kind="run.resumed", text=f"resumed by {who}", who=who)


def taken_over(who: str, before: str) -> JournalRecord:
    """Return the record that another operator controls the run from now on."""
    return JournalRecord(kind="person.took", text=f"{who} takes over" + (f" from {before}" if before else ""), who=who)
