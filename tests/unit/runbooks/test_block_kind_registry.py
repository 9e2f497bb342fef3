"""A kind of block is one object: a new one is compiled, checked, walked, rehearsed and shown by it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import Struct

from dba_console.recording.plan import Block, Plan
from dba_console.runbooks.__main__ import format_schema, markdown
from dba_console.runbooks.block_kind import BlockKind, record_rehearsed
from dba_console.runbooks.block_kind_registry import KINDS
from dba_console.runbooks.compile import check_text
from dba_console.runbooks.outline import full_lines
from dba_console.runbooks.problems import Problem
from dba_console.runbooks.schema import Text
from dba_console.runbooks.walk_context import Turn, WalkContext
from tests.unit.runbooks.scripted_agent import run
from tests.unit.runbooks.short_runbooks import fence, only_block, plan_of, runbook_text


class NoteTable(Struct, forbid_unknown_fields=True, kw_only=True):
    text: Text
    """the note"""


class Note(BlockKind):
    """Writes a note into the journal."""

    name = "note"
    languages = ("toml",)
    help = "Writes a note into the journal."
    table = NoteTable
    attributes = ("tag",)
    rule = "long-note"

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """A note must be short."""
        if len(block.settings["text"]) > 20:
            yield Problem(line=block.line, text="the note is too long")

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Write it."""
        note = block.settings["text"]
        yield from context.write("block.seen", f"{block.id}: {note}", block=block, state="ok", note=note)

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Show it."""
        yield from record_rehearsed(context, block, f"would note: {block.settings['text']}")


@pytest.fixture(autouse=True)
def _with_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "note", Note())


TEXT = runbook_text(fence("toml {note title=ours tag=N}", 'text = "shift changed"'))


def test_a_new_kind_is_compiled_and_shown() -> None:
    block = only_block(TEXT)
    assert (block.kind, block.tag, block.settings) == ("note", "N", {"text": "shift changed"})
    lines = list(full_lines(plan_of(TEXT)))
    assert "    note “ours”" in lines and '        text = "shift changed"' in lines
    assert (
        "### note\n" in markdown()
        and "tag" in format_schema()["$defs"]["note"]["properties"]["attributes"]["properties"]
    )


def test_a_new_kind_is_checked() -> None:
    [problem] = check_text(runbook_text(fence("toml {note each}", 'text = "x"')), "book.md").problems
    assert problem.text == "a block note has no attribute 'each'"
    [problem] = check_text(TEXT.replace("shift changed", "the shift changed at eight"), "book.md").problems
    assert (problem.rule, problem.text) == ("long-note", "the note is too long")


def test_a_new_kind_is_executed_and_rehearsed() -> None:
    plan = plan_of(TEXT)
    ending, state, _ = run(plan)
    assert (ending.state, state.blocks["a-step/note"].note) == ("done", "shift changed")
    _, state, _ = run(plan, mode="rehearse")
    assert state.blocks["a-step/note"].note == "would note: shift changed"
