"""A run that is given up: what it has set for a time is put back, what can be taken back is offered, then it ends."""

from __future__ import annotations

from dba_console.runbook.undo import no_return_notice, revertible_steps, unreverted_settings
from dba_console.runbook.walk_context import Turn, WalkContext

MOST_SAID = 400
"""Characters of what a command said, in the line the run ends with."""


def abort_run(context: WalkContext, state: str, reason: str, who: str | None) -> Turn[None]:
    """End the run, after its settings are put back and an offer to take back what can be. A second time, while taking
    back: at once."""
    undo = context.state.undo
    if undo is not None:
        yield from end_run(context, undo.state, f"{undo.reason}; taking it back was given up: {reason}", who)
        return
    steps = [step.id for step in revertible_steps(context.plan, context.state)]
    settings = [block.id for block in unreverted_settings(context.plan, context.state)]
    if stays := no_return_notice(context.plan, context.state):
        reason = f"{reason}; {stays}"
    if steps or settings:
        text = f"run {state}: {reason}"
        text += "; what it has set for a time is put back now" if settings else ""
        text += f"; can be taken back: {', '.join(steps)}" if steps else ""
        yield from context.write(
            "undo.offered", text, state=state, who=who, steps=steps, reason=reason, settings=settings
        )
    else:
        yield from end_run(context, state, reason, who)


def failure_text(context: WalkContext) -> str:
    """What has failed, or of what nobody knows the end, in one line: the block, its label and why. Empty where nothing
    has."""
    failure, execution = context.state.failure, context.state.open_execution
    if failure is None and execution is None:
        return ""
    _, block = context.plan.block(failure.block if failure is not None else execution.block)  # type: ignore[union-attr]
    label = f" (“{block.title}”)" if block.title else ""
    if failure is None:
        return f"how {block.id}{label} ended is not known"
    note = context.state.blocks[block.id].note.removeprefix(f"{block.id}: ")
    error_text = " · ".join(" ".join(one.split()) for one in note.splitlines() if one.strip())
    return f"{block.id}{label}: {error_text if len(error_text) <= MOST_SAID else error_text[: MOST_SAID - 1] + '…'}"


def end_run(context: WalkContext, state: str, reason: str, who: str | None = None) -> Turn[None]:
    """The last record of a run."""
    yield from context.write("run.ended", f"run {state}: {reason}" if reason else f"run {state}", state=state, who=who)
