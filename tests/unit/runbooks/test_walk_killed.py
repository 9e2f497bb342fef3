"""The agent killed after each record of a run, and within each act: nothing is done twice, nothing is left out unsaid,
and the end is the one it would have come to.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.recording.plan import Block, Confirmation, JournalRecord, Plan, Step
from dba_console.recording.plan import BlockCondition as Condition
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.walk_requests import Outcome, ReadResult
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

CONDITION = Condition(language="expr", text="x")
CONFIRMATIONS = (None, Confirmation(level="ack"), Confirmation(level="yes"), Confirmation(level="type", text="target"))
CONFIRMED = Confirmation(level="yes")
ROWS = ({"pid": 1}, {"pid": 2})


@st.composite
def blocks(draw: st.DrawFn, step_id: str, number: int) -> Block:
    acts = ["change", "run", "action"]
    looks = ["check", "measure", "preview", "wait"]
    kind = draw(st.sampled_from([*acts, *acts, *looks, "manual", "input", "confirm"]))
    given: dict[str, Any] = {"name": f"v{step_id}{number}"}
    if kind in ("change", "run", "action"):
        given["confirm"] = draw(st.sampled_from(CONFIRMATIONS))
        given["when"] = draw(st.sampled_from([None, CONDITION]))
        given["done"] = draw(st.sampled_from([None, CONDITION]))
        if kind == "change":
            given["settings"] = {"each": draw(st.booleans())}
    if kind == "check":
        given["leading"] = draw(st.booleans())
    if kind == "wait":
        given["settings"] = draw(st.sampled_from([{"hold_for_s": 5}, {"until": {"language": "expr", "text": "y"}}]))
    return block(f"{step_id}/{kind}-{number}", kind, **given)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Small runbooks: a few steps of any blocks, a decision, rounds, an undo, a point of no return."""
    ids = ["a", "b", "c", "d"][: draw(st.integers(1, 4))]
    steps: list[Step] = []
    for at, step_id in enumerate(ids):
        own = [draw(blocks(step_id, number)) for number in range(draw(st.integers(0, 3)))]
        later = ids[at + 1 :]
        if draw(st.booleans()) and later:
            ways = [
                {"key": "on", "text": "", "goto": "next"},
                {"key": "far", "text": "", "goto": draw(st.sampled_from([*later, "end"]))},
            ]
            turned = draw(st.booleans())
            own.append(block(f"{step_id}/choose", "choose", settings={"options": ways[::-1] if turned else ways}))
        elif draw(st.booleans()):
            back = {"from": draw(st.sampled_from(ids[: at + 1])), "times": 2, "every_s": 60}
            own.append(block(f"{step_id}/repeat", "repeat", settings=back))
        undo = (block(f"{step_id}/undo", "undo", language="sql"),) if draw(st.booleans()) else ()
        then = draw(st.sampled_from([None, None, *later, "end"]))
        given: dict[str, Any] = {"undo": undo, "point_of_no_return": draw(st.booleans()), "then": then}
        steps.append(step(step_id, *own, branch=at > 0 and draw(st.booleans()), **given))
    return plan_of(*steps)


def new_agent() -> ScriptedAgent:
    return ScriptedAgent(results={f"{s}/preview-{n}": [ReadResult(rows=ROWS)] for s in "abcd" for n in range(3)})


def journal(records: list[JournalRecord]) -> list[JournalRecord]:
    """As it comes back from a file."""
    return msgspec.json.decode(msgspec.json.encode(records), type=list[JournalRecord])


def without_times(state: RunState) -> dict[str, Any]:
    """What a run came to, without its times and the words of its settlements."""
    return {
        "ended": state.ended,
        "steps": {step_id: (known.status, known.round) for step_id, known in state.steps.items()},
        "blocks": {block_id: known.status for block_id, known in state.blocks.items()},
        "acts": [(one.block, one.state, one.item) for one in state.executions if one.state == "ok"],
    }


