"""Kinds of blocks that change something: evaluate the conditions, preview, confirm, record the intent, execute, settle
the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import to_builtins

from dba_console.core.declarations import find_invalid
from dba_console.core.errors import suggest
from dba_console.core.redact import redact, redact_statement
from dba_console.recording.plan import ACTING_KINDS, Block, Confirmation, JournalRecord, Plan
from dba_console.runbooks.block_kind import BlockKind, fail, record_rehearsed, should_run, skip
from dba_console.runbooks.code_references import settings_references
from dba_console.runbooks.preview_rows import (
    UndoItem,
    bound_preview,
    code_shown,
    covering_confirm,
    parameters,
    runs_per_row,
    statement_shown,
    undo_items,
)
from dba_console.runbooks.problems import Problem
from dba_console.runbooks.result_tables import cell, counted
from dba_console.runbooks.row_choice import acts_on_preview, chosen_count_text, confirmed_preview
from dba_console.runbooks.run_state import Execution
from dba_console.runbooks.schema import Texts
from dba_console.runbooks.walk_context import (
    NONE,
    SETTLING,
    NotAnAnswer,
    Turn,
    WalkContext,
    abort_run,
    confirmation_text,
    confirms,
    expected,
)
from dba_console.runbooks.walk_requests import ExecuteRequest, Outcome, SettleRequest

UNDO_CONFIRMATION = Confirmation(level="yes")
"""Default confirmation of an undo."""


class ChangingKind(BlockKind):
    """A kind that changes something."""

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Execute the block after its confirmation."""
        yield from act(context, block)

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Record exactly what it would run."""
        preview = bound_preview(context.plan, block)
        preview_state = context.state.blocks[preview.id] if preview is not None else None
        on = (
            f" on {chosen_count_text(preview_state) or counted(len(preview_state.rows))}"
            if preview_state is not None and preview_state.rows is not None
            else ""
        )
        exact = code_shown(context.state, block)
        masked = redact_statement(exact) if block.language == "sql" else redact(exact)
        yield from record_rehearsed(context, block, f"would run{on}: {masked}", exact=masked)


class Change(ChangingKind):
    name = "change"
    languages = ("sql",)
    help = (
        "Changes the server, in its own transaction. `%(rows)s` is the preview's chosen rows as JSON; with `each`, "
        "every column of a row is a value."
    )
    attributes = ("confirm", "people", "as", "undo", "transaction", "lock_timeout", "each", "of")
    rule = "preview-unused"

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """A change that uses `of`, `%(rows)s` or `each` needs a preview before it, which reads one database only."""
        preview = bound_preview(plan, block)
        name = block.settings.get("rows_from")
        if preview is None and (name or block.settings.get("each")):
            what = f"there is no preview {name!r}" if name else "there is no preview before it in the step"
            yield Problem(line=block.line, text=f"the change needs the rows of a preview, but {what}",
                          hint="add a block {preview} before it, or write of=NAME and preview as=NAME")  # fmt: skip
        elif preview is not None and preview.line > block.line:
            yield Problem(line=block.line, text=f"the preview {name!r} comes after the change that uses it")
        elif preview is not None and preview.settings.get("databases"):
            yield Problem(line=block.line, text="the preview reads several databases, but a change runs in one",
                          hint="use an action that takes rows with `datname`, such as vacuum")  # fmt: skip


class CommandTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    argv: Texts
    """program and arguments; an argument that is `%(name)s` is that value"""


class Run(ChangingKind):
    name = "run"
    languages = ("sh", "toml")
    help = "Runs a command: a bash script, or an argv in toml."
    table = CommandTable
    attributes = ("confirm", "people", "as", "host", "tag", "undo", "exit", "reads", "archive", "jobs")


class ActionKind(ChangingKind):
    name = "action"
    languages = ("toml",)
    help = "Runs one of the console's actions, `{action NAME}`, with its settings: see [actions.md](actions.md)."
    attributes = ("confirm", "people", "as", "undo")
    word = "action"
    rule = "action"

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """An action must exist, and its settings must match its declaration."""
        if actions is None or block.action is None:
            return
        action = actions.get(block.action)
        if action is None:
            yield Problem(line=block.line, text=f"unknown action {block.action!r}",
                          hint=suggest(block.action, actions, what="available:"))  # fmt: skip
            return
        name, settings = f"action {block.action}", block.settings
        # The value of a reference is known only when the action runs.
        complete = not any(settings_references(settings))
        for invalid in find_invalid(settings, action.Settings, name, "setting", f"{name}: ", complete=complete):
            if not (invalid.path and any(settings_references(settings.get(invalid.path[0])))):
                yield Problem(line=block.line, text=invalid.text, hint=invalid.hint)

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Record the action's preview."""
        result = yield from context.read_block(block, "preview")
        preview = result.action_preview
        if preview is None or preview.refusal:
            refusal = result.error if preview is None else preview.refusal
            yield from record_rehearsed(context, block, f"would be refused now: {refusal}", refused=refusal)
        else:
            note = f"would execute: {preview.exact}"
            fields = {"exact": preview.exact, "action_preview": to_builtins(preview)}
            yield from record_rehearsed(context, block, note, **fields)


