"""Decisions, branches, rounds, waits: every way through a plan, and what is said of the steps not walked."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.recording.plan import Confirmation, Plan
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.walk import walk
from dba_console.runbooks.walk_requests import OperatorInterrupt, Outcome, PauseRequest, ReadResult, TimePassed
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


def change(step_id: str) -> Any:
    return block(f"{step_id}/change", "change")


def forked_plan() -> Plan:
    """Two branches that meet again."""
    ways = [
        {"key": "small", "text": "", "goto": "next"},
        {"key": "big", "text": "", "goto": "big"},
        {"key": "stop", "text": "", "goto": "end"},
    ]
    return plan_of(
        step("look", block("look/choose", "choose", settings={"question": "How big?", "options": ways})),
        step("small", change("small"), then="after"),
        step("big", change("big"), branch=True),
        step("after", change("after")),
    )


@pytest.mark.parametrize(
    ("answer", "walked", "skipped"),
    [
        ("small", ["small", "after"], {"big": "jumped to after"}),
        ("big", ["big", "after"], {"small": "jumped to big"}),
        ("stop", [], {"small": "jumped to the end", "big": "jumped to the end", "after": "jumped to the end"}),
    ],
)
def test_every_option_of_a_decision_leads_to_its_step(answer: str, walked: list[str], skipped: dict[str, str]) -> None:
    ending, state, agent = run(forked_plan(), ScriptedAgent(answers={"choose": ["neither", answer]}))
    assert ending.state == "done"
    assert [one for one, _ in agent.done] == [f"{one}/change" for one in walked]
    assert {one: known.note for one, known in state.steps.items() if known.status == "skipped"} == skipped
    assert agent.rejected == ["invalid answer 'neither': expected one of small, big, stop"]


def test_a_branch_is_not_entered_from_the_step_above() -> None:
    plan = plan_of(step("a", change("a")), step("b", change("b"), branch=True), step("c", change("c")))
    _, state, agent = run(plan)
    assert [one for one, _ in agent.done] == ["a/change", "c/change"]
    assert state.steps["b"].note == "branch not chosen"


def test_a_branch_that_was_not_taken_leads_nowhere() -> None:
    """`then` belongs to who came along the branch: a step passed over does not send the run elsewhere."""
    plan = plan_of(step("a", change("a"), branch=True, then="end"), step("b", change("b")))
    _, _, agent = run(plan)
    assert [one for one, _ in agent.done] == ["b/change"]


def test_blocks_after_a_decision_are_skipped_when_it_leads_to_another_step() -> None:
    ways = [{"key": "away", "text": "", "goto": "b"}]
    plan = plan_of(
        step("a", block("a/choose", "choose", settings={"options": ways}), change("a")), step("b", change("b"))
    )
    _, state, agent = run(plan)
    assert [one for one, _ in agent.done] == ["b/change"]
    assert state.blocks["a/change"].status == "skipped"


def looping_plan(**settings: Any) -> Plan:
    settings = {"from": "a", "every_s": 1800, **settings}
    return plan_of(
        step("a", change("a")), step("b", block("b/repeat", "repeat", settings=settings)), step("c", change("c"))
    )


def test_rounds_are_counted_and_their_execution_numbers_continue() -> None:
    _, state, agent = run(looping_plan(times=3))
    assert agent.done == [("a/change", 1), ("a/change", 2), ("a/change", 3), ("c/change", 1)]
    assert (state.steps["a"].round, state.steps["b"].round, state.steps["c"].round) == (3, 3, 1)


def test_rounds_continue_while_the_condition_holds_and_stop_when_it_is_unknown() -> None:
    going = {"language": "expr", "text": "stalled"}
    looks = [ReadResult(holds=True), ReadResult(holds=True), ReadResult(holds=False, text="no stall")]
    _, state, agent = run(looping_plan(**{"while": going}), ScriptedAgent(results={"b/repeat:while": looks}))
    assert [one for one, _ in agent.done] == ["a/change"] * 3 + ["c/change"]
    assert state.blocks["b/repeat"].note == "condition no longer true: no stall"
    agent = ScriptedAgent(results={"b/repeat:while": [ReadResult(holds=None)]}, answers={"failed": ["abort"]})
    ending, _, _ = run(looping_plan(**{"while": going}), agent)
    assert ending.state == "failed"


def test_the_operator_decides_on_another_round() -> None:
    _, _, agent = run(looping_plan(ask=True), ScriptedAgent(answers={"choose": ["again", "enough"]}))
    assert [one for one, _ in agent.done] == ["a/change"] * 2 + ["c/change"]


def test_the_time_between_rounds_is_not_restarted_after_a_kill() -> None:
    plan = looping_plan(times=2)
    agent = ScriptedAgent()
    state = begin(plan, agent)
    requests = walk(plan, state, now=agent.now)
    request = next(requests)
    while not isinstance(request, PauseRequest):
        request = requests.send(agent.reply(request))
    due = request.until_us
    agent.wall_us += 600_000_000
    again = walk(plan, replay_records(plan, agent.records), now=agent.now)
    request = next(again)
    while not isinstance(request, PauseRequest):
        request = again.send(agent.reply(request))
    assert (request.until_us, request.seconds) == (due, 1200.0)
    again.send(TimePassed(seconds=1200.0, wall_us=agent.wall_us))


UNTIL = {"until": {"language": "expr", "text": "replication.lag_s < 1"}, "every_s": 5}


def test_a_wait_reads_until_its_condition_holds_and_unknown_is_not_true() -> None:
    plan = plan_of(step("a", block("a/wait", "wait", settings=UNTIL)))
    looks = [
        ReadResult(holds=None, text="?"),
        ReadResult(holds=True, error="no connection"),
        ReadResult(holds=False),
        ReadResult(holds=True),
    ]
    ending, state, _ = run(plan, ScriptedAgent(results={"a/wait": looks}))
    assert (ending.state, state.blocks["a/wait"].machine_s) == ("done", 15.0)


def test_the_hold_time_of_a_wait_restarts_when_the_condition_fails() -> None:
    plan = plan_of(step("a", block("a/wait", "wait", settings={**UNTIL, "hold_for_s": 10})))
    looks = [ReadResult(holds=True), ReadResult(holds=True), ReadResult(holds=False), ReadResult(holds=True)]
    _, state, _ = run(plan, ScriptedAgent(results={"a/wait": looks}))
    assert state.blocks["a/wait"].machine_s == 25.0


@pytest.mark.parametrize(("answers", "end", "waited"), [(["wait"], "done", 20.0), (["abort"], "failed", 12.0)])
def test_a_wait_that_timed_out_is_decided_by_the_operator(answers: list[Any], end: str, waited: float) -> None:
    plan = plan_of(step("a", block("a/wait", "wait", settings=UNTIL, timeout_s=12)))
    looks = [ReadResult(holds=False)] * 5 + [ReadResult(holds=True)]
    ending, state, agent = run(plan, ScriptedAgent(results={"a/wait": looks}, answers={"failed": answers}))
    assert ending.state == end
    assert "wait" in [option.key for option in agent.asked[1].options]
    assert state.blocks["a/wait"].machine_s == waited - (3 if end == "done" else 0)


def test_a_wait_shows_what_it_waits_for() -> None:
    plan = plan_of(step("a", block("a/wait", "wait", settings=UNTIL)))
    agent = ScriptedAgent(
        results={"a/wait": [ReadResult(holds=False, text=f"{n} left", values={"n": n}) for n in (12, 8, 4)]}
    )
    state = begin(plan, agent)
    requests = walk(plan, state, now=agent.now)
    request = next(requests)
    for _ in range(3):
        request = requests.send(agent.reply(request))
        while not isinstance(request, PauseRequest):
            request = requests.send(agent.reply(request))
    assert state.waiting is not None
    assert (state.waiting.values, state.waiting.trend) == ("4 left", (12.0, 8.0, 4.0))
    assert state.waiting.left == "4, about 5.0s to zero (estimated)"


def test_a_fixed_waiting_time_continues_while_the_agent_is_dead() -> None:
    plan = plan_of(step("a", block("a/wait", "wait", settings={"hold_for_s": 600})))
    agent = ScriptedAgent(kill_after=5)
    with pytest.raises(AgentKilled):
        drive(plan, begin(plan, agent), agent)
    assert agent.records[-1].kind == "wait.began"
    agent.wall_us += 599_000_000
    before = agent.wall_us
    ending, _ = resume(plan, agent)
    assert ending.state == "done"
    assert agent.wall_us - before == 1_000_000


def test_an_invalid_point_in_time_fails() -> None:
    plan = plan_of(step("a", block("a/wait", "wait", settings={"until_time": "noon"})))
    ending, _, _ = run(plan, ScriptedAgent(answers={"failed": ["abort"]}))
    assert ending.text.startswith("run failed: a/wait: not a time")


def interrupt(verb: Any, **given: Any) -> OperatorInterrupt:
    return OperatorInterrupt(verb=verb, who="ann", **{"reason": "because", **given})


THREE = plan_of(
    step("a", block("a/manual", "manual")),
    step("b", block("b/manual", "manual")),
    step("c", block("c/manual", "manual")),
)


def test_a_paused_run_waits_until_the_operator_continues() -> None:
    agent = ScriptedAgent(answers={"a/manual": [interrupt("pause")], "choose": ["", "continue"]})
    ending, state, agent = run(THREE, agent)
    assert ending.state == "done"
    assert [asked.kind for asked in agent.asked] == ["start", "manual", "choose", "choose", *["manual"] * 3]
    assert state.deviations == []


def test_a_paused_run_is_still_paused_after_a_kill_until_it_is_resumed() -> None:
    agent = ScriptedAgent(answers={"a/manual": [interrupt("pause")]})
    agent.kill_after = 7
    with pytest.raises(AgentKilled):
        drive(THREE, begin(THREE, agent), agent)
    assert replay_records(THREE, agent.records).paused == "paused by ann: because"
    ending, _ = resume(THREE, agent)
    assert ending.state == "done"


def test_a_step_is_skipped_only_with_a_reason() -> None:
    agent = ScriptedAgent(
        answers={"b/manual": [interrupt("skip", reason=" "), interrupt("skip", reason="ours is newer")]}
    )
    ending, state, agent = run(THREE, agent)
    assert (ending.state, agent.rejected) == ("done", ["a skip needs a reason"])
    assert (state.steps["b"].status, state.steps["b"].note) == ("skipped", "ours is newer")
    assert [one.fields["what"] for one in state.deviations] == ["skip"]


def test_a_jump_forward_names_the_skipped_steps() -> None:
    _, state, _ = run(THREE, ScriptedAgent(answers={"a/manual": [interrupt("jump", step="c")]}))
    assert {one: known.status for one, known in state.steps.items()} == {"a": "skipped", "b": "skipped", "c": "ok"}
    assert state.steps["b"].note == "jumped to c"


def test_a_jump_to_the_end_ends_it() -> None:
    ending, state, _ = run(THREE, ScriptedAgent(answers={"a/manual": [interrupt("jump", step="end")]}))
    assert (ending.state, len(state.deviations)) == ("done", 1)


def test_a_jump_back_repeats_steps_but_not_past_a_point_of_no_return() -> None:
    agent = ScriptedAgent(answers={"c/manual": [interrupt("jump", step="a")]})
    _, state, agent = run(THREE, agent)
    assert {one: known.round for one, known in state.steps.items()} == {"a": 2, "b": 2, "c": 2}
    final = plan_of(THREE.steps[0], step("b", block("b/manual", "manual"), point_of_no_return=True), THREE.steps[2])
    _, state, agent = run(final, ScriptedAgent(answers={"c/manual": [interrupt("jump", step="a")]}))
    assert agent.rejected == ["step b was a point of no return: cannot jump back past it"]
    assert state.steps["a"].round == 1


@pytest.mark.parametrize("step_id", ["nowhere", "a"])
def test_a_jump_to_an_unknown_or_the_current_step_is_refused(step_id: str) -> None:
    ending, _, agent = run(THREE, ScriptedAgent(answers={"a/manual": [interrupt("jump", step=step_id)]}))
    assert (ending.state, len(agent.rejected)) == ("done", 1)


@pytest.mark.parametrize("verb", ["pause", "skip", "abort", "jump", "undo"])
@pytest.mark.parametrize("at", ["start", "ack", "yes", "type", "choose", "manual", "input", "failed", "settle"])
def test_any_question_can_be_answered_by_an_interrupt(verb: Any, at: Any) -> None:
    """Whatever is asked, a wish does what it says or is refused with a reason, and the run comes to an end."""
    kinds: dict[str, Any] = {
        "choose": block("a/choose", "choose", settings={"options": [{"key": "on", "text": "", "goto": "next"}]}),
        "manual": block("a/manual", "manual"),
        "input": block("a/input", "input", name="n", settings={"type": "int"}),
        "failed": block("a/check", "check"),
        "settle": block("a/run", "run"),
    }
    for level in ("ack", "yes", "type"):
        kinds[level] = block("a/confirm", "confirm", confirm=Confirmation(level=level, text="target"))
    plan = plan_of(step("a", kinds.get(at, change("a"))), step("b", change("b")))
    unknown = Outcome(state="unknown", text="?")
    agent = ScriptedAgent(
        answers={at: [interrupt(verb, step="b")], "undo": ["none"]},
        results={"a/check": [ReadResult(holds=False), ReadResult(holds=True)]},
        outcomes={"a/run": [unknown]},
        resolutions={"a/run": [unknown] * 3},
    )
    ending, state, agent = run(plan, agent)
    aborts = verb in ("abort", "undo")
    assert ending.state == (("failed" if at in ("failed", "settle") else "aborted") if aborts else "done")
    if verb in ("skip", "jump"):
        refused = at in ("start", "settle")
        assert bool(agent.rejected) is refused
        assert [one.fields["what"] for one in state.deviations if one.fields["what"] != "retry"] == (
            [] if refused else [verb]
        )
    assert not aborts or ("b/change", 1) not in agent.done


def test_the_confirmation_before_a_change_is_asked_again_on_a_retry() -> None:
    plan = plan_of(
        step(
            "a",
            block("a/preview", "preview", title="old ones"),
            block("a/confirm", "confirm", confirm=Confirmation(level="yes")),
            block("a/change", "change"),
        )
    )
    agent = ScriptedAgent(
        results={"a/preview": [ReadResult(rows=({"id": 1},)), ReadResult(rows=({"id": 7}, {"id": 8}))]},
        outcomes={"a/change": [Outcome(state="failed", text="locked"), Outcome(state="ok", text="2 rows")]},
        answers={"failed": ["retry"]},
    )
    run(plan, agent)
    assert [asked.kind for asked in agent.asked] == ["start", "yes", "failed", "yes"]


def test_after_some_rows_are_done_changing_the_inputs_is_not_offered() -> None:
    change = block("a/change", "change", settings={"each": True}, uses=("n",), confirm=Confirmation(level="yes"))
    plan = plan_of(
        step(
            "a",
            block("a/input", "input", name="n", settings={"type": "int"}),
            block("a/preview", "preview", uses=("n",)),
            change,
        )
    )
    agent = ScriptedAgent(
        results={"a/preview": [ReadResult(rows=({"id": 1}, {"id": 2}, {"id": 3}))]},
        outcomes={"a/change": [Outcome(state="ok", text="1 row"), Outcome(state="failed", text="locked")]},
        answers={"failed": ["abort"]},
    )
    run(plan, agent)
    offered = next(asked.options for asked in agent.asked if asked.kind == "failed")
    assert "input" not in [option.key for option in offered]
