"""Registry of the kinds of runbook blocks, and insertion of inputs into a plan's confirmations and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import replace

from dba_console.recording.plan import Block, Kind, Plan
from dba_console.runbooks.asking_kinds import Choose, Confirm, InputKind, Manual
from dba_console.runbooks.block_kind import BlockKind
from dba_console.runbooks.changing_kinds import ActionKind, Change, Run, Undo
from dba_console.runbooks.reading_kinds import Check, Measure, Preview, Repeat, Wait
from dba_console.runbooks.values import fill_phrase, fill_references

KINDS: dict[str, BlockKind] = {
    kind.name: kind
    for kind in (
        Check(), Measure(), Preview(), Change(), Run(), ActionKind(), Wait(), Confirm(), Choose(), Manual(),
        InputKind(), Repeat(), Undo(),
    )
}  # fmt: skip
"""By name, in the order of the documentation."""

assert set(KINDS) == set(get_args(Kind))


def kind_of(block: Block) -> BlockKind:
    """Return the kind of a block."""
    return KINDS[block.kind]


def bind_inputs(plan: Plan, values: Mapping[str, Any]) -> Plan:
    """Return the plan with input references replaced in the phrases of confirmations, and in the settings of kinds
    that allow them. Raises UsageError for a phrase that cannot be typed."""

    def filled_in(block: Block) -> Block:
        block = fill_phrase(plan, block, values)
        if not kind_of(block).inputs_replaced:
            return block
        settings = fill_references(block.settings, values)
        timeout = settings.get("timeout_s", block.timeout_s)
        return replace(block, settings=settings, timeout_s=timeout)

    steps = tuple(
        replace(step, blocks=tuple(map(filled_in, step.blocks)), undo=tuple(map(filled_in, step.undo)))
        for step in plan.steps
    )
    return replace(plan, steps=steps)
