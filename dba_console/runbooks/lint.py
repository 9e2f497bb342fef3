"""The rules a plan is held to before it may run, each for something that went wrong somewhere.

A rule is a function that yields problems; its docstring says what it refuses and why, and is printed in the reference.
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

# What has to be said of blocks that change something.


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


# Where a run goes: waits that end, repetitions that end, decisions that lead somewhere.

WORDS = ("next", "end")
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")


def unbounded_wait(plan: Plan) -> Iterator[Problem]:
    """A wait for something has a timeout: it does not decide anything, but it asks."""
    for _, block in plan.blocks():
        if block.kind != "wait":
            continue
        settings = block.settings
        if "until" in settings and "timeout_s" not in settings and block.timeout_s is None:
            yield Problem(line=block.line, text="the wait has no end: what it waits for may never come",
                          hint='timeout = "10m"; then it asks whether to go on waiting')  # fmt: skip
        if not {"until", "hold_for_s", "until_time"} & set(settings):
            yield Problem(line=block.line, text="the wait waits for nothing",
                          hint='until = "an expression", hold_for = "10m", or until_time = "03:30"')  # fmt: skip
        if "until_time" in settings and not _is_time(str(settings["until_time"])):
            yield Problem(line=block.line, text=f"{settings['until_time']!r} is no time",
                          hint="03:30, or 2026-11-22T03:30:00Z")  # fmt: skip


def _is_time(text: str) -> bool:
    if WHOLE.fullmatch(text) or _CLOCK.fullmatch(text):
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def endless_repeat(plan: Plan) -> Iterator[Problem]:
    """A repetition ends: after so many times, when something no longer holds, or because a person says so."""
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
                              hint=suggest(str(origin), order, what="there are"))  # fmt: skip
            elif order.index(origin) > order.index(step.id):
                yield Problem(line=block.line, text=f"step {origin!r} comes later; a repetition goes back")


def no_such_step(plan: Plan) -> Iterator[Problem]:
    """Decisions and `then` lead forward, to a step that is there, to `next` or to `end`."""
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
                              hint=suggest(str(target), order[at + 1 :], what="later steps are"))  # fmt: skip
            elif order.index(target) <= at:
                yield Problem(line=line, text=f"step {target!r} does not come later",
                              hint="decisions lead forward; a block repeat goes back")  # fmt: skip


def unreached(plan: Plan) -> Iterator[Problem]:
    """A branch that no decision leads to is never walked."""
    reached = {
        option["goto"]
        for _, block in plan.blocks() if block.kind == "choose"
        for option in block.settings.get("options", [])
    }  # fmt: skip
    reached.update(step.then for step in plan.steps if step.then)
    for step in plan.steps:
        if step.branch and step.id not in reached:
            yield Problem(line=step.line, text=f"no decision leads to the branch {step.id!r}",
                          hint="an option with goto, or no {branch}")  # fmt: skip


def empty_step(plan: Plan) -> Iterator[Problem]:
    """A step has a block that runs; what is only read stands under the title or in a step that does something."""
    for step in plan.steps:
        if not step.blocks:
            yield Problem(line=step.line, text=f"step {step.id} has no block: nothing would happen in it",
                          hint="`toml {manual}` for what a person does; headings of level three for text")  # fmt: skip


# Whether the findings a runbook names are raised by any rule.

_FINDING = re.compile(r"\bfinding\(\s*['\"]([^'\"]*)['\"]\s*\)")


def no_such_finding(plan: Plan) -> Iterator[Problem]:
    """A finding that no rule raises would never offer the runbook, and never hold in a check."""
    names = sorted({rule.name for rule in RULES})
    for name in plan.answers:
        if name not in names:
            yield Problem(line=0, text=f"no rule raises the finding {name!r} it answers",
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
"""Name -> rule. `action` stands for what needs the actions that exist, and is asked apart."""


MOST = 100
"""Problems of one rule that are named: of more, nobody reads the rest, and each takes a search for its line."""


def lint(plan: Plan, actions: Mapping[str, Any] | None, lines: Mapping[str, int]) -> Iterator[Problem]:
    """What the rules say of a plan; `lines` are those of the keys of its head."""
    for name, rule in LINT_RULES.items():
        for problem in islice(rule(plan), MOST):
            line = problem.line or lines.get("answers", 1)
            yield Problem(line=line, text=problem.text, hint=problem.hint, rule=name)
    if actions is not None:
        yield from no_such_action(plan, actions)
