"""Runs that act on the nodes of a cluster: no server of their own is needed, neither at the start nor to go on.

Cutovers of real servers are in tests/cluster and tests/faults; here is what a run that is reverted leaves and says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dba_console.agent.client import AgentConnectionLost
from dba_console.core.errors import ConnectError, ExitCode
from dba_console.recording.run_reader import StoredRun, read_run
from dba_console.runbooks.run_view import ENDED_STATES, Question
from tests.agent.agents import agent, environment
from tests.agent.runs.agent_that_kills_itself import DIES
from tests.agent.runs.nodes import NODES_RUNBOOK
from tests.agent.runs.scripted_console import Operator, answers

NODES_COMMAND = "tests.agent.runs.nodes"
ANSWERS = {"start": "yes", "ack": "y", "failed": "retry", "*": "="}


class RunOverAgents:
    """One run over several agents, of a target whose server is down."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.file = directory, directory / "nodes"
        self.dsn = f"host={directory} port=5999 dbname=down user=nobody"

    def run_agent(self, answer: Mapping[str, str], killed_at: str = "") -> bool:
        """Begin or resume the run with a new agent. Return whether the run has ended; else the agent is dead."""
        program, extra = (
            ("tests.agent.runs.agent_that_kills_itself", {DIES: killed_at}) if killed_at else (NODES_COMMAND, {})
        )
        with agent(self.dsn, self.directory, extra=extra, program=program) as running:
            try:
                operator = Operator.of(running)
                if not list(self.directory.glob("sessions/*/runs/*")):
                    operator.begin(NODES_RUNBOOK, {"file": str(self.file), "to": "db2"})
                else:
                    operator.resume(operator.until(lambda: operator.view is not None, "the interrupted run").run)
                return operator.walk(answers(answer)).state in ENDED_STATES
            except (AgentConnectionLost, ConnectError):
                return False

    def run_command(self, patch: pytest.MonkeyPatch, *given: str) -> subprocess.CompletedProcess[str]:
        """The run from the command line, to its end; the agent it started is ended."""
        for name, value in environment(self.directory).items():
            patch.setenv(name, value)
        book = self.directory / "nodes.md"
        book.write_text(NODES_RUNBOOK)
        command = [sys.executable, "-m", NODES_COMMAND, "runbook", "run", str(book), "--dsn", self.dsn, "--yes"]
        inputs = ["--input", f"file={self.file}", "--input", "to=db2"]
        done = subprocess.run([*command, *inputs, *given], capture_output=True, text=True, check=False)
        [socket] = (self.directory / "run").glob("*.sock")
        ending = Operator.attach(socket)
        os.kill(ending.client.agent_description.pid, signal.SIGTERM)
        ending.until_gone()
        ending.close()
        return done

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()

    def stored_run(self) -> StoredRun:
        [journal] = self.directory.glob("sessions/*/runs/*/journal.jsonl")
        return read_run(journal.parent)


@pytest.fixture
def run(tmp_path: Path) -> RunOverAgents:
    return RunOverAgents(tmp_path)


def test_reverting_continues_even_if_its_agent_is_killed_before_and_after_it(run: RunOverAgents) -> None:
    no = {**ANSWERS, "type": "no", "failed": "abort", "undo": "all"}
    assert not run.run_agent(no, "after:undo.began:stop")
    for killed_at in ("after:block.intent:stop", "before:block.result:stop", "after:block.result:freeze"):
        assert not run.run_agent(no, killed_at), killed_at
    assert run.run_agent(no)
    # Where nobody saw its end, an undo is done again: that is safe with what acts on a cluster.
    assert run.lines() == ["freeze", "stop", "not stop", "not stop", "not freeze"]
    stored = run.stored_run()
    assert stored.ended is not None and stored.ended.text.endswith("reverted: stop, freeze"), stored.ended


def test_an_abort_reverts_each_step_in_reverse_and_reports_what_is_left(run: RunOverAgents) -> None:
    run.file.with_name("nodes.undo").write_text("stop\n")
    no = {**ANSWERS, "type": "no", "failed": "abort", "undo": "all"}
    with agent(run.dsn, run.directory, program=NODES_COMMAND) as running:
        operator = Operator.of(running)
        operator.begin(NODES_RUNBOOK, {"file": str(run.file), "to": "db2"})
        answer, shown = answers(no), []

        def say(asked: Question) -> str | None:
            assert operator.view is not None
            if operator.view.state != "done" and "Revert" in asked.text:
                shown.append((asked.text.partition(" On ")[0], *(block.exact for block in operator.view.blocks)))
            return "skip by hand" if "cannot be reverted" in asked.text else answer(asked)

        ending = operator.walk(say).ending
    assert shown[1:] == [
        ("Revert: Stop.", "revert: write stop\n-- what: stop"),
        ("Revert: Freeze.", "revert: write freeze\n-- what: freeze"),
    ]
    assert shown[0][0].startswith("Revert stop, freeze?")
    assert run.lines() == ["freeze", "stop", "not freeze"]
    assert ending.endswith("not reverted: stop (stop/action: stop cannot be reverted (by hand))"), ending


def test_without_an_operator_the_named_steps_are_reverted_and_a_failed_undo_does_not_stop_others(
    run: RunOverAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.file.with_name("nodes.undo").write_text("stop\n")
    done = run.run_command(monkeypatch, "--confirm", "stop=yes", "--confirm", "promote=db3", "--confirm", "undo=all")
    assert done.returncode == ExitCode.REFUSED, done.stdout
    assert run.lines() == ["freeze", "stop", "not freeze"]
    assert "reverted: freeze; not reverted: stop (stop/action: stop cannot be reverted" in done.stdout
