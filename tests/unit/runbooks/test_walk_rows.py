"""Rows of a preview that are left out before the confirmation: what is acted on are those that are chosen, whatever
happens between the choice and the act.
"""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.actions.action_preview import ActionPreview
from dba_console.recording.plan import Block, Confirmation, Plan
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.view_builder import LiveStatus, run_view
from dba_console.runbooks.walk_requests import OperatorInterrupt, Outcome, ReadResult
from tests.unit.runbooks.scripted_agent import (
    AgentKilled,
    ScriptedAgent,
    begin,
    block,
    drive,
    plan_of,
    resume,
    run,
    step,
)

COUNT = Confirmation(level="type", text="count")
ROWS = tuple({"pid": pid, "usename": "app", "waits_s": 5 * pid} for pid in (7, 8, 9))
BY_ROWS = "select pg_cancel_backend(pid) from jsonb_to_recordset(%(rows)s) as x(pid int)"
ACTION = {"verb": "cancel", "rows": "%(idlers)s"}


def choose(*places: int, look: int = 1, block_id: str = "a/preview") -> OperatorInterrupt:
    return OperatorInterrupt(verb="choose", who="ann", block=block_id, look=look, rows=places)


def plan(*acts: Block, **settings: Any) -> Plan:
    return plan_of(step("a", block("a/preview", "preview", name="idlers", settings=settings), *acts))


def change(**given: Any) -> Block:
    return block("a/change", "change", **{"body": BY_ROWS, "confirm": COUNT, **given})


def agent_with_rows(
    *said: str | OperatorInterrupt, rows: tuple[dict[str, Any], ...] = ROWS, **given: Any
) -> ScriptedAgent:
    answers = {"a/change": list(said), "a/action": list(said), "a/confirm": list(said)}
    return ScriptedAgent(results={"a/preview": [ReadResult(rows=rows)]}, answers=answers, **given)


def pids(rows: Any) -> list[int]:
    return [row["pid"] for row in rows]


def test_a_deselected_row_is_not_changed_and_the_count_to_type_follows() -> None:
    ending, state, agent = run(plan(change()), agent_with_rows(choose(0, 2)))
    assert ending.state == "done"
    assert pids(state.executions[0].intent.fields["rows"]) == [7, 9]
    assert [asked.expects for asked in agent.asked if asked.kind == "type"] == ["3", "2"]
    assert "On db2, 2 of 3 rows: type `2`" in agent.asked[-1].text
    assert pids(state.values["idlers"]["rows"]) == [7, 9]


def test_the_journal_names_the_operator_and_the_selected_and_deselected_rows() -> None:
    _, _, agent = run(plan(change()), agent_with_rows(choose(0, 2)))
    (chosen,) = (record for record in agent.records if record.kind == "rows.chosen")
    assert (chosen.block, chosen.who) == ("a/preview", "ann")
    assert (chosen.fields["chosen"], chosen.fields["left_out"]) == ([0, 2], [1])
    assert chosen.text == "a/preview: 2 of 3 rows chosen by ann; not chosen: pid 8, usename app"
    asked = [record.text for record in agent.records if record.kind == "block.asked" and record.block == "a/change"]
    assert "type `3`" in asked[0] and "type `2`" in asked[1]


def test_a_row_may_be_selected_again() -> None:
    _, state, agent = run(plan(change()), agent_with_rows(choose(0), choose(0, 1, 2)))
    assert pids(state.executions[0].intent.fields["rows"]) == [7, 8, 9]
    reported = [record.text for record in agent.records if record.kind == "rows.chosen"]
    assert reported[1] == "a/preview: 3 of 3 rows chosen by ann"


def test_rows_not_preselected_by_the_author_are_shown_and_not_selected() -> None:
    rows = tuple({"pid": pid, "lost": lost} for pid, lost in ((7, True), (8, False), (9, None)))
    runbook = plan(change(), chosen="lost")
    _, state, agent = run(runbook, agent_with_rows(rows=rows))
    assert pids(state.executions[0].intent.fields["rows"]) == [7]
    assert agent.asked[-1].expects == "1"
    assert state.blocks["a/preview"].note == "3 rows, 1 chosen; not chosen: pid 8, lost false; pid 9, lost -"
    _, state, _ = run(runbook, agent_with_rows(choose(1, 2), rows=rows))
    assert pids(state.executions[0].intent.fields["rows"]) == [8, 9]


@pytest.mark.parametrize("rows", [({"pid": 7},), ({"pid": 7, "lost": "t"},)])
def test_a_column_that_is_neither_true_nor_false_selects_nothing(rows: tuple[dict[str, Any], ...]) -> None:
    agent = agent_with_rows(rows=rows)
    agent.answers["failed"] = ["abort"]
    ending, state, agent = run(plan(change(), chosen="lost"), agent)
    assert (ending.state, agent.done) == ("failed", [])
    assert "no boolean column lost" in state.blocks["a/preview"].note


