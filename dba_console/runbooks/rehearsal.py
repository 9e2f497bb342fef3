"""Rehearse a plan: read-only blocks run, changes are shown but not executed. One question is asked: whether the shell
commands in the checks of a document that is not shipped may run, because they can do anything.

Results of changes are unknown, and so is everything that depends on them. All branches are rehearsed, because no
decision is made.
"""

from __future__ import annotations

from typing import Any

from dba_console.core.redact import redact
from dba_console.recording.plan import ACTING_KINDS, READING_KINDS, Block, Plan
from dba_console.runbooks.preview_rows import bound_preview, code_shown
from dba_console.runbooks.requests import ReadResult
from dba_console.runbooks.row_choice import choice_column_error, chosen_count_text, left_out_at_first
from dba_console.runbooks.run_state import FINISHED, RunState
from dba_console.runbooks.view_builder import counted
from dba_console.runbooks.walk_checks import MOST_ROWS, test_of
from dba_console.runbooks.walk_context import Purpose, Turn, WalkContext, end_run
from dba_console.runbooks.walk_manual import ask_start

CAVEAT = "a passed rehearsal does not guarantee that the run succeeds"


def rehearse(context: WalkContext) -> Turn[None]:
    """Do the next thing of a rehearsal."""
    if not context.state.started and not context.state.shipped and (commands := shell_checks(context.plan)):
        yield from _ask_shell_checks(context, commands)
        return
    for step in context.plan.steps:
        step_state = context.state.steps[step.id]
        if step_state.status in (*FINISHED, "failed"):
            continue
        if step_state.status == "pending":
            yield from context.write("step.started", f"step {step.id}: rehearsed", step=step.id)
        for block in step.blocks:
            if context.state.blocks[block.id].status == "pending":
                yield from _block(context, block)
        failed = any(context.state.blocks[block.id].status == "failed" for block in step.blocks)
        state = "failed" if failed else "ok"
        yield from context.write("step.ended", f"step {step.id}: rehearsed, {state}", step=step.id, state=state)
        return
    yield from _end(context)


def shell_checks(plan: Plan) -> list[str]:
    """Return the blocks whose shell commands a rehearsal runs."""
    return [block.id for _, block in plan.blocks() if block.kind in READING_KINDS and block.language == "sh"]


def _ask_shell_checks(context: WalkContext, commands: list[str]) -> Turn[None]:
    """Ask whether the shell commands of the document may run; without yes, the rehearsal ends before any of them."""
    text = (
        f"This runbook is not shipped with the console. Its rehearsal runs shell commands ({', '.join(commands)}) that "
        "can change anything. Run them? Default: no"
    )
    refused = "its shell checks were not allowed to run"
    yield from ask_start(context, text, yes="shell checks allowed", no="not rehearsed", ending=refused)


def _end(context: WalkContext) -> Turn[None]:
    states = context.state.blocks
    failed = [block.id for _, block in context.plan.blocks() if states[block.id].status == "failed"]
    checks = sum(
        1 for _, block in context.plan.blocks() if block.kind in READING_KINDS and states[block.id].status == "ok"
    )
    acts = sum(1 for step in context.plan.steps for block in step.blocks if block.kind in ACTING_KINDS)
    summary = f"{checks} read-only blocks run, {acts} changes not executed; {CAVEAT}"
    if failed:
        yield from end_run(context, "failed", f"{', '.join(failed)} failed; {summary}")
    else:
        yield from end_run(context, "done", summary)


def _unknown_results(state: RunState, plan: Plan, block: Block) -> list[str]:
    """Return the names of results that the block uses and that a rehearsal does not have."""
    result_names = {one.name for _, one in plan.blocks() if one.name}
    return [name for name in block.uses if name in result_names and name not in state.values]


def _block(context: WalkContext, block: Block) -> Turn[None]:
    missing = _unknown_results(context.state, context.plan, block)
    if missing:
        yield from _record_rehearsed(context, block, f"unknown without a real run: needs {', '.join(missing)}")
        return
    if not (yield from _applies(context, block)):
        return
    if block.kind in ("check", "measure", "preview"):
        yield from _read_block(context, block)
    elif block.kind == "wait":
        yield from _wait(context, block)
    elif block.kind in ACTING_KINDS:
        yield from _act(context, block)
    else:
        yield from _record_rehearsed(context, block, f"would ask the operator: {_question_text(block)}")


