"""A run that is given up: it ends, or what can be taken back is offered first."""

from __future__ import annotations

from dba_console.runbook.undo import offer
from dba_console.runbook.walk_course import Course, Turn


def give_up(course: Course, state: str, reason: str, who: str | None) -> Turn[None]:
    """End the run, after an offer to take back what can be. A second time, while taking back: at once."""
    undo = course.state.undo
    if undo is not None:
        yield from end(course, undo.state, f"{undo.reason}; taking it back was given up: {reason}", who)
        return
    steps = [step.id for step in offer(course.plan, course.state)]
    if steps:
        text = f"run {state}: {reason}; can be taken back: {', '.join(steps)}"
        yield from course.write("undo.offered", text, state=state, who=who, steps=steps, reason=reason)
    else:
        yield from end(course, state, reason, who)


def end(course: Course, state: str, reason: str, who: str | None = None) -> Turn[None]:
    """The last record of a run."""
    yield from course.write("run.ended", f"run {state}: {reason}" if reason else f"run {state}", state=state, who=who)
