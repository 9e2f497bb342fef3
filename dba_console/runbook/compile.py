"""A document becomes a plan: read, checked and normalised. What keeps it from being one is told all at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dba_console.errors import RunbookError
from dba_console.path_trust import trust_problem
from dba_console.plans.plan import Block, Plan, Step
from dba_console.runbook.blocks import block_of, lines_of, toml_of
from dba_console.runbook.headings import RunbookHead, head_of
from dba_console.runbook.lint import lint
from dba_console.runbook.name_resolution import resolve_names
from dba_console.runbook.parse import LONGEST, Document, Fence, Section, parse
from dba_console.runbook.problems import Problem, Problems, suggest
from dba_console.runbook.schema import ALIASES, RUNNABLE, STEP
from dba_console.runbook.value_readers import read_value

SOURCES = "sources"
"""Id of the last section's heading, where it is no step."""
LEADING_ENDS = frozenset({"change", "run", "action", "wait", "choose", "manual", "input", "repeat"})
"""A check after one of these looks at what they made of the world."""

FOLLOWING = frozenset({"empty-step", "undeclared", "unused-input", "nothing-to-count", "preview-unused"})
"""Rules that miss what an unreadable block may have been."""


class CheckResult(Struct, frozen=True):
    """What came of a document: a plan, or problems; or both, where the plan could be made all the same."""

    plan: Plan | None
    """None where there are problems."""
    problems: tuple[Problem, ...] = ()
    title: str = ""
    id: str = ""
    answers: tuple[str, ...] = ()