def _question_text(block: Block) -> str:
    settings = block.settings
    return str(block.title or settings.get("question") or settings.get("text") or settings.get("help") or block.kind)


def _record_rehearsed(context: WalkContext, block: Block, note: str, **fields: Any) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from context.write("block.skipped", text, block=block, state="rehearsed", reason=note, **fields)


def _applies(context: WalkContext, block: Block) -> Turn[bool]:
    for purpose, test in (("when", block.when), ("done", block.done)):
        if test is None:
            continue
        result = yield from context.read_block(block, "when" if purpose == "when" else "done", test)
        if result.holds is None or result.error:
            yield from _record_rehearsed(
                context, block, f"`{purpose}` is unknown: {result.error or result.text or test.text}"
            )
            return False
        if result.holds is (purpose == "done"):
            why = "already done" if purpose == "done" else "not applicable"
            yield from _record_rehearsed(context, block, f"{why}: {result.text or test.text}")
            return False
    return True


def _read_block(context: WalkContext, block: Block) -> Turn[None]:
    purpose: Purpose = "check" if block.kind == "check" else "measure" if block.kind == "measure" else "preview"
    result = yield from context.read_block(block, purpose)
    if not result.error and block.kind == "preview" and (why := choice_column_error(block, result.rows)):
        result = ReadResult(error=why, machine_s=result.machine_s)
    passed = not result.error and (block.kind != "check" or result.holds is True)
    note = _note(block, result)
    if passed:
        fields: dict[str, Any] = {"values": result.values}
        if block.kind == "preview":
            rows = fields["rows"] = result.rows[:MOST_ROWS]
            fields["left_out"] = left_out_at_first(block, context.state.blocks[block.id], rows)
        yield from _record_read(context, block, "ok", note, result, **fields)
    elif _after_an_act(context.plan, block):
        yield from _record_rehearsed(
            context, block, f"{note}; the changes before it were not executed", machine_s=result.machine_s
        )
    else:
        yield from _record_read(context, block, "failed", note, result)


def _note(block: Block, result: ReadResult) -> str:
    if result.error:
        return result.error
    if block.kind == "check":
        word = {True: "passed", False: "does not hold", None: "unknown whether it holds"}[result.holds]
        return f"{word}: {result.text}" if result.text else word
    if block.kind == "preview":
        return counted(len(result.rows))
    return result.text or "measured"


def _record_read(
    context: WalkContext, block: Block, state: str, note: str, result: ReadResult, **fields: Any
) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from context.write(
        "block.seen", text, block=block, state=state, note=note, machine_s=result.machine_s, **fields
    )


def _after_an_act(plan: Plan, block: Block) -> bool:
    """Return whether a changing or manual block comes before it."""
    for _, one in plan.blocks():
        if one.id == block.id:
            return False
        if one.kind in ACTING_KINDS or one.kind == "manual":
            return True
    return False


def _wait(context: WalkContext, block: Block) -> Turn[None]:
    test = test_of(block.settings.get("until"))
    if test is None:
        yield from _record_rehearsed(context, block, "would wait")
        return
    result = yield from context.read_block(block, "until", test)
    now = "true now" if result.holds and not result.error else "not true now"
    yield from _record_rehearsed(context, block, f"would wait until {test.text}; {now}: {result.error or result.text}")


def _act(context: WalkContext, block: Block) -> Turn[None]:
    """Record exactly what a changing block would do."""
    if block.kind == "action":
        result = yield from context.read_block(block, "preview")
        action_preview = result.values.get("sight") or {}
        refusal = result.error or action_preview.get("refusal")
        if refusal:
            yield from _record_rehearsed(context, block, f"would be refused now: {refusal}", refused=refusal)
        else:
            exact = action_preview.get("exact") or result.text
            yield from _record_rehearsed(context, block, f"would execute: {exact}", exact=exact, sight=action_preview)
        return
    preview = bound_preview(context.plan, block)
    preview_state = context.state.blocks[preview.id] if preview is not None else None
    on = (
        f" on {chosen_count_text(preview_state) or counted(len(preview_state.rows))}"
        if preview_state is not None and preview_state.rows is not None
        else ""
    )
    exact = code_shown(context.state, block)
    # redact() masks literals only in text that starts as a statement, so it is applied before the prefix.
    yield from _record_rehearsed(context, block, f"would run{on}: {redact(exact)}", exact=exact)
