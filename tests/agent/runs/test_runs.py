"""Runs of small runbooks in a real agent on a real server: to their end, rehearsed, taken back, held still."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dba_console.agent.protocol import RunBegin, RunResume
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.run_reader import read_run
from dba_console.runbooks.run_summary import RunSummary
from dba_console.runbooks.single_action import signal_plan
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.scripted_console import Operator, answers
from tests.agent.runs.small_runbooks import COUNTED, FAILING, WAITING, WAITS_FOR_FIFO, runbook_text
from tests.background import session, wait_until

ANSWERS = answers({"start": "yes", "ack": "y", "*": "="})


@pytest.fixture
def counted(cluster: Cluster) -> Iterator[Cluster]:
    cluster.psql("create table counted(what text)")
    yield cluster
    cluster.psql("drop table public.counted")


def test_a_run_executes_to_its_end_and_leaves_its_story(counted: Cluster, tmp_path: Path) -> None:
    with agent(counted.dsn(), tmp_path) as running:
        operator, watcher = Operator.of(running), Operator.of(running)
        first = operator.begin(COUNTED, {"file": str(tmp_path / "file")})
        view = operator.walk(ANSWERS)
        assert view.state == "done" and view.summary is not None
        assert [step.state for step in view.steps] == ["ok"] * 4
        stored = read_run(Path(first.directory))
        assert stored.damage is None and stored.text == COUNTED
        assert [line.text for line in operator.lines] == ["counted"]
        seen = watcher.until(lambda: watcher.view is not None and watcher.view.state == "done", "the end, watched")
        assert seen.driver and not watcher.yours and watcher.lines == operator.lines
        summary = Path(first.directory) / "summary.json"
        wait_until(summary.exists, 60, what="the summary")
        assert msgspec.json.decode(summary.read_bytes(), type=RunSummary).state == "done"
        assert running.end() == 0
        log = (running.session() / "session.log").read_text()
    assert "COUNTED: counted" in log and "COUNTED: run done" in log
    assert os.stat(first.directory).st_mode & 0o077 == 0


def test_a_failed_step_is_reverted_on_request(running: RunningAgent, cluster: Cluster) -> None:
    operator = Operator.of(running)
    operator.begin(FAILING)
    view = operator.walk({"start": "yes", "failed": "abort", "undo": "all", "yes": "yes"})
    assert view.state == "failed"
    assert [step.state for step in view.steps] == ["undone", "failed"]
    assert cluster.psql("select to_regclass('taken_back') is null").strip() == "t"


def test_a_document_that_lint_rejects_is_refused_with_its_line(running: RunningAgent) -> None:
    operator = Operator.of(running)
    operator.client.send(RunBegin(text="# No\n\n```sh {run}\nls\n```\n", source="no.md"))
    refused = operator.refusal()
    assert refused.text.startswith("no.md:") and refused.code == 2 and refused.reply_to == ""


def test_missing_inputs_are_reported_before_anything_is_recorded(running: RunningAgent, cluster: Cluster) -> None:
    operator, before = Operator.of(running), set(running.session().glob("runs/*"))
    text = runbook_text("needy", "## Look\n\n```sql {check}\nselect true\n```\n").replace(
        '"server"', '"no-such-program"'
    )
    operator.client.send(RunBegin(text=text, source="needy.md"))
    assert "no-such-program" in operator.refusal().text
    assert set(running.session().glob("runs/*")) == before


def test_a_run_is_paused_and_continues(running: RunningAgent, cluster: Cluster) -> None:
    cluster.psql("create table awaited(i int)")
    try:
        operator = Operator.of(running)
        operator.begin(WAITING)
        operator.answer(operator.question("start"), "yes")
        operator.until(lambda: operator.view is not None and operator.view.waiting is not None, "the wait")
        operator.control("pause", reason="lunch")
        operator.until(lambda: operator.view is not None and operator.view.state == "paused", "the pause")
        cluster.psql("insert into public.awaited values (1)")
        operator.question("choose")
        operator.control("continue")
        view = operator.walk(ANSWERS)
        assert view.state == "done"
        operator.control("stop")
        assert operator.refusal().reply_to == view.run
    finally:
        cluster.psql("drop table public.awaited")


def test_a_command_is_stopped_with_all_its_child_processes(running: RunningAgent, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    operator = Operator.of(running)
    operator.begin(WAITS_FOR_FIFO, {"fifo": str(fifo)})
    operator.answer(operator.question("start"), "yes")
    operator.answer(operator.question("yes"), "yes")
    operator.until(lambda: any(line.text == "begun" for line in operator.lines), "its first line")
    assert operator.until(lambda: operator.view is not None and operator.view.can_stop, "a stop").can_stop
    operator.control("stop")
    asked = operator.question("failed")
    assert "stopped by" in asked.text
    operator.answer(asked, "abort")
    assert operator.walk({"undo": "none"}).state == "failed"


def test_an_agent_that_shuts_down_leaves_its_run_to_the_next_agent_which_is_available_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.psql("create table awaited(i int)")
    try:
        with agent(cluster.dsn(), tmp_path) as running:
            operator = Operator.of(running)
            first = operator.begin(WAITING)
            operator.answer(operator.question("start"), "yes")
            operator.until(lambda: operator.view is not None and operator.view.waiting is not None, "the wait")
            assert running.end() == 0
        assert read_run(Path(first.directory)).records[-1].kind == "run.interrupted"
        cluster.psql("insert into public.awaited values (1)")
        with agent(cluster.dsn(), tmp_path) as running:
            operator = Operator.of(running)
            operator.client.send(RunResume(run=first.run))
            operator.until(lambda: operator.yours, "the run resumed")
            assert operator.walk(ANSWERS).state == "done"
            operator.client.send(RunResume(run=first.run))
            assert "no interrupted run" in operator.refusal().text
    finally:
        cluster.psql("drop table public.awaited")


def test_an_unstarted_run_is_aborted_by_the_next_one_of_its_operator(
    running: RunningAgent, counted: Cluster, tmp_path: Path
) -> None:
    operator = Operator.of(running)
    aborted = operator.begin(COUNTED, {"file": str(tmp_path / "file")})
    operator.question("start")
    operator.begin(COUNTED, {"file": str(tmp_path / "file")})
    view = operator.until(lambda: operator.view is not None and operator.view.run != aborted.run, "another run")
    assert operator.walk(ANSWERS).run == view.run
    ended = read_run(Path(aborted.directory)).ended
    assert ended is not None and ended.state == "aborted"
    late = Operator.of(running)
    seen = late.until(lambda: late.view is not None, "the run that has ended")
    assert (seen.run, seen.state, late.runs) == (view.run, "done", [])
    late.watch(view.run)
    late.until(lambda: [line.text for line in late.lines] == ["counted"], "its output")


def test_sessions_are_signalled_from_a_screen_through_the_same_permission_gate(
    running: RunningAgent, cluster: Cluster
) -> None:
    operator = Operator.of(running)
    with session(cluster, name="victim") as victim:
        [[pid, start]] = victim.execute(
            "select pid, backend_start::text from pg_stat_activity where pid = pg_backend_pid()"
        )
        plan = signal_plan("terminate", [{"pid": pid, "backend_start": start}])
        operator.client.send(RunBegin(text="", source="screen", adhoc=msgspec.json.encode(plan)))
        operator.until(lambda: operator.view is not None and operator.yours, "the run begun")
        view = operator.walk(ANSWERS)
        assert view.state == "done", view.ending
        gone = f"select count(*) from pg_stat_activity where pid = {pid}"
        assert cluster.psql(gone).strip() == "0"


def test_a_screen_may_request_nothing_else_without_a_runbook(running: RunningAgent) -> None:
    operator = Operator.of(running)
    plan = signal_plan("cancel", [{"pid": 1, "backend_start": "2026-01-01T00:00:00Z"}])
    [step] = plan.steps
    [block] = step.blocks
    bad = msgspec.structs.replace(block, action="drop-caches", confirm=None)
    plan = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(step, blocks=(bad,)),))
    operator.client.send(RunBegin(text="", source="screen", adhoc=msgspec.json.encode(plan)))
    assert "only signal-backend" in operator.refusal().text
