"""Text outline of a plan for `runbook show` and `runbook plan`: every block in order, with its exact code."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dba_console.core.errors import UsageError
from dba_console.core.units import human_bytes, human_duration
from dba_console.recording.plan import ACTING_KINDS, Block, Confirmation, Input, Plan, Step
from dba_console.runbooks.preview_rows import masked_inputs
from dba_console.runbooks.result_tables import format_value
from dba_console.runbooks.values import WHOLE, arguments, for_sql, statement_text

INDENT = "    "


def full_lines(plan: Plan) -> Iterator[str]:
    """Yield the compiled runbook: prose, and every step with its blocks."""
    yield from head(plan)
    if plan.prose:
        yield from ("", *plan.prose.splitlines())
    for number, step in enumerate(plan.steps, start=1):
        yield from ("", step_line(number, step))
        if step.prose:
            yield from (INDENT + line if line else "" for line in step.prose.splitlines())
        for block in (*step.blocks, *step.undo):
            yield ""
            yield INDENT + block_line(block)
            yield from (INDENT * 2 + line for line in code_text(block).splitlines())
    if plan.sources:
        yield from ("", "sources", *(INDENT + line if line else "" for line in plan.sources.splitlines()))
    yield from ("", block_counts(plan))


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
            yield INDENT + block_line(block)
            yield from (INDENT * 2 + line for line in code_text(block, masked_values).splitlines())
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


def block_line(block: Block) -> str:
    """Return `change "Terminate them" · confirm: type the number of rows · typically 5s`."""
    name = f"action {block.action}" if block.kind == "action" else block.kind
    marks = [name + (f" as {block.name}" if block.name else "") + (f" “{block.title}”" if block.title else "")]
    if block.confirm is not None:
        marks.append(confirmation(block.confirm))
    if block.on:
        marks.append(f"on {block.on}")
    for word, test in (("only if", block.when), ("unless", block.done)):
        if test is not None:
            marks.append(f"{word} {' '.join(test.text.split())}")
    if column := block.settings.get("chosen") if block.kind == "preview" else None:
        marks.append(f"rows whose {column} is true are preselected")
    if block.timeout_s is not None and block.kind != "wait":
        marks.append(f"timeout {human_duration(block.timeout_s)}")
    if block.usual_s is not None:
        marks.append(f"typically {human_duration(block.usual_s)}")
    if not block.transaction:
        marks.append("outside a transaction")
    return " · ".join(marks)


def confirmation(one: Confirmation) -> str:
    """Return how a block is confirmed."""
    words = {"ack": "y", "yes": "yes", "target": "the target name", "count": "the number of rows",
             "name": "its name, or the number of rows"}  # fmt: skip
    phrase = f"“{one.text}”"
    if (named := WHOLE.fullmatch(one.text)) is not None:
        phrase = f"the value of {named[1]}"
    expected_text = words.get(one.text if one.level == "type" else one.level, phrase)
    return f"confirm: type {expected_text}" + (", two operators" if one.people > 1 else "")


def code_text(block: Block, values: Mapping[str, Any] | None = None) -> str:
    """Return the exact code or settings of a block, with known `values` inserted."""
    if block.body:
        text = textwrap.dedent(block.body).rstrip()
        return text if values is None or block.language != "sql" else statement_text(text, for_sql(values))
    if values is not None and (argv := block.settings.get("argv")):
        return shlex.join(_argument(str(word), values) for word in argv)
    options = block.settings.get("options", []) if block.kind == "choose" else []
    lines = [f"{name} = {_setting(name, value)}" for name, value in block.settings.items() if value is not options]
    return "\n".join([*lines, *(f"{one['key']}: {one['text']} → {one['goto']}" for one in options)])


def _argument(word: str, values: Mapping[str, Any]) -> str:
    try:
        return arguments([word], values)[0]
    except UsageError:  # the result of a block that has not run
        return word


def input_text(one: Input, value: Any) -> str:
    """Return the value of an input with its unit; a secret is not shown."""
    if value is None:
        return "not given"
    if one.secret:
        return "(secret)"
    if one.type == "duration":
        return human_duration(value)
    return human_bytes(value) if one.type == "size" else format_value("", value)


def _setting(name: str, value: Any) -> str:
    if name.endswith("_s") and isinstance(value, (int, float)):
        return human_duration(value)
    if isinstance(value, dict) and set(value) == {"language", "text"}:
        return f"{value['language']}: {' '.join(str(value['text']).split())}"
    return str(msgspec.json.encode(value).decode())
