"""The order in which a block is checked, confirmed, recorded and executed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from dba_console.actions.action_preview import ActionPreview
from dba_console.recording.plan import Block, Confirmation, Input
from dba_console.recording.plan import BlockCondition as Condition
from dba_console.runbooks.walk import walk
from dba_console.runbooks.walk_requests import (
    Answer,
    AskRequest,
    ExecuteRequest,
    OperatorInterrupt,
    Outcome,
    ReadRequest,
    ReadResult,
    WriteRequest,
)
from tests.unit.runbooks.scripted_agent import ScriptedAgent, begin, block, kinds, plan_of, run, step

YES = Condition(language="expr", text="x")
TYPED = Confirmation(level="type", text="target")


def plan_of_one(kind: str, **given: Any) -> Block:
    return block(f"a/{kind}", kind, **given)


def test_a_change_is_made_only_after_its_conditions_its_question_and_its_intent() -> None:
    plan = plan_of(step("a", plan_of_one("change", when=YES, done=YES, confirm=TYPED)))
    agent = ScriptedAgent()
    requests = walk(plan, begin(plan, agent), now=agent.now)
    seen: list[str] = []
    request = next(requests)
    while not isinstance(request, ExecuteRequest):
        if isinstance(request, WriteRequest):
            seen.append(request.record.kind)
        elif isinstance(request, ReadRequest):
            seen.append(f"look {request.purpose}")
        elif isinstance(request, AskRequest):
            seen.append(f"ask {request.kind}")
        request = requests.send(agent.reply(request))
    assert seen == [
        "block.asked", "ask start", "run.started", "step.started", "look when", "look done",
        "block.asked", "ask type", "block.answered", "block.intent",
    ]  # fmt: skip
    assert request.intent.kind == "block.intent"


@pytest.mark.parametrize(
    ("test", "seen", "skipped"),
    [
        ("when", ReadResult(holds=False, text="load is 2"), "not applicable: load is 2"),
        ("done", ReadResult(holds=True, text="gone"), "already done: gone"),
    ],
)
def test_a_block_that_does_not_apply_or_is_already_done_is_skipped_with_the_reason(
    test: str, seen: ReadResult, skipped: str
) -> None:
    plan = plan_of(step("a", plan_of_one("change", **{test: YES})))
    ending, state, agent = run(plan, ScriptedAgent(results={f"a/change:{test}": [seen]}))
    assert (ending.state, agent.done) == ("done", [])
    assert state.blocks["a/change"].note == skipped
    assert state.steps["a"].status == "skipped"


def test_a_step_with_one_of_its_blocks_skipped_is_ok_and_names_the_block() -> None:
    query = Condition(language="sql", text="select false")
    plan = plan_of(step("a", plan_of_one("change"), block("a/run", "run", when=query)))
    _, _, agent = run(plan, ScriptedAgent(results={"a/run:when": [ReadResult(holds=False)]}))
    ended = next(one for one in agent.records if one.kind == "step.ended")
    assert (ended.state, ended.text) == ("ok", "step a: ok; a/run skipped, not applicable")


@pytest.mark.parametrize("test", ["when", "done"])
@pytest.mark.parametrize("seen", [ReadResult(holds=None), ReadResult(holds=True, error="no connection")])
def test_an_unknown_condition_is_a_failure(test: str, seen: ReadResult) -> None:
    plan = plan_of(step("a", plan_of_one("change", **{test: YES})))
    ending, state, agent = run(plan, ScriptedAgent(results={f"a/change:{test}": [seen]}, answers={"failed": ["abort"]}))
    assert (ending.state, agent.done) == ("failed", [])
    assert state.steps["a"].status == "failed"


@pytest.mark.parametrize(
    "seen", [ReadResult(holds=False), ReadResult(holds=None), ReadResult(holds=True, error="timeout")]
)
def test_a_check_passes_only_if_it_is_known_to_be_true(seen: ReadResult) -> None:
    plan = plan_of(step("a", plan_of_one("check"), plan_of_one("change")))
    ending, _, agent = run(plan, ScriptedAgent(results={"a/check": [seen]}, answers={"failed": ["abort"]}))
    assert (ending.state, agent.done) == ("failed", [])


def test_a_failed_block_can_be_retried_or_skipped_or_end_the_run() -> None:
    plan = plan_of(step("a", plan_of_one("check"), plan_of_one("change")))
    looks = [ReadResult(holds=False), ReadResult(holds=False), ReadResult(holds=True)]
    ending, state, agent = run(plan, ScriptedAgent(results={"a/check": looks}, answers={"failed": ["retry", "retry"]}))
    assert (ending.state, len(state.deviations), agent.done) == ("done", 2, [("a/change", 1)])
    agent = ScriptedAgent(
        results={"a/check": [ReadResult(holds=False)]}, answers={"failed": ["skip", "skip we know why"]}
    )
    ending, state, agent = run(plan, agent)
    assert ending.state == "done"
    assert agent.rejected == ["skip needs a reason: skip REASON"]
    assert state.deviations[0].fields["reason"] == "we know why"
    assert state.blocks["a/check"].status == "skipped"


def test_a_strict_runbook_does_not_allow_skipping() -> None:
    plan = plan_of(step("a", plan_of_one("check")), strict=True)
    interrupt = OperatorInterrupt(verb="skip", who="ann", reason="no time")
    agent = ScriptedAgent(
        results={"a/check": [ReadResult(holds=False)]}, answers={"failed": ["skip no time", interrupt, "abort"]}
    )
    ending, _, agent = run(plan, agent)
    assert ending.state == "failed"
    assert len(agent.rejected) == 2
    assert "skip" not in [option.key for option in agent.asked[-1].options]


def test_a_retried_change_is_an_execution_of_its_own() -> None:
    plan = plan_of(step("a", plan_of_one("change", confirm=TYPED)))
    outcomes = [Outcome(state="failed", text="lock timeout"), Outcome(state="ok", text="done")]
    ending, state, agent = run(plan, ScriptedAgent(outcomes={"a/change": outcomes}, answers={"failed": ["retry"]}))
    assert (ending.state, agent.done) == ("done", [("a/change", 1), ("a/change", 2)])
    assert [asked.kind for asked in agent.asked] == ["start", "type", "failed", "type"]
    assert [one.state for one in state.executions] == ["failed", "ok"]


@pytest.mark.parametrize("state", ["stopped", "refused", "failed"])
def test_an_incomplete_change_waits_for_a_decision(state: Any) -> None:
    plan = plan_of(step("a", plan_of_one("change")))
    agent = ScriptedAgent(outcomes={"a/change": [Outcome(state=state, text="why")]}, answers={"failed": ["abort"]})
    ending, _, _ = run(plan, agent)
    assert ending.state == "failed"
    assert "why" in ending.text


def test_enter_and_wrong_words_confirm_nothing() -> None:
    plan = plan_of(step("a", plan_of_one("change", confirm=TYPED)))
    ending, _, agent = run(plan, ScriptedAgent(answers={"start": ["", "y", "yes"], "type": ["", "db1", "yes", "db2"]}))
    assert (ending.state, len(agent.rejected), agent.done) == ("done", 5, [("a/change", 1)])


@pytest.mark.parametrize(("level", "word"), [("ack", "n"), ("yes", "no"), ("type", "no")])
def test_no_declines_and_nothing_is_done(level: Any, word: str) -> None:
    plan = plan_of(step("a", plan_of_one("change", confirm=Confirmation(level=level, text="target"))))
    ending, _, agent = run(plan, ScriptedAgent(answers={level: [word], "failed": ["abort"]}))
    assert (ending.state, agent.done) == ("failed", [])


def test_an_unknown_confirmation_text_confirms_nothing() -> None:
    plan = plan_of(step("a", plan_of_one("change", confirm=Confirmation(level="type", text="count"))))
    ending, _, agent = run(plan, ScriptedAgent(answers={"failed": ["abort"]}))
    assert (ending.state, agent.done) == ("failed", [])


def test_two_operators_must_be_different() -> None:
    plan = plan_of(step("a", plan_of_one("change", confirm=Confirmation(level="type", text="target", people=2))))
    agent = ScriptedAgent()
    state = begin(plan, agent)
    requests = walk(plan, state, now=agent.now)
    request = next(requests)
    alone = True
    while not isinstance(request, ExecuteRequest):
        if isinstance(request, AskRequest) and request.people == 2 and alone:
            alone = False
            request = requests.send(Answer(text="db2", who="ann"))
            continue
        request = requests.send(agent.reply(request))
    assert agent.rejected == ["a second operator must confirm it"]
    assert [record.fields.get("second") for record in agent.records if record.kind == "block.answered"] == ["ben"]


def test_a_run_that_is_not_started_changes_nothing() -> None:
    plan = plan_of(step("a", plan_of_one("check", leading=True), plan_of_one("change")))
    ending, _, agent = run(plan, ScriptedAgent(answers={"start": ["no"]}))
    assert (ending.state, agent.done, agent.reads) == ("aborted", [], [("a/check", "check")])


def test_leading_checks_run_before_the_question_and_not_twice() -> None:
    plan = plan_of(
        step("a", plan_of_one("measure")),
        step("b", block("b/check", "check", leading=True), block("b/change", "change")),
    )
    _, _, agent = run(plan)
    assert agent.reads == [("b/check", "check"), ("a/measure", "measure")]


def test_leading_checks_are_repeated_if_the_start_was_long_delayed() -> None:
    plan = plan_of(step("a", plan_of_one("check", leading=True), plan_of_one("change")))
    _, _, agent = run(plan, ScriptedAgent(human_s=3600.0))
    assert agent.reads == [("a/check", "check")] * 2


def test_only_the_rows_of_the_preview_are_changed() -> None:
    rows = ({"pid": 1}, {"pid": 2})
    plan = plan_of(
        step("a", plan_of_one("preview"), plan_of_one("change", confirm=Confirmation(level="type", text="count")))
    )
    _, state, agent = run(plan, ScriptedAgent(results={"a/preview": [ReadResult(rows=rows)]}))
    assert agent.asked[-1].expects == "2"
    assert list(state.executions[0].intent.fields["rows"]) == list(rows)


def test_without_rows_nothing_is_changed() -> None:
    plan = plan_of(step("a", plan_of_one("preview"), plan_of_one("change", confirm=TYPED)))
    ending, state, agent = run(plan, ScriptedAgent(results={"a/preview": [ReadResult(rows=())]}))
    assert (ending.state, agent.done) == ("done", [])
    assert state.blocks["a/change"].note == "nothing to act on: the preview returned no rows"


def test_a_per_row_change_is_confirmed_once_and_done_once_per_row() -> None:
    rows = tuple({"pid": pid} for pid in range(3))
    change = plan_of_one("change", settings={"each": True}, confirm=Confirmation(level="type", text="count"))
    outcomes = [Outcome(state="ok", text="1"), Outcome(state="failed", text="2"), Outcome(state="failed", text="2")]
    agent = ScriptedAgent(
        results={"a/preview": [ReadResult(rows=rows)]},
        outcomes={"a/change": outcomes},
        answers={"failed": ["retry", "skip it is gone"]},
    )
    ending, state, agent = run(plan_of(step("a", plan_of_one("preview"), change)), agent)
    assert ending.state == "done"
    assert [one.intent.fields["row"]["pid"] for one in state.executions] == [0, 1, 1, 2]
    assert [asked.kind for asked in agent.asked] == ["start", "type", "failed", "failed"]


def test_a_retry_reads_again_what_it_changes() -> None:
    plan = plan_of(step("a", plan_of_one("preview"), plan_of_one("change")))
    looks = [ReadResult(rows=({"pid": 1},)), ReadResult(rows=({"pid": 1}, {"pid": 2}))]
    agent = ScriptedAgent(results={"a/preview": looks}, outcomes={"a/change": [Outcome(state="failed", text="no")]})
    _, state, agent = run(plan, agent)
    assert len(state.executions[-1].intent.fields["rows"]) == 2


def test_an_action_is_previewed_before_the_question_and_bound_to_that_preview() -> None:
    action_preview = ActionPreview(text="frees 18 GB", exact="echo 1 > drop_caches", count=3)
    action = plan_of_one("action", action="drop-caches", confirm=Confirmation(level="type", text="count"))
    _, state, agent = run(
        plan_of(step("a", action)),
        ScriptedAgent(results={"a/action": [ReadResult(action_preview=action_preview)]}),
    )
    assert agent.asked[-1].expects == "3"
    assert state.executions[0].intent.fields["action_preview"] == to_builtins(action_preview)


@pytest.mark.parametrize(
    ("action_preview", "status"),
    [
        (ActionPreview(text="", exact="", refusal="in use"), "failed"),
        (ActionPreview(text="", exact="", done=True), "skipped"),
    ],
)
def test_an_action_that_refuses_or_has_nothing_to_do_is_not_started(action_preview: ActionPreview, status: str) -> None:
    agent = ScriptedAgent(
        results={"a/action": [ReadResult(action_preview=action_preview)]}, answers={"failed": ["abort"]}
    )
    _, state, agent = run(plan_of(step("a", plan_of_one("action", action="shrink-file"))), agent)
    assert (agent.done, state.blocks["a/action"].status) == ([], status)


def test_values_are_recorded_in_the_intent_by_name_and_secrets_are_not() -> None:
    inputs = (Input(name="age", type="number"), Input(name="key", type="secret", secret=True))
    plan = plan_of(step("a", plan_of_one("change", uses=("age", "key"))), inputs=inputs)
    _, state, agent = run(plan, inputs={"age": 5, "key": "hush"})
    assert state.executions[0].intent.fields["params"] == {"age": 5}
    assert "hush" not in repr(agent.records)


def test_human_time_and_machine_time_are_recorded_separately() -> None:
    plan = plan_of(step("a", plan_of_one("check"), plan_of_one("change", confirm=TYPED)))
    _, state, _ = run(plan)
    assert (state.steps["a"].machine_s, state.steps["a"].human_s, state.start_human_s) == (3.5, 2.0, 2.0)


def test_the_records_of_a_run_are_in_order() -> None:
    plan = plan_of(step("a", plan_of_one("measure")))
    _, _, agent = run(plan)
    assert kinds(agent.records) == [
        "run.planned", "block.asked", "run.started", "step.started a", "block.seen a/measure", "step.ended a",
        "run.ended",
    ]  # fmt: skip


def test_an_ended_run_does_nothing_more() -> None:
    plan = plan_of(step("a", plan_of_one("measure")))
    _, state, agent = run(plan)
    before = len(agent.records)
    requests = walk(plan, state, now=agent.now)
    with pytest.raises(StopIteration) as stop:
        next(requests)
    assert stop.value.value.state == "done"
    assert len(agent.records) == before


@pytest.mark.parametrize(("rows", "done"), [((), 0), (({"pid": 1},), 1)])
def test_an_action_acts_on_the_rows_of_its_named_preview_or_not_at_all(rows: Any, done: int) -> None:
    settings = {"verb": "cancel", "rows": "%(idlers)s"}
    action = plan_of_one(
        "action", action="signal-backend", settings=settings, confirm=Confirmation(level="type", text="count")
    )
    plan = plan_of(step("a", plan_of_one("preview", name="idlers"), action))
    ending, state, agent = run(plan, ScriptedAgent(results={"a/preview": [ReadResult(rows=rows)]}))
    assert (ending.state, len(agent.done)) == ("done", done)
    assert len(state.values["idlers"]["rows"]) == done


def test_more_rows_than_permitted_are_a_failure() -> None:
    plan = plan_of(step("a", plan_of_one("preview", settings={"at_most": 2}), plan_of_one("change")))
    looks = [ReadResult(rows=({"pid": 1}, {"pid": 2}, {"pid": 3}))]
    ending, _, agent = run(plan, ScriptedAgent(results={"a/preview": looks}, answers={"failed": ["abort"]}))
    assert (ending.state, agent.done) == ("failed", [])


def test_a_measurement_is_compared_with_its_reference() -> None:
    after = block("b/measure", "measure", settings={"against": "before"})
    plan = plan_of(step("a", plan_of_one("measure", name="before")), step("b", after))
    looks = {"a/measure": [ReadResult(values={"cached": 3})], "b/measure": [ReadResult(values={"cached": 1})]}
    _, state, _ = run(plan, ScriptedAgent(results=looks))
    assert state.measures == {"before": [{"cached": 3}, {"cached": 1}]}


def test_a_change_covered_by_a_confirmation_is_not_made_without_it() -> None:
    covered = (plan_of_one("confirm", confirm=Confirmation(level="type", text="count")), plan_of_one("change"))
    plan = plan_of(step("a", plan_of_one("preview"), *covered))
    looks = {"a/preview": [ReadResult(rows=({"pid": 1}, {"pid": 2}))]}
    _, _, agent = run(plan, ScriptedAgent(results=looks))
    assert (agent.done, agent.asked[-1].expects) == ([("a/change", 1)], "2")
    agent = ScriptedAgent(results=looks, answers={"type": ["no"], "failed": ["skip it is late"]})
    ending, state, agent = run(plan, agent)
    assert (ending.state, agent.done) == ("done", [])
    assert state.blocks["a/change"].note == "its confirmation a/confirm was skipped"


def test_a_point_of_no_return_is_stated_in_its_question() -> None:
    plan = plan_of(step("a", plan_of_one("change", confirm=TYPED), point_of_no_return=True))
    _, _, agent = run(plan)
    assert agent.asked[-1].text.startswith("Point of no return. ")
