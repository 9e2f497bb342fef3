"""Records of acts folded: an intent opens an execution, its result or its settlement closes it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dba_console.decoding import convert
from dba_console.plans.plan import Block
from dba_console.plans.run_view import RunTable
from dba_console.runbook.preview_rows import bound_preview, runs_per_row
from dba_console.runbook.requests import JournalRecord
from dba_console.runbook.result_tables import WITH_UNIT
from dba_console.runbook.run_state import BlockState, Execution, Failure, RunState


def execution_started(state: RunState, record: JournalRecord) -> None:
    block = state.blocks[record.block]
    item = str(record.fields.get("item", ""))
    block.status, block.executions = "running", max(block.executions, record.execution)
    if not item:
        state.steps[record.step].passed = state.records
    if "row" not in record.fields:
        block.confirmed = ""
    state.executions.append(Execution(record.block, record.execution, record, item))


def execution_ended(state: RunState, record: JournalRecord) -> None:
    """The end of an execution, as it was told or as it was settled; an end that is unknown leaves it open."""
    execution = next(
        (one for one in reversed(state.executions) if (one.block, one.number) == (record.block, record.execution)), None
    )
    if execution is None:
        return
    fields = record.fields
    execution.state, execution.text, execution.undo = record.state, record.text, fields.get("undo", execution.undo)
    block, (_, plan_block) = state.blocks[record.block], state.plan.block(record.block)
    block.note, block.sight = str(fields.get("note", record.text)), None
    if "table" in fields:
        state.table = replace(convert(fields["table"], RunTable), block=record.block)
    if record.state == "unknown":
        block.status = "unknown"
        return
    if fields.get("again"):
        # An item of an undo is not done yet, and so is the next.
        block.status = "ok" if execution.item and plan_block.kind != "undo" else "pending"
        return
    if record.state != "ok":
        block.status, state.failure = "failed", Failure(record.block, execution.item, acted=True)
        return
    state.asked = None
    if plan_block.name and not execution.item:
        state.values[plan_block.name] = fields.get("values", {})
    if plan_block.action and not execution.item:
        state.figures |= {
            name: float(value) for name, value in fields.get("values", {}).items() if _figure(name, value)
        }
    if execution.item:
        block.status = "ok"
        item_done(state, execution.item, "ok")
    else:
        row_done(state, plan_block, block, execution.intent)


def _figure(name: str, value: Any) -> bool:
    return name.endswith(WITH_UNIT) and isinstance(value, int | float) and not isinstance(value, bool)


def row_done(state: RunState, plan_block: Block, block: BlockState, intent: JournalRecord | None) -> None:
    """One execution came to its end; a change for each row has one for every row."""
    rows = rows_of(state, plan_block) if runs_per_row(plan_block) else None
    if rows is None:
        block.status = "ok"
        return
    done = intent.fields.get("row_index", block.row) if intent is not None else block.row
    block.row = int(done) + 1
    block.status = "ok" if block.row >= len(rows) else "pending"


def rows_of(state: RunState, plan_block: Block) -> tuple[dict[str, Any], ...] | None:
    preview = bound_preview(state.plan, plan_block)
    return None if preview is None else state.blocks[preview.id].chosen


def item_done(state: RunState, item: str, how: str) -> None:
    if state.undo is not None:
        state.undo.items[item] = how