def test_with_no_row_selected_the_change_is_skipped_and_that_is_reported() -> None:
    ending, state, agent = run(plan(change()), agent_with_rows(choose()))
    assert (ending.state, agent.done) == ("done", [])
    assert "none of 3 rows is chosen, nothing to do" in agent.asked[-1].text
    assert [option.key for option in agent.asked[-1].options] == ["none"]
    assert state.blocks["a/change"].note == "nothing to act on: no row of a/preview is chosen"
    assert state.steps["a"].status == "ok"


def test_with_no_row_preselected_the_operator_can_still_select_one() -> None:
    rows = ({"pid": 7, "lost": False}, {"pid": 8, "lost": False})
    _, state, agent = run(plan(change(), chosen="lost"), agent_with_rows(choose(1), rows=rows))
    assert pids(state.executions[0].intent.fields["rows"]) == [8]
    assert [asked.kind for asked in agent.asked] == ["start", "choose", "type"]


def test_an_action_gets_the_selected_rows_and_reads_them_again() -> None:
    action = block("a/action", "action", action="signal-backend", settings=ACTION, confirm=COUNT)
    counts = (3, 1)
    previews = [ReadResult(action_preview=ActionPreview(text=f"Cancel {n}", exact="", count=n)) for n in counts]
    agent = agent_with_rows(choose(1))
    agent.results["a/action"] = previews
    _, state, agent = run(plan(action), agent)
    assert state.executions[0].intent.fields["action_preview"]["count"] == 1
    assert [asked.expects for asked in agent.asked if asked.kind == "type"] == ["3", "1"]
    assert "Cancel 1. On db2, 1 of 3 rows: type `1`" in agent.asked[-1].text
    assert pids(state.values["idlers"]["rows"]) == [8]


def test_a_per_row_change_is_done_once_for_each_selected_one() -> None:
    runbook = plan(change(settings={"each": True}))
    outcomes = [Outcome(state="failed", text="no"), Outcome(state="ok", text="1")]
    agent = agent_with_rows(choose(1, 2), outcomes={"a/change": outcomes})
    agent.answers["failed"] = ["retry"]
    ending, state, agent = run(runbook, agent)
    assert ending.state == "done"
    assert [one.intent.fields["row"]["pid"] for one in state.executions] == [8, 8, 9]
    assert state.executions[0].intent.fields["row_count"] == 2


def test_a_confirmation_before_its_changes_selects_the_rows_of_all_of_them() -> None:
    asked = block("a/confirm", "confirm", confirm=COUNT)
    _, state, agent = run(plan(asked, change(confirm=None)), agent_with_rows(choose(2)))
    assert pids(state.executions[0].intent.fields["rows"]) == [9]
    assert [one.expects for one in agent.asked if one.kind == "type"] == ["3", "1"]
    ending, state, agent = run(plan(asked, change(confirm=None)), agent_with_rows(choose()))
    assert (ending.state, agent.done) == ("done", [])
    assert state.blocks["a/confirm"].note == "nothing to act on: no row of a/preview is chosen"
    assert state.blocks["a/change"].status == "skipped"


def test_rows_that_only_describe_a_change_cannot_be_selected() -> None:
    runbook = plan(change(body="drop database shop"))
    _, state, agent = run(runbook, agent_with_rows(choose(0)))
    assert agent.asked[-1].rows == "" and "not about these rows" in agent.rejected[0]
    assert len(state.executions) == 1
    assert state.table is None or state.table.chosen == ()


@pytest.mark.parametrize(
    "stale", [choose(0, look=2), choose(0, block_id="a/other"), choose(0, block_id="a/change")], ids=str
)
def test_a_selection_among_rows_other_than_those_in_question_changes_nothing(stale: OperatorInterrupt) -> None:
    _, state, agent = run(plan(change()), agent_with_rows(stale))
    assert pids(state.executions[0].intent.fields["rows"]) == [7, 8, 9]
    assert len(agent.rejected) == 1


def test_a_selection_after_the_change_is_done_has_no_effect() -> None:
    runbook = plan(change(), block("a/manual", "manual"))
    agent = agent_with_rows()
    agent.answers["a/manual"] = [choose(0)]
    ending, state, agent = run(runbook, agent)
    assert ending.state == "done" and len(agent.rejected) == 1
    assert pids(state.blocks["a/preview"].chosen) == [7, 8, 9]


def test_a_selection_survives_an_agent_kill_and_a_new_row_is_not_selected() -> None:
    runbook = plan(change())
    agent = agent_with_rows(choose(0, 2), "2")
    later = tuple({"pid": pid, "usename": "app", "waits_s": 60} for pid in (7, 8, 9, 11))
    agent.results["a/preview"].append(ReadResult(rows=later))
    agent.kill_after = 9
    with pytest.raises(AgentKilled):
        drive(runbook, begin(runbook, agent), agent)
    assert (agent.records[-1].kind, agent.done) == ("block.answered", [])
    ending, state = resume(runbook, agent)
    assert ending.state == "done"
    assert pids(state.executions[-1].intent.fields["rows"]) == [7, 9]
    assert [asked.expects for asked in agent.asked if asked.kind == "type"] == ["3", "2", "2"]
    assert "2 of 4 rows" in agent.asked[-1].text


