"""A rehearsal: what only looks really runs, what acts is told and not done. One thing is asked, once: whether the shell
commands among the checks of a document that is not shipped may run, for those can do anything.

What an act would have given is not known, so what depends on it is told as unknown and never made up; every branch is
gone through, for the decision is not made.
"""

from __future__ import annotations

from typing import Any

from dba_console.plans.plan import ACTING_KINDS, READING_KINDS, Block, Plan
from dba_console.redact import redact
from dba_console.runbook.preview_rows import bound_preview, code_shown
from dba_console.runbook.requests import ReadResult
from dba_console.runbook.row_choice import choice_column_error, chosen_count_text, left_out_at_first
from dba_console.runbook.run_state import FINISHED, RunState
from dba_console.runbook.run_view import counted
from dba_console.runbook.walk_abort import end_run
from dba_console.runbook.walk_checks import MOST_ROWS
from dba_console.runbook.walk_context import Purpose, Turn, WalkContext
from dba_console.runbook.walk_manual import ask_start
from dba_console.runbook.walk_waits import test_of

CAVEAT = "that a rehearsal passes does not promise that the run will succeed"


def rehearse(course: WalkContext) -> Turn[None]:
    """The next thing of a rehearsal."""
    if not course.state.started and not course.state.shipped and (commands := shell_checks(course.plan)):
        yield from _allowed(course, commands)
        return
    for step in course.plan.steps:
        known = course.state.steps[step.id]
        if known.status in (*FINISHED, "failed"):
            continue
        if known.status == "pending":
            yield from course.write("step.started", f"step {step.id}: rehearsed", step=step.id)
        for block in step.blocks:
            if course.state.blocks[block.id].status == "pending":
                yield from _block(course, block)
        failed = any(course.state.blocks[block.id].status == "failed" for block in step.blocks)
        state = "failed" if failed else "ok"
        yield from course.write("step.ended", f"step {step.id}: rehearsed, {state}", step=step.id, state=state)
        return
    yield from _end(course)


def shell_checks(plan: Plan) -> list[str]:
    """The blocks whose shell commands a rehearsal runs."""
    return [block.id for _, block in plan.blocks() if block.kind in READING_KINDS and block.language == "sh"]


def _allowed(course: WalkContext, commands: list[str]) -> Turn[None]:
    """Whether the shell commands of the document may run; anything but yes ends the rehearsal before any of them."""
    text = (
        f"This runbook is not shipped with the console. Its rehearsal runs shell commands ({', '.join(commands)}) that "
        "can do whatever their author wrote. Run them? Default: no"
    )
    refused = "its shell checks were not allowed to run"
    yield from ask_start(course, text, yes="shell checks allowed", no="not rehearsed", ending=refused)


def _end(course: WalkContext) -> Turn[None]:
    states = course.state.blocks
    failed = [block.id for _, block in course.plan.blocks() if states[block.id].status == "failed"]
    looks = sum(
        1 for _, block in course.plan.blocks() if block.kind in READING_KINDS and states[block.id].status == "ok"
    )
    acts = sum(1 for step in course.plan.steps for block in step.blocks if block.kind in ACTING_KINDS)
    told = f"{looks} looks taken, {acts} acts told and not done; {CAVEAT}"
    if failed:
        yield from end_run(course, "failed", f"{', '.join(failed)} failed; {told}")
    else:
        yield from end_run(course, "done", told)


def _unknown(state: RunState, plan: Plan, block: Block) -> list[str]:
    """Names of results it goes by that nobody has, because nothing was done."""
    given = {one.name for _, one in plan.blocks() if one.name}
    return [name for name in block.uses if name in given and name not in state.values]


def _block(course: WalkContext, block: Block) -> Turn[None]:
    missing = _unknown(course.state, course.plan, block)
    if missing:
        yield from _record_rehearsed(course, block, f"unknown until it is really run: needs {', '.join(missing)}")
        return
    if not (yield from _applies(course, block)):
        return
    if block.kind in ("check", "measure", "preview"):
        yield from _read_block(course, block)
    elif block.kind == "wait":
        yield from _wait(course, block)
    elif block.kind in ACTING_KINDS:
        yield from _act(course, block)
    else:
        yield from _record_rehearsed(course, block, f"would ask or tell a person: {_asks(block)}")


