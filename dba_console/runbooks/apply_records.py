"""Replay the records of a journal into the state of the run. The walk applies its own records with the same function,
so a resumed run has the same state as the one that was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from dba_console.actions.action_preview import recorded_preview
from dba_console.core.decoding import convert
from dba_console.core.errors import SessionError
from dba_console.recording.plan import ACTING_KINDS, Block, JournalRecord, Plan, Step
from dba_console.runbooks.preview_rows import bound_preview, inputs_of, runs_per_row
from dba_console.runbooks.result_tables import figures_of, table_of
from dba_console.runbooks.row_choice import chosen_keys, has_act
from dba_console.runbooks.run_state import FINISHED, BlockState, Execution, Failure, RunState, UndoPlan
from dba_console.runbooks.run_view import RunTable

# Executions: an intent opens one, its result or its settlement closes it.


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
    """Apply the result or settlement of an execution; an unknown outcome leaves it open."""
    execution = next(
        (one for one in reversed(state.executions) if (one.block, one.number) == (record.block, record.execution)), None
    )
    if execution is None:
        return
    fields = record.fields
    execution.state, execution.text, execution.undo = record.state, record.text, fields.get("undo", execution.undo)
    block, (_, plan_block) = state.blocks[record.block], state.plan.block(record.block)
    block.note, block.action_preview = str(fields.get("note", record.text)), None
    if "table" in fields:
        state.table = replace(convert(fields["table"], RunTable), block=record.block)
    if record.state == "unknown":
        block.status = "unknown"
        return
    if fields.get("again"):
        # The item of the undo stays pending, so it is the next one.
        block.status = "ok" if execution.item and plan_block.kind != "undo" else "pending"
        return
    if record.state != "ok":
        block.status, state.failure = "failed", Failure(record.block, execution.item, acted=True)
        return
    state.asked = None
    if plan_block.name and not execution.item:
        state.values[plan_block.name] = fields.get("values", {})
    if plan_block.action and not execution.item:
        state.figures |= figures_of(fields.get("values", {}))
    if execution.item:
        block.status = "ok"
        item_done(state, execution.item, "ok")
    else:
        row_done(state, plan_block, block, execution.intent)


def row_done(state: RunState, plan_block: Block, block: BlockState, intent: JournalRecord | None) -> None:
    """Mark an execution as finished; a change with `each` has one per row."""
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


# Control flow: rounds, decisions, and deviations by the operator.


def follow_then(state: RunState, step_id: str, walked: bool) -> None:
    """Follow `then` of a step, only if the step was walked."""
    then = state.plan.step(step_id).then
    if walked and then and not state.goto:
        state.goto = then


def round_began(state: RunState, record: JournalRecord) -> None:
    _go_back(state, str(record.fields.get("back_to", record.step)), record.step)


def _go_back(state: RunState, first: str, last: str) -> None:
    """Reset the steps from the first to the last; their execution numbers continue."""
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
    """Retry a block, starting with its preview; finished rows stay finished."""
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
    # A `confirm` before it applied to the old preview.
    for one in step.blocks[: step.blocks.index(plan_block)]:
        if one.kind == "confirm" and plan_block.confirm is None:
            state.blocks[one.id].reset()


def _reenter_inputs(state: RunState, record: JournalRecord) -> None:
    """Retry with new inputs: everything that was read or confirmed with the old ones is repeated."""
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


LEADING_FRESH_S = 60.0
"""If the start question was open longer, the checks made before it are repeated in their step: they may be outdated."""


def replay_records(plan: Plan, records: Iterable[JournalRecord]) -> RunState:
    """Return the state of a run after these records. Raises SessionError if they do not belong to this plan."""
    state = RunState(plan)
    with record_errors():
        for record in records:
            apply(state, record)
    return state


@contextmanager
def record_errors() -> Iterator[None]:
    """Convert errors of reading a run's records to SessionError: the hash chain proves only that they are unchanged,
    not that they are valid."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise SessionError(f"invalid records of this run: {type(error).__name__}: {error}") from error


