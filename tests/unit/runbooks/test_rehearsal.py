"""A rehearsal reads and reports; it never acts and asks no question."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from dba_console.actions.action_preview import ActionPreview
from dba_console.recording.plan import BlockCondition as Condition
from dba_console.recording.plan import Confirmation, Plan
from dba_console.runbooks.rehearsal import CAVEAT
from dba_console.runbooks.walk_requests import ReadResult
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
from tests.unit.runbooks.test_walk_killed import plans

TYPED = Confirmation(level="type", text="target")


@given(plan=plans())
def test_a_rehearsal_never_changes_anything_never_asks_and_ends(plan: Plan) -> None:
    ending, state, agent = run(plan, mode="rehearse")
    assert (agent.done, agent.asked, agent.resolved) == ([], [], [])
    assert ending.text.endswith(CAVEAT)
    assert all(known.status in ("ok", "failed") for known in state.steps.values())
    assert all(state.blocks[one.id].status != "pending" for part in plan.steps for one in part.blocks)


def test_a_change_is_shown_verbatim() -> None:
    argv = block("a/run", "run", language="toml", settings={"argv": ["pg_dump", "-Fc", "app"]})
    action_preview = ActionPreview(text="", exact="echo 1 > /proc/sys/vm/drop_caches", count=1)
    plan = plan_of(
        step(
            "a", block("a/preview", "preview"), block("a/change", "change", body="drop table public.t", confirm=TYPED)
        ),
        step("b", argv, block("b/action", "action", action="drop-caches")),
    )
    looks = {
        "a/preview": [ReadResult(rows=({"a": 1},))],
        "b/action": [ReadResult(action_preview=action_preview)],
    }
    ending, state, _ = run(plan, ScriptedAgent(results=looks), mode="rehearse")
    reported = {block_id: known.note for block_id, known in state.blocks.items()}
    assert reported["a/change"] == "would run on 1 row: drop table public.t"
    assert reported["a/run"] == "would run: pg_dump -Fc app"
    assert reported["b/action"] == "would execute: echo 1 > /proc/sys/vm/drop_caches"
    assert ending.text == f"run done: 1 read-only blocks run, 3 changes not executed; {CAVEAT}"


def test_a_result_of_a_change_is_unknown_in_a_rehearsal() -> None:
    plan = plan_of(step("a", block("a/run", "run", name="dump"), block("a/check", "check", uses=("dump",))))
    _, state, agent = run(plan, mode="rehearse")
    assert state.blocks["a/check"].note == "unknown without a real run: needs dump"
    assert ("a/check", "check") not in agent.reads


@pytest.mark.parametrize(("before", "end"), [(True, "failed"), (False, "done")])
def test_a_failed_check_fails_the_rehearsal_unless_a_change_comes_before_it(before: bool, end: str) -> None:
    blocks = [block("a/check", "check"), block("a/change", "change")]
    plan = plan_of(step("a", *(blocks if before else blocks[::-1])))
    ending, state, _ = run(
        plan, ScriptedAgent(results={"a/check": [ReadResult(holds=False, text="lag 5 s")]}), mode="rehearse"
    )
    assert ending.state == end
    assert "lag 5 s" in state.blocks["a/check"].note


@pytest.mark.parametrize(
    ("test", "seen", "note"),
    [
        ("when", ReadResult(holds=False, text="no"), "not applicable: no"),
        ("done", ReadResult(holds=True, text="yes"), "already done: yes"),
        ("when", ReadResult(error="no connection"), "`when` is unknown: no connection"),
        ("done", ReadResult(holds=False), "would run: a/change"),
    ],
)
def test_the_conditions_of_a_block_are_really_evaluated(test: str, seen: ReadResult, note: str) -> None:
    condition: dict[str, Any] = {test: Condition(language="expr", text="x")}
    plan = plan_of(step("a", block("a/change", "change", **condition)))
    _, state, _ = run(plan, ScriptedAgent(results={f"a/change:{test}": [seen]}), mode="rehearse")
    assert state.blocks["a/change"].note == note


def test_a_wait_reads_once_and_does_not_wait() -> None:
    until = {"until": {"language": "expr", "text": "lag < 1"}}
    plan = plan_of(step("a", block("a/wait", "wait", settings=until)))
    _, state, agent = run(
        plan, ScriptedAgent(results={"a/wait": [ReadResult(holds=False, text="lag 5")]}), mode="rehearse"
    )
    assert state.blocks["a/wait"].note == "would wait until lag < 1; not true now: lag 5"
    assert len(agent.reads) == 1


def test_a_killed_rehearsal_continues() -> None:
    plan = plan_of(
        step("a", block("a/check", "check"), block("a/change", "change")), step("b", block("b/check", "check"))
    )
    _, whole, undisturbed = run(plan, mode="rehearse")
    for at in range(2, len(undisturbed.records)):
        agent = ScriptedAgent(kill_after=at)
        with pytest.raises(AgentKilled):
            drive(plan, begin(plan, agent, mode="rehearse"), agent)
        ending, state = resume(plan, agent)
        assert ending.state == "done"
        assert {one: known.status for one, known in state.blocks.items()} == {
            one: known.status for one, known in whole.blocks.items()
        }
