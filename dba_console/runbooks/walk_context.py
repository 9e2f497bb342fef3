"""What every part of the walk goes by: its plan and state, and the four ways to speak to the world."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from dba_console.recording.plan import Block, BlockCondition, Confirmation, Plan, plan_hash
from dba_console.runbooks.apply_records import apply
from dba_console.runbooks.preview_rows import no_return_notice, revertible_steps, unreverted_settings
from dba_console.runbooks.requests import (
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
from dba_console.runbooks.run_state import END, OpenQuestion, RunState
from dba_console.runbooks.run_view import Option, QuestionKind, quote_for_typing

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


# A run that is given up: what it has set for a time is put back, what can be taken back is offered, then it ends.

MOST_SAID = 400
"""Characters of what a command said, in the line the run ends with."""


def abort_run(context: WalkContext, state: str, reason: str, who: str | None) -> Turn[None]:
    """End the run, after its settings are put back and an offer to take back what can be. A second time, while taking
    back: at once."""
    undo = context.state.undo
    if undo is not None:
        yield from end_run(context, undo.state, f"{undo.reason}; taking it back was given up: {reason}", who)
        return
    steps = [step.id for step in revertible_steps(context.plan, context.state)]
    settings = [block.id for block in unreverted_settings(context.plan, context.state)]
    if stays := no_return_notice(context.plan, context.state):
        reason = f"{reason}; {stays}"
    if steps or settings:
        text = f"run {state}: {reason}"
        text += "; what it has set for a time is put back now" if settings else ""
        text += f"; can be taken back: {', '.join(steps)}" if steps else ""
        yield from context.write(
            "undo.offered", text, state=state, who=who, steps=steps, reason=reason, settings=settings
        )
    else:
        yield from end_run(context, state, reason, who)


def failure_text(context: WalkContext) -> str:
    """What has failed, or of what nobody knows the end, in one line: the block, its label and why. Empty where nothing
    has."""
    failure, execution = context.state.failure, context.state.open_execution
    if failure is None and execution is None:
        return ""
    _, block = context.plan.block(failure.block if failure is not None else execution.block)  # type: ignore[union-attr]
    label = f" (“{block.title}”)" if block.title else ""
    if failure is None:
        return f"how {block.id}{label} ended is not known"
    note = context.state.blocks[block.id].note.removeprefix(f"{block.id}: ")
    error_text = " · ".join(" ".join(one.split()) for one in note.splitlines() if one.strip())
    return f"{block.id}{label}: {error_text if len(error_text) <= MOST_SAID else error_text[: MOST_SAID - 1] + '…'}"


def end_run(context: WalkContext, state: str, reason: str, who: str | None = None) -> Turn[None]:
    """The last record of a run."""
    yield from context.write("run.ended", f"run {state}: {reason}" if reason else f"run {state}", state=state, who=who)


# Questions put in words, and answers read: nothing is taken for an answer that does not say plainly what it means.

ACKNOWLEDGED = "y"
"""The letter of an `ack`."""
DECLINED = frozenset({"n", "no"})
YES = "yes"

COUNTED = " (how many it acts on)"
NAMED = " (the name of the target)"
ITS_NAME = " (its name)"

GO_ON = Option(key="continue", text="go on")
GIVE_UP = Option(key="abort", text="end the run here")
PAUSED = (GO_ON, GIVE_UP)
NONE = Option(key="none", text="leave it out")
"""The only answer where no row is chosen."""


class NotAnAnswer(Exception):
    """What was typed does not do, and why."""


def chosen(options: Iterable[Option], text: str) -> tuple[Option, str]:
    """The option that is meant, and the reason given. Raises NotAnAnswer."""
    key, _, reason = text.strip().partition(" ")
    by_key = {option.key: option for option in options}
    option = by_key.get(key)
    if option is None:
        of = f"not {next(iter(by_key))!r}" if len(by_key) == 1 else f"none of {', '.join(by_key)}"
        raise NotAnAnswer(f"{key or 'nothing'!r} is {of}")
    reason = reason.strip()
    if option.needs_reason and not reason:
        raise NotAnAnswer(f"{key} needs a reason: {key} REASON")
    return option, reason


def confirms(confirmation: Confirmation, expects: str, text: str) -> bool:
    """True: confirmed; False: declined. Raises NotAnAnswer."""
    typed = text.strip()
    accepted = {"ack": ACKNOWLEDGED, "yes": YES, "type": expects}[confirmation.level]
    if not accepted:
        raise NotAnAnswer("it is not known what would have to be typed, so nothing confirms it")
    if typed == accepted or (confirmation.level == "ack" and typed.lower() in (ACKNOWLEDGED, YES)):
        return True
    if typed.lower() in DECLINED:
        return False
    raise NotAnAnswer(
        f"{typed!r} is not {accepted!r}; nothing was done" if typed else "nothing was typed; nothing was done"
    )


def confirms_start(text: str) -> bool:
    """Whether to start. Raises NotAnAnswer."""
    typed = text.strip().lower()
    if typed == YES:
        return True
    if typed in DECLINED:
        return False
    raise NotAnAnswer(f"type {quote_for_typing(YES)} to start, no to leave everything as it is")


def expected(confirmation: Confirmation, state: RunState, count: int | None, name: str = "") -> str:
    """The text that has to be typed; empty where it cannot be told, and then nothing confirms. `name` is that of the
    one thing it acts on."""
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
    """What is asked before something is done: what, where, to which `part` of the rows, and how it is confirmed."""
    where = ", ".join(filter(None, (f"On {target}" if target else "", part)))
    where = f" {where}:" if where else ""
    what = f"{what.rstrip().rstrip('.?!')}.{where} "
    if confirmation.level == "ack":
        how = f"press {ACKNOWLEDGED} to go on, n to stop here"
    else:
        meant = {"count": COUNTED, "target": NAMED, "name": ITS_NAME if name else COUNTED}.get(confirmation.text, "")
        how = (
            f"type {quote_for_typing(expects or '?')}{meant if confirmation.level == 'type' else ''} to go "
            f"on, no to stop here"
        )
    how = how if where else how[0].upper() + how[1:]
    return what + how + ("; a second person types it too" if confirmation.people > 1 else "")


def after_failure(*, timed_out: bool, may_skip: bool, input_names: Iterable[str] = ()) -> tuple[Option, ...]:
    """What can be done about a block that failed; `given` are the inputs of its step that it uses."""
    options = [Option(key="retry", text="look and try again")]
    if names := ", ".join(input_names):
        options.append(Option(key="input", text=f"give {names} again, then try again"))
    if timed_out:
        options.append(Option(key="wait", text="wait as long again"))
    if may_skip:
        options.append(Option(key="skip", text="leave it out", needs_reason=True))
    return (*options, GIVE_UP)


SETTLING = (
    Option(key="again", text="look for evidence again"),
    Option(key="ok", text="it was done", needs_reason=True),
    Option(key="failed", text="it was not done", needs_reason=True),
    GIVE_UP,
)


def decisions(block: Block) -> tuple[Option, ...]:
    """The options of a `choose`."""
    return tuple(
        Option(key=str(one["key"]), text=str(one.get("text", ""))) for one in block.settings.get("options", ())
    )


def leads_to(block: Block, key: str) -> str:
    """The step an option leads to, or the end; empty: what follows."""
    goto = next((str(one.get("goto") or "") for one in block.settings.get("options", ()) if one["key"] == key), "")
    return "" if goto == "next" else goto


def place(goto: str) -> str:
    return "the end" if goto == END else goto


# The records of a run that its walk does not write itself, for it has not begun, or has been broken off.


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
    """The first record: which document, on which server, for whom. Inputs that are secret are left out here."""
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
    """Written by who finds a run without end whose agent is gone."""
    return JournalRecord(kind="run.interrupted", text=text, fields={} if since_us is None else {"since_us": since_us})


def resumed(who: str) -> JournalRecord:
    """Written before an interrupted run is walked on: what was seen and confirmed for an act is asked again."""
    return JournalRecord(kind="run.resumed", text=f"resumed by {who}", who=who)


def taken_over(who: str, before: str) -> JournalRecord:
    """Another person's answers count from now on."""
    return JournalRecord(kind="person.took", text=f"{who} takes over from {before or 'nobody'}", who=who)


def adhoc(who: str, text: str, step: str = "") -> JournalRecord:
    """Something was done beside the document: a candidate for its next edition."""
    return JournalRecord(
        kind="deviation",
        text=f"{who}, beside the runbook: {text}",
        step=step,
        who=who,
        fields={"what": "adhoc", "reason": text},
    )
