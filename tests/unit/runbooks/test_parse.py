"""A document as it stands: headings, fences and their lines; what would silently not run is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.runbooks.compile import check_text
from dba_console.runbooks.parse import LONGEST, BracesError, parse, parse_braces, slug, split_braces
from tests.unit.runbooks.short_runbooks import HEAD, fence, only_block, plan_of, problem_lines, runbook_text, steps

CHECK = fence("expr {check}", "memory.free_bytes > 1GB")


def unexecuted_text(text: str) -> list[str]:
    return [
        line for line in problem_lines(text) if "would not run" in line or "indented" in line or "never closed" in line
    ]


def test_a_step_is_a_level_two_heading_and_has_its_name() -> None:
    plan = plan_of(HEAD + f"\n## Is this *really* a `stall`?\n\n{CHECK}\n\n### Not a step\n\n## Next one\n\n{CHECK}\n")
    assert [(step.id, step.title) for step in plan.steps] == [
        ("is-this-really-a-stall", "Is this really a stall?"), ("next-one", "Next one"),
    ]  # fmt: skip


def test_blocks_have_their_line_and_are_numbered_by_kind_within_a_step() -> None:
    plan = plan_of(runbook_text(CHECK, CHECK, fence("expr {check #third}", "memory.free_bytes > 1GB")))
    assert [(block.id, block.line) for _, block in plan.blocks()] == [
        ("a-step/check", 9), ("a-step/check-2", 13), ("a-step/third", 17),
    ]  # fmt: skip


def test_prose_keeps_fences_without_braces_and_examples_and_removes_the_blocks() -> None:
    (step,) = plan_of(
        runbook_text("Before.", CHECK, fence("text", "shown"), fence("sql {example}", "select 1"), "After.")
    ).steps
    assert [one.text.strip() for one in step.prose] == ["Before.", "shown", "select 1", "After."]


@pytest.mark.parametrize(
    "block",
    [
        " " + CHECK,
        "    " + CHECK.replace("\n", "\n    "),
        "- an item\n  " + CHECK.replace("\n", "\n  "),
        "> " + CHECK.replace("\n", "\n> "),
        "1. " + CHECK.replace("\n", "\n   "),
        "```text\nnever closed\n\n" + CHECK,
        "<div>\n" + CHECK + "\n</div>",
    ],
    ids=["indented", "as-code", "in-a-list", "in-a-quotation", "in-a-numbered-list", "swallowed", "in-html"],
)
def test_a_text_that_resembles_a_block_and_would_not_run_is_an_error(block: str) -> None:
    assert unexecuted_text(runbook_text(CHECK, block)) != []


def test_a_block_that_is_never_closed_is_an_error_on_its_line() -> None:
    (line, *_) = unexecuted_text(runbook_text(CHECK).rstrip("\n`"))
    assert line.startswith("9: this block is never closed")


def test_a_fence_may_contain_a_fence_within_longer_marks_and_a_comment_may_contain_one() -> None:
    shown = "````markdown\n" + CHECK + "\n````"
    assert unexecuted_text(runbook_text(CHECK, shown, "<!--\n" + CHECK + "\n-->")) == []


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("sql {check", "never closed"),
        ("sql check}", "without an opening"),
        ('sql {check title="x}', "never closed"),
        ("sql {check} more", "text after"),
        ("sql {check {a}}", "inside braces"),
        ("sql {check on=a on=b}", "given twice"),
        ("sql {check =a}", "no name before ="),
        ("sql {check #a #b}", "second name"),
    ],
)
def test_unparsable_braces_are_an_error_on_their_line(info: str, expected: str) -> None:
    assert any(
        line.startswith("9: invalid braces of the block") and expected in line
        for line in problem_lines(runbook_text(fence(info, "select true")))
    )


def test_a_quoted_value_may_contain_anything_but_the_quote() -> None:
    block = only_block(
        runbook_text(fence('expr {check title="a = {b} # c" when=\'target.role == "x"\'}', "memory.free_bytes > 1"))
    )
    assert block.title == "a = {b} # c"
    assert block.when is not None and block.when.text == 'target.role == "x"'


@given(st.text(max_size=60))
def test_any_braces_are_parsed_or_refused(text: str) -> None:
    try:
        _, within = split_braces(text)
        parse_braces(within or "")
    except BracesError as error:
        assert str(error)


@given(st.text(alphabet="#` \n-{}>~abc*", max_size=200))
def test_any_text_is_parsed_into_a_document_or_a_list_of_problems(text: str) -> None:
    checked = check_text(text, "x.md")
    assert checked.plan is None and checked.problems
    assert all(problem.line >= 1 for problem in parse(text).problems)


@given(st.text(max_size=100))
def test_a_slug_is_a_valid_directory_name(title: str) -> None:
    assert all(sign.islower() or sign.isdigit() or sign == "-" for sign in slug(title))
    assert len(slug(title)) <= 60


def test_two_steps_with_one_id_are_an_error() -> None:
    assert any("has the same id 'a'" in line for line in problem_lines(steps(A=CHECK, a=CHECK)))


def test_a_document_needs_a_title_front_matter_and_a_step() -> None:
    message = " ".join(problem_lines("some text\n"))
    assert "has no title" in message and "has no head" in message and "has no step" in message


def test_a_block_before_the_first_step_is_an_error() -> None:
    assert any("is outside a step" in line for line in problem_lines(HEAD + f"\n{CHECK}\n\n## A\n\n{CHECK}\n"))


def test_an_oversized_document_is_not_read() -> None:
    (line,) = problem_lines("x" * (LONGEST + 1))
    assert "more than" in line


def test_line_ends_of_another_system_make_no_difference() -> None:
    text = runbook_text(CHECK)
    assert plan_of(text.replace("\n", "\r\n")).steps == plan_of(text).steps
