"""Taking back: only what a person chose, the last step first, never past a point of no return."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec.structs import replace

from dba_console.actions.action_preview import ActionPreview
from dba_console.recording.plan import Block, Confirmation, Plan, Step
from dba_console.runbooks.run_view import Option
from dba_console.runbooks.walk_requests import OperatorInterrupt, Outcome, ReadResult
from tests.unit.runbooks.scripted_agent import (
    AgentKilled,
    ScriptedAgent,
    begin,
    block,
    drive,
    kinds,
    plan_of,
    resume,
    run,
    step,
)

LAST = step("z", block("z/check", "check"))
TUNED = step("t", block("t/action", "action", action="set-parameters", settings={"temporary": True, "settings": {}}))
BACK = step("p", block("p/action", "action", action="put-back", settings={"of": "run"}))
GONE = Outcome(state="unknown", text="connection refused")


def undoable(step_id: str, **given: Any) -> Step:
    """A change with an undo its author wrote."""
    undo = (block(f"{step_id}/undo", "undo", language="sql"),)
    return step(step_id, block(f"{step_id}/change", "change"), undo=undo, **given)


def agent_failing_last_check(*undo: str, **given: Any) -> ScriptedAgent:
    """The last check fails, the run is ended there."""
    return ScriptedAgent(
        results={"z/check": [ReadResult(holds=False, text="no")]},
        answers={"failed": ["abort"], "undo": [*undo]},
        **given,
    )


def test_steps_are_reverted_in_reverse_order() -> None:
    plan = plan_of(undoable("a"), undoable("b"), LAST)
    ending, state, agent = run(plan, agent_failing_last_check("all"))
    assert [one for one, _ in agent.reverted] == ["b/undo", "a/undo"]
    assert {one: known.status for one, known in state.steps.items()} == {"a": "undone", "b": "undone", "z": "failed"}
    assert ending.state == "failed"
    assert ending.text == "run failed: z/check: does not hold: no; reverted: b, a"


@pytest.mark.parametrize(("answer", "taken"), [("none", []), ("a", ["a/undo"]), ("a, b", ["b/undo", "a/undo"])])
def test_the_operator_selects_which(answer: str, taken: list[str]) -> None:
    plan = plan_of(undoable("a"), undoable("b"), LAST)
    _, _, agent = run(plan, agent_failing_last_check("", "everything", "all none", answer))
    assert len(agent.rejected) == 3
    assert [one for one, _ in agent.reverted] == taken


def test_an_end_past_a_point_of_no_return_names_what_stays() -> None:
    plan = plan_of(undoable("a"), undoable("b", point_of_no_return=True), undoable("c"), LAST)
    ending, _, agent = run(plan, agent_failing_last_check("all"))
    assert [one for one, _ in agent.reverted] == ["c/undo"]
    assert ending.text.endswith("b was a point of no return: nothing before it is reverted; reverted: c")
    plan = plan_of(undoable("a"), step("b", block("b/change", "change"), point_of_no_return=True), LAST)
    ending, _, agent = run(plan, agent_failing_last_check())
    assert ending.text.endswith("b was a point of no return: nothing before it is reverted")
    assert "undo" not in [asked.kind for asked in agent.asked]


def test_a_failed_undo_can_be_skipped_and_the_others_continue() -> None:
    plan = plan_of(undoable("a"), undoable("b"), undoable("c"), LAST)
    agent = agent_failing_last_check("all", outcomes={"b/undo": [Outcome(state="failed", text="lock timeout")]})
    agent.answers["b/undo:failed"] = ["skip later by hand"]
    ending, state, agent = run(plan, agent)
    assert [one for one, _ in agent.reverted] == ["c/undo", "b/undo", "a/undo"]
    assert {one: state.steps[one].status for one in "abc"} == {"a": "undone", "b": "ok", "c": "undone"}
    assert ending.text.endswith("reverted: c, a; not reverted: b (b/undo: lock timeout (later by hand))")


def test_with_automatic_reverts_a_failed_undo_stops_no_other() -> None:
    plan = replace(plan_of(undoable("a"), undoable("b"), undoable("c"), LAST), reverts=True)
    agent = agent_failing_last_check(outcomes={"b/undo": [Outcome(state="failed", text="lock timeout")]})
    ending, state, agent = run(plan, agent)
    assert [one for one, _ in agent.reverted] == ["c/undo", "b/undo", "a/undo"]
    assert [asked.kind for asked in agent.asked] == ["start", "failed"]
    assert ending.text.endswith("reverted: c, a; not reverted: b (b/undo: lock timeout)")
    assert [record.fields["what"] for record in state.deviations] == ["skip"]


@pytest.mark.parametrize("text", ["count", "name"])
def test_an_undo_does_not_ask_for_the_count_of_its_change(text: str) -> None:
    plan = plan_of(step("a", action("a/action", confirm=Confirmation(level="type", text=text))), LAST)
    agent = agent_failing_last_check("all", outcomes={"a/action": [Outcome(state="ok", text="set", undo={"was": 1})]})
    agent.results["a/action"] = [
        ReadResult(action_preview=ActionPreview(text="one", exact="set it", count=1, name="x"))
    ]
    _, state, agent = run(plan, agent)
    assert state.steps["a"].status == "undone"
    assert [asked.kind for asked in agent.asked if asked.block == "a/action"] == ["type", "yes"]


def test_a_manually_passed_point_of_no_return_counts() -> None:
    plan = plan_of(undoable("a"), step("b", block("b/manual", "manual"), point_of_no_return=True), LAST)
    _, _, agent = run(plan, agent_failing_last_check("all"))
    assert (agent.reverted, "undo" in [asked.kind for asked in agent.asked]) == ([], False)


def test_an_unreached_point_of_no_return_has_no_effect() -> None:
    plan = plan_of(undoable("a"), LAST, undoable("y", point_of_no_return=True))
    _, _, agent = run(plan, agent_failing_last_check("all"))
    assert [one for one, _ in agent.reverted] == ["a/undo"]


def test_a_step_that_changed_nothing_is_not_offered() -> None:
    refused = [Outcome(state="refused", text="another server")]
    plan = plan_of(undoable("a"), undoable("b"), LAST)
    agent = agent_failing_last_check("all", outcomes={"b/change": refused})
    agent.answers["b/change"] = ["skip it is not ours"]
    _, _, agent = run(plan, agent)
    assert [one for one, _ in agent.reverted] == ["a/undo"]


def action(block_id: str, **given: Any) -> Block:
    return block(block_id, "action", action="set-parameters", **given)


def test_an_action_is_reverted_per_execution_the_last_one_first() -> None:
    again = block("a/repeat", "repeat", settings={"from": "a", "times": 2})
    plan = plan_of(step("a", action("a/action"), again), LAST)
    outcomes = [Outcome(state="ok", text="set", undo={"was": value}) for value in ("4MB", "8MB")]
    _, state, agent = run(plan, agent_failing_last_check("all", outcomes={"a/action": outcomes}))
    assert agent.reverted == [("a/action", {"was": "8MB"}), ("a/action", {"was": "4MB"})]
    assert state.steps["a"].status == "undone"


def test_an_action_declared_without_undo_is_not_offered() -> None:
    plan = plan_of(step("a", action("a/action", undo="none")), LAST)
    _, _, agent = run(plan, agent_failing_last_check("all"))
    assert agent.reverted == []


def test_reverting_is_confirmed_and_can_be_declined() -> None:
    plan = plan_of(undoable("a"), LAST)
    agent = agent_failing_last_check("all")
    agent.answers["a/undo"] = ["no"]
    agent.answers["a/undo:failed"] = ["skip leave it"]
    ending, state, agent = run(plan, agent)
    assert (agent.reverted, state.steps["a"].status) == ([], "ok")
    assert ending.text.endswith("not reverted: a (a/undo: declined by ann (leave it))")


def test_a_failed_undo_waits_for_a_decision_and_an_abort_ends_the_run() -> None:
    plan = plan_of(undoable("a"), undoable("b"), LAST)
    agent = agent_failing_last_check("all", outcomes={"b/undo": [Outcome(state="failed", text="lock timeout")]})
    agent.answers["b/undo:failed"] = ["abort"]
    ending, state, agent = run(plan, agent)
    assert [one for one, _ in agent.reverted] == ["b/undo"]
    assert ending.state == "failed"
    assert "revert aborted" in ending.text
    assert [state.steps[one].status for one in "ab"] == ["ok", "ok"]


def test_a_failed_undo_can_be_retried() -> None:
    plan = plan_of(undoable("a"), LAST)
    agent = agent_failing_last_check("all", outcomes={"a/undo": [Outcome(state="failed", text="lock timeout")]})
    agent.answers["a/undo:failed"] = ["retry"]
    _, state, agent = run(plan, agent)
    assert (agent.done[-2:], state.steps["a"].status) == ([("a/undo", 1), ("a/undo", 2)], "undone")


def test_an_undo_with_unknown_outcome_is_resolved_and_not_repeated() -> None:
    plan = plan_of(undoable("a"), LAST)
    unknown = Outcome(state="unknown", text="the connection broke")
    _, state, agent = run(plan, agent_failing_last_check("all", outcomes={"a/undo": [unknown]}))
    assert agent.resolved == [("a/undo", 1)]
    assert [one for one, _ in agent.reverted] == ["a/undo"]
    assert state.steps["a"].status == "undone"


@pytest.mark.parametrize("verb", ["abort", "undo"])
def test_a_run_aborted_by_the_operator_offers_the_same(verb: Any) -> None:
    plan = plan_of(undoable("a"), step("b", block("b/manual", "manual")))
    interrupt = OperatorInterrupt(verb=verb, who="ann", reason="wrong window")
    ending, _, agent = run(plan, ScriptedAgent(answers={"manual": [interrupt], "undo": ["all"]}))
    assert (ending.state, [one for one, _ in agent.reverted]) == ("aborted", ["a/undo"])
    assert ending.text == "run aborted: wrong window; reverted: a"


def test_nothing_is_reverted_automatically() -> None:
    plan = plan_of(undoable("a"), LAST)
    interrupt = OperatorInterrupt(verb="abort", who="ann", reason="leave it")
    agent = agent_failing_last_check()
    agent.answers["undo"] = [interrupt]
    ending, _, agent = run(plan, agent)
    assert (ending.state, agent.reverted) == ("failed", [])
    assert kinds(agent.records, "undo.offered", "undo.began") == ["undo.offered"]


def test_a_step_that_failed_midway_is_offered_too() -> None:
    half = step("a", block("a/change", "change"), block("a/check", "check"), undo=(block("a/undo", "undo"),))
    agent = ScriptedAgent(results={"a/check": [ReadResult(holds=False)]}, answers={"failed": ["abort"], "undo": ["a"]})
    _, state, agent = run(plan_of(half), agent)
    assert [one for one, _ in agent.reverted] == ["a/undo"]
    assert state.steps["a"].status == "undone"


def test_temporary_settings_are_reverted_before_any_question_and_without_one() -> None:
    ending, _, agent = run(plan_of(undoable("a"), TUNED, LAST), agent_failing_last_check("none"))
    assert agent.reverts == ["t/action"] and agent.reverted == []
    assert [one.options[2:] for one in agent.asked if one.kind == "undo"] == [(Option(key="a", text="A"),)]
    reported = [one for one in kinds(agent.records) if one.startswith(("undo.", "block.asked", "run.ended"))]
    assert reported[-4:] == ["undo.offered", "undo.settings t/action", "block.asked", "run.ended"]
    assert ending.text == "run failed: z/check: does not hold: no; temporary settings reverted; not reverted: a"
    _, _, agent = run(plan_of(TUNED, LAST), agent_failing_last_check())
    assert "undo" not in [one.kind for one in agent.asked] and agent.reverts == ["t/action"]


@pytest.mark.parametrize(
    ("plan", "outcome"),
    [(plan_of(TUNED, BACK, LAST), "ok"), (plan_of(LAST, TUNED), "ok"), (plan_of(TUNED, LAST), "refused")],
)
def test_a_setting_reverted_or_never_set_is_not_reverted(plan: Plan, outcome: Literal["ok", "refused"]) -> None:
    agent = agent_failing_last_check("none", outcomes={"t/action": [Outcome(state=outcome, text="so")]})
    assert run(plan, agent)[0].state == "failed" and agent.reverts == []


def test_settings_stay_a_finding_if_the_server_does_not_answer_within_a_minute() -> None:
    agent = agent_failing_last_check(revert_outcomes=[GONE] * 100)
    begun_us = agent.wall_us
    ending, _, agent = run(plan_of(TUNED, LAST), agent)
    assert ending.state == "failed" and 60 <= (agent.wall_us - begun_us) / 1e6 < 75
    assert "cannot revert temporary settings: connection refused; use runbook put-back" in ending.text
    ending, _, agent = run(plan_of(TUNED, LAST), agent_failing_last_check(revert_outcomes=[GONE] * 3))
    assert len(agent.reverts) == 4 and ending.text.endswith("; temporary settings reverted")


def test_a_change_of_unknown_outcome_does_not_prevent_reverting_settings() -> None:
    """Once a person has given the run up, nobody is asked about it again."""
    unknown = Outcome(state="unknown", text="the connection broke")
    agent = ScriptedAgent(
        outcomes={"a/change": [unknown]}, resolutions={"a/change": [unknown] * 9}, answers={"settle": ["abort"] * 2}
    )
    ending, state, agent = run(plan_of(TUNED, step("a", block("a/change", "change"))), agent)
    assert agent.reverts == ["t/action"] and [one.kind for one in agent.asked].count("settle") == 1
    assert (ending.state, state.steps["a"].status) == ("failed", "unknown")


def test_a_revert_of_settings_interrupted_by_a_kill_is_completed() -> None:
    plan = plan_of(TUNED, LAST)
    _, _, whole = run(plan, agent_failing_last_check())
    for place, record in enumerate(whole.records):
        if record.kind not in ("undo.offered", "undo.settings"):
            continue
        agent = agent_failing_last_check(kill_after=place + 1)
        with pytest.raises(AgentKilled):
            drive(plan, begin(plan, agent), agent)
        ending, _ = resume(plan, agent)
        assert ending.text.endswith("; temporary settings reverted") and agent.reverts == ["t/action"]
