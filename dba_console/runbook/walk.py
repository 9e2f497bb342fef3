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
from dba_console.runbook.walk_acts import act, settle, should_run
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
    course = WalkContext(plan, state, now, {} if inputs is None else inputs)
    asked_anew = state.mode == "rehearse"
    while not state.ended:
        try:
            if not asked_anew and state.started and state.open_execution is None and state.undo is None:
                yield from ask_secrets_again(course)
                asked_anew = True
            yield from _next_turn(course)
        except WalkInterrupted as wish:
            yield from handle_interrupt(course, wish.interrupt)
    state.current = ""
    return RunEnding(state.ended, state.ending)


def _next_turn(course: WalkContext) -> Turn[None]:
    """The next thing."""
    state = course.state
    if state.paused:
        yield from _paused(course)
    elif state.mode == "rehearse":
        yield from rehearse(course)
    elif (execution := state.open_execution) is not None and (state.undo is None or execution.item):
        yield from settle(course, execution)  # one whose end stayed unknown when the run was given up is left so
    elif state.failure is not None:
        yield from _decide_failure(course)
    elif state.undo is not None:
        yield from continue_undo(course, state.undo)
    elif not state.started:
        yield from _before_start(course)
    else:
        yield from _walk_on(course)


def _paused(course: WalkContext) -> Turn[None]:
    """Held still until a person says otherwise."""
    under_way = course.state.active_step
    answer = yield from course.ask("choose", f"{course.state.paused}. Go on?", options=PAUSED)
    try:
        option, reason = chosen(PAUSED, answer.text)
    except NotAnAnswer as why:
        yield from course.reject(str(why))
        return
    step = under_way.id if under_way is not None else ""
    if option.key == "continue":
        text = f"{answer.who} goes on"
        yield from course.write("run.resumed", text, step=step, who=answer.who, human_s=answer.human_s)
    else:
        yield from course.answered("choose", answer, f"{answer.who} ends the run", answer=option.key, reason=reason)
        yield from abort_run(course, "aborted", reason or "while it was paused", answer.who)


def _before_start(course: WalkContext) -> Turn[None]:
    """The checks that stand before the first act, then the question. No is the default, and leaves all as it is."""
    for _, block in course.plan.blocks():
        if block.leading and course.state.blocks[block.id].status not in FINISHED:
            yield from _run(course, block)
            return
    if confirms_itself(course.plan):
        yield from course.write("run.started", f"begun by {course.state.who}", who=course.state.who)
        return
    blocks = [block for step in course.plan.steps for block in step.blocks]
    usual = sum(block.usual_s or 0.0 for block in blocks)
    about = f", usually about {human_duration(usual)}" if usual else ""
    on = f" on {course.state.place}" if course.state.place else ""
    doubts = []
    for one in course.plan.inputs if blocks else ():
        if why := (yield from missing_object(course, blocks[0], one, course.state.values.get(one.name))):
            doubts.append(f"{why[0].upper()}{why[1:]}.\n")
    text = "".join(doubts) + (
        f"Start “{course.plan.title}”{on}? {len(blocks)} blocks in {len(course.plan.steps)} steps{about}. Default: no"
    )
    yield from ask_start(course, text, yes="started", no="not started", ending="it was not started")


def _decide_failure(course: WalkContext) -> Turn[None]:
    """Something failed: a person decides. Each way but the end is a deviation, and is listed as one."""
    failure = course.state.failure
    if failure is None:
        return
    _, block = course.plan.block(failure.block)
    known = course.state.blocks[block.id]
    if failure.declined and confirms_itself(course.plan):
        yield from abort_run(course, "aborted", known.note, course.state.who)
        return
    if failure.item and course.plan.reverts:
        text = f"{block.id}: left as it is, the others are reverted"
        yield from course.write("deviation", text, block=block, what="skip", answer="skip", reason=known.note)
        return
    may_skip = not course.plan.strict or bool(failure.item)
    names = [str(one.name) for one in inputs_of(course.plan, block)] if not (failure.item or known.row) else []
    options: tuple[Option, ...] = after_failure(timed_out=known.timed_out, may_skip=may_skip, given=names)
    note = known.note.removeprefix(f"{block.id}: ")
    text = f"{f'“{block.title}”' if block.title else block.id} failed: {note}"
    # Of an act that was refused or declined: it may be right without some of its rows.
    preview = None if failure.acted or failure.item else confirmed_preview(course.plan, course.state, block)
    while True:
        answer = yield from course.ask(
            "failed", text, block=block, options=options, rows="" if preview is None else preview.id
        )
        try:
            option, reason = chosen(options, answer.text)
            break
        except NotAnAnswer as why:
            yield from course.reject(str(why))
    said = f"{block.id}: {answer.who} decided: {answer.text.strip()}"
    yield from course.answered("failed", answer, said, block=block, answer=option.key, reason=reason)
    if option.key == "abort":
        yield from abort_run(course, "failed", failure_text(course) + (f" ({reason})" if reason else ""), answer.who)
        return
    what = option.key if option.key in ("skip", "input") else "retry"
    text = f"{block.id}: {option.text}, by {answer.who}" + (f": {reason}" if reason else "")
    yield from course.write(
        "deviation", text, block=block, who=answer.who, what=what, answer=option.key, reason=reason or known.note
    )


def _walk_on(course: WalkContext) -> Turn[None]:
    """The first step that has not ended, and in it the first block that has not."""
    state = course.state
    for step in course.plan.steps:
        known = state.steps[step.id]
        if known.status in FINISHED:
            continue
        if known.status == "pending" and (why := _step_skip_reason(state, step)):
            text = f"step {step.id}: skipped, {why}"
            yield from course.write("step.ended", text, step=step.id, state="skipped", reason=why)
            return
        if known.status == "pending":
            yield from course.write("step.started", f"step {step.id}: {step.title}", step=step.id)
            return
        yield from _within(course, step)
        return
    yield from end_run(course, "done", "")


def _step_skip_reason(state: RunState, step: Step) -> str:
    """Why a step is not walked; empty where it is."""
    if state.goto and state.goto != step.id:
        return f"on to {place(state.goto)}"
    if step.branch and state.goto != step.id:
        return "reached by a decision only"
    return ""


def _within(course: WalkContext, step: Step) -> Turn[None]:
    for block in step.blocks:
        if course.state.blocks[block.id].status not in FINISHED:
            yield from _run(course, block)
            return
    known = [course.state.blocks[block.id] for block in step.blocks]
    skipped = bool(known) and all(one.status == "skipped" for one in known)
    reason = "; ".join(dict.fromkeys(one.note for one in known if one.status == "skipped"))
    state = "skipped" if skipped else "ok"
    text = f"step {step.id}: {state}" + (f" ({reason})" if reason else "")
    yield from course.write("step.ended", text, step=step.id, state=state, reason=reason)


def _run(course: WalkContext, block: Block) -> Turn[None]:
    """One block. An act asks by itself whether it is wanted, for it may be in the middle of its rows; a wait or round
    whose end is fixed has been asked before."""
    course.state.current = block.id
    going_on = course.state.blocks[block.id].due_us is not None
    if BLOCKS[block.kind] is not act and not going_on and not (yield from should_run(course, block)):
        return
    yield from BLOCKS[block.kind](course, block)
