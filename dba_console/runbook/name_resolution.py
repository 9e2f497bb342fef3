"""What blocks refer to: inputs, results of earlier blocks, fields, steps. Names that lead nowhere are problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dba_console.frames.model import PANELS
from dba_console.plans.plan import Block, BlockCondition, Plan, Step
from dba_console.runbook.code_references import phrase_references, settings_references, shell_references, sql_references
from dba_console.runbook.expr import measure_lines
from dba_console.runbook.expr_lint import ExpressionNames, read_expression
from dba_console.runbook.preview_rows import bound_preview
from dba_console.runbook.problems import Problems, suggest
from dba_console.runbook.value_readers import RESULT

TESTS = ("until", "while")
"""Settings that are tests."""


def resolve_names(plan: Plan, problems: Problems, lines: Mapping[str, int]) -> Plan:
    """The plan with `uses` of its blocks, panels of its steps, and measurements that repeat earlier ones.

    `lines` are those of its inputs.
    """
    plan = _compared(plan, problems)
    known: dict[str, str] = {one.name: "input" for one in plan.inputs}
    used: set[str] = set()
    steps: list[Step] = []
    for step in plan.steps:
        panels: list[str] = []
        blocks = tuple(_block(plan, step, block, known, panels, problems) for block in step.blocks)
        undo = tuple(_block(plan, step, block, known, panels, problems) for block in step.undo)
        used.update(name for block in (*blocks, *undo) for name in block.uses)
        for panel in step.panels:
            if panel not in PANELS:
                problems.add(step.line, f"there is no panel {panel!r}", suggest(panel, PANELS))
        steps.append(replace(step, blocks=blocks, undo=undo, panels=step.panels or tuple(panels)))
    for one in plan.inputs:
        if one.name not in used:
            problems.add(lines.get(one.name, 1), f"input {one.name} is asked for and never used",
                         f"%({one.name})s in SQL, \"$RB_{one.name}\" in a command, {one.name} in an expression",
                         "unused-input")  # fmt: skip
    return replace(plan, steps=tuple(steps))


def _compared(plan: Plan, problems: Problems) -> Plan:
    """Measurements taken against an earlier one get its lines where they have none of their own."""
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
            problems.add(block.line, "the measurement takes nothing", "a field on each line, or against=NAME")
        return block
    if name not in earlier:
        problems.add(block.line, f"there is no measurement {name!r} before this one",
                     suggest(name, earlier, what="there are") or "the earlier one needs as=NAME")  # fmt: skip
        return block
    if block.body.strip():
        return block
    return replace(block, body=earlier[name].body, language=earlier[name].language)


def _block(plan: Plan, step: Step, block: Block, known: dict[str, str], panels: list[str], problems: Problems) -> Block:
    """The block with the names it uses; its own result is known from then on."""
    names = list(dict.fromkeys(_names(plan, block, known, panels, problems)))
    if block.name:
        if block.name in known and known[block.name] == "input":
            problems.add(block.line, f"{block.name} is the name of an input already", "call the result otherwise")
        known[block.name] = block.kind
    return replace(block, uses=tuple(names))


def _names(plan: Plan, block: Block, known: dict[str, str], panels: list[str], problems: Problems) -> Iterator[str]:
    for test in (block.when, block.done, *_tests(block)):
        if test is not None:
            yield from _test_names(test, block, known, panels, problems)
    yield from _phrase_names(plan, block, known, problems)
    if block.language == "sql":
        yield from _sql_names(plan, block, known, problems)
    elif block.language == "sh":
        yield from _shell_names(block, known, problems)
    elif block.language == "expr":
        yield from _expression_names(block, known, panels, problems)
    if (source := block.settings.get("databases")) is not None:
        if known.get(source) != "preview":
            previews = [name for name, kind in known.items() if kind == "preview"]
            problems.add(block.line, f"there is no preview {source!r} before this one",
                         suggest(source, previews, what="there are") or "the earlier one needs as=NAME")  # fmt: skip
        yield source
    for name in settings_references(block.settings):
        if name in known:
            yield name
        elif not _is_column(plan, block, name):
            _undeclared(block, name, known, problems)


def _phrase_names(plan: Plan, block: Block, known: dict[str, str], problems: Problems) -> Iterator[str]:
    """Inputs a confirmation wants typed: each known before the start, shown, and with a value."""
    inputs = {one.name: one for one in plan.inputs}
    for name in phrase_references(block.confirm):
        one = inputs.get(name)
        if one is None and name in known:
            problems.add(block.line, f"the confirmation asks for {name}, which is not an input of the runbook",
                         "declare it under [inputs.…]: what must be typed is known before the start")  # fmt: skip
        elif one is None:
            _undeclared(block, name, known, problems)
        elif one.secret:
            problems.add(block.line, f"the confirmation asks for {name}, which is secret",
                         "the phrase stands in the question; ask for another input")  # fmt: skip
        elif one.default is None and not one.required:
            problems.add(block.line, f"the confirmation asks for {name}, which may be left out",
                         f"give {name} a default, or leave out required = false")  # fmt: skip
        yield name


def _tests(block: Block) -> Iterator[BlockCondition]:
    for name in TESTS:
        value: Any = block.settings.get(name)
        if isinstance(value, dict):
            yield BlockCondition(**value)


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
            problem = "is taken twice" if name in names_seen else "is no name"
            problems.add(block.line, f"measured: {name!r} {problem}", "write name = expression")
        names_seen.add(name)
        line = block.line + next((at for at, said in enumerate(block.body.splitlines(), 1) if text in said), 1)
        yield from _read(read_expression(text, known, verdict=False), line, panels, problems)


def _read(reading: ExpressionNames, line: int, panels: list[str], problems: Problems) -> Iterator[str]:
    panels.extend(panel for panel in reading.panels if panel not in panels)
    for text, hint in reading.wrong:
        problems.add(line, text, hint, "expression")
    yield from sorted(reading.names)


def _sql_names(plan: Plan, block: Block, known: dict[str, str], problems: Problems) -> Iterator[str]:
    for name in sql_references(block.body):
        if name in known:
            yield name
        elif not _is_column(plan, block, name):
            _undeclared(block, name, known, problems)


def _shell_names(block: Block, known: dict[str, str], problems: Problems) -> Iterator[str]:
    names, strange = shell_references(block.body, known)
    yield from names
    for name in strange:
        _undeclared(block, name, known, problems)


def _is_column(plan: Plan, block: Block, name: str) -> bool:
    """Whether it may be a column of the preview the block is bound to: only the server knows its columns."""
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
        suggest(name, known, what="here there are") or "declare it under [inputs.…], or give an earlier block as=NAME"
    )
    problems.add(block.line, f"{name} is neither an input nor a result of an earlier block", hint, "undeclared")
