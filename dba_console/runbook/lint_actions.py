"""What has to be said of blocks that change something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dba_console.decoding import convert
from dba_console.plans.plan import ACTING_KINDS, Block, Plan, Step
from dba_console.runbook.code_references import settings_references
from dba_console.runbook.preview_rows import bound_preview
from dba_console.runbook.problems import Problem, suggest
from dba_console.runbook.row_choice import has_act


def unconfirmed(plan: Plan) -> Iterator[Problem]:
    """What changes something needs a person's word: `confirm=…` on it, or a block `confirm` before it in its step. A
    command that only reads says so with `role=monitor`."""
    for step in plan.steps:
        confirmed = False
        for block in step.blocks:
            confirmed = confirmed or (block.kind == "confirm" and block.confirm is not None)
            if block.kind == "confirm" and block.confirm is None:
                yield Problem(line=block.line, text="the confirmation has no level",
                              hint="as in {confirm yes} or {confirm type:target}")  # fmt: skip
            if block.kind in ACTING_KINDS and block.confirm is None and not confirmed and not _reads(block):
                yield Problem(line=block.line, text=f"the {block.kind} changes something without a confirmation",
                              hint="confirm=ack, confirm=yes or confirm=type:target"
                              + ("; role=monitor if it only reads" if block.kind == "run" else ""))  # fmt: skip


def nothing_to_count(plan: Plan) -> Iterator[Problem]:
    """`type:count` asks for the number of rows that will be acted on; without a preview there is none. `type:name` is
    for actions, which know what their thing is called."""
    for _, block in plan.blocks():
        if block.confirm is None or block.confirm.text not in ("count", "name") or block.kind == "action":
            continue
        if block.confirm.text == "name":
            yield Problem(line=block.line, text=f"confirm=type:name, and the {block.kind} has nothing with a name",
                          hint="confirm=type:count or confirm=type:target; an action may ask for a name")  # fmt: skip
            continue
        if block.kind != "change" or bound_preview(plan, block) is None:
            yield Problem(line=block.line, text="confirm=type:count, and nothing is counted",
                          hint="a preview before it in the step, or confirm=type:target")  # fmt: skip


def undo_past_no_return(plan: Plan) -> Iterator[Problem]:
    """A step that cannot be taken back has no undo: one of the two is not true."""
    for step in plan.steps:
        if step.point_of_no_return and step.undo:
            yield Problem(line=step.undo[0].line, text=f"step {step.id} is a point of no return and has an undo",
                          hint="leave one of them out")  # fmt: skip


def half_an_undo(plan: Plan) -> Iterator[Problem]:
    """Once a step can be taken back, each later one that changes something says how it is, or that nothing of it has to
    be, or is a point of no return. Else taking back the first alone is offered: a fenced primary let loose again
    beside the one that was promoted."""
    first: Step | None = None
    for step in plan.steps:
        if step.point_of_no_return:
            first = None
            continue
        open_acts = [block for block in step.blocks if _leaves_something(block)] if not step.undo else []
        if first is not None and open_acts:
            yield Problem(
                line=open_acts[0].line,
                text=f"nothing takes back step {step.id}, and step {first.id} before it can be taken back alone",
                hint="a block {undo}, undo=none on it, or {point_of_no_return} after the heading",
            )
        if first is None and step.undo:
            first = step


def read_only_role(plan: Plan) -> Iterator[Problem]:
    """`role=monitor` is a connection that can only read: no change goes over it."""
    for _, block in plan.blocks():
        if block.role == "monitor" and block.kind in ("change", "action", "undo"):
            yield Problem(line=block.line, text=f"role=monitor only reads, and the {block.kind} changes something",
                          hint="leave role out")  # fmt: skip


def preview_unused(plan: Plan) -> Iterator[Problem]:
    """The rows of a preview are for a change, an action or a person to decide on. `%(rows)s` and `each` need one."""
    for _, block in plan.blocks():
        if block.kind != "change":
            continue
        preview = bound_preview(plan, block)
        name = block.settings.get("rows_from")
        if preview is None and (name or block.settings.get("each")):
            what = f"there is no preview {name!r}" if name else "there is no preview before it in the step"
            yield Problem(line=block.line, text=f"the change acts on the rows of a preview, and {what}",
                          hint="a block {preview} before it, or of=NAME with preview as=NAME")  # fmt: skip
        elif preview is not None and preview.line > block.line:
            yield Problem(line=block.line, text=f"the preview {name!r} comes after the change that is bound to it")
        elif preview is not None and preview.settings.get("databases"):
            yield Problem(line=block.line, text="its rows are of several databases, and a change runs in one",
                          hint="an action that takes rows with `datname`, as vacuum does")  # fmt: skip


def chosen_rows(plan: Plan) -> Iterator[Problem]:
    """`chosen=COLUMN` names a column of the preview's rows, and says on which of them an act works at first: without an
    act that is bound to them it would choose nothing."""
    for _, block in plan.blocks():
        column = block.settings.get("chosen") if block.kind == "preview" else None
        if column is None:
            continue
        if not re.search(rf"\b{re.escape(column)}\b", block.body):
            yield Problem(line=block.line, text=f"chosen={column}, and the query has no column of that name",
                          hint=f"… as {column}, true for the rows that are chosen at first")  # fmt: skip
        if not has_act(plan, block):
            yield Problem(line=block.line, text=f"chosen={column}, and no act is bound to the rows",
                          hint="a change after it in its step, or an action with rows = \"%(NAME)s\"")  # fmt: skip


def no_such_action(plan: Plan, actions: Mapping[str, Any]) -> Iterator[Problem]:
    """Actions by name, and their settings by their declarations."""
    for _, block in plan.blocks():
        if block.kind != "action" or block.action is None:
            continue
        action = actions.get(block.action)
        if action is None:
            yield Problem(line=block.line, text=f"there is no action {block.action!r}",
                          hint=suggest(block.action, actions, what="there are"), rule="action")  # fmt: skip
            continue
        yield from _settings(block, action.Settings)


def _settings(block: Block, settings: type[msgspec.Struct]) -> Iterator[Problem]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(settings)}
    for name in block.settings:
        if name not in fields:
            yield Problem(line=block.line, text=f"action {block.action} has no setting {name!r}",
                          hint=suggest(name, fields, what="it has"), rule="action")  # fmt: skip
    for name, field in fields.items():
        if field.required and name not in block.settings:
            yield Problem(line=block.line, text=f"action {block.action} needs {name!r}", rule="action")
    # Only when it runs is it known what stands in place of a reference.
    if set(block.settings) <= set(fields) and not list(settings_references(block.settings)):
        try:
            convert(block.settings, settings)
        except msgspec.ValidationError as error:
            if "missing required field" not in str(error):
                yield Problem(line=block.line, text=f"action {block.action}: {error}", rule="action")


def _reads(block: Block) -> bool:
    return block.kind == "run" and block.role == "monitor"


def _leaves_something(block: Block) -> bool:
    """An action takes itself back where it can, and its page says whether; a command and a change do not."""
    return block.kind in ("change", "run") and block.undo != "none" and not _reads(block)
