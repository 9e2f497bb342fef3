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
from dba_console.demo.cluster import Cluster
from dba_console.recording.recording import Recording
from dba_console.recording.run_reader import StoredRun, read_run, row_of_run
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_summary import summarize
from dba_console.runbooks.run_view import ENDED_STATES
from tests.agent.agents import agent, environment
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.agent.runs.scripted_console import NoWord, Operator, answers
from tests.agent.runs.small_runbooks import COUNTED, HELD
from tests.background import wait_until

MORTAL = "tests.agent.runs.agent_that_kills_itself"
WILLING = answers({"start": "yes", "failed": "retry", "*": "="})
"""An act that an agent was killed before is told as failed, and done at the operator's word."""
KILLS_AFTER = (
    "run.planned", "block.seen", "block.asked", "run.started", "step.started", "step.ended",
    "block.answered",
    "block.intent", "block.mark", "block.result",  # of the statement
    "block.intent", "block.result",  # of the command
    "run.ended",
)  # fmt: skip
"""Kinds of records, in the order in which the run writes each for the first time."""
OF_KILLS = {"journal.reopened", "run.interrupted", "run.resumed", "block.settled", "deviation"}
"""Kinds of records that a run has only after a kill."""


class Story:
    """One run over several agents: its sessions, and the two places where its acts are counted."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster, self.place = cluster, place
        self.file = place / "file"
        cluster.psql("truncate public.counted")
        place.mkdir()

    def life(self, dies: str = "") -> bool:
        """An agent: begin the run or go on with it until it has ended (True), or the agent is dead."""
        program, extra = (MORTAL, {DIES: dies}) if dies else ("dba_console", {})
        with agent(self.cluster.dsn(), self.place, extra=extra, program=program) as running:
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
        return operator.walk(WILLING).state in ENDED_STATES

    @property
    def runs(self) -> list[Path]:
        return sorted((self.place / "sessions").glob("*/runs/*/journal.jsonl"))

    def papers(self) -> StoredRun:
        [journal] = self.runs
        return read_run(journal.parent)

    def told(self) -> list[str]:
        return [f"{record.kind} {record.text}" for record in self.papers().records]

    def assert_once(self) -> None:
        """Each act was done exactly once, and the journal holds the whole story."""
        papers = self.papers()
        told = self.told()
        assert papers.damage is None, papers.damage
        assert papers.ended is not None and papers.ended.state == "done", told
        assert self.cluster.psql("select count(*) from public.counted").strip() == "1", told
        assert self.file.read_text() == "once\n", told
        assert all(record.fields["what"] == "retry" for record in papers.records if record.kind == "deviation"), told


@pytest.fixture
def counted(cluster: Cluster) -> Iterator[Cluster]:
    cluster.psql("create table counted(what text)")
    yield cluster
    cluster.psql("drop table public.counted")


def test_a_run_survives_a_kill_after_each_kind_of_record(counted: Cluster, tmp_path: Path) -> None:
    """One run, and each agent resumes it from where the one before was killed."""
    story = Story(counted, tmp_path / "story")
    for kind in KILLS_AFTER:
        assert not story.life(f"after:{kind}"), f"not killed after {kind}"
        assert story.papers().records[-1].kind == kind, story.told()
    story.assert_once()
    assert {record.kind for record in story.papers().records} - OF_KILLS - {"journal.began"} == set(KILLS_AFTER)


def test_a_change_done_but_not_recorded_is_resolved_and_not_repeated(counted: Cluster, tmp_path: Path) -> None:
    """Killed when this was about to be written: an act was done, or in its middle, and no record says how it ended."""
    story = Story(counted, tmp_path / "story")
    for kind in ("block.mark", "block.result", "block.result", "run.ended"):  # the second result is the command's
        assert not story.life(f"before:{kind}"), f"not killed before {kind}"
    assert story.life()
    story.assert_once()
    settled = [record.step for record in story.papers().records if record.kind == "block.settled"]
    assert settled == ["count-in-a-table", "count-in-a-table", "count-in-a-file"], story.told()


def test_an_interrupted_run_is_ended_without_executing_further_steps(counted: Cluster, tmp_path: Path) -> None:
    story = Story(counted, tmp_path / "story")
    assert not story.life("after:run.started")
    with agent(counted.dsn(), story.place) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: operator.view is not None, "the interrupted run")
        operator.control("abort", reason="not tonight")
        assert "resume or abort it" in operator.refusal().text
        operator.client.send(RunResume(run=view.run, abort="not tonight"))
        assert operator.walk({}).state == "aborted"
    papers = story.papers()
    assert papers.ended is not None and "not tonight" in papers.ended.text
    assert "block.intent" not in {record.kind for record in papers.records}
    assert counted.psql("select count(*) from public.counted").strip() == "0"
    row = row_of_run(papers)
    assert papers.plan is not None
    summary = summarize(papers.plan, replay_records(papers.plan, papers.records))
    assert (row.began_us, row.ended_us) == (summary.started_us, summary.ended_us)
    assert summary.interrupted_s > 0


def _begin_held(operator: Operator, fifo: Path) -> None:
    """Begin a run, up to the first line of its command, which then waits for the pipe."""
    operator.begin(HELD, {"fifo": str(fifo)})
    says = answers({"start": "yes", "yes": "yes"})

    def begun() -> bool:
        asked = None if operator.view is None else operator.view.question
        if asked is not None and operator.may_answer and asked.id not in operator._answered:
            operator.answer(asked, says(asked) or "")
        return any(line.text == "begun" for line in operator.lines)

    operator.until(begun, "the first line of the command")


def test_a_still_running_command_is_stopped_when_its_interrupted_run_is_ended(cluster: Cluster, tmp_path: Path) -> None:
    fifo, place = tmp_path / "fifo", tmp_path / "agents"
    os.mkfifo(fifo)
    place.mkdir()
    with agent(cluster.dsn(), place) as running:
        _begin_held(Operator.of(running), fifo)
    with agent(cluster.dsn(), place) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: operator.view is not None, "the interrupted run")
        operator.client.send(RunResume(run=view.run, abort="not tonight"))
        operator.view = None
        assert "not tonight" in operator.walk({}).ending
    [journal] = (place / "sessions").glob("*/runs/*/journal.jsonl")
    [settled] = [record for record in read_run(journal.parent).records if record.kind == "block.settled"]
    assert settled.state == "stopped" and settled.text.endswith("(ended by signal 15)"), settled


def test_the_output_of_its_command_is_shown_before_the_run_is_resumed(cluster: Cluster, tmp_path: Path) -> None:
    fifo, place = tmp_path / "fifo", tmp_path / "agents"
    os.mkfifo(fifo)
    place.mkdir()
    with agent(cluster.dsn(), place) as running:
        _begin_held(Operator.of(running), fifo)
    with agent(cluster.dsn(), place) as running:
        operator = Operator.of(running)
        view = operator.until(lambda: bool(operator.lines), "what it had printed")
        assert (view.state, [line.text for line in operator.lines]) == ("interrupted", ["begun"])
        fifo.write_text("more\n")
        operator.until(lambda: "got more" in [line.text for line in operator.lines], "what it printed meanwhile")
        assert operator.view is not None and operator.view.state == "interrupted"
        operator.resume(view.run)
        assert operator.walk(answers({"ack": "y", "*": "="})).state == "done"


def test_a_run_whose_inputs_were_not_recorded_is_not_resumed(counted: Cluster, tmp_path: Path) -> None:
    """Killed between the file of its journal and its second record, which has the inputs and the server."""
    story = Story(counted, tmp_path / "story")
    assert not story.life("before:run.planned")
    with pytest.raises(NoWord, match="its agent ended before its inputs were recorded"):
        story.life()
    assert [record.kind for record in story.papers().records] == ["journal.began"]


def test_a_truncated_journal_is_refused_with_what_its_session_recorded(counted: Cluster, tmp_path: Path) -> None:
    """Killed after the first act was recorded as done; who cut the journal off would have it done a second time."""
    story = Story(counted, tmp_path / "story")
    with agent(counted.dsn(), story.place) as running:
        operator = Operator.of(running)
        operator.begin(COUNTED, {"file": str(story.file)})

        while not (asked := operator.question()).block.startswith("count-in-a-file"):
            operator.answer(asked, WILLING(asked) or "")
        have = len(story.papers().lines)
        wait_until(lambda: _known(running.session()) >= have, 120.0, what="the session knowing all of the run")
        running.process.kill()
    [journal] = story.runs
    lines = journal.read_bytes().splitlines(keepends=True)
    kinds = [record.kind for record in story.papers().records]
    journal.write_bytes(b"".join(lines[: kinds.index("block.intent")]))
    with pytest.raises(NoWord, match=r"its journal ends with record .* the end was removed"):
        story.life()
    assert counted.psql("select count(*) from public.counted").strip() == "1"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(story.place).items():
            patch.setenv(name, value)
        done = subprocess.run(
            [sys.executable, "-m", "dba_console", "runbook", "resume", "--plain", "--dsn", counted.dsn()],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == ExitCode.SESSION, done
    assert f"ends with record {kinds.index('block.intent')}, but" in done.stderr and "INSERT" not in done.stdout
    assert "hint: find out what was done" in done.stderr


def _known(session: Path) -> int:
    """Records of a run that are in the session's events on the disk."""
    recording = Recording.open(session)
    try:
        return max((int(event.details.get("seq", 0)) for event in recording.events()), default=0)
    finally:
        recording.close()
