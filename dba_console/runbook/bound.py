"""What an act is bound to: the rows of the preview before it, and the values its code names."""

from __future__ import annotations

import re
from typing import Any

from dba_console.plans.plan import Block, Plan
from dba_console.runbook.fold_state import RunState


def bound_preview(plan: Plan, block: Block) -> Block | None:
    """The preview whose rows the block may act on, and on no others: the one it names, else for a change the one before
    it in its step that no other change has taken. An action names it in its settings, as `rows = "%(NAME)s"`."""
    step, _ = plan.block(block.id)
    name = _named(block)
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


def _named(block: Block) -> str:
    name = block.settings.get("rows_from")
    if name:
        return str(name)
    rows = block.settings.get("rows") if block.kind == "action" else None
    whole = re.fullmatch(r"%\((\w+)\)s", rows) if isinstance(rows, str) else None
    return whole[1] if whole is not None else ""


def for_each(block: Block) -> bool:
    """Whether it is executed once for every row."""
    return bool(block.settings.get("each"))


def parameters(state: RunState, block: Block) -> dict[str, Any]:
    """The values its code names, as the run knows them. Secrets are not among them: the run does not know them."""
    return {name: state.values[name] for name in block.uses if name in state.values}