@given(plan=plans(), in_act=st.booleans(), resumed=st.booleans())
def test_killed_after_any_record_it_comes_to_the_same_end(plan: Plan, in_act: bool, resumed: bool) -> None:
    _, whole, undisturbed = run(plan, new_agent())
    for at in range(2, len(undisturbed.records)):
        agent = new_agent()
        agent.kill_after = at
        with pytest.raises(AgentKilled):
            drive(plan, begin(plan, agent), agent)
        if in_act and agent.records[-1].kind == "block.intent":
            # Not dead after the intent was written, but after the act and before its result.
            agent.done.append((agent.records[-1].block, agent.records[-1].execution))
        agent.records = journal(agent.records)
        _, state = resume(plan, agent, record_interruption=resumed)
        assert len(agent.done) == len(set(agent.done))
        expected = without_times(whole)
        if agent.records[at - 1].kind == "block.intent" and not in_act:
            # It was settled as not begun, and tried again: one execution more, and only one that did something.
            assert agent.resolved != []
        assert without_times(state) == expected
        assert [one[0] for one in agent.done] == [one[0] for one in undisturbed.done]


@given(plan=plans())
def test_a_state_is_the_replay_of_its_records(plan: Plan) -> None:
    _, state, agent = run(plan, new_agent())
    folded = replay_records(plan, journal(agent.records))
    state.current = ""
    assert msgspec.json.encode(state) == msgspec.json.encode(folded)


@given(plan=plans())
def test_nothing_is_skipped_silently(plan: Plan) -> None:
    ending, state, agent = run(plan, new_agent())
    assert ending.state == "done"
    assert all(known.status in ("ok", "skipped") for known in state.steps.values())
    for step_id, known in state.steps.items():
        ends = [one for one in agent.records if one.kind == "step.ended" and one.step == step_id]
        assert ends and (known.status != "skipped" or ends[-1].fields["reason"])
        blocks_of = plan.step(step_id).blocks
        if known.status == "ok":
            assert all(state.blocks[one.id].status in ("ok", "skipped") for one in blocks_of)


@given(plan=plans(), in_act=st.booleans())
def test_killed_while_reverting_it_is_reverted_once(plan: Plan, in_act: bool) -> None:
    last = block("z/check", "check")
    plan = msgspec.structs.replace(plan, steps=(*plan.steps, step("z", last)))

    def aborting_agent() -> ScriptedAgent:
        agent = new_agent()
        agent.results["z/check"] = [ReadResult(holds=False)]
        agent.answers = {"z/check:failed": ["abort"] * 3, "undo": ["all"] * 3}
        return agent

    _, whole, undisturbed = run(plan, aborting_agent())
    first = next((at for at, one in enumerate(undisturbed.records) if one.kind == "undo.offered"), None)
    for at in range(first + 1, len(undisturbed.records)) if first is not None else ():
        agent = aborting_agent()
        agent.kill_after = at
        with pytest.raises(AgentKilled):
            drive(plan, begin(plan, agent), agent)
        if in_act and agent.records[-1].kind == "block.intent":
            agent.done.append((agent.records[-1].block, agent.records[-1].execution))
        agent.records = journal(agent.records)
        _, state = resume(plan, agent)
        assert len(agent.done) == len(set(agent.done))
        assert without_times(state) == without_times(whole)


def test_an_intent_without_a_result_is_resolved_before_anything_else() -> None:
    plan = plan_of(step("a", block("a/change", "change")), step("b", block("b/change", "change")))
    agent = ScriptedAgent(kill_in_do=True)
    with pytest.raises(AgentKilled):
        drive(plan, begin(plan, agent), agent)
    ending, state = resume(plan, agent)
    assert ending.state == "done"
    assert agent.resolved == [("a/change", 1)]
    assert agent.done == [("a/change", 1), ("b/change", 1)]
    assert state.executions[0].state == "ok"


UNKNOWN = Outcome(state="unknown", text="the connection broke")


def test_an_unknown_outcome_is_resolved_by_the_effect_of_the_block() -> None:
    plan = plan_of(step("a", block("a/run", "run", done=CONDITION)))
    agent = ScriptedAgent(
        outcomes={"a/run": [UNKNOWN]},
        resolutions={"a/run": [UNKNOWN]},
        results={"a/run:done": [ReadResult(holds=False), ReadResult(holds=True, text="slot is gone")]},
    )
    ending, state, agent = run(plan, agent)
    assert (ending.state, agent.done, [asked.kind for asked in agent.asked]) == ("done", [("a/run", 1)], ["start"])
    assert state.executions[0].state == "ok"


