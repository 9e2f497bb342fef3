"""Lint rules of runbooks: what a plan must satisfy before it may run. Each rule comes from a real accident.

A rule is a function that yields problems. Its docstring says what it refuses and why; docs/runbook-format.md prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from dba_console.core.errors import suggest
from dba_console.recording.plan import Block, Plan, Step
from dba_console.runbooks import lint_code
from dba_console.runbooks.block_kind import BlockKind
from dba_console.runbooks.block_kind_registry import KINDS, kind_of
from dba_console.runbooks.preview_rows import bound_preview
from dba_console.runbooks.problems import Problem
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
            if block.changes and block.confirm is None and not confirmed:
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


def _leaves_something(block: Block) -> bool:
    """Return whether a block leaves a change behind. An action reverts itself where it can; see its documentation."""
    return block.kind in ("change", "run") and block.undo != "none" and block.changes


# Rules for control flow: waits and repetitions must end, decisions must lead to an existing later step.

WORDS = ("next", "end")


def no_such_step(plan: Plan) -> Iterator[Problem]:
    """Decisions and `then` must lead to a later step, to `next` or to `end`."""
    order = [step.id for step in plan.steps]
    for at, step in enumerate(plan.steps):
        targets = [(step.line, step.then)] if step.then is not None and step.then != "end" else []
        for block in step.blocks:
            targets += [(block.line, target) for target in kind_of(block).targets(block) if target not in WORDS]
        for line, target in targets:
            if target not in order:
                yield Problem(line=line, text=f"there is no step {target!r}",
                              hint=suggest(str(target), order[at + 1 :], what="later steps:"))  # fmt: skip
            elif order.index(target) <= at:
                yield Problem(line=line, text=f"step {target!r} does not come later",
                              hint="decisions only lead forward; use a block repeat to go back")  # fmt: skip


def unreached(plan: Plan) -> Iterator[Problem]:
    """A branch that no decision leads to would never run."""
    reached = {target for _, block in plan.blocks() for target in kind_of(block).targets(block)}
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
        texts = [test.text for test in block.conditions() if test.language == "expr"]
        texts += [block.body] if block.language == "expr" else []
        for text in texts:
            for match in _FINDING.finditer(text):
                name = match[1].partition(":")[0]
                if name not in names:
                    yield Problem(line=block.line, text=f"no rule raises the finding {match[1]!r}",
                                  hint=suggest(name, names) or "`dba-console findings rules` lists them")  # fmt: skip


Rule = Callable[[Plan], Iterator[Problem]]

PLAN_RULES: Mapping[str, Rule] = {
    "masked-error": lint_code.masked_error,
    "pipefail": lint_code.pipefail,
    "guessed-file": lint_code.guessed_file,
    "pasted-value": lint_code.pasted_value,
    "temporary-file": lint_code.temporary_file,
    "conninfo-name": lint_code.database_as_conninfo,
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
    "no-such-step": no_such_step,
    "unreached": unreached,
    "empty-step": empty_step,
    "no-such-finding": no_such_finding,
}
"""Name -> rule about a whole plan."""
LINT_RULES: Mapping[str, Callable[..., Iterator[Problem]]] = {
    **PLAN_RULES,
    **{kind.rule: kind.lint for kind in KINDS.values() if kind.rule},
}
"""Name -> rule; also those of one kind of block."""


MOST = 100
"""Maximum problems reported per rule: finding the line of each is a search."""


def lint(plan: Plan, actions: Mapping[str, Any] | None, lines: Mapping[str, int]) -> Iterator[Problem]:
    """Yield the problems that the rules find in a plan. `actions`: see `BlockKind.lint`; `lines`: line of each key of
    its head."""
    by_rule = {name: rule(plan) for name, rule in PLAN_RULES.items()}
    by_rule |= {kind.rule: _blocks_problems(plan, kind, actions) for kind in KINDS.values() if kind.rule}
    for name, problems in by_rule.items():
        for problem in islice(problems, MOST):
            yield replace(problem, line=problem.line or lines.get("answers", 1), rule=name)


def _blocks_problems(plan: Plan, kind: BlockKind, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
    for _, block in plan.blocks():
        if block.kind == kind.name:
            yield from kind.lint(plan, block, actions)
