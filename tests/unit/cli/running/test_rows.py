"""Rows that are named beforehand, or by their numbers in lines of text: they alone are acted on, or nothing is."""

from __future__ import annotations

import pytest
from msgspec import structs

from dba_console.agent.protocol import Request, RunAnswer, RunControl, RunRefused
from dba_console.cli.running.answers import GivenAnswers, parse_row_selections
from dba_console.cli.running.run_client import RunClient
from dba_console.core.errors import UsageError
from dba_console.recording.plan import Block, Confirmation, Plan, Step
from dba_console.runbooks.run_view import Option
from tests.unit.cli.running.test_run_client import left, said, sent, words
from tests.walkthrough.views import CHOOSING, CHOSEN, ROWS, TYPED

NONE = (Option(key="none", text="leave it out"),)
COUNT = Confirmation(level="type", text="count")
PLAN = Plan(
    id="storm",
    title="Storm",
    steps=(
        Step(id="look", title="Look", line=1, 
             blocks=(Block(id="look/check", kind="check", line=1, language="expr", body="x"),)),
        Step(
            id="drop", title="End them", line=1,
            blocks=(
                Block(id="drop/preview", kind="preview", line=2, language="sql", body="select 1", name="idle"),
                Block(id="drop/action", kind="action", line=3, language="toml", body="", confirm=COUNT,
                      action="signal-backend", settings={"rows": "%(idle)s"}),
            ),
        ),
    ),
)  # fmt: skip


def headless(*, choose: tuple[str, ...] = (), leave_out: tuple[str, ...] = (), confirm: str = "") -> RunClient:
    confirmed = [("drop", confirm)] if confirm else []
    return RunClient(GivenAnswers(confirmed, selections=parse_row_selections(choose, leave_out, PLAN)), can_ask=False)


def choice(*places: int) -> RunControl:
    return RunControl(run=CHOOSING.run, verb="choose", block="drop/preview", look=1, rows=places)


def after(*places: int, question: int = 12) -> object:
    """The question as it is put once these rows are chosen."""
    table = structs.replace(ROWS, chosen=tuple(place in places for place in range(3)))
    base = structs.replace(CHOOSING, table=table)
    return said(base, structs.replace(CHOSEN, id=question, expects=str(len(places))))


def first(party: RunClient) -> list[Request]:
    return sent(party.receive(said(CHOOSING, CHOSEN)))


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"leave_out": ("drop=pid=811",)}, (0, 2)),
        ({"leave_out": ("drop/action=usename=app",)}, (2,)),
        ({"choose": ("drop=pid=811",)}, (1,)),
        ({"choose": ("drop/preview=pid=811", "drop/preview=usename=web")}, (1, 2)),
        ({"choose": ("drop=all",), "leave_out": ("drop=pid=810", "drop=pid=812")}, (1,)),
        ({"choose": ("drop=none",)}, ()),
    ],
)
def test_named_rows_are_selected_before_anything_is_confirmed(
    options: dict[str, tuple[str, ...]], places: tuple[int, ...]
) -> None:
    assert first(headless(**options, confirm=str(len(places)))) == [choice(*places)]


def test_the_number_given_is_that_of_the_selected_rows() -> None:
    party = headless(leave_out=("drop=pid=811",), confirm="2")
    first(party)
    assert sent(party.receive(after(0, 2))) == [RunAnswer(run=CHOOSING.run, question=12, text="2")]
    party = headless(leave_out=("drop=pid=811",), confirm="3")
    first(party)
    outs = party.receive(after(0, 2))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]


@pytest.mark.parametrize("option", ["choose", "leave_out"])
def test_a_missing_row_ends_the_run_and_nothing_is_done(option: str) -> None:
    party = headless(**{option: ("drop=pid=4711",)}, confirm="3")
    outs = party.receive(said(CHOOSING, CHOSEN))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]
    assert "does not fit: no row has pid 4711" in words(outs)
    party = headless(**{option: ("drop=pdi=810",)}, confirm="3")
    assert "the rows have pid, usename, query" in words(party.receive(said(CHOOSING, CHOSEN)))


def test_with_no_row_selected_no_confirmation_is_needed() -> None:
    party = headless(choose=("drop=none",), confirm="3")
    first(party)
    none = structs.replace(CHOSEN, id=12, kind="choose", expects="", options=NONE)
    table = structs.replace(ROWS, chosen=(False,) * 3)
    outs = party.receive(said(structs.replace(CHOOSING, table=table), none))
    assert sent(outs) == [RunAnswer(run=CHOOSING.run, question=12, text="none")]
    someone = RunClient(GivenAnswers(), can_ask=True)
    assert sent(someone.receive(said(structs.replace(CHOOSING, table=table), none))) == []


def test_a_refused_or_ignored_selection_ends_the_run() -> None:
    party = headless(leave_out=("drop=pid=811",), confirm="2")
    first(party)
    outs = party.receive(RunRefused(text="these rows are not asked about now", reply_to=CHOOSING.run))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"]
    party = headless(leave_out=("drop=pid=811",), confirm="2")
    first(party)
    outs = party.receive(after(0, 1, 2))
    assert [one.verb for one in sent(outs) if isinstance(one, RunControl)] == ["abort"] and left(outs) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("drop", "is not STEP=COLUMN=VALUE"),
        ("drop=pid=", "is not STEP=COLUMN=VALUE"),
        ("dorp=pid=1", "has no step 'dorp'"),
        ("look=pid=1", "does not act on rows that can be chosen"),
    ],
)
def test_a_row_is_named_by_its_step_a_column_and_a_value(text: str, why: str) -> None:
    for choose, leave_out in (((text,), ()), ((), (text,))):
        with pytest.raises(UsageError, match=why):
            parse_row_selections(choose, leave_out, PLAN)


def test_an_operator_at_a_terminal_deselects_and_selects_rows_by_number() -> None:
    party = RunClient(GivenAnswers(), can_ask=True)
    party.receive(said(CHOOSING, CHOSEN))
    assert sent(party.handle_line("/x 2")) == [choice(0, 2)]
    party.receive(after(0, 2))
    assert sent(party.handle_line("/x 1, 2")) == [choice(1, 2)]
    party.receive(after(1, 2, question=13))
    for wrong in ("/x", "/x 4", "/x 0", "/x two"):
        outs = party.handle_line(wrong)
        assert sent(outs) == [] and "numbers 1 to 3" in words(outs)
    assert sent(party.handle_line("2")) == [RunAnswer(run=CHOOSING.run, question=13, text="2")]


def test_without_a_question_about_rows_none_is_deselected() -> None:
    party = RunClient(GivenAnswers(), can_ask=True)
    party.receive(said(structs.replace(CHOOSING, table=None), TYPED))
    outs = party.handle_line("/x 1")
    assert sent(outs) == [] and "no open question is about rows" in words(outs)
