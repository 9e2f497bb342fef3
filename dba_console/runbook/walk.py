"""The walk through a plan: a generator of requests, driven by who can fulfil them.

    course = walk(plan, fold(plan, records), inputs=…, now=…)
    request = next(course)
    while True: request = course.send(reply)        # StopIteration.value is the Ending

It looks at the state, does the next thing, and by the records it writes the state becomes another; nothing else is kept
from one thing to the next. So it does not matter whether it goes on or is begun again with the records it had written:
an act whose intent is on record is settled before anything else, a question is put again, a look is taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from dba_console.plans.plan import Block, Plan, Step
from dba_console.plans.run_view import Option
from dba_console.runbook.preview_rows import inputs_of
from dba_console.runbook.rehearsal import rehearse
from dba_console.runbook.requests import Reply, Request
from dba_console.runbook.row_choice import confirmed_preview
from dba_console.runbook.run_state import FINISHED, RunState
from dba_console.runbook.single_action import confirms_itself
from dba_console.runbook.walk_abort import abort_run, end_run, failure_text
from dba_console.runbook.walk_actions import act, settle, should_run
from dba_console.runbook.walk_checks import check, measure, preview
from dba_console.runbook.walk_context import Turn, WalkContext, WalkInterrupted
from dba_console.runbook.walk_interrupts import handle_interrupt
from dba_console.runbook.walk_manual import (
    ask_secrets_again,
    ask_start,
    ask_value,
    choose,
    confirm_block,
    manual,
    missing_object,
)
from dba_console.runbook.walk_questions import PAUSED, NotAnAnswer, after_failure, chosen, place
from dba_console.runbook.walk_undo import continue_undo
from dba_console.runbook.walk_waits import repeat, wait
from dba_console.units import human_duration


class RunEnding(Struct, frozen=True):
    """How a run ended."""

    state: str
    """done, failed or aborted."""
    text: str


BLOCKS: dict[str, Callable[[WalkContext, Block], Turn[None]]] = {
    "check": check,
    "measure": measure,
    "preview": preview,
    "wait": wait,
    "repeat": repeat,
    "confirm": confirm_block,
    "choose": choose,
    "manual": manual,
    "input": ask_value,
    "change": act,
    "run": act,
    "action": act,
}


def walk(
    plan: Plan, state: RunState, *, inputs: dict[str, Any] | None = None, now: Callable[[], int]
) -> Generator[Request, Reply, RunEnding]:
    """Go on from `state` to the end of the run. `state` is changed in place by each record written; `inputs` has the
    values of all inputs and is given those that are asked for on the way; `now` is the wall clock in microseconds.
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
    """The next thing."""
    state = context.state
    if state.paused:
        yield from _paused(context)
    elif state.mode == "rehearse":
        yield from rehearse(context)
    elif (execution := state.open_execution) is not None and (state.undo is None or execution.item):
        yield from settle(context, execution)  # one whose end stayed unknown when the run was given up is left so
    elif state.failure is not None:
        yield from _decide_failure(context)
    elif state.undo is not None:
        yield from continue_undo(context, state.undo)
    elif not state.started:
        yield from _before_start(context)
    else:
        yield from _next_step(context)


def _paused(context: WalkContext) -> Turn[None]:
    """Held still until a person says otherwise."""
    step_running = context.state.active_step
    answer = yield from context.ask("choose", f"{context.state.paused}. Go on?", options=PAUSED)
    try:
        option, reason = chosen(PAUSED, answer.text)
    except NotAnAnswer as why:
        yield from context.reject(str(why))
        return
    step = step_running.id if step_running is not None else ""
    if option.key == "continue":
        text = f"{answer.who} goes on"
        yield from context.write("run.resumed", text, step=step, who=answer.who, human_s=answer.human_s)
    else:
        yield from context.answered("choose", answer, f"{answer.who} ends the run", answer=option.key, reason=reason)
        yield from abort_run(context, "aborted", reason or "while it was paused", answer.who)


