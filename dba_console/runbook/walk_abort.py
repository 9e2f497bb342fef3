"""A run that is given up: what it has set for a time is put back, what can be taken back is offered, then it ends."""

from __future__ import annotations

from dba_console.runbook.undo import no_return_notice, revertible_steps, unreverted_settings
from dba_console.runbook.walk_context import Turn, WalkContext

MOST_SAID = 400
"""Characters of what a command said, in the line the run ends with."""


def abort_run(course: WalkContext, state: str, reason: str, who: str | None) -> Turn[None]:
    """End the run, after its settings are put back and an offer to take back what can be. A second time, while taking
    back: at once."""
    undo = course.state.undo
    if undo is not None:
        yield from end_run(course, undo.state, f"{undo.reason}; taking it back was given up: {reason}", who)
        return
    steps = [step.id for step in revertible_steps(course.plan, course.state)]
    settings = [block.id for block in unreverted_settings(course.plan, course.state)]
    if stays := no_return_notice(course.plan, course.state):
        reason = f"{reason}; {stays}"
    if steps or settings:
        text = f"run {state}: {reason}"
        text += "; what it has set for a time is put back now" if settings else ""
        text += f"; can be taken back: {', '.join(steps)}" if steps else ""
        yield from course.write(
            "undo.offered", text, state=state, who=who, steps=steps, reason=reason, settings=settings
        )
    else:
        yield from end_run(course, state, reason, who)


def failure_text(course: WalkContext) -> str:
    """What has failed, or of what nobody knows the end, in one line: the block, its label and why. Empty where nothing
    has."""
    failure, execution = course.state.failure, course.state.open_execution
    if failure is None and execution is None:
        return ""
    _, block = course.plan.block(failure.block if failure is not None else execution.block)  # type: ignore[union-attr]
    label = f" (“{block.title}”)" if block.title else ""
    if failure is None:
        return f"how {block.id}{label} ended is not known"
    note = course.state.blocks[block.id].note.removeprefix(f"{block.id}: ")
    said = " · ".join(" ".join(one.split()) for one in note.splitlines() if one.strip())
    return f"{block.id}{label}: {said if len(said) <= MOST_SAID else said[: MOST_SAID - 1] + '…'}"


def end_run(course: WalkContext, state: str, reason: str, who: str | None = None) -> Turn[None]:
    """The last record of a run."""
    yield from course.write("run.ended", f"run {state}: {reason}" if reason else f"run {state}", state=state, who=who)