def compile_text(text: str, source: str, actions: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a document. Raises RunbookError: the first problem with its line, and how many there are.

    `actions` are those that exist, by name; None: their names and settings are not checked.
    """
    checked = check_text(text, source, actions)
    if checked.plan is not None:
        return checked.plan
    first, more = checked.problems[0], len(checked.problems) - 1
    hint = first.hint
    if more:
        hint = (f"{hint}; " if hint else "") + f"{more} more: `dba-console runbook lint` names them"
    raise RunbookError(f"{source}:{first.line}: {first.text}", hint=hint or None)


def check_text(text: str, source: str, actions: Mapping[str, Any] | None = None) -> CheckResult:
    """Everything that is wrong with a document, or its plan. Never raises."""
    if len(text) > LONGEST:
        return CheckResult(None, (Problem(line=1, text=f"the document has more than {LONGEST} characters"),))
    try:
        return _checked(text, source, actions)
    except (RecursionError, MemoryError):
        return CheckResult(None, (Problem(line=1, text="the document is nested too deeply to be read"),))


def _checked(text: str, source: str, actions: Mapping[str, Any] | None) -> CheckResult:
    document = parse(text)
    problems = Problems()
    problems.extend(document.problems)
    head = _head(document, problems)
    sources = _sources(document)
    steps = _steps(document.sections if sources is None else document.sections[:-1], document.title_line, problems)
    plan = Plan(
        id=head.id,
        title=document.title,
        prose=document.head.prose,
        answers=head.answers,
        needs=head.needs,
        strict=head.strict,
        reverts=head.reverts,
        tag=head.tag,
        versions=(head.min_version, head.max_version),
        inputs=head.inputs,
        steps=steps,
        sources="" if sources is None else sources.prose,
        source=source,
        sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    plan = _leading(resolve_names(plan, problems, head.lines))
    problems.extend(lint(plan, actions, head.lines))
    found = _without_follow_ups(problems.sorted())
    return CheckResult(None if found else plan, found, document.title, head.id, head.answers)


def _without_follow_ups(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Without those that may be there only because a block could not be read."""
    if all(problem.rule for problem in problems):
        return problems
    return tuple(problem for problem in problems if problem.rule not in FOLLOWING)


def read_document(path: Path, *, shipped: bool = False) -> str:
    """The text of a runbook's file. Raises RunbookError naming it, also where others may have written it: what it says
    is done with our rights. One that is `shipped` is as trusted as this program."""
    if not shipped and path.exists() and (why := trust_problem(path)) is not None:
        raise RunbookError(f"{path} is not used: {why.text}", hint=f"`{why.fix}`")
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise RunbookError(f"{path} is no runbook: it has more than {LONGEST} bytes")
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise RunbookError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise RunbookError(f"cannot read {path}: {error.strerror}") from error


def _head(document: Document, problems: Problems) -> RunbookHead:
    heads = [fence for fence in _runnable(document.head, problems, head=True) if _word(fence) == "runbook"]
    for section in document.sections:
        for fence in section.fences:
            if _word(fence) == "runbook":
                problems.add(fence.line, "the runbook's head stands within a step", "move it under the title")
    for fence in heads[1:]:
        problems.add(fence.line, "the runbook has a second head", "one block toml {runbook} under the title")
    if not heads:
        problems.add(document.title_line, "the runbook has no head",
                     "a block ```toml {runbook} with id = \"…\" under the title")  # fmt: skip
        return RunbookHead()
    fence = heads[0]
    words = [*(fence.braces.words[1:] if fence.braces else ()), *(fence.braces.values if fence.braces else ())]
    if fence.language != "toml" or words:
        problems.add(fence.line, "the runbook's head is written as toml {runbook}, without attributes")
        return RunbookHead()
    return head_of(toml_of(fence, problems), lines_of(fence), problems)


def _runnable(section: Section, problems: Problems, *, head: bool = False) -> list[Fence]:
    """The fences of a section that are blocks. In a step, one that only looks like a block is a problem."""
    found = []
    for fence in section.fences:
        if fence.braces is None:
            if fence.language.lower() in RUNNABLE and not head:
                language = ALIASES.get(fence.language.lower(), fence.language.lower())
                problems.add(
                    fence.line,
                    f"this {fence.language} block has no braces and would not run",
                    f"`{language} {{run}}`, say, or `{language} {{example}}` if it is only shown"
                    if language == "sh" else f"give it a kind, or write {{example}} after {fence.language}",
                    "no-braces",
                )  # fmt: skip
        elif _word(fence) == "example":
            continue
        elif head and _word(fence) != "runbook":
            problems.add(fence.line, "this block belongs to no step", "put it under a heading of level two")
        else:
            found.append(fence)
    return found


def _word(fence: Fence) -> str:
    return fence.braces.words[0] if fence.braces and fence.braces.words else ""


def _sources(document: Document) -> Section | None:
    """The last section, where it only says what the document is based on: it is no step, and nothing is done in it."""
    last = document.sections[-1] if document.sections else None
    if last is None or last.slug != SOURCES or any(fence.braces is not None for fence in last.fences):
        return None
    return last


def _steps(sections: Sequence[Section], title_line: int, problems: Problems) -> tuple[Step, ...]:
    steps: list[Step] = []
    counts: dict[str, int] = {}
    for section in sections:
        if not section.slug:
            problems.add(section.line, "the heading gives no id", "write a letter or a digit in it")
            continue
        if section.slug in counts:
            problems.add(section.line, f"a second step has the id {section.slug!r}: line {counts[section.slug]}",
                         "ids come from headings; call one of them otherwise")  # fmt: skip
            continue
        if section.slug == "end" or section.slug == "next":
            problems.add(section.line, f"a step cannot be called {section.slug!r}", "decisions use that word")
        counts[section.slug] = section.line
        steps.append(_step(section, problems))
    if not steps:
        problems.add(title_line, "the runbook has no step", "a heading of level two begins one: `## …`")
    return tuple(steps)


def _step(section: Section, problems: Problems) -> Step:
    values = _step_attributes(section, problems)
    counts: dict[str, int] = {}

    def block_id(kind: str, name: str) -> str:
        base_name = name or kind
        counts[base_name] = counts.get(base_name, 0) + 1
        if name and counts[base_name] > 1:
            problems.add(section.line, f"two blocks of step {section.slug} are called #{name}")
        return f"{section.slug}/{base_name}" + (f"-{counts[base_name]}" if counts[base_name] > 1 else "")

    blocks: list[Block] = []
    undo: list[Block] = []
    for fence in _runnable(section, problems):
        if _word(fence) == "runbook":
            continue
        block = block_of(fence, block_id, problems)
        if block is not None:
            (undo if block.kind == "undo" else blocks).append(block)
    return Step(
        id=section.slug,
        title=section.title,
        line=section.line,
        prose=section.prose,
        blocks=tuple(blocks),
        undo=tuple(undo),
        **values,
    )


def _step_attributes(section: Section, problems: Problems) -> dict[str, Any]:
    keys = {key.name: key for key in STEP}
    values_given: dict[str, Any] = {**section.braces.values, **dict.fromkeys(section.braces.words, True)}
    if section.braces.name:
        problems.add(section.line, f"#{section.braces.name}: a step is called by its heading",
                     f"its id is {section.slug}")  # fmt: skip
    values: dict[str, Any] = {}
    for name, value in values_given.items():
        if name not in keys:
            problems.add(section.line, f"a step has no attribute {name!r}", suggest(name, keys, what="it can have"))
            continue
        read = read_value(keys[name], value, section.line, problems)
        if read is not None:
            values[name] = read
    return values


def _leading(plan: Plan) -> Plan:
    """The plan with those checks marked that are asked before the start: they depend on nothing done before them."""
    results = {block.name for _, block in plan.blocks() if block.name}
    steps = []
    leading = True
    for step in plan.steps:
        blocks = []
        for block in step.blocks:
            leading = leading and block.kind not in LEADING_ENDS and not step.branch
            now = leading and block.kind == "check" and not results.intersection(block.uses)
            blocks.append(replace(block, leading=True) if now else block)
        steps.append(replace(step, blocks=tuple(blocks)))
    return replace(plan, steps=tuple(steps))
