"""Lint rules of runbooks: what a plan must satisfy before it may run. Each rule comes from a real accident.

A rule is a function that yields problems. Its docstring says what it refuses and why; docs/runbook-format.md prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from dba_console.core.decoding import convert
from dba_console.recording.plan import ACTING_KINDS, Block, BlockCondition, Plan, Step
from dba_console.runbooks import lint_code
from dba_console.runbooks.code_references import settings_references
from dba_console.runbooks.preview_rows import bound_preview
from dba_console.runbooks.problems import Problem, suggest
from dba_console.runbooks.row_choice import has_act
from dba_console.runbooks.values import WHOLE
from dba_console.watch.findings.rule_engine import RULES

# Rules for blocks that change something.


def unconfirmed(plan: Plan) -> Iterator[Problem]:
    """A block that changes something needs a confirmation: `confirm=…` on it, or a block `confirm` before it in its
    step. A command that only reads declares it with `role=monitor`."""
    for step in plan.steps:
        confirmed = False
        for block in step.blocks:
            confirmed = confirmed or (block.kind == "confirm" and block.confirm is not None)
            if block.kind == "confirm" and block.confirm is None:
                yield Problem(line=block.line, text="the confirmation has no level",
                              hint="as in {confirm yes} or {confirm type:target}")  # fmt: skip
            if block.kind in ACTING_KINDS and block.confirm is None and not confirmed and not _reads(block):
                yield Problem(line=block.line, text=f"the {block.kind} makes a change without a confirmation",
                              hint="confirm=ack, confirm=yes or confirm=type:target"
                              + ("; role=monitor if it only reads" if block.kind == "run" else ""))  # fmt: skip


def nothing_to_count(plan: Plan) -> Iterator[Problem]:
    """`type:count` asks for the number of affected rows, which only a preview gives. `type:name` is for actions, which
    know the name of their object."""
    for _, block in plan.blocks():
        if block.confirm is None or block.confirm.text not in ("count", "name") or block.kind == "action":
            continue
        if block.confirm.text == "name":
            yield Problem(line=block.line, text=f"confirm=type:name needs an action, not a {block.kind}",
                          hint="confirm=type:count or confirm=type:target")  # fmt: skip
            continue
        if block.kind != "change" or bound_preview(plan, block) is None:
            yield Problem(line=block.line, text="confirm=type:count needs a preview to count",
                          hint="put a preview before it in the step, or write confirm=type:target")  # fmt: skip


def undo_past_no_return(plan: Plan) -> Iterator[Problem]:
    """A step cannot be a point of no return and have an undo: the two contradict each other."""
    for step in plan.steps:
        if step.point_of_no_return and step.undo:
            yield Problem(line=step.undo[0].line, text=f"step {step.id} is a point of no return and has an undo",
                          hint="leave one of them out")  # fmt: skip


def half_an_undo(plan: Plan) -> Iterator[Problem]:
    """After a step with an undo, each later step that makes a change needs an undo, `undo=none`, or must be a point of
    no return. Otherwise a run would offer to revert the first step alone: a fenced primary would be released while the
    promoted standby is already primary."""
    first: Step | None = None
    for step in plan.steps:
        if step.point_of_no_return:
            first = None
            continue
        open_acts = [block for block in step.blocks if _leaves_something(block)] if not step.undo else []
        if first is not None and open_acts:
            yield Problem(
                line=open_acts[0].line,
                text=f"step {step.id} has no undo, but the earlier step {first.id} has: it could be reverted alone",
                hint="add a block {undo}, undo=none on the block, or {point_of_no_return} after the heading",
            )
        if first is None and step.undo:
            first = step


def read_only_role(plan: Plan) -> Iterator[Problem]:
    """`role=monitor` is a read-only connection: no change can use it."""
    for _, block in plan.blocks():
        if block.role == "monitor" and block.kind in ("change", "action", "undo"):
            yield Problem(line=block.line, text=f"role=monitor is read-only, but the {block.kind} makes a change",
                          hint="remove role")  # fmt: skip


def preview_unused(plan: Plan) -> Iterator[Problem]:
    """A change that uses `of`, `%(rows)s` or `each` needs a preview before it, which reads one database only."""
    for _, block in plan.blocks():
        if block.kind != "change":
            continue
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


def chosen_rows(plan: Plan) -> Iterator[Problem]:
    """`chosen=COLUMN` names a column of the preview's rows that preselects the rows to act on. A change or an action
    must use these rows."""
    for _, block in plan.blocks():
        column = block.settings.get("chosen") if block.kind == "preview" else None
        if column is None:
            continue
        if not re.search(rf"\b{re.escape(column)}\b", block.body):
            yield Problem(line=block.line, text=f"chosen={column}, but the query has no column of that name",
                          hint=f"add … as {column}, true for the preselected rows")  # fmt: skip
        if not has_act(plan, block):
            yield Problem(line=block.line, text=f"chosen={column}, but nothing uses the rows",
                          hint="add a change after it in its step, or an action with rows = \"%(NAME)s\"")  # fmt: skip


def no_such_action(plan: Plan, actions: Mapping[str, Any]) -> Iterator[Problem]:
    """An action must exist, and its settings must match its declaration."""
    for _, block in plan.blocks():
        if block.kind != "action" or block.action is None:
            continue
        action = actions.get(block.action)
        if action is None:
            yield Problem(line=block.line, text=f"unknown action {block.action!r}",
                          hint=suggest(block.action, actions, what="available:"), rule="action")  # fmt: skip
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
    # The value of a reference is known only when the action runs.
    if set(block.settings) <= set(fields) and not list(settings_references(block.settings)):
        try:
            convert(block.settings, settings)
        except msgspec.ValidationError as error:
            if "missing required field" not in str(error):
                yield Problem(line=block.line, text=f"action {block.action}: {error}", rule="action")


def _reads(block: Block) -> bool:
    return block.kind == "run" and block.role == "monitor"


def _leaves_something(block: Block) -> bool:
    """Return whether a block leaves a change behind. An action reverts itself where it can; see its documentation."""
    return block.kind in ("change", "run") and block.undo != "none" and not _reads(block)


# Rules for control flow: waits and repetitions must end, decisions must lead to an existing later step.

WORDS = ("next", "end")
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")


def unbounded_wait(plan: Plan) -> Iterator[Problem]:
    """A wait for a condition needs a timeout. When it is reached, the operator is asked; nothing is decided
    automatically."""
    for _, block in plan.blocks():
        if block.kind != "wait":
            continue
        settings = block.settings
        if "until" in settings and "timeout_s" not in settings and block.timeout_s is None:
            yield Problem(line=block.line, text="the wait has no timeout, and its condition may never hold",
                          hint='timeout = "10m"; the operator is then asked whether to wait longer')  # fmt: skip
        if not {"until", "hold_for_s", "until_time"} & set(settings):
            yield Problem(line=block.line, text="the wait has no condition, duration or time",
                          hint='until = "an expression", hold_for = "10m", or until_time = "03:30"')  # fmt: skip
        if "until_time" in settings and not _is_time(str(settings["until_time"])):
            yield Problem(line=block.line, text=f"{settings['until_time']!r} is not a time",
                          hint="03:30, or 2026-11-22T03:30:00Z")  # fmt: skip


def _is_time(text: str) -> bool:
    if WHOLE.fullmatch(text) or _CLOCK.fullmatch(text):
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def endless_repeat(plan: Plan) -> Iterator[Problem]:
    """A repetition must end: after a number of rounds, when a condition fails, or on the operator's answer."""
    for step in plan.steps:
        for block in step.blocks:
            if block.kind != "repeat":
                continue
            if not {"times", "while", "ask"} & set(block.settings):
                yield Problem(line=block.line, text="the repetition has no end",
                              hint='times = 10, while = "an expression", or ask = true')  # fmt: skip
            origin = block.settings.get("from", step.id)
            order = [one.id for one in plan.steps]
            if origin not in order:
                yield Problem(line=block.line, text=f"there is no step {origin!r} to repeat from",
                              hint=suggest(str(origin), order, what="available:"))  # fmt: skip
            elif order.index(origin) > order.index(step.id):
                yield Problem(line=block.line, text=f"step {origin!r} comes later; a repetition can only go back")


