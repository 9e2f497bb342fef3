"""An agent killed at each kind of record of a run: the next one goes on, nothing is done twice and nothing left out.

That this holds at every record of any run is shown without processes in tests/unit/runbooks/test_walk_killed.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.agent.client import AgentConnectionLost
from dba_console.agent.protocol import RunResume
from dba_console.core.errors import ConnectError, ExitCode
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import StoredRun, read_run, row_of_run
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_summary import summarize
from dba_console.runbooks.run_view import ENDED_STATES
from tests.agent.agents import agent, environment
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.agent.runs.scripted_console import Operator, WaitTimeout, answers
from tests.agent.runs.small_runbooks import COUNTED, WAITS_FOR_FIFO
from tests.background import wait_until

SELF_KILLING_AGENT = "tests.agent.runs.agent_that_kills_itself"
CONFIRM_ALL = answers({"start": "yes", "failed": "retry", "*": "="})
"""An act that an agent was killed before is told as failed, and done at the operator's word."""
KILLED_AFTER = (
    "run.planned", "block.seen", "block.asked", "run.started", "step.started", "step.ended",
    "block.answered",
    "block.intent", "block.mark", "block.result",  # of the statement
    "block.intent", "block.result",  # of the command
    "run.ended",
)  # fmt: skip
"""Kinds of records, in the order in which the run writes each for the first time."""
RECORDS_OF_KILLS = {"journal.reopened", "run.interrupted", "run.resumed", "block.settled", "deviation"}
"""Kinds of records that a run has only after a kill."""


