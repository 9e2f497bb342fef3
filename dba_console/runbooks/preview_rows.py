"""Rows and values of a changing block: its preview, its parameters, its statements; and the steps that can be
reverted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dba_console.core.redact import MASK
from dba_console.recording.plan import Block, Plan, Step
from dba_console.runbooks.run_state import Execution, RunState
from dba_console.runbooks.values import fill_references, for_sql, rows_or_value, statement_text

# Steps that can be reverted: in the reverse order of their changes, back to the last point of no return that was
# passed, because a revert beyond it would lead to an unplanned state. They are offered, not reverted automatically.


@dataclass(frozen=True, slots=True)
class UndoItem:
    """One execution of a revert."""

    key: str
    block: Block
    """An undo block of the step, or the action that reverts itself."""
    undo_of: dict[str, Any] | None
    """Undo data of the execution."""


def revertible_steps(plan: Plan, state: RunState) -> tuple[Step, ...]:
    """Return the steps that can be reverted, the last one first."""
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
    """Return a notice if earlier changes are before a passed point of no return; else empty."""
    acted = [step for step in plan.steps if state.acted(step)]
    final = [step for step in acted if step.point_of_no_return and no_return_passed(state, step)]
    last = max(final, key=lambda step: state.steps[step.id].passed, default=None)
    if last is None or all(state.steps[step.id].passed >= state.steps[last.id].passed for step in acted):
        return ""
    return f"{last.id} was a point of no return: nothing before it is reverted"


def no_return_passed(state: RunState, step: Step) -> bool:
    """Return whether a point of no return was passed: its step changed something, by a block or manually."""
    by_hand = any(block.kind == "manual" and state.blocks[block.id].status == "ok" for block in step.blocks)
    return by_hand or state.acted(step) or state.steps[step.id].status == "ok"


def undo_items(state: RunState, step: Step) -> tuple[UndoItem, ...]:
    """Return what reverts the step: its undo blocks, then its actions that can revert themselves, the last execution
    first."""
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
    """Return whether it sets parameters temporarily. These are reverted without a question (`unreverted_settings`)."""
    return block.kind == "action" and block.settings.get("temporary") is True


def unreverted_settings(plan: Plan, state: RunState) -> tuple[Block, ...]:
    """Return one block per server on which the run has temporary settings that are not reverted yet."""
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
    """Return the executions of the step that may have changed something, in order, without those of a revert."""
    ids = {block.id for block in step.blocks}
    return [one for one in state.executions if one.block in ids and not one.item and one.state != "refused"]


MOST_STATEMENTS = 20
"""Maximum statements shown of a change with `each`."""
MOST_VALUE = 1_000
"""Maximum characters of a value inserted into a shown statement; a longer one stays a reference and is shown below."""


def bound_preview(plan: Plan, block: Block) -> Block | None:
    """Return the preview whose rows the block acts on: the one it names, else for a change the last one before it in
    its step that no other change uses. An action names it in its settings: `rows = "%(NAME)s"`."""
    step, _ = plan.block(block.id)
    name = _preview_name(block)
    if name:
        return next((one for _, one in plan.blocks() if one.kind == "preview" and one.name == name), None)
    if block.kind != "change" or block not in step.blocks:
        return None
    for before in reversed(step.blocks[: step.blocks.index(block)]):
        if before.kind == "preview":
            return before
        if before.kind == "change":
            return None
    return None


def _preview_name(block: Block) -> str:
    name = block.settings.get("rows_from")
    if name:
        return str(name)
    rows = block.settings.get("rows") if block.kind == "action" else None
    whole = re.fullmatch(r"%\((\w+)\)s", rows) if isinstance(rows, str) else None
    return whole[1] if whole is not None else ""


def covering_confirm(plan: Plan, block: Block) -> Block | None:
    """Return the `confirm` before the block in its step, if the block has no confirmation of its own."""
    step, _ = plan.block(block.id)
    if block.confirm is not None or block not in step.blocks:
        return None
    before = step.blocks[: step.blocks.index(block)]
    return next((one for one in reversed(before) if one.kind == "confirm"), None)


def inputs_of(plan: Plan, block: Block) -> list[Block]:
    """Return the input blocks before it in its step whose values it uses."""
    step, _ = plan.block(block.id)
    before = step.blocks[: step.blocks.index(block)] if block in step.blocks else ()
    return [one for one in before if one.kind == "input" and one.name in block.uses]


def runs_per_row(block: Block) -> bool:
    """Return whether it is executed once per row."""
    return bool(block.settings.get("each"))


def parameters(state: RunState, block: Block) -> dict[str, Any]:
    """Return the values its code uses, from the state of the run, which has no secrets."""
    return {name: state.values[name] for name in block.uses if name in state.values}


def named_values(state: RunState, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of names in code: inputs, results, and the rows of previews."""
    named = {name: rows_or_value(value) for name, value in {**state.values, **inputs}.items()}
    for _, other in state.plan.blocks():
        rows = state.blocks[other.id].chosen
        if other.kind == "preview" and rows is not None:
            named[other.name or "rows"] = list(rows)
    return named


