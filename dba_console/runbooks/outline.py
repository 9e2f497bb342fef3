"""A plan before it is run: the page of the screen, and the text of `runbook show` and `runbook plan`, which have every
block in order with its exact code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dba_console.core.units import human_bytes, human_duration
from dba_console.recording.plan import Block, Input, Plan, Prose, Step
from dba_console.runbooks.block_kind import confirmation_words
from dba_console.runbooks.block_kind_registry import kind_of
from dba_console.runbooks.preview_rows import masked_inputs
from dba_console.runbooks.result_tables import counted, format_value
from dba_console.runbooks.walkthrough_text import prose_lines, short_time, texts
from dba_console.watch.drawing.text_elements import Line, Span, Style, clean, line, line_text

INDENT = "    "
PROSE_WIDTH = 100


def full_lines(plan: Plan) -> Iterator[str]:
    """Yield the compiled runbook: prose, and every step with its blocks."""
    yield from head(plan)
    if plan.prose:
        yield from ("", *_prose(plan.prose, ""))
    for number, step in enumerate(plan.steps, start=1):
        yield from ("", step_line(number, step))
        if step.prose:
            yield from _prose(step.prose, INDENT)
        for block in (*step.blocks, *step.undo):
            yield ""
            yield INDENT + kind_of(block).describe(block)
            yield from (INDENT * 2 + line for line in kind_of(block).code_text(block).splitlines())
    if plan.sources:
        yield from ("", "sources", *_prose(plan.sources, INDENT))
    yield from ("", block_counts(plan))


def _prose(prose: Sequence[Prose], indent: str) -> Iterator[str]:
    for text in map(line_text, prose_lines(prose, PROSE_WIDTH - len(indent))):
        yield indent + text if text else ""


def plan_lines(plan: Plan, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a run with these inputs would do: every block in full, with the values known before the run."""
    yield from head(plan)
    for one in plan.inputs:
        yield f"input      {one.name} = {input_text(one, values.get(one.name))}"
    leading = [block for _, block in plan.blocks() if block.leading]
    if leading:
        yield ""
        yield "checked before the start:"
        yield from (f"{INDENT}{block.id}" + (f": {block.title}" if block.title else "") for block in leading)
    masked_values = {**values, **{name: mask for name, mask in masked_inputs(plan).items() if name in values}}
    for number, step in enumerate(plan.steps, start=1):
        yield ""
        yield step_line(number, step)
        for block in (*step.blocks, *step.undo):
            yield INDENT + kind_of(block).describe(block)
            yield from (INDENT * 2 + line for line in kind_of(block).code_text(block, masked_values).splitlines())
    yield from ("", block_counts(plan))


def head(plan: Plan) -> Iterator[str]:
    """Yield name, answered findings and requirements."""
    yield plan.title
    yield f"runbook    {plan.id} · {plan.source}"
    if plan.answers:
        yield f"answers    {', '.join(plan.answers)}"
    if plan.needs:
        yield f"needs      {', '.join(plan.needs)}"
    low, high = plan.versions
    if low or high:
        yield f"servers    {low or '…'} to {high or '…'}"
    if plan.strict:
        yield "strict     no step can be skipped or jumped to"
    if plan.reverts:
        yield "reverts    every step, if it fails or is aborted before the point of no return"


def block_counts(plan: Plan) -> str:
    """Return the numbers of blocks, steps and changes, and the typical duration."""
    blocks = [block for step in plan.steps for block in step.blocks]
    acting = sum(block.changes for block in blocks)
    parts = [f"{counted(len(blocks), 'block')} in {counted(len(plan.steps), 'step')}", counted(acting, "change")]
    usual = [block.usual_s for block in blocks if block.usual_s is not None]
    if usual:
        parts.append(f"typically {human_duration(sum(usual))} in total")
    return ", ".join(parts)


def step_line(number: int, step: Step) -> str:
    """Return `2 Drop it · drop-it · point of no return`."""
    marks = [step.id]
    if step.point_of_no_return:
        marks.append("point of no return")
    if step.branch:
        marks.append("optional branch")
    if step.then:
        marks.append(f"then {step.then}")
    return f"{number:2d}  {step.title}  ({' · '.join(marks)})"


def input_text(one: Input, value: Any) -> str:
    """Return the value of an input with its unit; a secret is not shown."""
    if value is None:
        return "not given"
    if one.secret:
        return "(secret)"
    if one.type == "duration":
        return human_duration(value)
    return human_bytes(value) if one.type == "size" else format_value("", value)


# The page of a runbook before it is started.

_NONE: Mapping[str, str] = {}


def runbook_lines(
    plan: Plan, given_values: Mapping[str, str], cells: int, finding_values: Mapping[str, str] = _NONE
) -> list[Line]:
    """Return a runbook, most important first: prose, requirements, inputs, steps."""
    lines = [*prose_lines(plan.prose, cells), ()]
    if plan.answers:
        lines += texts(f"answers {', '.join(plan.answers)}", cells, "dim")
    if plan.needs:
        lines += texts(f"needs {', '.join(plan.needs)}", cells, "dim")
    lines += texts(f"from {plan.source}", cells, "dim")
    if plan.inputs:
        lines += [(), line(Span("Inputs", "title"))]
        for one in plan.inputs:
            lines += _input_lines(one, given_values.get(one.name), finding_values.get(one.name), cells)
    lines += [(), line(Span("Plan", "title"), f"  {block_counts(plan)}")]
    for number, step in enumerate(plan.steps, 1):
        lines += _step_on_page(number, step, cells)
    if plan.sources:
        lines += [(), line(Span("Sources", "title")), *prose_lines(plan.sources, cells)]
    return lines


def shown_value(one: Input, given_value: str | None) -> tuple[str, bool]:
    """Return the text of an input's value, and whether a value is missing."""
    if given_value:
        return ("given, not shown" if one.secret else given_value), False
    if one.default is not None:
        return f"{input_text(one, one.default)} (default)", False
    return ("required", True) if one.required else ("not given", False)


def _input_lines(one: Input, given_value: str | None, finding_value: str | None, cells: int) -> list[Line]:
    value, missing = shown_value(one, given_value)
    if finding_value and not given_value:
        value, missing = f"{finding_value} (from the finding; confirmed at the start)", False
    style: Style = "warn" if missing else ""
    head = line("  ", Span(clean(one.name), "key"), f" ({clean(one.type)}) ", Span(clean(value), style))
    choices = f"; one of {', '.join(one.choices)}" if one.choices else ""
    return [head, *texts(f"{one.help}{choices}", cells, "dim", "    ")]


def _step_on_page(number: int, step: Step, cells: int) -> list[Line]:
    only = "  (optional branch)" if step.branch else ""
    no_return_text = "  (point of no return)" if step.point_of_no_return else ""
    lines = [line(f" {number:>2} ", Span(clean(step.title), "head"), Span(only + no_return_text, "dim"))]
    for block in step.blocks:
        lines += texts(_block_words(block), cells, "", "      ")
    if step.undo:
        lines += texts("can be reverted", cells, "dim", "      ")
    return lines


def _block_words(block: Block) -> str:
    what = f"{block.kind} {block.action}" if block.action else kind_of(block).label or block.kind
    title = f": {block.title}" if block.title else ""
    confirm = "" if block.confirm is None else f", {confirmation_words(block.confirm)}"
    usual = "" if block.usual_s is None else f", typical {short_time(block.usual_s)}"
    return f"{what}{title}{confirm}{usual}"
