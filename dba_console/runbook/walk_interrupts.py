"""What the operator may want instead of what was asked: hold still, leave rows or steps out, go elsewhere, end it."""

from __future__ import annotations

from dba_console.runbook.requests import OperatorInterrupt
from dba_console.runbook.row_choice import confirmed_preview, row_names
from dba_console.runbook.run_state import END
from dba_console.runbook.undo import no_return_passed
from dba_console.runbook.walk_abort import abort_run, failure_text
from dba_console.runbook.walk_context import Turn, WalkContext
from dba_console.runbook.walk_questions import place


def handle_interrupt(course: WalkContext, wish: OperatorInterrupt) -> Turn[None]:
    """Do what was asked for, or say why not; then the walk goes on with its next thing."""
    if wish.verb == "pause":
        yield from _pause(course, wish)
    elif wish.verb == "choose":
        yield from _choose(course, wish)
    elif wish.verb in ("abort", "undo"):
        what, why = failure_text(course), wish.reason or f"ended by {wish.who}"
        yield from abort_run(course, "failed" if what else "aborted", f"{what} ({why})" if what else why, wish.who)
    else:
        why = _refusal(course, wish)
        if why:
            yield from course.reject(why)
        elif wish.verb == "skip":
            yield from _skip(course, wish)
        else:
            yield from _jump(course, wish)


def _pause(course: WalkContext, wish: OperatorInterrupt) -> Turn[None]:
    if course.state.paused:
        yield from course.reject("the run is paused already")
        return
    text = f"paused by {wish.who}" + (f": {wish.reason}" if wish.reason else "")
    yield from course.write("run.paused", text, who=wish.who, reason=wish.reason)


def _choose(course: WalkContext, wish: OperatorInterrupt) -> Turn[None]:
    """Which rows are acted on, of those that are being asked about; the question is put again, with their number."""
    state = course.state
    known = state.blocks.get(wish.block)
    if known is None or known.rows is None or known.preview_count != wish.look or not _asks_about(course, wish.block):
        yield from course.reject("these rows are not asked about now: the choice stays as it was")
        return
    wanted = frozenset(wish.rows)
    left_out = [place for place in range(len(known.rows)) if place not in wanted]
    if list(known.left_out) == left_out:
        return
    count = len(known.rows) - len(left_out)
    text = f"{wish.block}: {count} of {len(known.rows)} rows chosen by {wish.who}"
    text += f"; left out: {row_names(known.rows, left_out)}" if left_out else ""
    _, preview = course.plan.block(wish.block)
    chosen = [place for place in range(len(known.rows)) if place in wanted]
    yield from course.write("rows.chosen", text, block=preview, who=wish.who, chosen=chosen, left_out=left_out)


def _asks_about(course: WalkContext, preview: str) -> bool:
    """Whether the rows are those of the block that is to be confirmed next, or was refused or declined."""
    state = course.state
    if not state.current or state.undo is not None or state.open_execution is not None:
        return False
    if state.failure is not None and (state.failure.acted or state.failure.block != state.current):
        return False
    _, block = course.plan.block(state.current)
    asked = None if state.blocks[block.id].confirmed else confirmed_preview(course.plan, state, block)
    return asked is not None and asked.id == preview


def _refusal(course: WalkContext, wish: OperatorInterrupt) -> str:
    """Why a step may not be skipped or left for another; empty where it may."""
    state, plan = course.state, course.plan
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
    if not wish.reason.strip():
        return f"a {wish.verb} needs a reason"
    return _jump_refusal(course, wish) if wish.verb == "jump" else ""


def _jump_refusal(course: WalkContext, wish: OperatorInterrupt) -> str:
    ids = [step.id for step in course.plan.steps]
    here = course.state.active_step
    if wish.step == END or here is None:
        return ""
    if wish.step not in ids:
        return f"there is no step {wish.step!r}"
    if wish.step == here.id:
        return f"step {wish.step} is under way"
    between = course.plan.steps[ids.index(wish.step) : ids.index(here.id) + 1]
    final = [step.id for step in between if step.point_of_no_return and no_return_passed(course.state, step)]
    return f"step {final[-1]} was a point of no return: there is no way back past it" if final else ""


def _skip(course: WalkContext, wish: OperatorInterrupt) -> Turn[None]:
    step = course.state.active_step
    if step is not None:
        text = f"step {step.id}: left out by {wish.who}: {wish.reason}"
        yield from course.write("deviation", text, step=step.id, who=wish.who, what="skip", reason=wish.reason)


def _jump(course: WalkContext, wish: OperatorInterrupt) -> Turn[None]:
    step = course.state.active_step
    if step is None:
        return
    ids = [one.id for one in course.plan.steps]
    back = wish.step != END and ids.index(wish.step) < ids.index(step.id)
    text = f"step {step.id}: left by {wish.who} for {place(wish.step)}: {wish.reason}"
    yield from course.write(
        "deviation", text, step=step.id, who=wish.who, what="jump", to=wish.step, back=back, reason=wish.reason
    )
