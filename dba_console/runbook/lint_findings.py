"""Whether the findings a runbook names are raised by any rule."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dba_console.findings.registry import RULES
from dba_console.plans.plan import BlockCondition, Plan
from dba_console.runbook.problems import Problem, suggest

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