@pytest.mark.parametrize(
    ("answers", "end", "done"),
    [
        (["ok", "ok I saw it in the log"], "done", 1),
        (["failed nothing there"], "done", 2),
        (["again", "ok seen"], "done", 1),
        (["abort"], "failed", 1),
    ],
)
def test_an_unknown_outcome_is_resolved_by_the_operator_with_a_reason(answers: list[Any], end: str, done: int) -> None:
    plan = plan_of(step("a", block("a/run", "run")))
    agent = ScriptedAgent(
        outcomes={"a/run": [UNKNOWN]}, resolutions={"a/run": [UNKNOWN] * 3}, answers={"settle": answers}
    )
    ending, state, agent = run(plan, agent)
    assert (ending.state, len(agent.done)) == (end, done)
    if end == "failed":
        assert state.steps["a"].status == "unknown"
    assert copy.copy(agent.rejected) in ([], ["ok needs a reason: ok REASON"])


def test_a_change_confirmed_before_the_kill_is_confirmed_again() -> None:
    typed = Confirmation(level="type", text="count")
    plan = plan_of(step("a", block("a/preview", "preview"), block("a/change", "change", confirm=typed)))
    agent = ScriptedAgent(results={"a/preview": [ReadResult(rows=ROWS), ReadResult(rows=ROWS[:1])]})
    agent.kill_after = 7
    with pytest.raises(AgentKilled):
        drive(plan, begin(plan, agent), agent)
    assert agent.records[-1].kind == "block.answered"
    resume(plan, agent)
    assert [asked.expects for asked in agent.asked if asked.kind == "type"] == ["2", "1"]


def test_a_secret_entered_during_the_run_is_asked_for_again() -> None:
    secret = block("a/input", "input", name="key", settings={"name": "key", "type": "secret", "secret": True})
    plan = plan_of(step("a", secret, block("a/change", "change", uses=("key",)), block("a/manual", "manual")))
    agent = ScriptedAgent(answers={"input": ["hush", "hush"]})
    agent.kill_after = 8
    with pytest.raises(AgentKilled):
        drive(plan, begin(plan, agent), agent)
    inputs: dict[str, Any] = {}
    state = replay_records(plan, agent.records)
    agent.kill_after = None
    drive(plan, state, agent, inputs=inputs)
    assert [asked.secret for asked in agent.asked if asked.kind == "input"] == [True, True]
    assert inputs == {"key": "hush"}
    assert "hush" not in repr(agent.records)


def test_a_confirmation_that_covers_a_change_is_asked_for_again() -> None:
    covered = (block("a/confirm", "confirm", confirm=Confirmation(level="yes")), block("a/change", "change"))
    plan = plan_of(step("a", block("a/check", "check"), *covered))
    agent = ScriptedAgent(kill_after=7)
    with pytest.raises(AgentKilled):
        drive(plan, begin(plan, agent), agent)
    assert agent.records[-1].kind == "block.answered"
    ending, _ = resume(plan, agent)
    assert ending.state == "done"
    assert [asked.kind for asked in agent.asked] == ["start", "yes", "yes"]
    assert agent.reads == [("a/check", "check")] * 2


def test_an_unfinished_change_is_confirmed_and_repeated_without_a_decision() -> None:
    blocks = (block("a/check", "check"), block("a/preview", "preview"), block("a/change", "change", confirm=CONFIRMED))
    plan = plan_of(step("a", *blocks))
    rows = {"a/preview": [ReadResult(holds=True, text="", rows=ROWS)]}
    _, _, whole = run(plan, ScriptedAgent(results={**rows}))
    intent = next(place for place, one in enumerate(whole.records) if one.kind == "block.intent")
    half = Outcome(state="stopped", text="half of it is left", again=True)
    new_agent = ScriptedAgent(resolutions={"a/change": [half]}, results={**rows})
    new_agent.kill_after = intent + 1
    with pytest.raises(AgentKilled):
        drive(plan, begin(plan, new_agent), new_agent)
    ending, state = resume(plan, new_agent)
    assert ending.state == "done" and new_agent.done == [("a/change", 2)]
    assert [place for place, _ in new_agent.reads if place != "a/change"] == ["a/check", "a/preview"] * 2, (
        "it may be hours"
    )
    assert [one.kind for one in new_agent.asked] == ["start", "yes", "yes"] and state.deviations == []
    lost = [Outcome(state="unknown", text="the connection broke")]
    again = Outcome(state="failed", text="", again=True)
    new_agent = ScriptedAgent(outcomes={"a/change": lost}, resolutions={"a/change": [again]}, results={**rows})
    _, state, new_agent = run(plan, new_agent)
    assert "failed" in [one.kind for one in new_agent.asked], (
        "with the agent alive a person decides, else it never ends"
    )
