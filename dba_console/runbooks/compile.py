"""Compile a runbook document into a plan: parse, check, normalise. All problems are reported together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.errors import RunbookError, suggest
from dba_console.core.paths import trust_problem
from dba_console.recording.plan import Block, BlockCondition, Plan, Step
from dba_console.runbooks.block_kind_registry import kind_of
from dba_console.runbooks.blocks import RunbookHead, block_of, head_of, lines_of, read_table, toml_of
from dba_console.runbooks.code_references import (
    phrase_references,
    settings_references,
    shell_references,
    sql_references,
)
from dba_console.runbooks.expr import measure_lines
from dba_console.runbooks.expr_lint import ExpressionNames, read_expression
from dba_console.runbooks.lint import lint
from dba_console.runbooks.parse import LONGEST, Document, Fence, Section, parse
from dba_console.runbooks.preview_rows import bound_preview
from dba_console.runbooks.problems import Problem, Problems
from dba_console.runbooks.schema import ALIASES, RESULT, RUNNABLE, StepAttributes
from dba_console.watch.subjects import PANEL_NAMES

# Resolve the names that blocks use: inputs, results of earlier blocks, fields, steps.


def resolve_names(plan: Plan, problems: Problems, lines: Mapping[str, int]) -> Plan:
    """Return the plan with `uses` of its blocks, panels of its steps, and measurements that repeat earlier ones.

    `lines`: line of each input.
    """
    plan = _compared(plan, problems)
    known: dict[str, str] = {one.name: "input" for one in plan.inputs}
    used: set[str] = set()
    steps: list[Step] = []
    for step in plan.steps:
        panels: list[str] = []
        blocks = tuple(_block(plan, block, known, panels, problems) for block in step.blocks)
        undo = tuple(_block(plan, block, known, panels, problems) for block in step.undo)
        used.update(name for block in (*blocks, *undo) for name in block.uses)
        for panel in step.panels:
            if panel not in PANEL_NAMES:
                problems.add(step.line, f"unknown panel {panel!r}", suggest(panel, PANEL_NAMES))
        before = steps[-1].panels if steps else ()
        steps.append(replace(step, blocks=blocks, undo=undo, panels=step.panels or tuple(panels) or before))
    for one in plan.inputs:
        if one.name not in used:
            problems.add(lines.get(one.name, 1), f"input {one.name} is never used",
                         f"%({one.name})s in SQL, \"$RB_{one.name}\" in a command, {one.name} in an expression",
                         "unused-input")  # fmt: skip
    return replace(plan, steps=tuple(steps))


def _compared(plan: Plan, problems: Problems) -> Plan:
    """Fill in the lines of measurements that name an earlier one with `against` and have no lines."""
    earlier: dict[str, Block] = {}
    steps = []
    for step in plan.steps:
        blocks = []
        for block in step.blocks:
            if block.kind == "measure":
                block = _against(block, earlier, problems)
                if block.name:
                    earlier[block.name] = block
            blocks.append(block)
        steps.append(replace(step, blocks=tuple(blocks)))
    return replace(plan, steps=tuple(steps))


def _against(block: Block, earlier: dict[str, Block], problems: Problems) -> Block:
    name = block.settings.get("against")
    if name is None:
        if not block.body.strip():
            problems.add(block.line, "the measurement is empty", "write a field on each line, or against=NAME")
        return block
    if name not in earlier:
        problems.add(block.line, f"there is no measurement {name!r} before this one",
                     suggest(name, earlier, what="available:") or "the earlier one needs as=NAME")  # fmt: skip
        return block
    if block.body.strip():
        return block
    return replace(block, body=earlier[name].body, language=earlier[name].language)


def _block(plan: Plan, block: Block, known: dict[str, str], panels: list[str], problems: Problems) -> Block:
    """Return the block with the names it uses, and add its own result to `known`."""
    names = list(dict.fromkeys(_names(plan, block, known, panels, problems)))
    if block.name:
        if block.name in known and known[block.name] == "input":
            problems.add(block.line, f"{block.name} is already the name of an input", "use another name for the result")
        known[block.name] = block.kind
    return replace(block, uses=tuple(names))


def _names(plan: Plan, block: Block, known: dict[str, str], panels: list[str], problems: Problems) -> Iterator[str]:
    for test in block.conditions():
        yield from _test_names(test, block, known, panels, problems)
    yield from _phrase_names(plan, block, known, problems)
    if block.language == "sh":
        yield from _shell_names(block, known, problems)
    elif block.language == "expr":
        yield from _expression_names(block, known, panels, problems)
    in_sql = sql_references(block.body) if block.language == "sql" else []
    for name in (*in_sql, *settings_references(block.settings)):
        if name in known:
            yield name
        elif not _is_column(plan, block, name):
            _undeclared(block, name, known, problems)
    if (source := block.settings.get("databases")) is not None:
        if known.get(source) != "preview":
            previews = [name for name, kind in known.items() if kind == "preview"]
            problems.add(block.line, f"there is no preview {source!r} before this one",
                         suggest(source, previews, what="available:") or "the earlier one needs as=NAME")  # fmt: skip
        yield source


def _phrase_names(plan: Plan, block: Block, known: dict[str, str], problems: Problems) -> Iterator[str]:
    """Yield the inputs that a confirmation asks to type: known before the start, not secret, with a value."""
    inputs = {one.name: one for one in plan.inputs}
    for name in phrase_references(block.confirm):
        one = inputs.get(name)
        if one is None and name in known:
            problems.add(block.line, f"the confirmation asks for {name}, which is not an input of the runbook",
                         "declare it under [inputs.…]: it must be known before the start")  # fmt: skip
        elif one is None:
            _undeclared(block, name, known, problems)
        elif one.secret:
            problems.add(block.line, f"the confirmation asks for {name}, which is secret",
                         "the question shows the phrase; ask for another input")  # fmt: skip
        elif one.default is None and not one.required:
            problems.add(block.line, f"the confirmation asks for {name}, which is optional",
                         f"give {name} a default, or remove required = false")  # fmt: skip
        yield name


def _test_names(
    test: BlockCondition, block: Block, known: dict[str, str], panels: list[str], problems: Problems
) -> Iterator[str]:
    if test.language == "sql":
        for name in sql_references(test.text):
            if name not in known:
                _undeclared(block, name, known, problems)
            yield name
        return
    yield from _read(read_expression(test.text, known), block.line, panels, problems)


def _expression_names(block: Block, known: dict[str, str], panels: list[str], problems: Problems) -> Iterator[str]:
    if block.kind != "measure":
        yield from _read(read_expression(block.body, known), block.line + 1, panels, problems)
        return
    names_seen: set[str] = set()
    for name, text in measure_lines(block.body):
        if not RESULT.fullmatch(name) or name in names_seen:
            problem = "is measured twice" if name in names_seen else "is not a valid name"
            problems.add(block.line, f"{name!r} {problem}", "write name = expression")
        names_seen.add(name)
        line = block.line + next((at for at, content in enumerate(block.body.splitlines(), 1) if text in content), 1)
        yield from _read(read_expression(text, known, verdict=False), line, panels, problems)


def _read(reading: ExpressionNames, line: int, panels: list[str], problems: Problems) -> Iterator[str]:
    panels.extend(panel for panel in reading.panels if panel not in panels)
    for text, hint in reading.wrong:
        problems.add(line, text, hint, "expression")
    yield from sorted(reading.names)


def _shell_names(block: Block, known: dict[str, str], problems: Problems) -> Iterator[str]:
    names, strange = shell_references(block.body, known)
    yield from names
    for name in strange:
        _undeclared(block, name, known, problems)


def _is_column(plan: Plan, block: Block, name: str) -> bool:
    """Return whether the name may be a column of the block's preview; only the server knows its columns."""
    if block.kind not in ("change", "action"):
        return False
    preview = bound_preview(plan, block)
    if preview is None:
        return False
    if name == "rows":
        return True
    return bool(block.settings.get("each")) and re.search(rf"\b{re.escape(name)}\b", preview.body) is not None


