"""Rehearse a plan: read-only blocks run, changes are shown but not executed. One question is asked: whether the shell
commands in the checks of a document that is not shipped may run, because they can do anything.

Results of changes are unknown, and so is everything that depends on them. All branches are rehearsed, because no
decision is made.
"""

from __future__ import annotations

from dba_console.recording.plan import ACTING_KINDS, READING_KINDS, Block, Plan
from dba_console.runbooks.asking_kinds import ask_start
from dba_console.runbooks.block_kind import record_rehearsed
from dba_console.runbooks.block_kind_registry import kind_of
from dba_console.runbooks.run_state import FINISHED, RunState
from dba_console.runbooks.walk_context import Turn, WalkContext, end_run

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
        yield from record_rehearsed(context, block, f"unknown without a real run: needs {', '.join(missing)}")
        return
    if not (yield from _applies(context, block)):
        return
    yield from kind_of(block).rehearse(context, block)


def _applies(context: WalkContext, block: Block) -> Turn[bool]:
    for purpose, test in (("when", block.when), ("done", block.done)):
        if test is None:
            continue
        result = yield from context.read_block(block, "when" if purpose == "when" else "done", test)
        if result.holds is None or result.error:
            yield from record_rehearsed(
                context, block, f"`{purpose}` is unknown: {result.error or result.text or test.text}"
            )
            return False
        if result.holds is (purpose == "done"):
            why = "already done" if purpose == "done" else "not applicable"
            yield from record_rehearsed(context, block, f"{why}: {result.text or test.text}")
            return False
    return True
