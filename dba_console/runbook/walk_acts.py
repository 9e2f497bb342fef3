"""An act: whether it applies, what it would do, the word of a person, its intent on disk, and only then the doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dba_console.plans.plan import ACTING_KINDS, Block, Confirmation
from dba_console.runbook.preview_rows import bound_preview, parameters, runs_per_row, statement_shown
from dba_console.runbook.requests import ExecuteRequest, JournalRecord, Outcome, ReadResult, SettleRequest
from dba_console.runbook.result_tables import cell
from dba_console.runbook.row_choice import acts_on_preview, chosen_count_text, confirmed_preview
from dba_console.runbook.run_state import Execution
from dba_console.runbook.undo import UndoItem, undo_items
from dba_console.runbook.walk_abort import abort_run
from dba_console.runbook.walk_context import Turn, WalkContext
from dba_console.runbook.walk_questions import (
    NONE,
    SETTLING,
    NotAnAnswer,
    chosen,
    confirmation_text,
    confirms,
    expected,
)

UNDO_CONFIRMATION = Confirmation(level="yes")
"""Of an undo whose author asks for nothing else."""


def should_run(course: WalkContext, block: Block, item: str = "") -> Turn[bool]:
    """Whether the block is to run at all. A test that cannot tell is a failure: it is taken neither for yes nor no."""
    if block.when is not None:
        seen = yield from course.read_block(block, "when", block.when)
        if seen.holds is None or seen.error:
            yield from _fail_unknown(course, block, "whether it applies", seen, item)
            return False
        if not seen.holds:
            yield from skip(course, block, f"not applicable: {seen.text or block.when.text}", item)
            return False
    if block.done is not None:
        seen = yield from course.read_block(block, "done", block.done)
        if seen.holds is None or seen.error:
            yield from _fail_unknown(course, block, "whether it is done already", seen, item)
            return False
        if seen.holds:
            yield from skip(course, block, f"already so: {seen.text or block.done.text}", item)
            return False
    return True


def skip(course: WalkContext, block: Block, reason: str, item: str = "") -> Turn[None]:
    """Say that a block is left out, and why."""
    yield from course.write("block.skipped", f"{block.id}: skipped, {reason}", block=block, reason=reason, item=item)


def _fail_unknown(course: WalkContext, block: Block, what: str, seen: ReadResult, item: str) -> Turn[None]:
    yield from fail(course, block, seen.append_to(f"it cannot be told {what}"), item, machine_s=seen.machine_s)


def fail(course: WalkContext, block: Block, note: str, item: str = "", **fields: Any) -> Turn[None]:
    """Say that a block failed before anything was done."""
    text = f"{block.id}: failed, {note}"
    yield from course.write("block.seen", text, block=block, state="failed", note=note, item=item, **fields)


def act(course: WalkContext, block: Block, item: UndoItem | None = None) -> Turn[None]:
    """One act. Of a change for each row: the next row."""
    key = item.key if item is not None else ""
    known = course.state.blocks[block.id]
    going_on = known.row > 0 and not key
    # An action's own undo is not what its `when` and `done` speak of.
    asks = item is None or item.key == block.id
    if asks and not going_on and not known.confirmed and not (yield from should_run(course, block, key)):
        return
    covering = None if key else _covering(course, block)
    if covering is not None and course.state.blocks[covering.id].status != "ok":
        yield from skip(course, block, f"{covering.id}, which confirms it, was left out")
        return
    rows: tuple[dict[str, Any], ...] | None = None
    if not key and (preview := bound_preview(course.plan, block)) is not None:
        rows = course.state.blocks[preview.id].rows
        if not rows:
            why = "the preview gave no rows" if rows is not None else "its preview was not run"
            yield from skip(course, block, f"nothing to act on: {why}")
            return
        if acts_on_preview(course.plan, block) is not None and not (rows := course.state.blocks[preview.id].chosen):
            yield from none_chosen(course, block, preview)
            return
    if block.kind == "action" and not key and known.sight is None and not (yield from _preview_action(course, block)):
        return
    if not (yield from _confirmed(course, block, item, rows)):
        return
    yield from _execute(course, block, item, rows)


def _covering(course: WalkContext, block: Block) -> Block | None:
    """The `confirm` before it in its step, where it has no confirmation of its own."""
    step, _ = course.plan.block(block.id)
    if block.confirm is not None or block not in step.blocks:
        return None
    before = step.blocks[: step.blocks.index(block)]
    return next((one for one in reversed(before) if one.kind == "confirm"), None)


def _preview_action(course: WalkContext, block: Block) -> Turn[bool]:
    """What an action would do, before the question about it. False: it will not be done."""
    seen = yield from course.read_block(block, "preview")
    sight = seen.values.get("sight") or {}
    refusal = seen.error or sight.get("refusal")
    if refusal:
        hint = sight.get("hint")
        note = f"refused: {refusal}" + (f" ({hint})" if hint else "")
        yield from fail(course, block, note, machine_s=seen.machine_s)
        return False
    if sight.get("done"):
        how = f"{sight['by']} does this" if sight.get("by") else "already so"
        yield from skip(course, block, f"{how}: {sight.get('text') or seen.text}")
        return False
    text = f"{block.id}: {sight.get('text') or seen.text}"
    yield from course.write("block.seen", text, block=block, state="sight", sight=sight, machine_s=seen.machine_s)
    return True


def _count(course: WalkContext, block: Block, rows: tuple[dict[str, Any], ...] | None) -> int | None:
    """How many things would be acted on; an action has counted them itself."""
    known = course.state.blocks[block.id]
    count = (known.sight or {}).get("count")
    if isinstance(count, int):
        return count
    return len(rows) - (known.row if runs_per_row(block) else 0) if rows is not None else None


def _confirmed(
    course: WalkContext, block: Block, item: UndoItem | None, rows: tuple[dict[str, Any], ...] | None
) -> Turn[bool]:
    confirmation = block.confirm
    if item is not None and (confirmation is None or confirmation.text in ("count", "name")):
        confirmation = UNDO_CONFIRMATION  # what was counted or named was what the act saw
    if confirmation is None or course.state.blocks[block.id].confirmed:
        return True
    if item is not None and course.plan.reverts:
        return True
    count = _count(course, block, rows)
    return (yield from confirm(course, block, confirmation, count=count, item=item.key if item is not None else ""))


def none_chosen(course: WalkContext, block: Block, preview: Block) -> Turn[None]:
    """Leave a block out because no row it would act on is chosen. Who can still choose one is asked first."""
    if confirmed_preview(course.plan, course.state, block) == preview and not course.state.blocks[block.id].confirmed:
        count = len(course.state.blocks[preview.id].rows or ())
        none = f"none of {count} rows is" if count != 1 else "its only row is not"
        text = f"{_act_text(course, block)}: {none} chosen, so nothing would be done"
        while True:
            answer = yield from course.ask("choose", text, block=block, options=(NONE,), rows=preview.id)
            try:
                chosen((NONE,), answer.text)
                break
            except NotAnAnswer as why:
                yield from course.reject(str(why))
        said = f"{block.id}: {answer.who} leaves it out"
        yield from course.answered("choose", answer, said, block=block, answer=NONE.key)
    yield from skip(course, block, f"nothing to act on: no row of {preview.id} is chosen")


def confirm(
    course: WalkContext, block: Block, confirmation: Confirmation, *, count: int | None = None, item: str = ""
) -> Turn[bool]:
    """Ask until it is confirmed or declined."""
    name = str((course.state.blocks[block.id].sight or {}).get("name") or "")
    expects = expected(confirmation, course.state, count, name)
    if not expects:
        yield from fail(course, block, "it is not known what would have to be typed to confirm it", item)
        return False
    preview = confirmed_preview(course.plan, course.state, block) if not item else None
    step, _ = course.plan.block(block.id)
    final = "No way back after this. " if step.point_of_no_return and not item else ""
    what = _continuation_text(course, block) or final + (
        _undo_text(course, block) if item else _act_text(course, block)
    )
    part = "" if preview is None else chosen_count_text(course.state.blocks[preview.id])
    text = confirmation_text(what, confirmation, expects, course.state.place, part, name)
    while True:
        answer = yield from course.ask(
            confirmation.level, text, block=block, expects=expects, people=confirmation.people,
            rows="" if preview is None else preview.id,
        )  # fmt: skip
        try:
            yes = confirms(confirmation, expects, answer.text)
        except NotAnAnswer as why:
            yield from course.reject(str(why))
            continue
        if yes and confirmation.people > 1 and not answer.second:
            yield from course.reject("a second person has to confirm it")
            continue
        people = f"{answer.who} and {answer.second}" if answer.second else answer.who
        said = f"{block.id}: {'confirmed' if yes else 'declined'} by {people}"
        state = "" if yes else "declined"
        # Not `ask`'s business to keep: what was typed is what was expected, or no.
        yield from course.answered(
            confirmation.level, answer, said, block=block, state=state, answer=answer.text.strip(), item=item
        )
        return yes


def _undo_text(course: WalkContext, block: Block) -> str:
    """The step, and of several acts in it which."""
    step, _ = course.plan.block(block.id)
    several = len(undo_items(course.state, step)) > 1
    return f"Take back: {step.title}" + (f" ({block.title or block.id})" if several else "")


def _continuation_text(course: WalkContext, block: Block) -> str:
    """What a `confirm` is asked for again in the middle of its step; empty at the beginning of it."""
    step, _ = course.plan.block(block.id)
    if block.kind != "confirm" or block not in step.blocks:
        return ""
    covered = [one for one in step.blocks[step.blocks.index(block) + 1 :] if one.kind in ACTING_KINDS]
    left = [one for one in covered if course.state.blocks[one.id].status == "pending"]
    if not left or len(left) == len(covered):
        return ""
    return f"Go on in “{step.title}” with: {left[0].title or left[0].id}"


def _act_text(course: WalkContext, block: Block) -> str:
    """What would be done, in the action's own words where it has seen it, else in the author's."""
    step, _ = course.plan.block(block.id)
    told = (course.state.blocks[block.id].sight or {}).get("text")
    return str(told or block.title or block.settings.get("text") or step.title)


def _execute(
    course: WalkContext, block: Block, item: UndoItem | None, rows: tuple[dict[str, Any], ...] | None
) -> Turn[None]:
    known = course.state.blocks[block.id]
    fields: dict[str, Any] = {"params": parameters(course.state, block)}
    if known.sight is not None:
        fields["sight"] = known.sight
    if item is not None:
        fields |= {"item": item.key}
    elif rows is not None and runs_per_row(block):
        fields |= {"row": rows[known.row], "row_index": known.row, "row_count": len(rows)}
    elif rows is not None:
        fields |= {"rows": rows}
    if known.row:
        # Between two rows nothing else would hear of somebody who wants it to stop.
        yield from course.pause(0.0)
    undo_of = item.undo_of if item is not None else None
    if block.language == "sql":
        fields["statement"] = statement_shown(course.state, block, msgspec.to_builtins(fields), undo_of)
    number = known.executions + 1
    intent = yield from course.write(
        "block.intent", f"{block.id}: {_of_row(fields)}intent recorded", block=block, execution=number, **fields
    )
    reply = yield ExecuteRequest(block=block, execution=number, intent=intent, undo_of=undo_of)
    yield from _ended(course, "block.result", block, number, outcome_of(reply), intent)


def outcome_of(reply: object) -> Outcome:
    """What the world replied to an act. Raises TypeError, where the driver of the walk has a defect."""
    if not isinstance(reply, Outcome):
        raise TypeError(f"the walk was told {type(reply).__name__}, not Outcome")
    return reply


def _of_row(intent: Mapping[str, Any]) -> str:
    """Which row of how many an execution was for, of a change that is executed for each."""
    if "row_index" not in intent:
        return ""
    named = [f"{name} {cell(value)}" for name, value in list(intent["row"].items())[:2]]
    return f"row {intent['row_index'] + 1} of {intent.get('row_count', '?')} ({', '.join(named)}): "


def _ended(
    course: WalkContext,
    kind: str,
    block: Block,
    number: int,
    outcome: Outcome,
    intent: JournalRecord,
    *,
    who: str | None = None,
) -> Turn[None]:
    # A program that went on over errors has come to its end, and that is all that is well with it.
    how: str = "ended with errors" if outcome.state == "ok" and outcome.values.get("errors") else outcome.state
    if outcome.again:
        how = "not finished, goes on"
    more: dict[str, Any] = {"again": True} if outcome.again else {}
    yield from course.write(
        kind,
        f"{block.id}: {_of_row(intent.fields)}{how}, {outcome.text}",
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


def settle(course: WalkContext, execution: Execution) -> Turn[None]:
    """An execution whose end nobody saw: evidence first, then the word of a person with a reason. Never a guess."""
    _, block = course.plan.block(execution.block)
    course.state.current = block.id
    outcome = outcome_of((yield SettleRequest(block=block, execution=execution.number, intent=execution.intent)))
    if outcome.state == "unknown" and block.done is not None and not execution.item:
        seen = yield from course.read_block(block, "done", block.done)
        if seen.holds and not seen.error:
            evidence = f"done: {seen.text or block.done.text}"
            outcome = Outcome(state="ok", text="what it was for is so", evidence=evidence, machine_s=seen.machine_s)
    if execution.state == "unknown":
        # What went wrong with this agent alive may go wrong again and again: a person decides.
        outcome = msgspec.structs.replace(outcome, again=False)
    if outcome.state != "unknown":
        yield from _ended(course, "block.settled", block, execution.number, outcome, execution.intent)
        return
    if execution.state != "unknown":
        yield from _ended(course, "block.settled", block, execution.number, outcome, execution.intent)
    yield from _ask_end(course, block, execution, outcome)


def _ask_end(course: WalkContext, block: Block, execution: Execution, outcome: Outcome) -> Turn[None]:
    text = f"{block.id}: how execution {execution.number} ended is not known: {outcome.text}. What is so?"
    while True:
        answer = yield from course.ask("settle", text, block=block, options=SETTLING)
        try:
            option, reason = chosen(SETTLING, answer.text)
            break
        except NotAnAnswer as why:
            yield from course.reject(str(why))
    said = f"{block.id}: {answer.who} says {option.key}" + (f": {reason}" if reason else "")
    yield from course.answered("settle", answer, said, block=block, answer=option.key, reason=reason)
    if option.key == "abort":
        yield from abort_run(course, "failed", reason or f"the end of {block.id} is not known", answer.who)
    elif option.key in ("ok", "failed"):
        settled = Outcome(
            state="ok" if option.key == "ok" else "failed", text=reason, evidence=f"the word of {answer.who}"
        )
        yield from _ended(course, "block.settled", block, execution.number, settled, execution.intent, who=answer.who)