def no_such_step(plan: Plan) -> Iterator[Problem]:
    """Decisions and `then` must lead to a later step, to `next` or to `end`."""
    order = [step.id for step in plan.steps]
    for at, step in enumerate(plan.steps):
        targets = [(step.line, step.then)] if step.then is not None and step.then != "end" else []
        for block in step.blocks:
            if block.kind == "choose":
                options = block.settings.get("options", [])
                targets += [(block.line, one["goto"]) for one in options if one["goto"] not in WORDS]
                keys = [one["key"] for one in options]
                if len(set(keys)) != len(keys):
                    yield Problem(line=block.line, text="two options have the same key")
        for line, target in targets:
            if target not in order:
                yield Problem(line=line, text=f"there is no step {target!r}",
                              hint=suggest(str(target), order[at + 1 :], what="later steps:"))  # fmt: skip
            elif order.index(target) <= at:
                yield Problem(line=line, text=f"step {target!r} does not come later",
                              hint="decisions only lead forward; use a block repeat to go back")  # fmt: skip


def unreached(plan: Plan) -> Iterator[Problem]:
    """A branch that no decision leads to would never run."""
    reached = {
        option["goto"]
        for _, block in plan.blocks() if block.kind == "choose"
        for option in block.settings.get("options", [])
    }  # fmt: skip
    reached.update(step.then for step in plan.steps if step.then)
    for step in plan.steps:
        if step.branch and step.id not in reached:
            yield Problem(line=step.line, text=f"no decision leads to the branch {step.id!r}",
                          hint="add an option with goto, or remove {branch}")  # fmt: skip


