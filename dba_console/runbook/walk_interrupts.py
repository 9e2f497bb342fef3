"""What the operator may want instead of what was asked: hold still, leave rows or steps out, go elsewhere, end it."""

from __future__ import annotations

from dba_console.runbook.requests import OperatorInterrupt
from dba_console.runbook.row_choice import confirmed_preview, row_names
from dba_console.runbook.run_state import END
from dba_console.runbook.undo import no_return_passed
from dba_console.runbook.walk_abort import abort_run, failure_text
from dba_console.runbook.walk_context import Turn, WalkContext
from dba_console.runbook.walk_questions import place


def handle_interrupt(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    """Do what was asked for, or say why not; then the walk goes on with its next thing."""
    if interrupt.verb == "pause":
        yield from _pause(context, interrupt)
    elif interrupt.verb == "choose":
        yield from _choose(context, interrupt)
    elif interrupt.verb in ("abort", "undo"):
        what, why = failure_text(context), interrupt.reason or f"ended by {interrupt.who}"
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
        yield from context.reject("the run is paused already")
        return
    text = f"paused by {interrupt.who}" + (f": {interrupt.reason}" if interrupt.reason else "")
    yield from context.write("run.paused", text, who=interrupt.who, reason=interrupt.reason)


def _choose(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    """Which rows are acted on, of those that are being asked about; the question is put again, with their number."""
    state = context.state
    preview_state = state.blocks.get(interrupt.block)
    if (
        preview_state is None
        or preview_state.rows is None
        or preview_state.preview_count != interrupt.look
        or not _asks_about(context, interrupt.block)
    ):
        yield from context.reject("these rows are not asked about now: the choice stays as it was")
        return
    chosen_indexes = frozenset(interrupt.rows)
    left_out = [index for index in range(len(preview_state.rows)) if index not in chosen_indexes]
    if list(preview_state.left_out) == left_out:
        return
    count = len(preview_state.rows) - len(left_out)
    text = f"{interrupt.block}: {count} of {len(preview_state.rows)} rows chosen by {interrupt.who}"
    text += f"; left out: {row_names(preview_state.rows, left_out)}" if left_out else ""
    _, preview = context.plan.block(interrupt.block)
    chosen = [place for place in range(len(preview_state.rows)) if place in chosen_indexes]
    yield from context.write("rows.chosen", text, block=preview, who=interrupt.who, chosen=chosen, left_out=left_out)


def _asks_about(context: WalkContext, preview: str) -> bool:
    """Whether the rows are those of the block that is to be confirmed next, or was refused or declined."""
    state = context.state
    if not state.current or state.undo is not None or state.open_execution is not None:
        return False
    if state.failure is not None and (state.failure.acted or state.failure.block != state.current):
        return False
    _, block = context.plan.block(state.current)
    asked_preview = None if state.blocks[block.id].confirmed else confirmed_preview(context.plan, state, block)
    return asked_preview is not None and asked_preview.id == preview


def _refusal(context: WalkContext, interrupt: OperatorInterrupt) -> str:
    """Why a step may not be skipped or left for another; empty where it may."""
    state, plan = context.state, context.plan
    if plan.strict:
        return "this runbook is strict: its steps are walked in order, none is left out"
    if state.mode == "rehearse":
        return "a rehearsal goes through all steps"
    if not state.started:
        return "the run has not been started; there is no step to leave"
    if state.undo is not None:
        return "the run is being ended; answer the question"
    if state.open_execution is not None:
        return f"how {state.open_execution.block} ended has to be settled first"
    if state.active_step is None:
        return "no step is under way"
    if not interrupt.reason.strip():
        return f"a {interrupt.verb} needs a reason"
    return _jump_refusal(context, interrupt) if interrupt.verb == "jump" else ""


def _jump_refusal(context: WalkContext, interrupt: OperatorInterrupt) -> str:
    ids = [step.id for step in context.plan.steps]
    current = context.state.active_step
    if interrupt.step == END or current is None:
        return ""
    if interrupt.step not in ids:
        return f"there is no step {interrupt.step!r}"
    if interrupt.step == current.id:
        return f"step {interrupt.step} is under way"
    between = context.plan.steps[ids.index(interrupt.step) : ids.index(current.id) + 1]
    final = [step.id for step in between if step.point_of_no_return and no_return_passed(context.state, step)]
    return f"step {final[-1]} was a point of no return: there is no way back past it" if final else ""


def _skip(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    step = context.state.active_step
    if step is not None:
        text = f"step {step.id}: left out by {interrupt.who}: {interrupt.reason}"
        yield from context.write(
            "deviation", text, step=step.id, who=interrupt.who, what="skip", reason=interrupt.reason
        )


def _jump(context: WalkContext, interrupt: OperatorInterrupt) -> Turn[None]:
    step = context.state.active_step
    if step is None:
        return
    ids = [one.id for one in context.plan.steps]
    is_backward = interrupt.step != END and ids.index(interrupt.step) < ids.index(step.id)
    text = f"step {step.id}: left by {interrupt.who} for {place(interrupt.step)}: {interrupt.reason}"
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
