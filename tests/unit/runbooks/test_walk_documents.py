"""The runbooks that are shipped, walked without a server: every option of every decision, killed after every record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dba_console.actions.action_preview import ActionPreview
from dba_console.core.errors import UsageError
from dba_console.recording.plan import Block, Input, JournalRecord, Plan, Step
from dba_console.runbooks.asking_kinds import declared_input
from dba_console.runbooks.block_kind_registry import bind_inputs
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.values import typed, value_of
from dba_console.runbooks.walk_requests import PauseRequest, ReadRequest, ReadResult, Reply, Request
from tests.unit.runbooks.scripted_agent import AgentKilled, ScriptedAgent, begin, drive, kinds, resume, run

DOCUMENTS = sorted((Path(__file__).parents[3] / "runbooks").glob("*.md"))
SAMPLE_INPUTS = (
    "5",
    "10m",
    "1GB",
    "yes",
    "app",
    "app.t",
    "/backup/old.dump",
    "base/16384/16402",
    "cp %p /srv/wal/%f",
    "23:30",
    "5000",
)
"""What is given for an input: the first that it takes. A document whose input takes none of them needs one more."""
ROWS = ({"pid": 7, "backend_start": "2026-11-22T05:00:00Z"}, {"pid": 8, "backend_start": "2026-11-22T05:00:01Z"})
PREVIEW = ActionPreview(text="what is there", exact="what will be done", count=2, rows=ROWS)


NO_CASE = "none"
"""Instead of an answer: no decision of the step applies."""
EXTRA_PAUSE_S = 120
"""How much longer a pause takes than it was asked for: a wait of ten minutes needs five looks and not hundreds."""


class ObligingAgent(ScriptedAgent):
    """An agent whose previews all have rows, and whose actions all have something to change."""

    def reply(self, request: Request) -> Reply:
        if isinstance(request, PauseRequest):
            self.wall_us += EXTRA_PAUSE_S * 1_000_000
        return super().reply(request)

    def _read_result(self, request: ReadRequest) -> ReadResult:
        if request.purpose == "preview":
            preview = PREVIEW if request.block.kind == "action" else None
            column = request.block.settings.get("chosen")
            rows = tuple({**row, column: True} for row in ROWS) if column else ROWS
            return ReadResult(rows=rows, action_preview=preview, text="seen", machine_s=0.1)
        if request.purpose == "measure":
            return ReadResult(values={"cached_bytes": 1 << 30}, text="measured", machine_s=0.1)
        return super()._read_result(request)


def plan_from(path: Path) -> Plan:
    plan = compile_text(path.read_text(encoding="utf-8"), path.name)
    given = {one.name: sample(one) for one in plan.inputs if one.default is None}
    return bind_inputs(plan, typed(plan, given))


def answer_paths(plan: Plan) -> Iterator[dict[str, list[Any]]]:
    """The answers that lead to each decision, and from there along each of its options; the others take their first."""
    found: list[dict[str, list[Any]]] = [{}]
    met: set[str] = set()
    for answers in found:
        yield answers
        for asked in run(plan, obliging_agent(plan, answers))[2].asked:
            if asked.kind != "choose" or asked.block in met:
                continue
            step, block = plan.block(asked.block)
            for case in cases(step) if block.when is not None else [block]:
                met.add(case.id)
                message = [[option["key"]] * 9 for option in case.settings.get("options", ())] or [["again", "enough"]]
                found += [{**answers, f"{case.id}:choose": one} for one in message]
            if block.when is not None:
                found.append({**answers, f"{step.id}:{NO_CASE}": []})


def obliging_agent(plan: Plan, answers: dict[str, list[Any]]) -> ObligingAgent:
    given: dict[str, list[Any]] = {key: list(message) for key, message in answers.items()}
    for _, block in plan.blocks():
        if block.kind == "input":
            given.setdefault(f"{block.id}:input", [sample(declared_input(block))] * 9)
        if block.kind == "repeat" and block.settings.get("ask"):
            given.setdefault(f"{block.id}:choose", ["enough"] * 9)
    other = [*other_cases(plan, answers), *(one.id for step in plan.steps if f"{step.id}:{NO_CASE}" in answers
                                            for one in cases(step))]  # fmt: skip
    looks = {f"{one}:when": [ReadResult(holds=False, text="another case")] for one in other}
    return ObligingAgent(answers=given, results=looks)


def cases(step: Step) -> list[Block]:
    """The decisions of a step that are for one case each."""
    return [one for one in step.blocks if one.kind == "choose" and one.when is not None]


def other_cases(plan: Plan, answers: dict[str, list[Any]]) -> Iterator[str]:
    """Those that come before the one which is answered, in the same step."""
    for known in map(cases, plan.steps):
        asked = next((at for at, one in enumerate(known) if f"{one.id}:choose" in answers), 0)
        yield from (one.id for one in known[:asked])


def sample(one: Input) -> str:
    for text in (*one.choices, *SAMPLE_INPUTS):
        try:
            value_of(one, text)
        except UsageError:
            continue
        return text
    raise AssertionError(f"none of SAMPLE_INPUTS is {one.type} {one.pattern or ''} for input {one.name}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_every_path_through_a_shipped_runbook_ends(path: Path) -> None:
    plan = plan_from(path)
    walked: set[str] = set()
    for answers in answer_paths(plan):
        ending, state, agent = run(plan, obliging_agent(plan, answers))
        assert ending.state == "done", (answers, ending.text)
        assert agent.rejected == []
        assert all(known.status in ("ok", "skipped") for known in state.steps.values())
        walked |= {step_id for step_id, known in state.steps.items() if known.round}
    assert walked == {step.id for step in plan.steps}, "a step no decision leads to"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_shipped_runbook_killed_after_any_record_comes_to_the_same_end(path: Path) -> None:
    plan = plan_from(path)
    killed_after: set[tuple[str, ...]] = set()
    for answers in answer_paths(plan):
        _, whole, undisturbed = run(plan, obliging_agent(plan, answers))
        for at in range(2, len(undisturbed.records)):
            so_far = tuple(kinds(undisturbed.records[:at]))
            if so_far in killed_after:  # where this path is still that of an earlier one
                continue
            killed_after.add(so_far)
            agent = obliging_agent(plan, answers)
            agent.kill_after = at
            with pytest.raises(AgentKilled):
                drive(plan, begin(plan, agent), agent)
            if agent.records[-1].kind == "block.intent":
                agent.done.append((agent.records[-1].block, agent.records[-1].execution))
            agent.records = msgspec.json.decode(msgspec.json.encode(agent.records), type=list[JournalRecord])
            ending, state = resume(plan, agent)
            assert ending.state == "done"
            assert len(agent.done) == len(set(agent.done))
            assert {one: known.status for one, known in state.blocks.items()} == {
                one: known.status for one, known in whole.blocks.items()
            }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_each_check_of_a_shipped_runbook_can_stop_it(path: Path) -> None:
    plan = plan_from(path)
    for _, block in plan.blocks():
        if block.kind == "check":
            assert any(ends_at(plan, block.id, answers) for answers in answer_paths(plan)), block.id


def ends_at(plan: Plan, check: str, answers: dict[str, list[Any]]) -> bool:
    """Whether the run ends at this check when it does not hold, on the way these answers lead."""
    agent = obliging_agent(plan, {**answers, "failed": ["abort"], "undo": ["none"]})
    agent.results[f"{check}:check"] = [ReadResult(holds=False, text="red")]
    ending, state, _ = run(plan, agent)
    return (ending.state, state.blocks[check].status) == ("failed", "failed")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_shipped_runbook_can_be_rehearsed(path: Path) -> None:
    plan = plan_from(path)
    ending, _, agent = run(plan, obliging_agent(plan, {}), mode="rehearse")
    assert (ending.state, agent.done, agent.asked) == ("done", [], [])


def test_the_document_list_is_not_empty() -> None:
    assert DOCUMENTS