class Undo(ChangingKind):
    name = "undo"
    languages = ("sql", "sh")
    help = "Reverts its step; offered when a run is aborted, never executed automatically except with `reverts`."
    attributes = ("confirm", "people", "tag", "transaction", "lock_timeout", "exit")


def act(context: WalkContext, block: Block, item: UndoItem | None = None) -> Turn[None]:
    """Run one changing block; of a change with `each`, the next row."""
    key = item.key if item is not None else ""
    block_state = context.state.blocks[block.id]
    going_on = block_state.row > 0 and not key
    # `when` and `done` of an action do not apply to its own undo.
    conditions_apply = item is None or item.key == block.id
    if (
        conditions_apply
        and not going_on
        and not block_state.confirmed
        and not (yield from should_run(context, block, key))
    ):
        return
    covering = None if key else covering_confirm(context.plan, block)
    if covering is not None and context.state.blocks[covering.id].status != "ok":
        yield from skip(context, block, f"its confirmation {covering.id} was skipped")
        return
    rows: tuple[dict[str, Any], ...] | None = None
    if not key and (preview := bound_preview(context.plan, block)) is not None:
        rows = context.state.blocks[preview.id].rows
        if not rows:
            why = "the preview returned no rows" if rows is not None else "its preview did not run"
            yield from skip(context, block, f"nothing to act on: {why}")
            return
        if acts_on_preview(context.plan, block) is not None and not (rows := context.state.blocks[preview.id].chosen):
            yield from none_chosen(context, block, preview)
            return
    if (
        block.kind == "action"
        and not key
        and block_state.action_preview is None
        and not (yield from _preview_action(context, block))
    ):
        return
    if not (yield from _confirmed(context, block, item, rows)):
        return
    yield from _execute(context, block, item, rows)


def _preview_action(context: WalkContext, block: Block) -> Turn[bool]:
    """Preview an action before its confirmation. Return False if it will not be executed."""
    result = yield from context.read_block(block, "preview")
    preview = result.action_preview
    if preview is None or preview.refusal:
        refusal, hint = (result.error, None) if preview is None else (preview.refusal, preview.hint)
        note = f"refused: {refusal}" + (f" ({hint})" if hint else "")
        yield from fail(context, block, note, machine_s=result.machine_s)
        return False
    if preview.done:
        reason = f"done by {preview.by}" if preview.by else "already done"
        yield from skip(context, block, f"{reason}: {preview.text}")
        return False
    fields = {"action_preview": to_builtins(preview), "machine_s": result.machine_s}
    yield from context.write("block.seen", f"{block.id}: {preview.text}", block=block, state="previewed", **fields)
    return True


def _count(context: WalkContext, block: Block, rows: tuple[dict[str, Any], ...] | None) -> int | None:
    """Return the number of affected objects; an action counts them in its preview."""
    block_state = context.state.blocks[block.id]
    if block_state.action_preview is not None and block_state.action_preview.count is not None:
        return block_state.action_preview.count
    return len(rows) - (block_state.row if runs_per_row(block) else 0) if rows is not None else None


