"""Blocks that only look: a check must hold, a measure keeps its values, a preview gives the rows to act on."""

from __future__ import annotations

from typing import Any

from dba_console.plans.plan import Block
from dba_console.runbook.requests import ReadResult
from dba_console.runbook.row_choice import choice_column_error, left_out_at_first, row_names
from dba_console.runbook.walk_acts import fail
from dba_console.runbook.walk_context import Turn, WalkContext

MOST_ROWS = 1000
"""Of a preview: more than a person can confirm with open eyes."""


def check(course: WalkContext, block: Block) -> Turn[None]:
    """It passes only if it is known to hold."""
    seen = yield from course.read_block(block, "check")
    if seen.holds is True and not seen.error:
        yield from _ok(course, block, seen, f"holds: {seen.text}" if seen.text else "holds")
        return
    what = "does not hold" if seen.holds is False and not seen.error else "it cannot be told whether it holds"
    yield from fail(course, block, seen.append_to(what), machine_s=seen.machine_s)


def measure(course: WalkContext, block: Block) -> Turn[None]:
    """Values now; with those taken later they are before and after."""
    seen = yield from course.read_block(block, "measure")
    if seen.error:
        yield from fail(course, block, seen.error, machine_s=seen.machine_s)
        return
    yield from _ok(course, block, seen, seen.text or "measured")


def preview(course: WalkContext, block: Block) -> Turn[None]:
    """The exact set the next change may act on. Too many rows are a failure: nobody has seen what they confirm."""
    seen = yield from course.read_block(block, "preview")
    most = block.settings.get("at_most")
    most = min(most, MOST_ROWS) if isinstance(most, int) else MOST_ROWS
    if seen.error:
        yield from fail(course, block, seen.error, machine_s=seen.machine_s)
    elif len(seen.rows) > most:
        note = f"{len(seen.rows)} rows, and {most} are the most that may be acted on"
        yield from fail(course, block, note, machine_s=seen.machine_s)
    elif not seen.rows and block.settings.get("empty") == "fail":
        yield from fail(course, block, "it gave no rows", machine_s=seen.machine_s)
    elif why := choice_column_error(block, seen.rows):
        yield from fail(course, block, why, machine_s=seen.machine_s)
    else:
        left_out = left_out_at_first(block, course.state.blocks[block.id], seen.rows)
        note = f"{len(seen.rows)} row{'s' if len(seen.rows) != 1 else ''}"
        if left_out:
            note += f", {len(seen.rows) - len(left_out)} chosen; not chosen: {row_names(seen.rows, left_out)}"
        yield from _ok(course, block, seen, note, rows=seen.rows, **({"left_out": left_out} if left_out else {}))


def _ok(course: WalkContext, block: Block, seen: ReadResult, note: str, **fields: Any) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from course.write(
        "block.seen", text, block=block, state="ok", note=note, machine_s=seen.machine_s, values=seen.values, **fields
    )