def apply(state: RunState, record: JournalRecord) -> None:
    """Apply one record to the state. Unknown kinds, from a later version, are ignored."""
    state.records += 1
    handler = APPLY.get(record.kind)
    if handler is None or (record.block and record.block not in state.blocks):
        return
    if record.step and record.step in state.steps:
        machine, human = seconds(record, "machine_s"), seconds(record, "human_s")
        state.steps[record.step].machine_s += machine
        state.steps[record.step].human_s += human
        state.steps[record.step].last_us = record.wall_us
        if record.block:
            state.blocks[record.block].machine_s += machine
            state.blocks[record.block].human_s += human
    handler(state, record)


def seconds(record: JournalRecord, name: str) -> float:
    value = record.fields.get(name, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0


def _planned(state: RunState, record: JournalRecord) -> None:
    fields = record.fields
    state.run, state.mode = str(fields.get("run", "")), str(fields.get("mode", "run"))
    state.target, state.identity = str(fields.get("target", "")), str(fields.get("identity", ""))
    state.who, state.planned_us, state.shipped = record.who or "", record.wall_us, fields.get("shipped") is True
    server, host = fields.get("server") or {}, fields.get("host") or {}
    state.host = str(server.get("address") or host.get("name") or "")
    state.values.update(fields.get("inputs") or {})


def _started(state: RunState, record: JournalRecord) -> None:
    state.started, state.started_us, state.asked = True, record.wall_us, None
    state.start_human_s += seconds(record, "human_s")
    if seconds(record, "human_s") > LEADING_FRESH_S:
        _forget_leading(state)


def _paused(state: RunState, record: JournalRecord) -> None:
    state.paused, state.asked = record.text or "paused", None


def _interrupted(state: RunState, record: JournalRecord) -> None:
    state.interrupted = True
    since = record.fields.get("since_us")
    state.interrupted_us = state.interrupted_us or (since if isinstance(since, int) else record.wall_us)


def _resumed(state: RunState, record: JournalRecord) -> None:
    state.paused, state.interrupted, state.asked = "", False, None
    if state.interrupted_us:
        pause_s, state.interrupted_us = max(0.0, (record.wall_us - state.interrupted_us) / 1e6), 0
        state.interrupted_s += pause_s
        if (step := state.active_step) is not None:
            state.steps[step.id].interrupted_s += pause_s
    _forget_stale(state)


def _forget_stale(state: RunState) -> None:
    """Reset checks, previews and confirmations of changes that have not started: they are outdated and repeated."""
    if not state.started:
        _forget_leading(state)
    step = state.active_step
    earlier: list[BlockState] = []
    for block in step.blocks if step is not None else ():
        block_state = state.blocks[block.id]
        if block_state.status == "ok" and block.kind in ("check", "preview", "confirm"):
            earlier.append(block_state)
        elif block.kind in ACTING_KINDS:
            block_state.confirmed, block_state.action_preview = "", None
            if block_state.status == "pending" and block_state.row == 0:
                for one in earlier:
                    one.reset()
                return
            earlier.clear()


def _forget_leading(state: RunState) -> None:
    for _, block in state.plan.blocks():
        if block.leading and state.blocks[block.id].status == "ok":
            state.blocks[block.id].reset()


def _ended(state: RunState, record: JournalRecord) -> None:
    state.ended, state.ending, state.ended_us = record.state or "done", record.text, record.wall_us
    state.asked, state.failure, state.paused, state.interrupted = None, None, "", False
    step = state.active_step
    if step is not None:
        states = {state.blocks[block.id].status for block in step.blocks}
        status = "unknown" if states & {"running", "unknown"} else "failed" if "failed" in states else "skipped"
        state.steps[step.id].status, state.steps[step.id].ended_us = status, record.wall_us
        state.steps[step.id].note = state.steps[step.id].note or "the run ended here"


def _step_started(state: RunState, record: JournalRecord) -> None:
    step = state.steps[record.step]
    step.status, step.note, step.round = "running", "", step.round + 1
    step.started_us = step.started_us or record.wall_us
    if state.goto == record.step:
        state.goto = ""


def _step_ended(state: RunState, record: JournalRecord) -> None:
    step = state.steps[record.step]
    walked = step.status == "running"
    step.status, step.ended_us = record.state or "ok", record.wall_us
    step.note = str(record.fields.get("reason", step.note))
    if step.status == "ok":
        step.passed = state.records
    follow_then(state, record.step, walked)


def _block_checked(state: RunState, record: JournalRecord) -> None:
    block = state.blocks[record.block]
    fields = record.fields
    if record.state == "previewed":
        block.action_preview = recorded_preview(fields)
        return
    block.status, block.note = record.state, str(fields.get("note", record.text))
    block.timed_out = bool(fields.get("timed_out"))
    if "rows" in fields:
        block.rows, block.preview_count = tuple(fields["rows"]), block.preview_count + 1
        block.left_out = tuple(fields.get("left_out", ()))
        block.table = state.table = _rows_shown(state, record, block)
    if record.state == "ok" and "values" in fields:
        _store_values(state, record, dict(fields["values"] or {}))
    # A failure needs a decision, but not in a rehearsal, which records it and continues.
    if record.state not in FINISHED and state.mode == "run":
        state.failure = Failure(record.block, str(fields.get("item", "")))


def _rows_shown(state: RunState, record: JournalRecord, block: BlockState) -> RunTable | None:
    """Return the rows of a preview as a table; with the chosen rows if they are acted on."""
    _, preview = state.plan.block(record.block)
    # The mark beside each row shows the value of the author's column.
    column, title = preview.settings.get("chosen"), preview.title or state.plan.step(record.step).title
    rows = [{name: value for name, value in row.items() if name != column} for row in block.rows or ()]
    table = table_of(rows, title, record.block)
    if table is None or not has_act(state.plan, preview):
        return table
    out = frozenset(block.left_out)
    chosen = tuple(index not in out for index in range(table.total))
    return replace(table, chosen=chosen, look=block.preview_count)


def _rows_chosen(state: RunState, record: JournalRecord) -> None:
    """Apply the operator's choice of rows: action previews and questions for other rows become invalid."""
    block, (_, preview) = state.blocks[record.block], state.plan.block(record.block)
    block.left_out = tuple(record.fields.get("left_out", ()))
    block.kept = chosen_keys(block.rows or (), block.left_out)
    shown, block.table = block.table, _rows_shown(state, record, block)
    if state.table == shown:
        state.table = block.table
    if block.rows is not None and preview.name in state.values:
        state.values[preview.name] |= {"count": len(block.chosen or ()), "rows": block.chosen}
    for _, one in state.plan.blocks():
        if bound_preview(state.plan, one) == preview:
            state.blocks[one.id].action_preview = None
    if state.failure is not None:  # retry with the new rows
        state.blocks[state.failure.block].reset()
        state.failure = None
    state.asked = None


def _store_values(state: RunState, record: JournalRecord, values: dict[str, Any]) -> None:
    """Store values under the block's name for later blocks, with the rows of a preview."""
    rows = state.blocks[record.block].chosen
    _, block = state.plan.block(record.block)
    if block.kind == "measure":
        name = str(block.settings.get("against") or block.name or block.id)
        state.measures.setdefault(name, []).append(values)
    if rows is not None:
        values |= {"count": len(rows), "rows": rows}
    if block.name:
        state.values[block.name] = values


def _wait_began(state: RunState, record: JournalRecord) -> None:
    until = record.fields.get("until_us")
    state.blocks[record.block].due_us = until if isinstance(until, int) else None


def _asked(state: RunState, record: JournalRecord) -> None:
    state.asked = record


def _answered(state: RunState, record: JournalRecord) -> None:
    question = str(record.fields.get("question", ""))
    state.asked = None
    if question == "start":
        state.start_human_s += seconds(record, "human_s")
    if question == "undo" and state.undo is not None:
        state.undo.chosen = tuple(record.fields.get("steps", ()))
    if not record.block:
        return
    block = state.blocks[record.block]
    _, plan_block = state.plan.block(record.block)
    if question in ("ack", "yes", "type"):
        _confirmed(state, record, block, plan_block)
    if question == "manual":
        block.status, block.note = "ok", str(record.fields.get("answer", ""))
        state.steps[record.step].passed = state.records
        if plan_block.name:
            state.values[plan_block.name] = block.note


def _confirmed(state: RunState, record: JournalRecord, block: BlockState, plan_block: Block) -> None:
    if record.state == "declined":
        block.status, block.note = "failed", record.text
        state.failure = Failure(record.block, str(record.fields.get("item", "")), declined=True)
    elif plan_block.kind == "confirm":
        block.status, block.note = "ok", record.text
    else:
        block.confirmed = record.who or "?"


def _settled(state: RunState, record: JournalRecord) -> None:
    """Apply a settlement; a block that is executed again repeats its checks first, as after an interruption."""
    execution_ended(state, record)
    if record.fields.get("again"):
        _forget_stale(state)


def _skipped(state: RunState, record: JournalRecord) -> None:
    block = state.blocks[record.block]
    block.status, block.note = "skipped", str(record.fields.get("reason", record.text))
    item = record.fields.get("item")
    if item:
        item_done(state, str(item), "skipped")


def _input_given(state: RunState, record: JournalRecord) -> None:
    block = state.blocks[record.block]
    _, plan_block = state.plan.block(record.block)
    block.status, block.note, state.asked = "ok", record.text, None
    if plan_block.name and "value" in record.fields:
        state.values[plan_block.name] = record.fields["value"]


def _undo_offered(state: RunState, record: JournalRecord) -> None:
    fields = record.fields
    offered, reason = tuple(fields.get("steps", ())), str(fields.get("reason", ""))
    state.undo = UndoPlan(record.state or "aborted", reason, record.who, offered)
    state.undo.settings = tuple(fields.get("settings", ()))
    state.failure, state.asked, state.paused = None, None, ""


def _undo_settings(state: RunState, record: JournalRecord) -> None:
    if state.undo is not None:
        state.undo.settings = tuple(one for one in state.undo.settings if one != record.block)
        state.undo.put_back += (str(record.fields.get("told", "")),)


def _undo_began(state: RunState, record: JournalRecord) -> None:
    if state.undo is not None:
        state.undo.active_step, state.undo.items = record.step, {}
        for block in state.plan.step(record.step).undo:
            state.blocks[block.id].reset()


def _undo_ended(state: RunState, record: JournalRecord) -> None:
    if state.undo is None:
        return
    state.undo.active_step = ""
    state.undo.finished[record.step] = record.state
    state.undo.left[record.step] = str(record.fields.get("reason", ""))
    if record.state == "undone":
        state.steps[record.step].status = "undone"


APPLY: dict[str, Callable[[RunState, JournalRecord], None]] = {
    "run.planned": _planned,
    "run.started": _started,
    "run.paused": _paused,
    "run.interrupted": _interrupted,
    "run.resumed": _resumed,
    "run.ended": _ended,
    "step.started": _step_started,
    "step.ended": _step_ended,
    "block.seen": _block_checked,
    "block.asked": _asked,
    "block.answered": _answered,
    "block.intent": execution_started,
    "block.result": execution_ended,
    "block.settled": _settled,
    "block.skipped": _skipped,
    "wait.began": _wait_began,
    "wait.held": _block_checked,
    "repeat.round": round_began,
    "choose.taken": decision_taken,
    "rows.chosen": _rows_chosen,
    "input.given": _input_given,
    "undo.offered": _undo_offered,
    "undo.settings": _undo_settings,
    "undo.began": _undo_began,
    "undo.ended": _undo_ended,
    "deviation": deviation_recorded,
}