def _confirmed(
    context: WalkContext, block: Block, item: UndoItem | None, rows: tuple[dict[str, Any], ...] | None
) -> Turn[bool]:
    confirmation = block.confirm
    if item is not None and (confirmation is None or confirmation.text in ("count", "name")):
        confirmation = UNDO_CONFIRMATION  # the count or name belonged to the execution that is reverted
    if confirmation is None or context.state.blocks[block.id].confirmed:
        return True
    if item is not None and context.plan.reverts:
        return True
    count = _count(context, block, rows)
    return (yield from confirm(context, block, confirmation, count=count, item=item.key if item is not None else ""))


def none_chosen(context: WalkContext, block: Block, preview: Block) -> Turn[None]:
    """Skip a block because none of its rows is chosen. Ask first if rows can still be chosen."""
    if (
        confirmed_preview(context.plan, context.state, block) == preview
        and not context.state.blocks[block.id].confirmed
    ):
        count = len(context.state.blocks[preview.id].rows or ())
        none = f"none of {count} rows is" if count != 1 else "its only row is not"
        text = f"{_act_text(context, block)}: {none} chosen, nothing to do"
        answer, _, _ = yield from context.choose("choose", text, (NONE,), block=block, rows=preview.id)
        record_text = f"{block.id}: skipped by {answer.who}"
        yield from context.answered("choose", answer, record_text, block=block, answer=NONE.key)
    yield from skip(context, block, f"nothing to act on: no row of {preview.id} is chosen")


def confirm(
    context: WalkContext, block: Block, confirmation: Confirmation, *, count: int | None = None, item: str = ""
) -> Turn[bool]:
    """Ask until the block is confirmed or declined."""
    shown = context.state.blocks[block.id].action_preview
    name = "" if shown is None else shown.name
    expects = expected(confirmation, context.state, count, name)
    if not expects:
        yield from fail(context, block, "the text to type for its confirmation is unknown", item)
        return False
    preview = confirmed_preview(context.plan, context.state, block) if not item else None
    step, _ = context.plan.block(block.id)
    final = "Point of no return. " if step.point_of_no_return and not item else ""
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
            yield from context.reject("a second operator must confirm it")
            continue
        confirmed_by = f"{answer.who} and {answer.second}" if answer.second else answer.who
        record_text = f"{block.id}: {'confirmed' if yes else 'declined'} by {confirmed_by}"
        state = "" if yes else "declined"
        # What was typed is the expected text, or no: safe to record.
        yield from context.answered(
            confirmation.level, answer, record_text, block=block, state=state, answer=answer.text.strip(), item=item
        )
        return yes


def _undo_text(context: WalkContext, block: Block) -> str:
    """Return what is reverted: the step, and the block if the step has several."""
    step, _ = context.plan.block(block.id)
    several = len(undo_items(context.state, step)) > 1
    return f"Revert: {step.title}" + (f" ({block.title or block.id})" if several else "")


def _continuation_text(context: WalkContext, block: Block) -> str:
    """Return what a `confirm` asks for in the middle of its step; empty at the start of the step."""
    step, _ = context.plan.block(block.id)
    if block.kind != "confirm" or block not in step.blocks:
        return ""
    covered = [one for one in step.blocks[step.blocks.index(block) + 1 :] if one.kind in ACTING_KINDS]
    remaining = [one for one in covered if context.state.blocks[one.id].status == "pending"]
    if not remaining or len(remaining) == len(covered):
        return ""
    return f"Continue “{step.title}” with: {remaining[0].title or remaining[0].id}"


def _act_text(context: WalkContext, block: Block) -> str:
    """Return what would be done: from the action's preview if there is one, else from the author's text."""
    step, _ = context.plan.block(block.id)
    preview = context.state.blocks[block.id].action_preview
    return str((preview and preview.text) or block.title or block.settings.get("text") or step.title)


