"""Runbooks of the tests, written in a few lines."""

from __future__ import annotations

from dba_console.recording.plan import Block, Plan
from dba_console.runbooks.compile import CheckResult, check_text

HEAD = """# A title

```toml {runbook}
id = "book"
```
"""


def runbook_text(*blocks: str, head: str = "", heading: str = "A step") -> str:
    """A runbook with one step of these fences; `head` are further lines of its head."""
    return HEAD.replace('id = "book"\n', f'id = "book"\n{head}') + f"\n## {heading}\n\n" + "\n\n".join(blocks) + "\n"


def fence(info: str, body: str = "") -> str:
    """A fence of this info string."""
    return f"```{info}\n{body}\n```"


def steps(**bodies: str) -> str:
    """A runbook with a step of each name."""
    return HEAD + "".join(f"\n## {name}\n\n{body}\n" for name, body in bodies.items())


def plan_of(text: str) -> Plan:
    """Its plan; there are no problems."""
    checked = check_text(text, "book.md")
    assert checked.problems == (), [problem.formatted("book.md") for problem in checked.problems]
    assert checked.plan is not None
    return checked.plan


def only_block(text: str) -> Block:
    """The block of a runbook that has one."""
    (_, block), *more = plan_of(text).blocks()
    assert not more
    return block


def problem_lines(text: str) -> list[str]:
    """Every problem as a line: number, sentence, hint."""
    return problem_lines_of(check_text(text, "book.md"))


def problem_lines_of(checked: CheckResult) -> list[str]:
    return [f"{one.line}: {one.text} ({one.hint})" for one in checked.problems]


def refusing_rules(text: str) -> set[str]:
    """Names of the rules that object."""
    return {problem.rule for problem in check_text(text, "book.md").problems}
