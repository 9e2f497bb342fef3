"""An act: whether it applies, what it would do, the word of a person, its intent on disk, and only then the doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dba_console.recording.plan import ACTING_KINDS, Block, Confirmation
from dba_console.runbooks.preview_rows import (
    UndoItem,
    bound_preview,
    parameters,
    runs_per_row,
    statement_shown,
    undo_items,
)
from dba_console.runbooks.requests import ExecuteRequest, JournalRecord, Outcome, ReadResult, SettleRequest
from dba_console.runbooks.result_tables import cell
from dba_console.runbooks.row_choice import acts_on_preview, chosen_count_text, confirmed_preview
from dba_console.runbooks.run_state import Execution
from dba_console.runbooks.walk_context import (
    NONE,
    SETTLING,
    NotAnAnswer,
    Turn,
    WalkContext,
    abort_run,
    chosen,
    confirmation_text,
    confirms,
    expected,
)

UNDO_CONFIRMATION = Confirmation(level="yes")
"""Of an undo whose author asks for nothing else."""


def should_run(context: WalkContext, block: Block, item: str = "") -> Turn[bool]:
    """Whether the block is to run at all. A test that cannot tell is a failure: it is taken neither for yes nor no."""
    if block.when is not None:
        result = yield from context.read_block(block, "when", block.when)
        if result.holds is None or result.error:
            yield from _fail_unknown(context, block, "whether it applies", result, item)
            return False
        if not result.holds:
            yield from skip(context, block, f"not applicable: {result.text or block.when.text}", item)
            return False
    if block.done is not None:
        result = yield from context.read_block(block, "done", block.done)
        if result.holds is None or result.error:
            yield from _fail_unknown(context, block, "whether it is done already", result, item)
            return False
        if result.holds:
            yield from skip(context, block, f"already so: {result.text or block.done.text}", item)
            return False
    return True


def skip(context: WalkContext, block: Block, reason: str, item: str = "") -> Turn[None]:
    """Say that a block is left out, and why."""
    yield from context.write("block.skipped", f"{block.id}: skipped, {reason}", block=block, reason=reason, item=item)


def _fail_unknown(context: WalkContext, block: Block, what: str, result: ReadResult, item: str) -> Turn[None]:
    yield from fail(context, block, result.append_to(f"it cannot be told {what}"), item, machine_s=result.machine_s)


def fail(context: WalkContext, block: Block, note: str, item: str = "", **fields: Any) -> Turn[None]:
    """Say that a block failed before anything was done."""
    text = f"{block.id}: failed, {note}"
    yield from context.write("block.seen", text, block=block, state="failed", note=note, item=item, **fields)


def act(context: WalkContext, block: Block, item: UndoItem | None = None) -> Turn[None]:
    """One act. Of a change for each row: the next row."""
    key = item.key if item is not None else ""
    block_state = context.state.blocks[block.id]
    going_on = block_state.row > 0 and not key
    # An action's own undo is not what its `when` and `done` speak of.
    conditions_apply = item is None or item.key == block.id
    if (
        conditions_apply
        and not going_on
        and not block_state.confirmed
        and not (yield from should_run(context, block, key))
    ):
        return
    covering = None if key else _covering_confirm(context, block)
    if covering is not None and context.state.blocks[covering.id].status != "ok":
        yield from skip(context, block, f"{covering.id}, which confirms it, was left out")
        return
    rows: tuple[dict[str, Any], ...] | None = None
    if not key and (preview := bound_preview(context.plan, block)) is not None:
        rows = context.state.blocks[preview.id].rows
        if not rows:
            why = "the preview gave no rows" if rows is not None else "its preview was not run"
            yield from skip(context, block, f"nothing to act on: {why}")
            return
        if acts_on_preview(context.plan, block) is not None and not (rows := context.state.blocks[preview.id].chosen):
            yield from none_chosen(context, block, preview)
            return
    if (
        block.kind == "action"
        and not key
        and block_state.sight is None
        and not (yield from _preview_action(context, block))
    ):
        return
    if not (yield from _confirmed(context, block, item, rows)):
        return
    yield from _execute(context, block, item, rows)


def _covering_confirm(context: WalkContext, block: Block) -> Block | None:
    """The `confirm` before it in its step, where it has no confirmation of its own."""
    step, _ = context.plan.block(block.id)
    if block.confirm is not None or block not in step.blocks:
        return None
    before = step.blocks[: step.blocks.index(block)]
    return next((one for one in reversed(before) if one.kind == "confirm"), None)


def _preview_action(context: WalkContext, block: Block) -> Turn[bool]:
    """What an action would do, before the question about it. False: it will not be done."""
    result = yield from context.read_block(block, "preview")
    action_preview = result.values.get("sight") or {}
    refusal = result.error or action_preview.get("refusal")
    if refusal:
        hint = action_preview.get("hint")
        note = f"refused: {refusal}" + (f" ({hint})" if hint else "")
        yield from fail(context, block, note, machine_s=result.machine_s)
        return False
    if action_preview.get("done"):
        reason = f"{action_preview['by']} does this" if action_preview.get("by") else "already so"
        yield from skip(context, block, f"{reason}: {action_preview.get('text') or result.text}")
        return False
    text = f"{block.id}: {action_preview.get('text') or result.text}"
    yield from context.write(
        "block.seen", text, block=block, state="sight", sight=action_preview, machine_s=result.machine_s
    )
    return True


def _count(context: WalkContext, block: Block, rows: tuple[dict[str, Any], ...] | None) -> int | None:
    """How many things would be acted on; an action has counted them itself."""
    block_state = context.state.blocks[block.id]
    count = (block_state.sight or {}).get("count")
    if isinstance(count, int):
        return count
    return len(rows) - (block_state.row if runs_per_row(block) else 0) if rows is not None else None


def _confirmed(
    context: WalkContext, block: Block, item: UndoItem | None, rows: tuple[dict[str, Any], ...] | None
) -> Turn[bool]:
    confirmation = block.confirm
    if item is not None and (confirmation is None or confirmation.text in ("count", "name")):
        confirmation = UNDO_CONFIRMATION  # what was counted or named was what the act saw
    if confirmation is None or context.state.blocks[block.id].confirmed:
        return True
    if item is not None and context.plan.reverts:
        return True
    count = _count(context, block, rows)
    return (yield from confirm(context, block, confirmation, count=count, item=item.key if item is not None else ""))


def none_chosen(context: WalkContext, block: Block, preview: Block) -> Turn[None]:
    """Leave a block out because no row it would act on is chosen. Who can still choose one is asked first."""
    if (
        confirmed_preview(context.plan, context.state, block) == preview
        and not context.state.blocks[block.id].confirmed
    ):
        count = len(context.state.blocks[preview.id].rows or ())
        none = f"none of {count} rows is" if count != 1 else "its only row is not"
        text = f"{_act_text(context, block)}: {none} chosen, so nothing would be done"
        while True:
            answer = yield from context.ask("choose", text, block=block, options=(NONE,), rows=preview.id)
            try:
                chosen((NONE,), answer.text)
                break
            except NotAnAnswer as why:
                yield from context.reject(str(why))
        record_text = f"{block.id}: {answer.who} leaves it out"
        yield from context.answered("choose", answer, record_text, block=block, answer=NONE.key)
    yield from skip(context, block, f"nothing to act on: no row of {preview.id} is chosen")


def confirm(
    context: WalkContext, block: Block, confirmation: Confirmation, *, count: int | None = None, item: str = ""
) -> Turn[bool]:
    """Ask until it is confirmed or declined."""
    name = str((context.state.blocks[block.id].sight or {}).get("name") or "")
    expects = expected(confirmation, context.state, count, name)
    if not expects:
        yield from fail(context, block, "it is not known what would have to be typed to confirm it", item)
        return False
    preview = confirmed_preview(context.plan, context.state, block) if not item else None
    step, _ = context.plan.block(block.id)
    final = "No way back after this. " if step.point_of_no_return and not item else ""
    what = _continuation_text(context, block) or final + (
        _undo_text(context, block) if item else _act_text(context, block)
    )
    part = "" if preview is None else chosen_count_text(context.state.blocks[preview.id])
    text = confirmation_text(what, confirmation, expects, context.state.place, part, name)
    while True:
        answer = yield from context.ask(
            confirmation.level, text, block=block, expects=expects, people=confirmation.people,
            rows="" if preview is None else preview.id,
        )  # fmt: skip
        try:
            yes = confirms(confirmation, expects, answer.text)
        except NotAnAnswer as why:
            yield from context.reject(str(why))
            continue
        if yes and confirmation.people > 1 and not answer.second:
            yield from context.reject("a second person has to confirm it")
            continue
        confirmed_by = f"{answer.who} and {answer.second}" if answer.second else answer.who
        record_text = f"{block.id}: {'confirmed' if yes else 'declined'} by {confirmed_by}"
        state = "" if yes else "declined"
        # Not `ask`'s business to keep: what was typed is what was expected, or no.
        yield from context.answered(
            confirmation.level, answer, record_text, block=block, state=state, answer=answer.text.strip(), item=item
        )
        return yes


def _undo_text(context: WalkContext, block: Block) -> str:
    """The step, and of several acts in it which."""
    step, _ = context.plan.block(block.id)
    several = len(undo_items(context.state, step)) > 1
    return f"Take back: {step.title}" + (f" ({block.title or block.id})" if several else "")


def _continuation_text(context: WalkContext, block: Block) -> str:
    """What a `confirm` is asked for again in the middle of its step; empty at the beginning of it."""
    step, _ = context.plan.block(block.id)
    if block.kind != "confirm" or block not in step.blocks:
        return ""
    covered = [one for one in step.blocks[step.blocks.index(block) + 1 :] if one.kind in ACTING_KINDS]
    remaining = [one for one in covered if context.state.blocks[one.id].status == "pending"]
    if not remaining or len(remaining) == len(covered):
        return ""
    return f"Go on in “{step.title}” with: {remaining[0].title or remaining[0].id}"


def _act_text(context: WalkContext, block: Block) -> str:
    """What would be done, in the action's own words where it has seen it, else in the author's."""
    step, _ = context.plan.block(block.id)
    preview_text = (context.state.blocks[block.id].sight or {}).get("text")
    return str(preview_text or block.title or block.settings.get("text") or step.title)


def _execute(
    context: WalkContext, block: Block, item: UndoItem | None, rows: tuple[dict[str, Any], ...] | None
) -> Turn[None]:
    block_state = context.state.blocks[block.id]
    fields: dict[str, Any] = {"params": parameters(context.state, block)}
    if block_state.sight is not None:
        fields["sight"] = block_state.sight
    if item is not None:
        fields |= {"item": item.key}
    elif rows is not None and runs_per_row(block):
        fields |= {"row": rows[block_state.row], "row_index": block_state.row, "row_count": len(rows)}
    elif rows is not None:
        fields |= {"rows": rows}
    if block_state.row:
        # Between two rows nothing else would hear of somebody who wants it to stop.
        yield from context.pause(0.0)
    undo_of = item.undo_of if item is not None else None
    if block.language == "sql":
        fields["statement"] = statement_shown(context.state, block, msgspec.to_builtins(fields), undo_of)
    number = block_state.executions + 1
    intent = yield from context.write(
        "block.intent", f"{block.id}: {_row_text(fields)}intent recorded", block=block, execution=number, **fields
    )
    reply = yield ExecuteRequest(block=block, execution=number, intent=intent, undo_of=undo_of)
    yield from _record_end(context, "block.result", block, number, outcome_of(reply), intent)


def outcome_of(reply: object) -> Outcome:
    """What the world replied to an act. Raises TypeError, where the driver of the walk has a defect."""
    if not isinstance(reply, Outcome):
        raise TypeError(f"the walk was told {type(reply).__name__}, not Outcome")
    return reply


def _row_text(intent: Mapping[str, Any]) -> str:
    """Which row of how many an execution was for, of a change that is executed for each."""
    if "row_index" not in intent:
        return ""
    named = [f"{name} {cell(value)}" for name, value in list(intent["row"].items())[:2]]
    return f"row {intent['row_index'] + 1} of {intent.get('row_count', '?')} ({', '.join(named)}): "


def _record_end(
    context: WalkContext,
    kind: str,
    block: Block,
    number: int,
    outcome: Outcome,
    intent: JournalRecord,
    *,
    who: str | None = None,
) -> Turn[None]:
    # A program that went on over errors has come to its end, and that is all that is well with it.
    outcome_text: str = "ended with errors" if outcome.state == "ok" and outcome.values.get("errors") else outcome.state
    if outcome.again:
        outcome_text = "not finished, goes on"
    more: dict[str, Any] = {"again": True} if outcome.again else {}
    yield from context.write(
        kind,
        f"{block.id}: {_row_text(intent.fields)}{outcome_text}, {outcome.text}",
        block=block,
        state=outcome.state,
        execution=number,
        who=who,
        note=outcome.text,
        values=outcome.values,
        undo=outcome.undo,
        evidence=outcome.evidence,
        machine_s=outcome.machine_s,
        **({} if outcome.table is None else {"table": msgspec.to_builtins(outcome.table)}),
        **more,
    )


def settle(context: WalkContext, execution: Execution) -> Turn[None]:
    """An execution whose end nobody saw: evidence first, then the word of a person with a reason. Never a guess."""
    _, block = context.plan.block(execution.block)
    context.state.current = block.id
    outcome = outcome_of((yield SettleRequest(block=block, execution=execution.number, intent=execution.intent)))
    if outcome.state == "unknown" and block.done is not None and not execution.item:
        result = yield from context.read_block(block, "done", block.done)
        if result.holds and not result.error:
            evidence = f"done: {result.text or block.done.text}"
            outcome = Outcome(state="ok", text="what it was for is so", evidence=evidence, machine_s=result.machine_s)
    if execution.state == "unknown":
        # What went wrong with this agent alive may go wrong again and again: a person decides.
        outcome = msgspec.structs.replace(outcome, again=False)
    if outcome.state != "unknown":
        yield from _record_end(context, "block.settled", block, execution.number, outcome, execution.intent)
        return
    if execution.state != "unknown":
        yield from _record_end(context, "block.settled", block, execution.number, outcome, execution.intent)
    yield from _ask_outcome(context, block, execution, outcome)


def _ask_outcome(context: WalkContext, block: Block, execution: Execution, outcome: Outcome) -> Turn[None]:
    text = f"{block.id}: how execution {execution.number} ended is not known: {outcome.text}. What is so?"
    while True:
        answer = yield from context.ask("settle", text, block=block, options=SETTLING)
        try:
            option, reason = chosen(SETTLING, answer.text)
            break
        except NotAnAnswer as why:
            yield from context.reject(str(why))
    record_text = f"{block.id}: {answer.who} says {option.key}" + (f": {reason}" if reason else "")
    yield from context.answered("settle", answer, record_text, block=block, answer=option.key, reason=reason)
    if option.key == "abort":
        yield from abort_run(context, "failed", reason or f"the end of {block.id} is not known", answer.who)
    elif option.key in ("ok", "failed"):
        settled = Outcome(
            state="ok" if option.key == "ok" else "failed", text=reason, evidence=f"the word of {answer.who}"
        )
        yield from _record_end(
            context, "block.settled", block, execution.number, settled, execution.intent, who=answer.who
        )