def _before_start(context: WalkContext) -> Turn[None]:
    """The checks that stand before the first act, then the question. No is the default, and leaves all as it is."""
    for _, block in context.plan.blocks():
        if block.leading and context.state.blocks[block.id].status not in FINISHED:
            yield from _run(context, block)
            return
    if confirms_itself(context.plan):
        yield from context.write("run.started", f"begun by {context.state.who}", who=context.state.who)
        return
    blocks = [block for step in context.plan.steps for block in step.blocks]
    usual = sum(block.usual_s or 0.0 for block in blocks)
    about = f", usually about {human_duration(usual)}" if usual else ""
    on = f" on {context.state.place}" if context.state.place else ""
    doubts = []
    for one in context.plan.inputs if blocks else ():
        if why := (yield from missing_object(context, blocks[0], one, context.state.values.get(one.name))):
            doubts.append(f"{why[0].upper()}{why[1:]}.\n")
    text = "".join(doubts) + (
        f"Start “{context.plan.title}”{on}? {len(blocks)} blocks in {len(context.plan.steps)} steps{about}. Default: no"
    )
    yield from ask_start(context, text, yes="started", no="not started", ending="it was not started")


def _decide_failure(context: WalkContext) -> Turn[None]:
    """Something failed: a person decides. Each way but the end is a deviation, and is listed as one."""
    failure = context.state.failure
    if failure is None:
        return
    _, block = context.plan.block(failure.block)
    block_state = context.state.blocks[block.id]
    if failure.declined and confirms_itself(context.plan):
        yield from abort_run(context, "aborted", block_state.note, context.state.who)
        return
    if failure.item and context.plan.reverts:
        text = f"{block.id}: left as it is, the others are reverted"
        yield from context.write("deviation", text, block=block, what="skip", answer="skip", reason=block_state.note)
        return
    may_skip = not context.plan.strict or bool(failure.item)
    names = [str(one.name) for one in inputs_of(context.plan, block)] if not (failure.item or block_state.row) else []
    options: tuple[Option, ...] = after_failure(timed_out=block_state.timed_out, may_skip=may_skip, input_names=names)
    note = block_state.note.removeprefix(f"{block.id}: ")
    text = f"{f'“{block.title}”' if block.title else block.id} failed: {note}"
    # Of an act that was refused or declined: it may be right without some of its rows.
    preview = None if failure.acted or failure.item else confirmed_preview(context.plan, context.state, block)
    while True:
        answer = yield from context.ask(
            "failed", text, block=block, options=options, rows="" if preview is None else preview.id
        )
        try:
            option, reason = chosen(options, answer.text)
            break
        except NotAnAnswer as why:
            yield from context.reject(str(why))
    record_text = f"{block.id}: {answer.who} decided: {answer.text.strip()}"
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
    """The first step that has not ended, and in it the first block that has not."""
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
    """Why a step is not walked; empty where it is."""
    if state.goto and state.goto != step.id:
        return f"on to {place(state.goto)}"
    if step.branch and state.goto != step.id:
        return "reached by a decision only"
    return ""


def _next_block(context: WalkContext, step: Step) -> Turn[None]:
    for block in step.blocks:
        if context.state.blocks[block.id].status not in FINISHED:
            yield from _run(context, block)
            return
    block_states = [context.state.blocks[block.id] for block in step.blocks]
    skipped = bool(block_states) and all(one.status == "skipped" for one in block_states)
    reason = "; ".join(dict.fromkeys(one.note for one in block_states if one.status == "skipped"))
    state = "skipped" if skipped else "ok"
    text = f"step {step.id}: {state}" + (f" ({reason})" if reason else "")
    yield from context.write("step.ended", text, step=step.id, state=state, reason=reason)


def _run(context: WalkContext, block: Block) -> Turn[None]:
    """One block. An act asks by itself whether it is wanted, for it may be in the middle of its rows; a wait or round
    whose end is fixed has been asked before."""
    context.state.current = block.id
    going_on = context.state.blocks[block.id].due_us is not None
    if BLOCKS[block.kind] is not act and not going_on and not (yield from should_run(context, block)):
        return
    yield from BLOCKS[block.kind](context, block)
