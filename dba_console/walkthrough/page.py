"""A runbook before it is begun: its words, its inputs with what was given, and its plan."""

from __future__ import annotations

from collections.abc import Mapping

from dba_console.panels.text_elements import Line, Span, Style, clean, line
from dba_console.plans.plan import ACTING_KINDS, Block, Confirmation, Input, Plan, Step
from dba_console.units import human_bytes, human_duration
from dba_console.walkthrough.prose import prose_lines
from dba_console.walkthrough.text import short_time, texts

_KINDS = {"choose": "a decision", "manual": "by hand, with what shows it"}
"""What a block is, where its kind alone says little."""
_NONE: Mapping[str, str] = {}


def runbook_lines(
    plan: Plan, given_values: Mapping[str, str], cells: int, finding_values: Mapping[str, str] = _NONE
) -> list[Line]:
    """Everything about it, most important first: why and when not, what it needs, inputs, steps."""
    blocks = [block for step in plan.steps for block in step.blocks]  # not what would take a step back
    acts = sum(1 for block in blocks if block.kind in ACTING_KINDS)
    usual = sum(block.usual_s or 0.0 for block in blocks)
    extent = f"{len(plan.steps)} steps, {len(blocks)} blocks run, {acts} of them change something"
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
    lines += [(), line(Span("Plan", "title"), f"  {extent}", f", usual {short_time(usual)}" if usual else "")]
    for number, step in enumerate(plan.steps, 1):
        lines += _step_lines(number, step, cells)
    if plan.sources:
        lines += [(), line(Span("Sources", "title")), *prose_lines(plan.sources, cells)]
    return lines


def shown_value(one: Input, given_value: str | None) -> tuple[str, bool]:
    """What an input is worth in words, and whether it still has to be given."""
    if given_value:
        return ("given, not shown" if one.secret else given_value), False
    if one.default is not None:
        return f"{_default_text(one, one.default)} (default)", False
    return ("has to be given", True) if one.required else ("left out", False)


def _default_text(one: Input, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if one.type in ("duration", "size") and isinstance(value, int | float):
        return human_duration(value) if one.type == "duration" else human_bytes(value)
    return str(value)


def _input_lines(one: Input, given_value: str | None, finding_value: str | None, cells: int) -> list[Line]:
    value, missing = shown_value(one, given_value)
    if finding_value and not given_value:
        value, missing = f"{finding_value} (from the finding; asked at the start)", False
    style: Style = "warn" if missing else ""
    head = line("  ", Span(clean(one.name), "key"), f" ({clean(one.type)}) ", Span(clean(value), style))
    choices = f"; one of {', '.join(one.choices)}" if one.choices else ""
    return [head, *texts(f"{one.help}{choices}", cells, "dim", "    ")]


def _step_lines(number: int, step: Step, cells: int) -> list[Line]:
    only = "  (only by a decision)" if step.branch else ""
    no_return_text = "  (point of no return)" if step.point_of_no_return else ""
    lines = [line(f" {number:>2} ", Span(clean(step.title), "head"), Span(only + no_return_text, "dim"))]
    for block in step.blocks:
        lines += texts(_block_words(block), cells, "", "      ")
    if step.undo:
        lines += texts("can be taken back", cells, "dim", "      ")
    return lines


def _confirmation_text(one: Confirmation) -> str:
    """What has to be said before it is done."""
    if one.level == "type":
        phrases = {"target": "the target's name", "count": "how many it acts on", "name": "its name, or how many"}
        phrase = phrases.get(one.text, f"“{clean(one.text)}”")
    else:
        phrase = "a y" if one.level == "ack" else "yes"
    return f"asks for {phrase}" + (", of two people" if one.people > 1 else "")


def _block_words(block: Block) -> str:
    what = f"{block.kind} {block.action}" if block.action else _KINDS.get(block.kind, block.kind)
    title = f": {block.title}" if block.title else ""
    confirm = "" if block.confirm is None else f", {_confirmation_text(block.confirm)}"
    usual = "" if block.usual_s is None else f", usual {short_time(block.usual_s)}"
    return f"{what}{title}{confirm}{usual}"
