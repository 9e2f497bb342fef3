"""Blocks that only look: a check must hold, a measure keeps its values, a preview gives the rows to act on."""

from __future__ import annotations

from typing import Any

from dba_console.plans.plan import Block
from dba_console.runbook.requests import ReadResult
from dba_console.runbook.row_choice import choice_column_error, left_out_at_first, row_names
from dba_console.runbook.walk_actions import fail
from dba_console.runbook.walk_context import Turn, WalkContext

MOST_ROWS = 1000
"""Of a preview: more than a person can confirm with open eyes."""


def check(context: WalkContext, block: Block) -> Turn[None]:
    """It passes only if it is known to hold."""
    result = yield from context.read_block(block, "check")
    if result.holds is True and not result.error:
        yield from _record_ok(context, block, result, f"holds: {result.text}" if result.text else "holds")
        return
    what = "does not hold" if result.holds is False and not result.error else "it cannot be told whether it holds"
    yield from fail(context, block, result.append_to(what), machine_s=result.machine_s)


def measure(context: WalkContext, block: Block) -> Turn[None]:
    """Values now; with those taken later they are before and after."""
    result = yield from context.read_block(block, "measure")
    if result.error:
        yield from fail(context, block, result.error, machine_s=result.machine_s)
        return
    yield from _record_ok(context, block, result, result.text or "measured")


def preview(context: WalkContext, block: Block) -> Turn[None]:
    """The exact set the next change may act on. Too many rows are a failure: nobody has seen what they confirm."""
    result = yield from context.read_block(block, "preview")
    most = block.settings.get("at_most")
    most = min(most, MOST_ROWS) if isinstance(most, int) else MOST_ROWS
    if result.error:
        yield from fail(context, block, result.error, machine_s=result.machine_s)
    elif len(result.rows) > most:
        note = f"{len(result.rows)} rows, and {most} are the most that may be acted on"
        yield from fail(context, block, note, machine_s=result.machine_s)
    elif not result.rows and block.settings.get("empty") == "fail":
        yield from fail(context, block, "it gave no rows", machine_s=result.machine_s)
    elif why := choice_column_error(block, result.rows):
        yield from fail(context, block, why, machine_s=result.machine_s)
    else:
        left_out = left_out_at_first(block, context.state.blocks[block.id], result.rows)
        note = f"{len(result.rows)} row{'s' if len(result.rows) != 1 else ''}"
        if left_out:
            note += f", {len(result.rows) - len(left_out)} chosen; not chosen: {row_names(result.rows, left_out)}"
        yield from _record_ok(
            context, block, result, note, rows=result.rows, **({"left_out": left_out} if left_out else {})
        )


def _record_ok(context: WalkContext, block: Block, result: ReadResult, note: str, **fields: Any) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from context.write(
        "block.seen",
        text,
        block=block,
        state="ok",
        note=note,
        machine_s=result.machine_s,
        values=result.values,
        **fields,
    )
