"""The agent's side of a walk: answers are given beforehand or by a rule, and every request is kept. It replaces no
server: a walk sends its requests only to the code that drives it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from dba_console.actions.action_preview import ActionPreview
from dba_console.recording.plan import Block, JournalRecord, Plan, Step
from dba_console.runbooks.apply_records import apply, replay_records
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.walk import RunEnding, walk
from dba_console.runbooks.walk_context import interrupted, planned, resumed
from dba_console.runbooks.walk_requests import (
    Answer,
    AskRequest,
    ExecuteRequest,
    OperatorInterrupt,
    Outcome,
    PauseRequest,
    ReadRequest,
    ReadResult,
    RejectRequest,
    Reply,
    Request,
    RevertSettingsRequest,
    SettleRequest,
    TimePassed,
    WriteRequest,
)

DEFAULT_ANSWERS = {"start": "yes", "ack": "y", "yes": "yes", "manual": "ticket 7", "input": "42", "undo": "none"}
REVERTED = {"put_back": True}
MAX_REQUESTS = 5000
"""A walk that needs more does not end."""


class AgentKilled(Exception):
    """The agent was killed, after `kill_after` records."""


def block(block_id: str, kind: Any, **given: Any) -> Block:
    usual = {"change": "sql", "preview": "sql", "check": "expr", "measure": "expr", "run": "sh"}
    language = given.pop("language", usual.get(kind, "toml"))
    return Block(
        id=block_id,
        kind=kind,
        line=1,
        language=language,
        body=given.pop("body", "" if language == "toml" else block_id),
        **given,
    )


def step(step_id: str, *blocks: Block, **given: Any) -> Step:
    return Step(id=step_id, title=step_id.capitalize(), line=1, blocks=blocks, **given)


def plan_of(*steps: Step, **given: Any) -> Plan:
    return Plan(id="book", title="Book", steps=steps, **given)


@dataclass
class ScriptedAgent:
    """Answers requests and keeps what was done."""

    answers: dict[str, list[str | OperatorInterrupt]] = field(default_factory=dict)
    """By block and kind (`drop/change:type`), by block, or by kind; each is used up from the front."""
    results: dict[str, list[ReadResult]] = field(default_factory=dict)
    """By block and purpose (`a/wait:until`) or block; the last one stays."""
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    resolutions: dict[str, list[Outcome]] = field(default_factory=dict)
    done: list[tuple[str, int]] = field(default_factory=list)
    """Executions that were started."""
    reverted: list[tuple[str, Any]] = field(default_factory=list)
    records: list[JournalRecord] = field(default_factory=list)
    asked: list[AskRequest] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    resolved: list[tuple[str, int]] = field(default_factory=list)
    revert_outcomes: list[Outcome] = field(default_factory=list)
    """Outcomes of reverting settings; used up from the front."""
    reverts: list[str] = field(default_factory=list)
    reads: list[tuple[str, str]] = field(default_factory=list)
    wall_us: int = 1_000_000_000_000
    human_s: float = 2.0
    kill_after: int | None = None
    kill_in_do: bool = False
    """The agent dies between the act and its reply."""

    def now(self) -> int:
        return self.wall_us

    def reply(self, request: Request) -> Reply:
        match request:
            case WriteRequest(record):
                self.records.append(record)
                if self.kill_after is not None and len(self.records) >= self.kill_after:
                    raise AgentKilled
                return None
            case ReadRequest():
                self.reads.append((request.block.id, request.purpose))
                return self._read_result(request)
            case AskRequest():
                self.asked.append(request)
                text = self._answer_text(request)
                self.wall_us += int(self.human_s * 1e6)
                return text if isinstance(text, OperatorInterrupt) else self._answer(request, text)
            case ExecuteRequest():
                return self._execute(request)
            case SettleRequest():
                self.resolved.append((request.block.id, request.execution))
                return self._resolve(request)
            case RevertSettingsRequest():
                self.reverts.append(request.block.id)
                return (
                    self.revert_outcomes.pop(0)
                    if self.revert_outcomes
                    else Outcome(state="ok", text="as it was", values=REVERTED)
                )
            case PauseRequest():
                self.wall_us += int(request.seconds * 1e6)
                return TimePassed(seconds=request.seconds, wall_us=self.wall_us)
            case RejectRequest(text):
                self.rejected.append(text)
                return None

    def _answer(self, request: AskRequest, text: str) -> Answer:
        second = "ben" if request.people > 1 else ""
        return Answer(text=text, who="ann", second=second, human_s=self.human_s)

    def _answer_text(self, request: AskRequest) -> str | OperatorInterrupt:
        for key in (f"{request.block}:{request.kind}", request.block, request.kind):
            if self.answers.get(key):
                return self.answers[key].pop(0)
        if request.kind == "type":
            return request.expects
        if request.kind in ("choose", "failed"):
            return request.options[0].key
        if request.kind == "settle":
            return "ok I have seen it"
        return DEFAULT_ANSWERS[request.kind]

    def _read_result(self, request: ReadRequest) -> ReadResult:
        for key in (f"{request.block.id}:{request.purpose}", request.block.id):
            left = self.results.get(key)
            if left:
                return left.pop(0) if len(left) > 1 else left[0]
        if request.purpose in ("done", "while"):
            return ReadResult(holds=False, text="no", machine_s=0.5)
        preview = ActionPreview(text="", exact="") if request.block.kind == "action" else None
        return ReadResult(holds=True, text="yes", action_preview=preview, machine_s=0.5)

    def _execute(self, request: ExecuteRequest) -> Outcome:
        self.done.append((request.block.id, request.execution))
        if request.undo_of is not None or request.block.kind == "undo":
            self.reverted.append((request.block.id, request.undo_of))
        if self.kill_in_do:
            raise AgentKilled
        left = self.outcomes.get(request.block.id)
        if left:
            return left.pop(0)
        return Outcome(state="ok", text="done", undo={"of": request.block.id, "n": request.execution}, machine_s=3.0)

    def _resolve(self, request: SettleRequest) -> Outcome:
        left = self.resolutions.get(request.block.id)
        if left:
            return left.pop(0)
        if (request.block.id, request.execution) in self.done:
            return Outcome(state="ok", text="it had been done", evidence="world")
        return Outcome(state="failed", text="it had not been begun", evidence="world")


def begin(
    plan: Plan,
    agent: ScriptedAgent,
    *,
    mode: Literal["run", "rehearse"] = "run",
    inputs: dict[str, Any] | None = None,
    **known: Any,
) -> RunState:
    """The state a run begins with."""
    known = {"shipped": True, **known}
    first = planned(plan, run="r1", mode=mode, target="db2", identity="id", who="ann", inputs=inputs, **known)
    agent.records.append(first)
    return replay_records(plan, [first])


def drive(plan: Plan, state: RunState, agent: ScriptedAgent, *, inputs: dict[str, Any] | None = None) -> RunEnding:
    """Walk to the end. Raises AgentKilled where the agent is to be killed."""
    requests = walk(plan, state, inputs=inputs, now=agent.now)
    request = next(requests)
    for _ in range(MAX_REQUESTS):
        try:
            request = requests.send(agent.reply(request))
        except StopIteration as stop:
            ending: RunEnding = stop.value
            return ending
    raise AssertionError(f"the walk does not end: {request}")


def run(plan: Plan, agent: ScriptedAgent | None = None, **given: Any) -> tuple[RunEnding, RunState, ScriptedAgent]:
    """A whole run."""
    agent = agent or ScriptedAgent()
    state = begin(plan, agent, **given)
    return drive(plan, state, agent), state, agent


def resume(plan: Plan, agent: ScriptedAgent, *, record_interruption: bool = True) -> tuple[RunEnding, RunState]:
    """Go on with what is in the journal, as a new agent does."""
    agent.kill_after, agent.kill_in_do = None, False
    state = replay_records(plan, agent.records)
    if record_interruption and not state.ended:
        for record in (interrupted("the agent is gone"), resumed("ann")):
            agent.records.append(record)
            apply(state, record)
    return drive(plan, state, agent), state


def kinds(records: Iterable[JournalRecord], *wanted: str) -> list[str]:
    return [f"{one.kind} {one.block or one.step}".strip() for one in records if not wanted or one.kind in wanted]
