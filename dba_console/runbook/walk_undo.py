"""Taking back what a run did, step by step and only what a person chose, once the run was given up."""

from __future__ import annotations

from dba_console.plans.view import Option
from dba_console.runbook.fold_state import UndoPlan
from dba_console.runbook.undo import items
from dba_console.runbook.walk_acts import act
from dba_console.runbook.walk_course import Course, Turn
from dba_console.runbook.walk_give_up import end

ALL, NONE = "all", "none"


def taking_back(course: Course, undo: UndoPlan) -> Turn[None]:
    """The next thing to do for a run that was given up."""
    if undo.chosen is None:
        yield from _ask_which(course, undo)
        return
    if undo.under_way:
        yield from _next_item(course, undo)
        return
    left = [step for step in undo.chosen if step not in undo.finished]
    if left:
        yield from course.write("undo.began", f"step {left[0]}: being taken back", step=left[0])
        return
    yield from end(course, undo.state, _told(undo), undo.who)


def _told(undo: UndoPlan) -> str:
    back = [step for step, how in undo.finished.items() if how == "undone"]
    rest = [step for step in undo.offered if step not in back]
    told = [undo.reason]
    if back:
        told.append(f"taken back: {', '.join(back)}")
    if rest:
        told.append(f"left as it is: {', '.join(rest)}")
    return "; ".join(told)


def _ask_which(course: Course, undo: UndoPlan) -> Turn[None]:
    titles = {step.id: step.title for step in course.plan.steps}
    options = (
        Option(key=NONE, text="leave everything as it is"),
        Option(key=ALL, text="all of these, in this order"),
        *(Option(key=step, text=titles[step]) for step in undo.offered),
    )
    text = f"Take back {', '.join(undo.offered)}? Type none, all, or the steps"
    while True:
        answer = yield from course.ask("undo", text, options=options)
        words = answer.text.replace(",", " ").split()
        unknown = [word for word in words if word not in (ALL, NONE, *undo.offered)]
        if unknown or not words or (len(words) > 1 and {ALL, NONE} & set(words)):
            yield from course.reject(f"type none, all, or of {', '.join(undo.offered)}")
            continue
        steps = [step for step in undo.offered if words == [ALL] or step in words]
        said = f"{answer.who}: take back {', '.join(steps) or 'nothing'}"
        yield from course.answered("undo", answer, said, steps=steps, answer=" ".join(words))
        return


def _next_item(course: Course, undo: UndoPlan) -> Turn[None]:
    step = course.plan.step(undo.under_way)
    for item in items(course.state, step):
        if item.key not in undo.items:
            yield from act(course, item.block, item)
            return
    left = [key for key, how in undo.items.items() if how != "ok"]
    reason = f"left out: {', '.join(left)}" if left else ""
    text = f"step {step.id}: not taken back as a whole, {reason}" if left else f"step {step.id}: taken back"
    yield from course.write("undo.ended", text, step=step.id, state="skipped" if left else "undone", reason=reason)
