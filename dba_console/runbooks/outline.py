"""Text outline of a plan for `runbook show` and `runbook plan`: every block in order, with its exact code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dba_console.core.units import human_bytes, human_duration
from dba_console.recording.plan import ACTING_KINDS, Input, Plan, Prose, Step
from dba_console.runbooks.kinds import kind_of
from dba_console.runbooks.preview_rows import masked_inputs
from dba_console.runbooks.result_tables import format_value
from dba_console.runbooks.walkthrough_text import prose_lines
from dba_console.watch.panels.text_elements import line_text

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
    """Return the number of blocks, the number that make changes, and their typical duration."""
    blocks = [block for step in plan.steps for block in step.blocks]
    acting = sum(block.kind in ACTING_KINDS for block in blocks)
    parts = [f"{len(blocks)} blocks in {len(plan.steps)} steps", f"{acting} make changes"]
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
