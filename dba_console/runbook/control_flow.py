"""Records of ways folded: rounds that begin again, decisions that lead elsewhere, and what a person did otherwise."""

from __future__ import annotations

from dba_console.plans.plan import ACTING_KINDS, Step
from dba_console.runbook.apply_executions import item_done, row_done
from dba_console.runbook.preview_rows import bound_preview, inputs_of, runs_per_row
from dba_console.runbook.requests import JournalRecord
from dba_console.runbook.run_state import FINISHED, RunState


def follow_then(state: RunState, step_id: str, walked: bool) -> None:
    """What follows a step that is the end of a branch: only for who came along it."""
    then = state.plan.step(step_id).then
    if walked and then and not state.goto:
        state.goto = then


def round_began(state: RunState, record: JournalRecord) -> None:
    _go_back(state, str(record.fields.get("back_to", record.step)), record.step)


def _go_back(state: RunState, first: str, last: str) -> None:
    """Steps from the first to the last are to be walked again; their executions are counted on."""
    ids = [step.id for step in state.plan.steps]
    for step in state.plan.steps[ids.index(first) : ids.index(last) + 1]:
        state.steps[step.id].status, state.steps[step.id].note = "pending", ""
        for block in step.blocks:
            state.blocks[block.id].reset()
            state.blocks[block.id].kept = None
    state.goto, state.asked, state.failure = first, None, None


def decision_taken(state: RunState, record: JournalRecord) -> None:
    goto = str(record.fields.get("goto", ""))
    block = state.blocks[record.block]
    block.status, block.note = "ok", record.text
    if goto:
        state.goto = goto
        _skip_rest(state, state.plan.step(record.step), record.text)


def _skip_rest(state: RunState, step: Step, reason: str) -> None:
    for block in step.blocks:
        if state.blocks[block.id].status not in FINISHED:
            state.blocks[block.id].status, state.blocks[block.id].note = "skipped", reason


def deviation_recorded(state: RunState, record: JournalRecord) -> None:
    state.deviations.append(record)
    what, reason = record.fields.get("what"), str(record.fields.get("reason", record.text))
    if what == "retry":
        _retry(state, record)
    elif what == "input":
        _reenter_inputs(state, record)
    elif what == "skip" and record.block:
        _skip_block(state, record, reason)
    elif what == "skip":
        state.failure, state.asked = None, None
        _skip_rest(state, state.plan.step(record.step), reason)
        _skip_step(state, record.step, reason, record.wall_us)
    elif what == "jump":
        _jump(state, record, reason)


def _retry(state: RunState, record: JournalRecord) -> None:
    """Again, from the look at what it acts on; rows that are done stay done."""
    block, (step, plan_block) = state.blocks[record.block], state.plan.block(record.block)
    item = state.failure.item if state.failure is not None else ""
    state.failure, state.asked = None, None
    if runs_per_row(plan_block) and not item:
        block.status, block.note = "pending", ""
        return
    block.reset()
    if plan_block.kind not in ACTING_KINDS or item:
        return
    preview = bound_preview(state.plan, plan_block)
    if preview is not None and preview in step.blocks:
        state.blocks[preview.id].reset()
    # A `confirm` before it was the word for what was seen then.
    for one in step.blocks[: step.blocks.index(plan_block)]:
        if one.kind == "confirm" and plan_block.confirm is None:
            state.blocks[one.id].reset()


def _reenter_inputs(state: RunState, record: JournalRecord) -> None:
    """The same after other inputs: whatever was looked at or confirmed by the old ones is looked at and asked again."""
    step, plan_block = state.plan.block(record.block)
    _retry(state, record)
    state.blocks[record.block].confirmed = ""
    names = {one.name for one in inputs_of(state.plan, plan_block)}
    for one in step.blocks[: step.blocks.index(plan_block)]:
        if one.name in names or one.kind == "confirm" or (names & set(one.uses) and one.kind not in ACTING_KINDS):
            state.blocks[one.id].reset()


def _skip_block(state: RunState, record: JournalRecord, reason: str) -> None:
    block, (_, plan_block) = state.blocks[record.block], state.plan.block(record.block)
    failure, state.failure, state.asked = state.failure, None, None
    if failure is not None and failure.item:
        block.status, block.note = "skipped", block.note if reason == block.note else f"{block.note} ({reason})"
        item_done(state, failure.item, "skipped")
        return
    if failure is not None and failure.acted and runs_per_row(plan_block):
        row_done(state, plan_block, block, None)
        return
    block.status, block.note = "skipped", reason


def _skip_step(state: RunState, step_id: str, reason: str, wall_us: int) -> None:
    step = state.steps[step_id]
    walked = step.status == "running"
    step.status, step.note, step.ended_us = "skipped", reason, wall_us
    follow_then(state, step_id, walked)


def _jump(state: RunState, record: JournalRecord, reason: str) -> None:
    to = str(record.fields.get("to", ""))
    state.failure, state.asked = None, None
    if record.fields.get("back"):
        _go_back(state, to, record.step)
        return
    _skip_rest(state, state.plan.step(record.step), reason)
    state.goto = to
    _skip_step(state, record.step, reason, record.wall_us)