def empty_step(plan: Plan) -> Iterator[Problem]:
    """A step needs a block that runs. Text alone belongs under the title or into a step with blocks."""
    for step in plan.steps:
        if not step.blocks:
            yield Problem(line=step.line, text=f"step {step.id} has no block",
                          hint="`toml {manual}` for a manual step; headings of level three for text")  # fmt: skip


# Rules for the findings that a runbook names.

_FINDING = re.compile(r"\bfinding\(\s*['\"]([^'\"]*)['\"]\s*\)")


def no_such_finding(plan: Plan) -> Iterator[Problem]:
    """A finding that no rule raises would never offer the runbook, and would never be open in a check."""
    names = sorted({rule.name for rule in RULES})
    for name in plan.answers:
        if name not in names:
            yield Problem(line=0, text=f"answers: no rule raises the finding {name!r}",
                          hint=suggest(name, names) or "`dba-console findings rules` lists them")  # fmt: skip
    for _, block in plan.blocks():
        texts = [test.text for test in (block.when, block.done) if test is not None and test.language == "expr"]
        texts += [
            BlockCondition(**one).text
            for name in ("until", "while")
            if isinstance(one := block.settings.get(name), dict)
        ]
        texts += [block.body] if block.language == "expr" else []
        for text in texts:
            for match in _FINDING.finditer(text):
                name = match[1].partition(":")[0]
                if name not in names:
                    yield Problem(line=block.line, text=f"no rule raises the finding {match[1]!r}",
                                  hint=suggest(name, names) or "`dba-console findings rules` lists them")  # fmt: skip


Rule = Callable[[Plan], Iterator[Problem]]

LINT_RULES: Mapping[str, Rule] = {
    "masked-error": lint_code.masked_error,
    "pipefail": lint_code.pipefail,
    "guessed-file": lint_code.guessed_file,
    "pasted-value": lint_code.pasted_value,
    "pasted-sql": lint_code.pasted_sql_value,
    "unbound-command": lint_code.unbound_command,
    "writing-check": lint_code.writing_check,
    "no-schema": lint_code.no_schema,
    "several-statements": lint_code.several_statements,
    "own-transaction": lint_code.own_transaction,
    "unconfirmed": unconfirmed,
    "nothing-to-count": nothing_to_count,
    "undo-past-no-return": undo_past_no_return,
    "half-an-undo": half_an_undo,
    "guarded-by-nothing": read_only_role,
    "preview-unused": preview_unused,
    "chosen-rows": chosen_rows,
    "unbounded-wait": unbounded_wait,
    "endless-repeat": endless_repeat,
    "no-such-step": no_such_step,
    "unreached": unreached,
    "empty-step": empty_step,
    "no-such-finding": no_such_finding,
}
"""Name -> rule. `action` is the rule that needs the list of actions and is called separately."""


MOST = 100
"""Maximum problems reported per rule: finding the line of each is a search."""


def lint(plan: Plan, actions: Mapping[str, Any] | None, lines: Mapping[str, int]) -> Iterator[Problem]:
    """Yield the problems that the rules find in a plan. `lines`: line of each key of its head."""
    for name, rule in LINT_RULES.items():
        for problem in islice(rule(plan), MOST):
            line = problem.line or lines.get("answers", 1)
            yield Problem(line=line, text=problem.text, hint=problem.hint, rule=name)
    if actions is not None:
        yield from no_such_action(plan, actions)