class RunOverAgents:
    """One run over several agents: its sessions, and the two places where its acts are counted."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.file = directory / "file"
        cluster.psql("truncate public.counted")
        directory.mkdir()

    def run_agent(self, killed_at: str = "") -> bool:
        """Begin or resume the run with a new agent. Return whether the run has ended; else the agent is dead."""
        program, extra = (SELF_KILLING_AGENT, {DIES: killed_at}) if killed_at else ("dba_console", {})
        with agent(self.cluster.dsn(), self.directory, extra=extra, program=program) as running:
            try:
                operator = Operator.attach(running.socket())
            except (ConnectError, AssertionError):
                return False
            try:
                return self._walk(operator)
            except AgentConnectionLost:
                return False
            finally:
                operator.close()

    def _walk(self, operator: Operator) -> bool:
        if not self.runs:
            operator.begin(COUNTED, {"file": str(self.file)})
        else:
            view = operator.until(lambda: operator.view is not None, "the interrupted run")
            assert view.state == "interrupted"
            operator.resume(view.run)
        return operator.walk(CONFIRM_ALL).state in ENDED_STATES

    @property
    def runs(self) -> list[Path]:
        return sorted((self.directory / "sessions").glob("*/runs/*/journal.jsonl"))

    def stored_run(self) -> StoredRun:
        [journal] = self.runs
        return read_run(journal.parent)

    def record_lines(self) -> list[str]:
        return [f"{record.kind} {record.text}" for record in self.stored_run().records]

    def assert_once(self) -> None:
        """Each change was made exactly once, and the journal has all records."""
        stored = self.stored_run()
        lines = self.record_lines()
        assert stored.damage is None, stored.damage
        assert stored.ended is not None and stored.ended.state == "done", lines
        assert self.cluster.psql("select count(*) from public.counted").strip() == "1", lines
        assert self.file.read_text() == "once\n", lines
        assert all(record.fields["what"] == "retry" for record in stored.records if record.kind == "deviation"), lines


@pytest.fixture
def counted(cluster: Cluster) -> Iterator[Cluster]:
    cluster.psql("create table counted(what text)")
    yield cluster
    cluster.psql("drop table public.counted")


def test_a_run_survives_a_kill_after_each_kind_of_record(counted: Cluster, tmp_path: Path) -> None:
    """One run, and each agent resumes it from where the one before was killed."""
    run = RunOverAgents(counted, tmp_path / "story")
    for kind in KILLED_AFTER:
        assert not run.run_agent(f"after:{kind}"), f"not killed after {kind}"
        assert run.stored_run().records[-1].kind == kind, run.record_lines()
    run.assert_once()
    assert {record.kind for record in run.stored_run().records} - RECORDS_OF_KILLS - {"journal.began"} == set(
        KILLED_AFTER
    )


def test_a_change_done_but_not_recorded_is_resolved_and_not_repeated(counted: Cluster, tmp_path: Path) -> None:
    """Killed when this was about to be written: an act was done, or in its middle, and no record says how it ended."""
    run = RunOverAgents(counted, tmp_path / "story")
    for kind in ("block.mark", "block.result", "block.result", "run.ended"):  # the second result is the command's
        assert not run.run_agent(f"before:{kind}"), f"not killed before {kind}"
    assert run.run_agent()
    run.assert_once()
    settled = [record.step for record in run.stored_run().records if record.kind == "block.settled"]
    assert settled == ["count-in-a-table", "count-in-a-table", "count-in-a-file"], run.record_lines()


def test_an_interrupted_run_is_ended_without_executing_further_steps(counted: Cluster, tmp_path: Path) -> None:
    run = RunOverAgents(counted, tmp_path / "story")
    assert not run.run_agent("after:run.started")
    with agent(counted.dsn(), run.directory) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: operator.view is not None, "the interrupted run")
        operator.control("abort", reason="not tonight")
        assert "resume or abort it" in operator.refusal().text
        operator.client.send(RunResume(run=view.run, abort="not tonight"))
        assert operator.walk({}).state == "aborted"
    stored = run.stored_run()
    assert stored.ended is not None and "not tonight" in stored.ended.text
    assert "block.intent" not in {record.kind for record in stored.records}
    assert counted.psql("select count(*) from public.counted").strip() == "0"
    row = row_of_run(stored)
    assert stored.plan is not None
    summary = summarize(stored.plan, replay_records(stored.plan, stored.records))
    assert (row.began_us, row.ended_us) == (summary.started_us, summary.ended_us)
    assert summary.interrupted_s > 0


def _begin_waiting_for_fifo(cluster: Cluster, directory: Path) -> None:
    """A run up to the first line of its command, which then waits for the pipe; its agent has ended."""
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    answer = answers({"start": "yes", "yes": "yes"})
    with agent(cluster.dsn(), directory) as running:
        operator = Operator.of(running)
        operator.begin(WAITS_FOR_FIFO, {"fifo": str(fifo)})

        def begun() -> bool:
            asked = None if operator.view is None else operator.view.question
            if asked is not None and operator.may_answer and asked.id not in operator._answered:
                operator.answer(asked, answer(asked) or "")
            return any(line.text == "begun" for line in operator.lines)

        operator.until(begun, "the first line of the command")


def test_a_still_running_command_is_stopped_when_its_interrupted_run_is_ended(cluster: Cluster, tmp_path: Path) -> None:
    _begin_waiting_for_fifo(cluster, tmp_path)
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: operator.view is not None, "the interrupted run")
        operator.client.send(RunResume(run=view.run, abort="not tonight"))
        operator.view = None
        assert "not tonight" in operator.walk({}).ending
    [journal] = (tmp_path / "sessions").glob("*/runs/*/journal.jsonl")
    [settled] = [record for record in read_run(journal.parent).records if record.kind == "block.settled"]
    assert settled.state == "stopped" and settled.text.endswith("(ended by signal 15)"), settled


def test_the_output_of_its_command_is_shown_before_the_run_is_resumed(cluster: Cluster, tmp_path: Path) -> None:
    _begin_waiting_for_fifo(cluster, tmp_path)
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: bool(operator.lines), "what it had printed")
        assert (view.state, [line.text for line in operator.lines]) == ("interrupted", ["begun"])
        [reported] = [event.text for event in operator.events if event.kind == "run.interrupted"]
        assert "its command continues" in reported
        (tmp_path / "fifo").write_text("more\n")
        operator.until(lambda: "got more" in [line.text for line in operator.lines], "what it printed meanwhile")
        assert operator.view is not None and operator.view.state == "interrupted"
        operator.resume(view.run)
        assert operator.walk(answers({"ack": "y", "*": "="})).state == "done"


def test_a_run_whose_inputs_were_not_recorded_is_not_resumed(counted: Cluster, tmp_path: Path) -> None:
    """Killed between the file of its journal and its second record, which has the inputs and the server."""
    run = RunOverAgents(counted, tmp_path / "story")
    assert not run.run_agent("before:run.planned")
    with pytest.raises(WaitTimeout, match="its agent ended before its inputs were recorded"):
        run.run_agent()
    assert [record.kind for record in run.stored_run().records] == ["journal.began"]


def test_a_truncated_journal_is_refused_with_what_its_session_recorded(counted: Cluster, tmp_path: Path) -> None:
    """Killed after the first act was recorded as done; who cut the journal off would have it done a second time."""
    run = RunOverAgents(counted, tmp_path / "story")
    with agent(counted.dsn(), run.directory) as running:
        operator = Operator.of(running)
        operator.begin(COUNTED, {"file": str(run.file)})

        while not (asked := operator.question()).block.startswith("count-in-a-file"):
            operator.answer(asked, CONFIRM_ALL(asked) or "")
        have = len(run.stored_run().lines)
        wait_until(
            lambda: _recorded_events(running.session()) >= have, 120.0, what="the session knowing all of the run"
        )
        running.process.kill()
    [journal] = run.runs
    lines = journal.read_bytes().splitlines(keepends=True)
    kinds = [record.kind for record in run.stored_run().records]
    journal.write_bytes(b"".join(lines[: kinds.index("block.intent")]))
    with pytest.raises(WaitTimeout, match=r"its journal ends with record .* the end was removed"):
        run.run_agent()
    assert counted.psql("select count(*) from public.counted").strip() == "1"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(run.directory).items():
            patch.setenv(name, value)
        done = subprocess.run(
            [sys.executable, "-m", "dba_console", "runbook", "resume", "--plain", "--dsn", counted.dsn()],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == ExitCode.SESSION, done
    assert f"ends with record {kinds.index('block.intent')}, but" in done.stderr and "INSERT" not in done.stdout
    assert "hint: check what was done" in done.stderr


def _recorded_events(session: Path) -> int:
    """Records of a run that are in the session's events on the disk."""
    recording = Recording.open(session)
    try:
        return max((int(event.details.get("seq", 0)) for event in recording.events()), default=0)
    finally:
        recording.close()