def _execute(
    context: WalkContext, block: Block, item: UndoItem | None, rows: tuple[dict[str, Any], ...] | None
) -> Turn[None]:
    block_state = context.state.blocks[block.id]
    fields: dict[str, Any] = {"params": parameters(context.state, block)}
    if block_state.action_preview is not None:
        fields["action_preview"] = to_builtins(block_state.action_preview)
    if item is not None:
        fields |= {"item": item.key}
    elif rows is not None and runs_per_row(block):
        fields |= {"row": rows[block_state.row], "row_index": block_state.row, "row_count": len(rows)}
    elif rows is not None:
        fields |= {"rows": rows}
    if block_state.row:
        # Between two rows this is the only place where an interrupt is received.
        yield from context.pause(0.0)
    undo_of = item.undo_of if item is not None else None
    if block.language == "sql":
        fields["statement"] = statement_shown(context.state, block, to_builtins(fields), undo_of)
    number = block_state.executions + 1
    intent = yield from context.write(
        "block.intent", f"{block.id}: {_row_text(fields)}intent recorded", block=block, execution=number, **fields
    )
    reply = yield ExecuteRequest(block=block, execution=number, intent=intent, undo_of=undo_of)
    yield from _record_end(context, "block.result", block, number, outcome_of(reply), intent)


def outcome_of(reply: object) -> Outcome:
    """Return the reply to an execution. Raises TypeError for any other type, a bug in the caller."""
    if not isinstance(reply, Outcome):
        raise TypeError(f"the walk received {type(reply).__name__}, not Outcome")
    return reply


def _row_text(intent: Mapping[str, Any]) -> str:
    """Return the row of an execution, of a change with `each`."""
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
    # A program may exit with success although it reported errors.
    outcome_text: str = "ended with errors" if outcome.state == "ok" and outcome.values.get("errors") else outcome.state
    if outcome.again:
        outcome_text = "not finished, will continue"
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
        **({} if outcome.table is None else {"table": to_builtins(outcome.table)}),
        **more,
    )


def settle(context: WalkContext, execution: Execution) -> Turn[None]:
    """Settle an execution with an unknown outcome: by evidence, else by the operator's answer with a reason."""
    _, block = context.plan.block(execution.block)
    context.state.current = block.id
    outcome = outcome_of((yield SettleRequest(block=block, execution=execution.number, intent=execution.intent)))
    if outcome.state == "unknown" and block.done is not None and not execution.item:
        result = yield from context.read_block(block, "done", block.done)
        if result.holds and not result.error:
            evidence = f"done: {result.text or block.done.text}"
            outcome = Outcome(state="ok", text="its effect is present", evidence=evidence, machine_s=result.machine_s)
    if execution.state == "unknown":
        # The agent was alive when it failed, so it may fail again: the operator decides.
        outcome = msgspec.structs.replace(outcome, again=False)
    if outcome.state != "unknown":
        yield from _record_end(context, "block.settled", block, execution.number, outcome, execution.intent)
        return
    if execution.state != "unknown":
        yield from _record_end(context, "block.settled", block, execution.number, outcome, execution.intent)
    yield from _ask_outcome(context, block, execution, outcome)


def _ask_outcome(context: WalkContext, block: Block, execution: Execution, outcome: Outcome) -> Turn[None]:
    text = f"{block.id}: outcome of execution {execution.number} unknown: {outcome.text}. What happened?"
    answer, option, reason = yield from context.choose("settle", text, SETTLING, block=block)
    record_text = f"{block.id}: {answer.who} answered {option.key}" + (f": {reason}" if reason else "")
    yield from context.answered("settle", answer, record_text, block=block, answer=option.key, reason=reason)
    if option.key == "abort":
        yield from abort_run(context, "failed", reason or f"the outcome of {block.id} is unknown", answer.who)
    elif option.key in ("ok", "failed"):
        settled = Outcome(
            state="ok" if option.key == "ok" else "failed", text=reason, evidence=f"reported by {answer.who}"
        )
        yield from _record_end(
            context, "block.settled", block, execution.number, settled, execution.intent, who=answer.who
        )