def _undeclared(block: Block, name: str, known: dict[str, str], problems: Problems) -> None:
    hint = (
        suggest(name, known, what="available here:") or "declare it under [inputs.…], or give an earlier block as=NAME"
    )
    problems.add(block.line, f"{name} is not an input or a result of an earlier block", hint, "undeclared")


SOURCES = "sources"
"""Id of the last section if it is not a step."""
FOLLOWING = frozenset({"empty-step", "undeclared", "unused-input", "nothing-to-count", "preview-unused"})
"""Rules that may fail only because an earlier block could not be parsed."""


class CheckResult(Struct, frozen=True):
    """Result of checking a document: a plan, or problems."""

    plan: Plan | None
    """None if there are problems."""
    problems: tuple[Problem, ...] = ()
    title: str = ""
    id: str = ""
    answers: tuple[str, ...] = ()


def compile_text(text: str, source: str, actions: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a document. Raises RunbookError: the first problem with its line, and the number of others.

    `actions`: available actions by name; None: names and settings of actions are not checked.
    """
    checked = check_text(text, source, actions)
    if checked.plan is not None:
        return checked.plan
    first, more = checked.problems[0], len(checked.problems) - 1
    hint = first.hint
    if more:
        hint = (f"{hint}; " if hint else "") + f"{more} more: `dba-console runbook lint` lists them"
    raise RunbookError(f"{source}:{first.line}: {first.text}", hint=hint or None)


def check_text(text: str, source: str, actions: Mapping[str, Any] | None = None) -> CheckResult:
    """Return the plan of a document, or all its problems. Never raises."""
    if len(text) > LONGEST:
        return CheckResult(None, (Problem(line=1, text=f"the document has more than {LONGEST} characters"),))
    try:
        return _checked(text, source, actions)
    except (RecursionError, MemoryError):
        return CheckResult(None, (Problem(line=1, text="the document is nested too deeply"),))


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
        sources=() if sources is None else sources.prose,
        source=source,
        sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    plan = _leading(resolve_names(plan, problems, head.lines))
    problems.extend(lint(plan, actions, head.lines))
    found = _without_follow_ups(problems.sorted())
    return CheckResult(None if found else plan, found, document.title, head.id, head.answers)


def _without_follow_ups(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the problems without those that may exist only because a block could not be parsed."""
    if all(problem.rule for problem in problems):
        return problems
    return tuple(problem for problem in problems if problem.rule not in FOLLOWING)


def read_document(path: Path, *, shipped: bool = False) -> str:
    """Return the text of a runbook's file. Raises RunbookError naming it, also if other users may write it: the runbook
    runs with our rights. A `shipped` file is trusted as this program is."""
    if not shipped and path.exists() and (why := trust_problem(path)) is not None:
        raise RunbookError(f"cannot use {path}: {why.text}", hint=f"`{why.fix}`")
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise RunbookError(f"{path} is not a runbook: it has more than {LONGEST} bytes")
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
                problems.add(fence.line, "the runbook's head is inside a step", "move it under the title")
    for fence in heads[1:]:
        problems.add(fence.line, "the runbook has a second head", "keep one block toml {runbook} under the title")
    if not heads:
        problems.add(document.title_line, "the runbook has no head",
                     "add a block ```toml {runbook} with id = \"…\" under the title")  # fmt: skip
        return RunbookHead()
    fence = heads[0]
    words = [*(fence.braces.words[1:] if fence.braces else ()), *(fence.braces.values if fence.braces else ())]
    if fence.language != "toml" or words:
        problems.add(fence.line, "the runbook's head must be toml {runbook}, without attributes")
        return RunbookHead()
    return head_of(toml_of(fence, problems), lines_of(fence), problems)


def _runnable(section: Section, problems: Problems, *, head: bool = False) -> list[Fence]:
    """Return the fences of a section that are blocks. In a step, a fence that only looks like a block is a problem."""
    found = []
    for fence in section.fences:
        if fence.braces is None:
            if fence.language.lower() in RUNNABLE and not head:
                language = ALIASES.get(fence.language.lower(), fence.language.lower())
                problems.add(
                    fence.line,
                    f"this {fence.language} block has no braces and would not run",
                    f"write `{language} {{run}}`, or `{language} {{example}}` if it is only shown"
                    if language == "sh" else f"give it a kind, or write {{example}} after {fence.language}",
                    "no-braces",
                )  # fmt: skip
        elif _word(fence) == "example":
            continue
        elif head and _word(fence) != "runbook":
            problems.add(fence.line, "this block is outside a step", "put it under a heading of level two")
        else:
            found.append(fence)
    return found


def _word(fence: Fence) -> str:
    return fence.braces.words[0] if fence.braces and fence.braces.words else ""


def _sources(document: Document) -> Section | None:
    """Return the last section if it only lists sources: it is not a step."""
    last = document.sections[-1] if document.sections else None
    if last is None or last.slug != SOURCES or any(fence.braces is not None for fence in last.fences):
        return None
    return last


def _steps(sections: Sequence[Section], title_line: int, problems: Problems) -> tuple[Step, ...]:
    steps: list[Step] = []
    counts: dict[str, int] = {}
    for section in sections:
        if not section.slug:
            problems.add(section.line, "the heading gives no id", "it needs a letter or a digit")
            continue
        if section.slug in counts:
            problems.add(section.line, f"the step in line {counts[section.slug]} has the same id {section.slug!r}",
                         "ids come from headings; change one of them")  # fmt: skip
            continue
        if section.slug == "end" or section.slug == "next":
            problems.add(section.line, f"a step cannot be named {section.slug!r}", "the word is reserved for decisions")
        counts[section.slug] = section.line
        steps.append(_step(section, problems))
    if not steps:
        problems.add(title_line, "the runbook has no step", "a heading of level two starts one: `## …`")
    return tuple(steps)


def _step(section: Section, problems: Problems) -> Step:
    values = _step_attributes(section, problems)
    counts: dict[str, int] = {}

    def block_id(kind: str, name: str) -> str:
        base_name = name or kind
        counts[base_name] = counts.get(base_name, 0) + 1
        if name and counts[base_name] > 1:
            problems.add(section.line, f"two blocks of step {section.slug} are named #{name}")
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
    if section.braces.name:
        problems.add(section.line, f"#{section.braces.name}: a step is named by its heading",
                     f"its id is {section.slug}")  # fmt: skip
    values = {**section.braces.values, **dict.fromkeys(section.braces.words, True)}
    return read_table(values, StepAttributes, lambda _: section.line, problems, "a step", "attribute")


def _leading(plan: Plan) -> Plan:
    """Return the plan with the leading checks marked: they run before the start and depend on no earlier block."""
    results = {block.name for _, block in plan.blocks() if block.name}
    steps = []
    leading = True
    for step in plan.steps:
        blocks = []
        for block in step.blocks:
            leading = leading and kind_of(block).may_lead and not step.branch
            now = leading and block.kind == "check" and not results.intersection(block.uses)
            blocks.append(replace(block, leading=True) if now else block)
        steps.append(replace(step, blocks=tuple(blocks)))
    return replace(plan, steps=tuple(steps))
