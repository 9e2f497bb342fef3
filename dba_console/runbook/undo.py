"""What can be taken back of a run, and in which order: computed from what was done, offered, never begun by itself.

Steps are taken back in the reverse of the order in which they acted, down to the last point of no return that was
passed: to take back what lies before it would leave things in a state nobody has planned for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dba_console.plans.plan import Block, Plan, Step
from dba_console.runbook.run_state import Execution, RunState


@dataclass(frozen=True, slots=True)
class UndoItem:
    """One act that takes something back."""

    key: str
    block: Block
    """A block of the step's undo, or the action whose own undo it is."""
    undo_of: dict[str, Any] | None
    """What the execution left for it."""


def revertible_steps(plan: Plan, state: RunState) -> tuple[Step, ...]:
    """The steps that could be taken back, the last one first."""
    acted = sorted(
        (step for step in plan.steps if state.steps[step.id].passed),
        key=lambda step: state.steps[step.id].passed,
        reverse=True,
    )
    steps = []
    for step in acted:
        if step.point_of_no_return and no_return_passed(state, step):
            break
        if state.acted(step) and state.steps[step.id].status != "undone" and undo_items(state, step):
            steps.append(step)
    return tuple(steps)


def no_return_notice(plan: Plan, state: RunState) -> str:
    """That a point of no return was passed after something acted; empty where none was."""
    acted = [step for step in plan.steps if state.acted(step)]
    final = [step for step in acted if step.point_of_no_return and no_return_passed(state, step)]
    last = max(final, key=lambda step: state.steps[step.id].passed, default=None)
    if last is None or all(state.steps[step.id].passed >= state.steps[last.id].passed for step in acted):
        return ""
    return f"{last.id} was a point of no return: nothing before it is taken back"


def no_return_passed(state: RunState, step: Step) -> bool:
    """Whether a point of no return lies behind: its step did something, by a command or by hand."""
    by_hand = any(block.kind == "manual" and state.blocks[block.id].status == "ok" for block in step.blocks)
    return by_hand or state.acted(step) or state.steps[step.id].status == "ok"


def undo_items(state: RunState, step: Step) -> tuple[UndoItem, ...]:
    """What takes the step back: the blocks its author wrote for it, then what its actions can take back themselves,
    the last execution first."""
    done = forward_executions(state, step)
    left = next((one.undo for one in reversed(done) if one.undo is not None), None)
    written = tuple(UndoItem(block.id, block, left) for block in step.undo)
    blocks = {block.id: block for block in step.blocks}
    own = tuple(
        UndoItem(f"{one.block}@{one.number}", blocks[one.block], one.undo)
        for one in reversed(done)
        if one.undo is not None
        and blocks[one.block].kind == "action"
        and blocks[one.block].undo != "none"
        and not is_temporary_setting(blocks[one.block])
    )
    return written + own


def is_temporary_setting(block: Block) -> bool:
    """Whether it sets parameters for a time only. These are put back without a question (`unreverted_settings`)."""
    return block.kind == "action" and block.settings.get("temporary") is True


def unreverted_settings(plan: Plan, state: RunState) -> tuple[Block, ...]:
    """A block for each server on which the run has set parameters for a time and has not put them back since."""
    left: dict[str, Block] = {}
    for one in state.executions:
        _, block = plan.block(one.block)
        if one.item:
            continue
        if block.kind == "action" and block.action == "put-back" and one.state == "ok":
            left.pop(block.on, None)
        elif block.settings.get("temporary") and block.kind == "action" and one.state != "refused":
            left[block.on] = block
    return tuple(left.values())


def forward_executions(state: RunState, step: Step) -> list[Execution]:
    """Executions of the step that may have changed something, in order; not those that took something back."""
    ids = {block.id for block in step.blocks}
    return [one for one in state.executions if one.block in ids and not one.item and one.state != "refused"]
