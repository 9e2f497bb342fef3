"""Taking back what a run did once it was given up: what it has set for a time without a question, for what was there
before is on record; the rest step by step, and only what a person chose.
"""

from __future__ import annotations

from dba_console.plans.plan import Block
from dba_console.plans.run_view import Option, WaitView, quote_for_typing
from dba_console.runbook.requests import Answer, Outcome, RevertSettingsRequest
from dba_console.runbook.run_state import UndoPlan
from dba_console.runbook.undo import undo_items
from dba_console.runbook.walk_abort import end_run
from dba_console.runbook.walk_actions import act, outcome_of
from dba_console.runbook.walk_context import Turn, WalkContext
from dba_console.units import human_duration

ALL, NONE = "all", "none"
ITSELF = "the runbook"
"""Who chose what is reverted, where its author did."""
SERVER_S = 60.0
"""A server that does not answer, as while it recovers from a crash, is waited for so long before the run ends."""
AGAIN_S = 2.0
"""Between two tries."""


def continue_undo(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    """The next thing to do for a run that was given up."""
    if undo.settings:
        yield from _revert_settings(context, undo)
        return
    if undo.chosen is None and undo.offered:
        yield from _ask_which(context, undo)
        return
    if undo.active_step:
        yield from _next_item(context, undo)
        return
    remaining = [step for step in undo.chosen or () if step not in undo.finished]
    if remaining:
        yield from context.write("undo.began", f"step {remaining[0]}: being taken back", step=remaining[0])
        return
    yield from end_run(context, undo.state, _undo_result(undo), undo.who)


def _undo_result(undo: UndoPlan) -> str:
    reverted = [step for step, outcome in undo.finished.items() if outcome == "undone"]
    rest = [step for step in undo.offered if step not in reverted]
    parts = [undo.reason, *(one for one in undo.put_back if one)]
    if reverted:
        parts.append(f"taken back: {', '.join(reverted)}")
    if rest:
        why = [f"{step} ({reason})" if (reason := undo.left.get(step)) else step for step in rest]
        parts.append(f"left as it is: {', '.join(why)}")
    return "; ".join(parts)


def _revert_settings(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    """Those of one server. What cannot be put back ends the run all the same: it stays on record, and a finding."""
    _, block = context.plan.block(undo.settings[0])
    context.state.current = block.id
    until_us = context.now() + int(SERVER_S * 1e6)
    outcome = yield from _try_revert(context, block)
    while outcome.state == "unknown" and (left_s := (until_us - context.now()) / 1e6) > 0:
        context.state.waiting = WaitView(
            text="the server answers, so that settings can be put back",
            values=outcome.text,
            timeout_s=SERVER_S,
            left=f"{human_duration(left_s)} at most",
        )
        try:
            yield from context.pause(min(AGAIN_S, left_s))
        finally:
            context.state.waiting = None
        outcome = yield from _try_revert(context, block)
    if outcome.state == "ok":
        message = "its settings are put back" if outcome.values.get("put_back") else ""
    else:
        message = f"its settings could not be put back: {outcome.text}; runbook put-back does it"
    text = f"{block.id}: {message or 'nothing of its settings was left to be put back'}"
    text += f": {outcome.text}" if outcome.state == "ok" and message else ""
    state = "ok" if outcome.state == "ok" else "failed"
    yield from context.write("undo.settings", text, block=block, state=state, told=message, machine_s=outcome.machine_s)


def _try_revert(context: WalkContext, block: Block) -> Turn[Outcome]:
    return outcome_of((yield RevertSettingsRequest(block=block)))


def _ask_which(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    if context.plan.reverts:
        answer_given = Answer(text=ALL, who=undo.who or ITSELF)
        record_text = f"the runbook reverts {', '.join(undo.offered)}"
        yield from context.answered("undo", answer_given, record_text, steps=list(undo.offered), answer=ALL)
        return
    titles = {step.id: step.title for step in context.plan.steps}
    options = (
        Option(key=NONE, text="leave everything as it is"),
        Option(key=ALL, text="all of these, in this order"),
        *(Option(key=step, text=titles[step]) for step in undo.offered),
    )
    text = f"Take back {', '.join(undo.offered)}? Type {quote_for_typing(NONE)}, {quote_for_typing(ALL)}, or the steps"
    while True:
        answer = yield from context.ask("undo", text, options=options)
        words = answer.text.replace(",", " ").split()
        unknown = [word for word in words if word not in (ALL, NONE, *undo.offered)]
        if unknown or not words or (len(words) > 1 and {ALL, NONE} & set(words)):
            yield from context.reject(
                f"type {quote_for_typing(NONE)}, {quote_for_typing(ALL)}, or of {', '.join(undo.offered)}"
            )
            continue
        steps = [step for step in undo.offered if words == [ALL] or step in words]
        record_text = f"{answer.who}: take back {', '.join(steps) or 'nothing'}"
        yield from context.answered("undo", answer, record_text, steps=steps, answer=" ".join(words))
        return


def _next_item(context: WalkContext, undo: UndoPlan) -> Turn[None]:
    step = context.plan.step(undo.active_step)
    for item in undo_items(context.state, step):
        if item.key not in undo.items:
            yield from act(context, item.block, item)
            return
    failed = [key.partition("@")[0] for key, outcome in undo.items.items() if outcome != "ok"]
    reason = "; ".join(
        f"{block}: {context.state.blocks[block].note.removeprefix(f'{block}: ')}" for block in dict.fromkeys(failed)
    )
    text = f"step {step.id}: not taken back as a whole: {reason}" if failed else f"step {step.id}: taken back"
    yield from context.write("undo.ended", text, step=step.id, state="skipped" if failed else "undone", reason=reason)
