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
from tests.unit.cli.running.test_run_client import exit_codes, printed_text, requests, view_message
from tests.walkthrough.sample_views import CHOOSING, CHOSEN, ROWS, TYPED

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
    return view_message(base, structs.replace(CHOSEN, id=question, expects=str(len(places))))


def first(client: RunClient) -> list[Request]:
    return requests(client.receive(view_message(CHOOSING, CHOSEN)))


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
    client = headless(leave_out=("drop=pid=811",), confirm="2")
    first(client)
    assert requests(client.receive(after(0, 2))) == [RunAnswer(run=CHOOSING.run, question=12, text="2")]
    client = headless(leave_out=("drop=pid=811",), confirm="3")
    first(client)
    reactions = client.receive(after(0, 2))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"]


@pytest.mark.parametrize("option", ["choose", "leave_out"])
def test_a_missing_row_ends_the_run_and_nothing_is_done(option: str) -> None:
    client = headless(**{option: ("drop=pid=4711",)}, confirm="3")
    reactions = client.receive(view_message(CHOOSING, CHOSEN))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"]
    assert "does not fit: no row has pid 4711" in printed_text(reactions)
    client = headless(**{option: ("drop=pdi=810",)}, confirm="3")
    assert "the rows have pid, usename, query" in printed_text(client.receive(view_message(CHOOSING, CHOSEN)))


def test_with_no_row_selected_no_confirmation_is_needed() -> None:
    client = headless(choose=("drop=none",), confirm="3")
    first(client)
    none = structs.replace(CHOSEN, id=12, kind="choose", expects="", options=NONE)
    table = structs.replace(ROWS, chosen=(False,) * 3)
    reactions = client.receive(view_message(structs.replace(CHOOSING, table=table), none))
    assert requests(reactions) == [RunAnswer(run=CHOOSING.run, question=12, text="none")]
    someone = RunClient(GivenAnswers(), can_ask=True)
    assert requests(someone.receive(view_message(structs.replace(CHOOSING, table=table), none))) == []


def test_a_refused_or_ignored_selection_ends_the_run() -> None:
    client = headless(leave_out=("drop=pid=811",), confirm="2")
    first(client)
    reactions = client.receive(RunRefused(text="these rows are not asked about now", reply_to=CHOOSING.run))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"]
    client = headless(leave_out=("drop=pid=811",), confirm="2")
    first(client)
    reactions = client.receive(after(0, 1, 2))
    assert [one.verb for one in requests(reactions) if isinstance(one, RunControl)] == ["abort"] and exit_codes(
        reactions
    ) == []


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
    client = RunClient(GivenAnswers(), can_ask=True)
    client.receive(view_message(CHOOSING, CHOSEN))
    assert requests(client.handle_line("/x 2")) == [choice(0, 2)]
    client.receive(after(0, 2))
    assert requests(client.handle_line("/x 1, 2")) == [choice(1, 2)]
    client.receive(after(1, 2, question=13))
    for wrong in ("/x", "/x 4", "/x 0", "/x two"):
        reactions = client.handle_line(wrong)
        assert requests(reactions) == [] and "numbers 1 to 3" in printed_text(reactions)
    assert requests(client.handle_line("2")) == [RunAnswer(run=CHOOSING.run, question=13, text="2")]


def test_without_a_question_about_rows_none_is_deselected() -> None:
    client = RunClient(GivenAnswers(), can_ask=True)
    client.receive(view_message(structs.replace(CHOOSING, table=None), TYPED))
    reactions = client.handle_line("/x 1")
    assert requests(reactions) == [] and "no open question is about rows" in printed_text(reactions)
