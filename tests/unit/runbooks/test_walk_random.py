"""Random replies and interrupts at any moment: each change has its intent, its confirmation and one execution, and the
journal records what happened.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dba_console.recording.plan import JournalRecord, Plan
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.row_choice import acts_on_preview
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.view_builder import LiveStatus, run_view
from dba_console.runbooks.walk import walk
from dba_console.runbooks.walk_requests import (
    Answer,
    AskRequest,
    ExecuteRequest,
    OperatorInterrupt,
    Outcome,
    PauseRequest,
    ReadRequest,
    ReadResult,
    Reply,
    Request,
    SettleRequest,
    TimePassed,
    WriteRequest,
)
from tests.unit.runbooks.scripted_agent import ScriptedAgent, begin
from tests.unit.runbooks.test_walk_killed import ROWS, journal, plans

MAX_REQUESTS = 400
"""Requests after which the operator has had enough and."""
STATES = ("ok", "ok", "ok", "failed", "unknown", "stopped", "refused")
ANSWER_TEXTS = (
    "",
    "y",
    "yes",
    "no",
    "db2",
    "2",
    "enough",
    "on",
    "far",
    "retry",
    "wait",
    "skip late",
    "skip",
    "all",
    "none",
)


class RandomAgent:
    """Replies at random; the same seed gives the same replies."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.any = plan, random.Random(seed)
        self.state: RunState | None = None
        self.records: list[JournalRecord] = []
        self.served = 0
        self.wall_us = 1_000_000
        self.open: tuple[str, int] | None = None
        """The act whose end is not known."""
        self.done: set[tuple[str, int]] = set()
        self.answered: dict[str, JournalRecord] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.preview_reads: dict[str, int] = {}
        self.left_out: dict[str, list[int]] = {}
        """Of each preview: its rows, how often it gave some, and which of them are not to be acted on."""

    def reply(self, request: Request) -> Reply:
        self.served += 1
        match request:
            case WriteRequest(record):
                self._record(record)
                return None
            case ExecuteRequest():
                return self._execute(request)
            case SettleRequest():
                assert self.open == (request.block.id, request.execution)
                return self._outcome()
            case ReadRequest():
                return self._interrupt() or self._read_result(request)
            case AskRequest():
                return self._interrupt() or self._answer(request)
            case PauseRequest():
                self.wall_us += int(request.seconds * 1e6)
                return self._interrupt() or TimePassed(seconds=request.seconds, wall_us=self.wall_us)
        return None

    def _record(self, record: JournalRecord) -> None:
        self.records.append(record)
        # What to do about a row that failed is asked too; the rows after it are confirmed as they were before.
        if record.kind == "block.answered" and record.fields["question"] not in ("failed", "settle"):
            self.answered[record.block] = record
        if "rows" in record.fields and record.kind == "block.seen":
            self.rows[record.block] = record.fields["rows"]
            self.preview_reads[record.block] = self.preview_reads.get(record.block, 0) + 1
            self.left_out[record.block] = record.fields.get("left_out", [])
        if record.kind == "rows.chosen":
            self.left_out[record.block] = record.fields["left_out"]
        if record.kind == "block.intent":
            assert self.open is None, "an act is begun while the end of another is not known"
            self.open = (record.block, record.execution)
        if record.kind in ("block.result", "block.settled"):
            assert self.open == (record.block, record.execution)
            self.open = None if record.state != "unknown" else self.open
        if record.kind == "deviation" or record.state == "skipped":
            assert record.fields.get("reason"), record

    def _execute(self, request: ExecuteRequest) -> Outcome:
        last = self.records[-1]
        assert (last.kind, last.block, last.execution) == ("block.intent", request.block.id, request.execution)
        assert self.open == (request.block.id, request.execution)
        assert (request.block.id, request.execution) not in self.done
        self.done.add((request.block.id, request.execution))
        if (preview := acts_on_preview(self.plan, request.block)) is not None and "row" in request.intent.fields:
            chosen = [row for at, row in enumerate(self.rows[preview.id]) if at not in self.left_out[preview.id]]
            assert request.intent.fields["row"] == chosen[request.intent.fields["row_index"]]
        if request.block.confirm is not None:
            given = self.answered[request.block.id]
            assert given.state != "declined" and given.fields["question"] == request.block.confirm.level
        return self._outcome()

    def _outcome(self) -> Outcome:
        undo = {"was": 1} if self.any.random() < 0.5 else None
        return Outcome(state=self.any.choice(STATES), text="so it is", undo=undo, machine_s=1.0)  # type: ignore[arg-type]

    def _read_result(self, request: ReadRequest) -> ReadResult:
        holds = self.any.choice((True, True, True, False, None))
        rows = ROWS[: self.any.randint(0, 2)] if request.purpose == "preview" else ()
        return ReadResult(holds=holds, text="seen", rows=rows, error="broken" if self.any.random() < 0.1 else None)

    def _interrupt(self) -> OperatorInterrupt | None:
        if self.served > MAX_REQUESTS:
            return OperatorInterrupt(verb="abort", who="ann", reason="enough")
        if self.any.random() > 0.08:
            return None
        if self.any.random() < 0.5 and self.rows:
            place = self.any.choice(list(self.rows))
            rows = tuple(at for at in range(2) if self.any.random() < 0.5)
            return OperatorInterrupt(verb="choose", who="ben", block=place, look=self.preview_reads[place], rows=rows)
        verb: Any = self.any.choice(("pause", "skip", "abort", "jump", "undo"))
        where = self.any.choice([*(step.id for step in self.plan.steps), "end", "nowhere"])
        return OperatorInterrupt(verb=verb, who="ben", reason=self.any.choice(("", "because")), step=where)

    def _answer(self, request: AskRequest) -> Answer:
        likely = [request.expects, *(option.key for option in request.options)]
        text = self.any.choice([*likely, *likely, *(f"{one} reason" for one in likely), *ANSWER_TEXTS])
        return Answer(text=text, who="ann", human_s=1.0)


@given(plan=plans(), seed=st.integers(0, 1 << 30), mode=st.sampled_from(["run", "run", "run", "rehearse"]))
def test_whatever_is_answered_the_rules_are_kept(plan: Plan, seed: int, mode: Any) -> None:
    agent = RandomAgent(plan, seed)
    first = ScriptedAgent()
    state = begin(plan, first, mode=mode)
    agent.records = first.records
    requests = walk(plan, state, now=lambda: agent.wall_us)
    request = next(requests)
    while agent.served < MAX_REQUESTS * 3:
        try:
            request = requests.send(agent.reply(request))
        except StopIteration as stop:
            ending = stop.value
            break
    else:
        raise AssertionError(f"the walk does not end: {request}")
    assert ending.state == state.ended
    assert mode == "run" or not agent.done
    state.current = ""
    reported = replay_records(plan, journal(agent.records))
    assert msgspec.json.encode(reported) == msgspec.json.encode(state)
    assert run_view(plan, reported, LiveStatus(now_us=agent.wall_us)).state == ending.state
    if agent.open is not None:
        assert reported.open_execution is not None, "an act of unknown end is not told as one"
