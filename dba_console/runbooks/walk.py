"""The walk through a plan, its execution block by block: a generator of requests that the caller fulfils.

    walker = walk(plan, replay_records(plan, records), inputs=…, now=…)
    request = next(walker)
    while True: request = walker.send(reply)        # StopIteration.value is the Ending

Each turn reads the state, executes the next part and writes records, which change the state; nothing else is kept
between turns. So a walk that continues and one restarted with the recorded records behave the same: an execution with a
recorded intent is settled first, a question is asked again, a check runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from dba_console.core.units import human_duration
from dba_console.recording.plan import ACTING_KINDS, Block, Plan, Step
from dba_console.runbooks.asking_kinds import ask_secrets_again, ask_start, missing_object
from dba_console.runbooks.block_kind import should_run
from dba_console.runbooks.block_kind_registry import kind_of
from dba_console.runbooks.changing_kinds import act, outcome_of, settle
from dba_console.runbooks.preview_rows import inputs_of, no_return_passed, undo_items
from dba_console.runbooks.rehearsal import rehearse
from dba_console.runbooks.result_tables import counted
from dba_console.runbooks.row_choice import confirmed_preview, row_names
from dba_console.runbooks.run_state import END, FINISHED, RunState, UndoPlan
from dba_console.runbooks.run_view import Option, WaitView, quote_for_typing
from dba_console.runbooks.single_action import confirms_itself
from dba_console.runbooks.walk_context import (
    PAUSED,
    Turn,
    WalkContext,
    WalkInterrupted,
    abort_run,
    after_failure,
    end_run,
    failure_text,
    place,
)
from dba_console.runbooks.walk_requests import Answer, OperatorInterrupt, Outcome, Reply, Request, RevertSettingsRequest

# Interrupts of the operator: pause, choose rows, skip a step, jump, abort.


def handle_interrupt(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    """Handle an interrupt, or reject it with the reason; then the walk continues."""
    if interrupt.verb == "pause":
        yield from _pause(context, interrupt)
    elif interrupt.verb == "choose":
        yield from _choose(context, interrupt)
    elif interrupt.verb in ("abort", "undo"):
        what, why = failure_text(context), interrupt.reason or f"aborted by {interrupt.who}"
        yield from abort_run(
            context, "failed" if what else "aborted", f"{what} ({why})" if what else why, interrupt.who
        )
    else:
        why = _refusal(context, interrupt)
        if why:
            yield from context.reject(why)
        elif interrupt.verb == "skip":
            yield from _skip(context, interrupt)
        else:
            yield from _jump(context, interrupt)


def _pause(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    if context.state.paused:
        yield from context.reject("the run is already paused")
        return
    text = f"paused by {interrupt.who}" + (f": {interrupt.reason}" if interrupt.reason else "")
    yield from context.write("run.paused", text, who=interrupt.who, reason=interrupt.reason)


def _choose(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    """Change which rows of the current question are acted on; the question is asked again with their count."""
    state = context.state
    preview_state = state.blocks.get(interrupt.block)
    if (
        preview_state is None
        or preview_state.rows is None
        or preview_state.preview_count != interrupt.look
        or not _asks_about(context, interrupt.block)
    ):
        yield from context.reject("the current question is not about these rows: the choice is unchanged")
        return
    chosen_indexes = frozenset(interrupt.rows)
    left_out = [index for index in range(len(preview_state.rows)) if index not in chosen_indexes]
    if list(preview_state.left_out) == left_out:
        return
    count = len(preview_state.rows) - len(left_out)
    text = f"{interrupt.block}: {count} of {len(preview_state.rows)} rows chosen by {interrupt.who}"
    text += f"; not chosen: {row_names(preview_state.rows, left_out)}" if left_out else ""
    _, preview = context.plan.block(interrupt.block)
    chosen = [place for place in range(len(preview_state.rows)) if place in chosen_indexes]
    yield from context.write("rows.chosen", text, block=preview, who=interrupt.who, chosen=chosen, left_out=left_out)


def _asks_about(context: WalkContext, preview: str) -> bool:
    """Return whether the rows belong to the block that is confirmed next, or was refused or declined."""
    state = context.state
    if not state.current or state.undo is not None or state.open_execution is not None:
        return False
    if state.failure is not None and (state.failure.acted or state.failure.block != state.current):
        return False
    _, block = context.plan.block(state.current)
    asked_preview = None if state.blocks[block.id].confirmed else confirmed_preview(context.plan, state, block)
    return asked_preview is not None and asked_preview.id == preview


def _refusal(context: WalkContext, interrupt: OperatorInterrupt) -> str:
    """Return why a step cannot be skipped or left for another; empty if it can."""
    state, plan = context.state, context.plan
    if plan.strict:
        return "this runbook is strict: no step can be skipped or jumped to"
    if state.mode == "rehearse":
        return "a rehearsal runs all steps in order"
    if not state.started:
        return "the run has not started yet"
    if state.undo is not None:
        return "the run is being aborted; answer the question"
    if state.open_execution is not None:
        return f"the unknown outcome of {state.open_execution.block} must be determined first"
    if state.active_step is None:
        return "no step is running"
    if not interrupt.reason.strip():
        return f"a {interrupt.verb} needs a reason"
    return _jump_refusal(context, interrupt) if interrupt.verb == "jump" else ""


def _jump_refusal(context: WalkContext, interrupt: OperatorInterrupt) -> str:
    ids = [step.id for step in context.plan.steps]
    current = context.state.active_step
    if interrupt.step == END or current is None:
        return ""
    if interrupt.step not in ids:
        return f"unknown step {interrupt.step!r}"
    if interrupt.step == current.id:
        return f"step {interrupt.step} is already running"
    between = context.plan.steps[ids.index(interrupt.step) : ids.index(current.id) + 1]
    final = [step.id for step in between if step.point_of_no_return and no_return_passed(context.state, step)]
    return f"step {final[-1]} was a point of no return: cannot jump back past it" if final else ""


def _skip(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    step = context.state.active_step
    if step is not None:
        text = f"step {step.id}: skipped by {interrupt.who}: {interrupt.reason}"
        yield from context.write(
            "deviation", text, step=step.id, who=interrupt.who, what="skip", reason=interrupt.reason
        )


def _jump(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    step = context.state.active_step
    if step is None:
        return
    ids = [one.id for one in context.plan.steps]
    is_backward = interrupt.step != END and ids.index(interrupt.step) < ids.index(step.id)
    text = f"step {step.id}: {interrupt.who} jumped to {place(interrupt.step)}: {interrupt.reason}"
    yield from context.write(
        "deviation",
        text,
        step=step.id,
        who=interrupt.who,
        what="jump",
        to=interrupt.step,
        back=is_backward,
        reason=interrupt.reason,
    )


# Revert after an abort: temporary settings without a question, because the old values are recorded; other changes step
# by step, and only the steps that the operator chose.

ALL, NONE = "all", "none"
ITSELF = "the runbook"
"""Recorded as the one who chose the steps if the plan has `reverts`."""
SERVER_S = 60.0
"""Maximum wait for a server that does not answer, for example during crash recovery, before the run ends."""
AGAIN_S = 2.0
"""Pause between two attempts."""


def continue_undo(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    """Do the next thing for an aborted run."""
    if undo.settings:
        yield from _revert_settings(context, undo)
        return
    if undo.chosen is None and undo.offered:
        yield from _ask_which(context, undo)
        return
    if undo.active_step:
        yield from _next_item(context, undo)
        return
    remaining = [step for step in undo.chosen or () if step not in undo.finished]
    if remaining:
        yield from context.write("undo.began", f"step {remaining[0]}: revert started", step=remaining[0])
        return
    yield from end_run(context, undo.state, _undo_result(undo), undo.who)


def _undo_result(undo: UndoPlan) -> str:
    reverted = [step for step, outcome in undo.finished.items() if outcome == "undone"]
    rest = [step for step in undo.offered if step not in reverted]
    parts = [undo.reason, *(one for one in undo.put_back if one)]
    if reverted:
        parts.append(f"reverted: {', '.join(reverted)}")
    if rest:
        why = [f"{step} ({reason})" if (reason := undo.left.get(step)) else step for step in rest]
        parts.append(f"not reverted: {', '.join(why)}")
    return "; ".join(parts)


def _revert_settings(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    """Revert the temporary settings of one server. A failure does not stop the abort: a record and a finding remain."""
    _, block = context.plan.block(undo.settings[0])
    context.state.current = block.id
    until_us = context.now() + int(SERVER_S * 1e6)
    outcome = yield from _try_revert(block)
    while outcome.state == "unknown" and (left_s := (until_us - context.now()) / 1e6) > 0:
        context.state.waiting = WaitView(
            text="the server answers, to revert temporary settings",
            values=outcome.text,
            timeout_s=SERVER_S,
            left=f"{human_duration(left_s)} at most",
        )
        try:
            yield from context.pause(min(AGAIN_S, left_s))
        finally:
            context.state.waiting = None
        outcome = yield from _try_revert(block)
    if outcome.state == "ok":
        message = "temporary settings reverted" if outcome.values.get("put_back") else ""
    else:
        message = f"cannot revert temporary settings: {outcome.text}; use runbook put-back"
    text = f"{block.id}: {message or 'no temporary setting to revert'}"
    text += f": {outcome.text}" if outcome.state == "ok" and message else ""
    state = "ok" if outcome.state == "ok" else "failed"
    yield from context.write("undo.settings", text, block=block, state=state, told=message, machine_s=outcome.machine_s)


def _try_revert(block: Block) -> Turn[Outcome]:
    return outcome_of((yield RevertSettingsRequest(block=block)))


def _ask_which(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    if context.plan.reverts:
        answer_given = Answer(text=ALL, who=undo.who or ITSELF)
        record_text = f"the runbook reverts {', '.join(undo.offered)}"
        yield from context.answered("undo", answer_given, record_text, steps=list(undo.offered), answer=ALL)
        return
    titles = {step.id: step.title for step in context.plan.steps}
    options = (
        Option(key=NONE, text="revert nothing"),
        Option(key=ALL, text="all of these, in this order"),
        *(Option(key=step, text=titles[step]) for step in undo.offered),
    )
    text = f"Revert {', '.join(undo.offered)}? Type {quote_for_typing(NONE)}, {quote_for_typing(ALL)}, or the steps"
    while True:
        answer = yield from context.ask("undo", text, options=options)
        words = answer.text.replace(",", " ").split()
        unknown = [word for word in words if word not in (ALL, NONE, *undo.offered)]
        if unknown or not words or (len(words) > 1 and {ALL, NONE} & set(words)):
            yield from context.reject(
                f"type {quote_for_typing(NONE)}, {quote_for_typing(ALL)}, or steps of {', '.join(undo.offered)}"
            )
            continue
        steps = [step for step in undo.offered if words == [ALL] or step in words]
        record_text = f"{answer.who} chose to revert {', '.join(steps) or 'nothing'}"
        yield from context.answered("undo", answer, record_text, steps=steps, answer=" ".join(words))
        return


def _next_item(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    step = context.plan.step(undo.active_step)
    for item in undo_items(context.state, step):
        if item.key not in undo.items:
            yield from act(context, item.block, item)
            return
    failed = [key.partition("@")[0] for key, outcome in undo.items.items() if outcome != "ok"]
    reason = "; ".join(
        f"{block}: {context.state.blocks[block].note.removeprefix(f'{block}: ')}" for block in dict.fromkeys(failed)
    )
    text = f"step {step.id}: not completely reverted: {reason}" if failed else f"step {step.id}: reverted"
    yield from context.write("undo.ended", text, step=step.id, state="skipped" if failed else "undone", reason=reason)


class RunEnding(Struct, frozen=True):
    """How a run ended."""

    state: str
    """done, failed or aborted."""
    text: str


def walk(
    plan: Plan, state: RunState, *, inputs: dict[str, Any] | None = None, now: Callable[[], int]
) -> Generator[Request, Reply, RunEnding]:
    """Continue from `state` to the end of the run. Each written record changes `state` in place. `inputs`: values of
    all inputs, extended by those asked for during the run; `now`: wall clock in microseconds.
    """
    context = WalkContext(plan, state, now, {} if inputs is None else inputs)
    secrets_asked = state.mode == "rehearse"
    while not state.ended:
        try:
            if not secrets_asked and state.started and state.open_execution is None and state.undo is None:
                yield from ask_secrets_again(context)
                secrets_asked = True
            yield from _next_turn(context)
        except WalkInterrupted as error:
            yield from handle_interrupt(context, error.interrupt)
    state.current = ""
    return RunEnding(state.ended, state.ending)


def _next_turn(context: WalkContext) -> Turn[None]:
    """Do the next thing."""
    state = context.state
    if state.paused:
        yield from _paused(context)
    elif state.mode == "rehearse":
        yield from rehearse(context)
    elif (execution := state.open_execution) is not None and (state.undo is None or execution.item):
        yield from settle(context, execution)  # an outcome that was unknown when the run was aborted stays unknown
    elif state.failure is not None:
        yield from _decide_failure(context)
    elif state.undo is not None:
        yield from continue_undo(context, state.undo)
    elif not state.started:
        yield from _before_start(context)
    else:
        yield from _next_step(context)


def _paused(context: WalkContext) -> Turn[None]:
    """Ask whether to continue a paused run."""
    step_running = context.state.active_step
    answer, option, reason = yield from context.choose("choose", f"{context.state.paused}. Continue?", PAUSED)
    step = step_running.id if step_running is not None else ""
    if option.key == "continue":
        text = f"continued by {answer.who}"
        yield from context.write("run.resumed", text, step=step, who=answer.who, human_s=answer.human_s)
    else:
        yield from context.answered("choose", answer, f"aborted by {answer.who}", answer=option.key, reason=reason)
        yield from abort_run(context, "aborted", reason or "aborted while paused", answer.who)


def _before_start(context: WalkContext) -> Turn[None]:
    """Run the leading checks, then ask whether to start. The default is no and changes nothing."""
    for _, block in context.plan.blocks():
        if block.leading and context.state.blocks[block.id].status not in FINISHED:
            yield from _run(context, block)
            return
    if confirms_itself(context.plan):
        yield from context.write("run.started", f"started by {context.state.who}", who=context.state.who)
        return
    blocks = [block for step in context.plan.steps for block in step.blocks]
    usual = sum(block.usual_s or 0.0 for block in blocks)
    about = f", typically about {human_duration(usual)}" if usual else ""
    on = f" on {context.state.place}" if context.state.place else ""
    doubts = []
    for one in context.plan.inputs if blocks else ():
        if why := (yield from missing_object(context, blocks[0], one, context.state.values.get(one.name))):
            doubts.append(f"{why[0].upper()}{why[1:]}.\n")
    acting = sum(block.changes for block in blocks)
    size = f"{counted(len(context.plan.steps), 'step')}, {counted(acting, 'change')}"
    text = "".join(doubts) + f"Start “{context.plan.title}”{on}? {size}{about}. Default: no"
    yield from ask_start(context, text, yes="started", no="not started", ending="not started")


def _decide_failure(context: WalkContext) -> Turn[None]:
    """Ask the operator what to do about a failure. Each answer except abort is recorded as a deviation."""
    failure = context.state.failure
    if failure is None:
        return
    _, block = context.plan.block(failure.block)
    block_state = context.state.blocks[block.id]
    if failure.declined and confirms_itself(context.plan):
        yield from abort_run(context, "aborted", block_state.note, context.state.who)
        return
    if failure.item and context.plan.reverts:
        text = f"{block.id}: not reverted, the others are reverted"
        yield from context.write("deviation", text, block=block, what="skip", answer="skip", reason=block_state.note)
        return
    may_skip = not context.plan.strict or bool(failure.item)
    names = [str(one.name) for one in inputs_of(context.plan, block)] if not (failure.item or block_state.row) else []
    options: tuple[Option, ...] = after_failure(timed_out=block_state.timed_out, may_skip=may_skip, input_names=names)
    note = block_state.note.removeprefix(f"{block.id}: ")
    text = f"{f'“{block.title}”' if block.title else block.id} failed: {note}"
    # If it was refused or declined, it may be right without some of its rows.
    preview = None if failure.acted or failure.item else confirmed_preview(context.plan, context.state, block)
    rows = "" if preview is None else preview.id
    answer, option, reason = yield from context.choose("failed", text, options, block=block, rows=rows)
    record_text = f"{block.id}: {answer.who} answered: {answer.text.strip()}"
    yield from context.answered("failed", answer, record_text, block=block, answer=option.key, reason=reason)
    if option.key == "abort":
        yield from abort_run(context, "failed", failure_text(context) + (f" ({reason})" if reason else ""), answer.who)
        return
    what = option.key if option.key in ("skip", "input") else "retry"
    text = f"{block.id}: {option.text}, by {answer.who}" + (f": {reason}" if reason else "")
    yield from context.write(
        "deviation", text, block=block, who=answer.who, what=what, answer=option.key, reason=reason or block_state.note
    )


def _next_step(context: WalkContext) -> Turn[None]:
    """Run the first step that has not ended, and in it the first block that has not."""
    state = context.state
    for step in context.plan.steps:
        step_state = state.steps[step.id]
        if step_state.status in FINISHED:
            continue
        if step_state.status == "pending" and (why := _step_skip_reason(state, step)):
            text = f"step {step.id}: skipped, {why}"
            yield from context.write("step.ended", text, step=step.id, state="skipped", reason=why)
            return
        if step_state.status == "pending":
            yield from context.write("step.started", f"step {step.id}: {step.title}", step=step.id)
            return
        yield from _next_block(context, step)
        return
    yield from end_run(context, "done", "")


def _step_skip_reason(state: RunState, step: Step) -> str:
    """Return why a step is skipped; empty if it is not."""
    if state.goto and state.goto != step.id:
        return f"jumped to {place(state.goto)}"
    if step.branch and state.goto != step.id:
        return "branch not chosen"
    return ""


def _next_block(context: WalkContext, step: Step) -> Turn[None]:
    for block in step.blocks:
        if context.state.blocks[block.id].status not in FINISHED:
            yield from _run(context, block)
            return
    notes = {one.id: context.state.blocks[one.id].note for one in step.blocks if _is_skipped(context, one)}
    skipped = bool(notes) and len(notes) == len(step.blocks)
    reason = "; ".join(dict.fromkeys(notes.values()))
    state, text = "skipped" if skipped else "ok", f"step {step.id}: skipped ({reason})"
    if not skipped:
        left = [f"{name} skipped, {note}" for name, note in notes.items()]
        text = "; ".join([f"step {step.id}: ok", *left])
    yield from context.write("step.ended", text, step=step.id, state=state, reason=reason)


def _is_skipped(context: WalkContext, block: Block) -> bool:
    return context.state.blocks[block.id].status == "skipped"


def _run(context: WalkContext, block: Block) -> Turn[None]:
    """Run one block. A changing block evaluates `when` and `done` itself, because it may be between two of its rows; a
    wait or round with a fixed end has evaluated them before."""
    context.state.current = block.id
    going_on = context.state.blocks[block.id].due_us is not None
    if block.kind not in ACTING_KINDS and not going_on and not (yield from should_run(context, block)):
        return
    yield from kind_of(block).walk(context, block)