def act_values(
    named: Mapping[str, Any], intent: Mapping[str, Any], undo_of: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values for an execution with this intent: values in the intent take precedence over current ones."""
    params = {name: rows_or_value(value) for name, value in intent.get("params", {}).items()}
    rows = {"rows": list(intent["rows"])} if "rows" in intent else {}
    return {**named, **params, **rows, **(intent.get("row") or {}), **(undo_of or {})}


def masked_inputs(plan: Plan) -> dict[str, str]:
    """Return the secret inputs with the text shown instead."""
    secret_inputs = (
        block for _, block in plan.blocks() if block.kind == "input" and block.settings.get("type") == "secret"
    )
    names = [one.name for one in plan.inputs if one.secret]
    names += [block.name or str(block.settings.get("name", block.id)) for block in secret_inputs]
    return dict.fromkeys(names, MASK)


def statement_shown(
    state: RunState,
    block: Block,
    intent: Mapping[str, Any],
    undo_of: Mapping[str, Any] | None = None,
    most: int | None = None,
) -> str:
    """Return the statement of an execution with this intent, secrets masked, as it is confirmed and recorded. A value
    of more than `most` characters stays a reference."""
    values = for_sql(act_values(named_values(state, masked_inputs(state.plan)), intent, undo_of))
    return statement_text(block.body, values, most).strip()


def code_shown(state: RunState, block: Block) -> str:
    """Return what the block runs, with its known values."""
    if block.language != "sql":
        return _command(state, block)
    preview = bound_preview(state.plan, block)
    return _statements(state, block, state.blocks[preview.id].chosen if preview is not None else None)


def _statements(state: RunState, block: Block, rows: Sequence[Mapping[str, Any]] | None) -> str:
    """Return the statements with their values; of a change with `each`, the remaining ones."""
    if rows is None or not runs_per_row(block):
        intent = {} if rows is None else {"rows": rows}
        return statement_shown(state, block, intent, undo_of(state, block), MOST_VALUE)
    left = list(enumerate(rows, 1))[done_before(state, block) :]
    texts = [
        f"-- row {number} of {len(rows)}\n{statement_shown(state, block, {'row': row}, None, MOST_VALUE)}"
        for number, row in left[:MOST_STATEMENTS]
    ]
    return "\n".join([*texts, *([f"-- and so on, to row {len(rows)}"] if len(left) > MOST_STATEMENTS else [])])


def done_before(state: RunState, block: Block) -> int:
    """Return how many rows of a change with `each` are done if the operator must decide about the rest; 0 while it runs
    and when it is finished, so that the text does not change with each row."""
    preview, done = bound_preview(state.plan, block), state.blocks[block.id].row
    if preview is None or not runs_per_row(block) or (state.asked is None and state.failure is None):
        return 0
    return done if done < len(state.blocks[preview.id].chosen or ()) else 0


def undo_of(state: RunState, block: Block) -> Mapping[str, Any] | None:
    """Return the undo data of the step that is being reverted, if the block belongs to it."""
    if state.undo is None or not state.undo.active_step:
        return None
    items = [one for one in undo_items(state, state.plan.step(state.undo.active_step)) if one.block.id == block.id]
    left = [one for one in items if one.key not in state.undo.items] or items[-1:]
    return left[0].undo_of if left else None


def _command(state: RunState, block: Block) -> str:
    """Return the script, the arguments with their values, or the action with its settings."""
    if block.body:
        return block.body.rstrip()
    named = named_values(state, masked_inputs(state.plan))
    try:
        settings = fill_references(block.settings, named)
    except KeyError:  # a result that does not exist yet
        settings = block.settings
    if block.kind != "action":
        return shlex.join(str(word) for word in settings.get("argv", ()))
    return f"{block.action} " + " ".join(f"{key}={value}" for key, value in settings.items() if key != "rows")
