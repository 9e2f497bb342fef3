"""The rules a plan is held to before it may run, each for something that went wrong somewhere.

A rule is a function that yields problems; its docstring says what it refuses and why, and is printed in the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from dba_console.plans.plan import Plan
from dba_console.runbook import lint_actions, lint_control_flow, lint_findings, lint_shell, lint_sql
from dba_console.runbook.problems import Problem

Rule = Callable[[Plan], Iterator[Problem]]

LINT_RULES: Mapping[str, Rule] = {
    "masked-error": lint_shell.masked_error,
    "pipefail": lint_shell.pipefail,
    "guessed-file": lint_shell.guessed_file,
    "pasted-value": lint_shell.pasted_value,
    "pasted-sql": lint_sql.pasted_sql_value,
    "unbound-command": lint_sql.unbound_command,
    "writing-check": lint_sql.writing_check,
    "no-schema": lint_sql.no_schema,
    "several-statements": lint_sql.several_statements,
    "own-transaction": lint_sql.own_transaction,
    "unconfirmed": lint_actions.unconfirmed,
    "nothing-to-count": lint_actions.nothing_to_count,
    "undo-past-no-return": lint_actions.undo_past_no_return,
    "half-an-undo": lint_actions.half_an_undo,
    "guarded-by-nothing": lint_actions.read_only_role,
    "preview-unused": lint_actions.preview_unused,
    "chosen-rows": lint_actions.chosen_rows,
    "unbounded-wait": lint_control_flow.unbounded_wait,
    "endless-repeat": lint_control_flow.endless_repeat,
    "no-such-step": lint_control_flow.no_such_step,
    "unreached": lint_control_flow.unreached,
    "empty-step": lint_control_flow.empty_step,
    "no-such-finding": lint_findings.no_such_finding,
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
        yield from lint_actions.no_such_action(plan, actions)