def _asks(block: Block) -> str:
    settings = block.settings
    return str(block.title or settings.get("question") or settings.get("text") or settings.get("help") or block.kind)


def _record_rehearsed(course: WalkContext, block: Block, note: str, **fields: Any) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from course.write("block.skipped", text, block=block, state="rehearsed", reason=note, **fields)


def _applies(course: WalkContext, block: Block) -> Turn[bool]:
    for purpose, test in (("when", block.when), ("done", block.done)):
        if test is None:
            continue
        seen = yield from course.read_block(block, "when" if purpose == "when" else "done", test)
        if seen.holds is None or seen.error:
            yield from _record_rehearsed(
                course, block, f"`{purpose}` is unknown: {seen.error or seen.text or test.text}"
            )
            return False
        if seen.holds is (purpose == "done"):
            why = "already so" if purpose == "done" else "not applicable"
            yield from _record_rehearsed(course, block, f"{why}: {seen.text or test.text}")
            return False
    return True


def _read_block(course: WalkContext, block: Block) -> Turn[None]:
    purpose: Purpose = "check" if block.kind == "check" else "measure" if block.kind == "measure" else "preview"
    seen = yield from course.read_block(block, purpose)
    if not seen.error and block.kind == "preview" and (why := choice_column_error(block, seen.rows)):
        seen = ReadResult(error=why, machine_s=seen.machine_s)
    good = not seen.error and (block.kind != "check" or seen.holds is True)
    note = _note(block, seen)
    if good:
        fields: dict[str, Any] = {"values": seen.values}
        if block.kind == "preview":
            rows = fields["rows"] = seen.rows[:MOST_ROWS]
            fields["left_out"] = left_out_at_first(block, course.state.blocks[block.id], rows)
        yield from _record_read(course, block, "ok", note, seen, **fields)
    elif _after_an_act(course.plan, block):
        yield from _record_rehearsed(
            course, block, f"{note}; what comes before it was not done", machine_s=seen.machine_s
        )
    else:
        yield from _record_read(course, block, "failed", note, seen)


def _note(block: Block, seen: ReadResult) -> str:
    if seen.error:
        return seen.error
    if block.kind == "check":
        word = {True: "holds", False: "does not hold", None: "it cannot be told whether it holds"}[seen.holds]
        return f"{word}: {seen.text}" if seen.text else word
    if block.kind == "preview":
        return counted(len(seen.rows))
    return seen.text or "measured"


def _record_read(
    course: WalkContext, block: Block, state: str, note: str, seen: ReadResult, **fields: Any
) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from course.write("block.seen", text, block=block, state=state, note=note, machine_s=seen.machine_s, **fields)


def _after_an_act(plan: Plan, block: Block) -> bool:
    """Whether anything that would have changed the world stands before it."""
    for _, one in plan.blocks():
        if one.id == block.id:
            return False
        if one.kind in ACTING_KINDS or one.kind == "manual":
            return True
    return False


def _wait(course: WalkContext, block: Block) -> Turn[None]:
    test = test_of(block.settings.get("until"))
    if test is None:
        yield from _record_rehearsed(course, block, "would let time pass")
        return
    seen = yield from course.read_block(block, "until", test)
    now = "it is so now" if seen.holds and not seen.error else "it is not so now"
    yield from _record_rehearsed(course, block, f"would wait until {test.text}; {now}: {seen.error or seen.text}")


def _act(course: WalkContext, block: Block) -> Turn[None]:
    """What would be done, verbatim."""
    if block.kind == "action":
        seen = yield from course.read_block(block, "preview")
        sight = seen.values.get("sight") or {}
        refusal = seen.error or sight.get("refusal")
        if refusal:
            yield from _record_rehearsed(course, block, f"would be refused now: {refusal}", refused=refusal)
        else:
            exact = sight.get("exact") or seen.text
            yield from _record_rehearsed(course, block, f"would do: {exact}", exact=exact, sight=sight)
        return
    preview = bound_preview(course.plan, block)
    known = course.state.blocks[preview.id] if preview is not None else None
    on = (
        f" on {chosen_count_text(known) or counted(len(known.rows))}"
        if known is not None and known.rows is not None
        else ""
    )
    exact = code_shown(course.state, block)
    # Within a sentence a statement is no longer known as one, and its literals would not be masked.
    yield from _record_rehearsed(course, block, f"would run{on}: {redact(exact)}", exact=exact)