def test_a_selection_survives_a_retry_and_not_another_round() -> None:
    failed = Outcome(state="failed", text="more rows than were shown")
    again = block("a/repeat", "repeat", settings={"from": "a", "times": 2, "every_s": 1})
    agent = agent_with_rows(choose(0), "1", outcomes={"a/change": [failed]})
    agent.answers["failed"] = ["retry"]
    _, state, agent = run(plan(change(), again), agent)
    assert [pids(one.intent.fields["rows"]) for one in state.executions] == [[7], [7], [7, 8, 9]]


def test_a_session_that_has_moved_on_to_something_else_is_a_new_row() -> None:
    runbook = plan(change())
    rows = tuple({**row, "query": "select 1"} for row in ROWS)
    agent = agent_with_rows(choose(0, 1), rows=rows, outcomes={"a/change": [Outcome(state="failed", text="no")]})
    agent.results["a/preview"].append(ReadResult(rows=({**rows[0], "query": "select 2"}, *rows[1:])))
    agent.answers["failed"] = ["retry"]
    _, state, _ = run(runbook, agent)
    assert [pids(one.intent.fields["rows"]) for one in state.executions] == [[7, 8], [8]]


def test_a_row_indistinguishable_from_a_deselected_one_stays_deselected() -> None:
    rows = ({"user": "app", "sessions": 3}, {"user": "app", "sessions": 5}, {"user": "web", "sessions": 1})
    agent = agent_with_rows(choose(0, 2), rows=rows, outcomes={"a/change": [Outcome(state="failed", text="no")]})
    agent.answers["failed"] = ["retry"]
    _, state, _ = run(plan(change()), agent)
    assert [row["user"] for row in state.executions[-1].intent.fields["rows"]] == ["web"]


def test_a_row_for_which_a_change_is_refused_can_be_deselected_there() -> None:
    action = block("a/action", "action", action="signal-backend", settings=ACTION, confirm=COUNT)
    previews = [
        ActionPreview(text="", exact="", refusal="process 8 is a walsender"),
        ActionPreview(text="Cancel 2", exact="", count=2),
    ]
    agent = ScriptedAgent(results={"a/preview": [ReadResult(rows=ROWS)]}, answers={"a/action:failed": [choose(0, 2)]})
    agent.results["a/action"] = [ReadResult(action_preview=action_preview) for action_preview in previews]
    ending, state, agent = run(plan(action), agent)
    assert (ending.state, len(agent.done), state.deviations) == ("done", 1, [])
    assert [(asked.kind, asked.rows) for asked in agent.asked[1:]] == [("failed", "a/preview"), ("type", "a/preview")]
    assert pids(state.values["idlers"]["rows"]) == [7, 9]


def test_a_selection_among_already_changed_rows_is_too_late() -> None:
    agent = agent_with_rows(outcomes={"a/change": [Outcome(state="failed", text="no")]})
    agent.answers["failed"] = [choose(0), "abort"]
    _, _, agent = run(plan(change()), agent)
    assert len(agent.rejected) == 1 and agent.asked[-1].rows == ""


def test_selected_rows_are_shown_by_their_marks_and_not_by_a_column() -> None:
    rows = ({"pid": 7, "lost": True}, {"pid": 8, "lost": False})
    _, state, _ = run(plan(change(), chosen="lost"), agent_with_rows(rows=rows))
    table = state.blocks["a/preview"].table
    assert table is not None and (table.columns, table.chosen) == (("pid",), (True, False))


def test_the_view_marks_the_selected_rows_and_names_their_preview() -> None:
    runbook = plan(change())
    agent = agent_with_rows(choose(0, 2))
    run(runbook, agent)
    at = next(place for place, one in enumerate(agent.records) if one.kind == "rows.chosen")
    for upto, chosen in ((at, (True, True, True)), (at + 1, (True, False, True))):
        state = replay_records(runbook, agent.records[:upto])
        state.current = "a/change"
        shown = run_view(runbook, state, LiveStatus(now_us=1))
        assert shown.table is not None
        assert (shown.table.block, shown.table.look, shown.table.chosen) == ("a/preview", 1, chosen)
    assert "on 2 of 3 rows of a/preview" in shown.blocks[1].exact


def test_a_rehearsal_shows_how_many_rows_would_be_changed() -> None:
    rows = ({"pid": 7, "lost": True}, {"pid": 8, "lost": False})
    ending, _, agent = run(plan(change(), chosen="lost"), agent_with_rows(rows=rows), mode="rehearse")
    assert ending.state == "done"
    assert any("would run on 1 of 2 rows" in record.text for record in agent.records)
    ending, _, _ = run(plan(change(), chosen="gone"), agent_with_rows(rows=rows), mode="rehearse")
    assert ending.state == "failed"
