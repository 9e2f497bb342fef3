"""A world for walks: what it answers is written down beforehand or told by a rule, and what was done in it is kept. No
stand-in for a server: the walk asks nothing of a server, only of who drives it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from dba_console.recording.plan import Block, JournalRecord, Plan, Step
from dba_console.runbooks.apply_records import apply, replay_records
from dba_console.runbooks.requests import (
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
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.walk import RunEnding, walk
from dba_console.runbooks.walk_context import interrupted, planned, resumed

ANSWERS = {"start": "yes", "ack": "y", "yes": "yes", "manual": "ticket 7", "input": "42", "undo": "none"}
PUT_BACK = {"put_back": True}
MOST_REQUESTS = 5000
"""A walk that needs more does not end."""


class Killed(Exception):
    """The agent is gone, after so many records."""


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
class World:
    """Answers requests and keeps what was done."""

    answers: dict[str, list[str | OperatorInterrupt]] = field(default_factory=dict)
    """By block and kind (`drop/change:type`), by block, or by kind; each is used up from the front."""
    looks: dict[str, list[ReadResult]] = field(default_factory=dict)
    """By block and purpose (`a/wait:until`) or block; the last one stays."""
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    settles: dict[str, list[Outcome]] = field(default_factory=dict)
    done: list[tuple[str, int]] = field(default_factory=list)
    """Executions that were really begun."""
    undone: list[tuple[str, Any]] = field(default_factory=list)
    records: list[JournalRecord] = field(default_factory=list)
    asked: list[AskRequest] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    settled: list[tuple[str, int]] = field(default_factory=list)
    returns: list[Outcome] = field(default_factory=list)
    """What comes of putting settings back; used up from the front."""
    put_back: list[str] = field(default_factory=list)
    looked: list[tuple[str, str]] = field(default_factory=list)
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
                    raise Killed
                return None
            case ReadRequest():
                self.looked.append((request.block.id, request.purpose))
                return self._seen(request)
            case AskRequest():
                self.asked.append(request)
                said = self._said(request)
                self.wall_us += int(self.human_s * 1e6)
                return said if isinstance(said, OperatorInterrupt) else self._answer(request, said)
            case ExecuteRequest():
                return self._do(request)
            case SettleRequest():
                self.settled.append((request.block.id, request.execution))
                return self._settle(request)
            case RevertSettingsRequest():
                self.put_back.append(request.block.id)
                return self.returns.pop(0) if self.returns else Outcome(state="ok", text="as it was", values=PUT_BACK)
            case PauseRequest():
                self.wall_us += int(request.seconds * 1e6)
                return TimePassed(seconds=request.seconds, wall_us=self.wall_us)
            case RejectRequest(text):
                self.rejected.append(text)
                return None

    def _answer(self, request: AskRequest, said: str) -> Answer:
        second = "ben" if request.people > 1 else ""
        return Answer(text=said, who="ann", second=second, human_s=self.human_s)

    def _said(self, request: AskRequest) -> str | OperatorInterrupt:
        for key in (f"{request.block}:{request.kind}", request.block, request.kind):
            if self.answers.get(key):
                return self.answers[key].pop(0)
        if request.kind == "type":
            return request.expects
        if request.kind in ("choose", "failed"):
            return request.options[0].key
        if request.kind == "settle":
            return "ok I have seen it"
        return ANSWERS[request.kind]

    def _seen(self, request: ReadRequest) -> ReadResult:
        for key in (f"{request.block.id}:{request.purpose}", request.block.id):
            left = self.looks.get(key)
            if left:
                return left.pop(0) if len(left) > 1 else left[0]
        if request.purpose in ("done", "while"):
            return ReadResult(holds=False, text="no", machine_s=0.5)
        return ReadResult(holds=True, text="yes", machine_s=0.5)

    def _do(self, request: ExecuteRequest) -> Outcome:
        self.done.append((request.block.id, request.execution))
        if request.undo_of is not None or request.block.kind == "undo":
            self.undone.append((request.block.id, request.undo_of))
        if self.kill_in_do:
            raise Killed
        left = self.outcomes.get(request.block.id)
        if left:
            return left.pop(0)
        return Outcome(state="ok", text="done", undo={"of": request.block.id, "n": request.execution}, machine_s=3.0)

    def _settle(self, request: SettleRequest) -> Outcome:
        left = self.settles.get(request.block.id)
        if left:
            return left.pop(0)
        if (request.block.id, request.execution) in self.done:
            return Outcome(state="ok", text="it had been done", evidence="world")
        return Outcome(state="failed", text="it had not been begun", evidence="world")


def begin(
    plan: Plan,
    world: World,
    *,
    mode: Literal["run", "rehearse"] = "run",
    inputs: dict[str, Any] | None = None,
    **known: Any,
) -> RunState:
    """The state a run begins with."""
    known = {"shipped": True, **known}
    first = planned(plan, run="r1", mode=mode, target="db2", identity="id", who="ann", inputs=inputs, **known)
    world.records.append(first)
    return replay_records(plan, [first])


def drive(plan: Plan, state: RunState, world: World, *, inputs: dict[str, Any] | None = None) -> RunEnding:
    """Walk to the end. Raises Killed where the world says so."""
    course = walk(plan, state, inputs=inputs, now=world.now)
    request = next(course)
    for _ in range(MOST_REQUESTS):
        try:
            request = course.send(world.reply(request))
        except StopIteration as stop:
            ending: RunEnding = stop.value
            return ending
    raise AssertionError(f"the walk does not end: {request}")


def run(plan: Plan, world: World | None = None, **given: Any) -> tuple[RunEnding, RunState, World]:
    """A whole run."""
    world = world or World()
    state = begin(plan, world, **given)
    return drive(plan, state, world), state, world


def resume(plan: Plan, world: World, *, told: bool = True) -> tuple[RunEnding, RunState]:
    """Go on with what is in the journal, as a new agent does."""
    world.kill_after, world.kill_in_do = None, False
    state = replay_records(plan, world.records)
    if told and not state.ended:
        for record in (interrupted("the agent is gone"), resumed("ann")):
            world.records.append(record)
            apply(state, record)
    return drive(plan, state, world), state


def kinds(records: Iterable[JournalRecord], *wanted: str) -> list[str]:
    return [f"{one.kind} {one.block or one.step}".strip() for one in records if not wanted or one.kind in wanted]
