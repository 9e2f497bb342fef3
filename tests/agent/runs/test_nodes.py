"""Runs that act on the nodes of a cluster: no server of their own is needed, neither at the start nor to go on."""

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
from tests.agent.runs.nodes import BOOK
from tests.agent.runs.scripted_console import Operator, answers

NODES = "tests.agent.runs.nodes"
WILLING = {"start": "yes", "ack": "y", "failed": "retry", "*": "="}


class Story:
    """One run over several agents, of a target whose server is down."""

    def __init__(self, place: Path) -> None:
        self.place, self.file = place, place / "nodes"
        self.dsn = f"host={place} port=5999 dbname=down user=nobody"

    def life(self, says: Mapping[str, str], dies: str = "") -> bool:
        """An agent: begin the run or go on with it until it has ended (True), or the agent is dead."""
        program, extra = ("tests.agent.runs.agent_that_kills_itself", {DIES: dies}) if dies else (NODES, {})
        with agent(self.dsn, self.place, extra=extra, program=program) as running:
            try:
                operator = Operator.of(running)
                if not list(self.place.glob("sessions/*/runs/*")):
                    operator.begin(BOOK, {"file": str(self.file), "to": "db2"})
                else:
                    operator.resume(operator.until(lambda: operator.view is not None, "the interrupted run").run)
                return operator.walk(answers(says)).state in ENDED_STATES
            except (AgentConnectionLost, ConnectError):
                return False

    def command(self, patch: pytest.MonkeyPatch, *given: str) -> subprocess.CompletedProcess[str]:
        """The run from the command line, to its end; the agent it started is ended."""
        for name, value in environment(self.place).items():
            patch.setenv(name, value)
        book = self.place / "nodes.md"
        book.write_text(BOOK)
        command = [sys.executable, "-m", NODES, "runbook", "run", str(book), "--dsn", self.dsn, "--yes"]
        inputs = ["--input", f"file={self.file}", "--input", "to=db2"]
        done = subprocess.run([*command, *inputs, *given], capture_output=True, text=True, check=False)
        [socket] = (self.place / "run").glob("*.sock")
        ending = Operator.attach(socket)
        os.kill(ending.client.hello.pid, signal.SIGTERM)
        ending.until_gone()
        ending.close()
        return done

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()

    def papers(self) -> StoredRun:
        [journal] = self.place.glob("sessions/*/runs/*/journal.jsonl")
        return read_run(journal.parent)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_each_change_is_done_once_even_if_its_agent_is_killed_before_and_after_it(story: Story) -> None:
    for dies in (
        "after:run.planned", "after:block.answered:freeze", "after:block.intent:freeze", "before:block.result:freeze",
        "after:block.result:stop", "after:step.ended:stop", "after:block.intent:promote", "before:block.result:promote",
    ):  # fmt: skip
        assert not story.life(WILLING, dies), dies
    assert story.life(WILLING)
    assert story.lines() == ["freeze", "stop", "promote", "thaw"]
    papers = story.papers()
    assert papers.ended is not None and papers.ended.state == "done"
    settled = [(record.step, record.state) for record in papers.records if record.kind == "block.settled"]
    # Killed after the intent: not begun, so it was done; killed before the result: it was done already.
    assert settled == [("freeze", "failed"), ("freeze", "ok"), ("promote", "failed"), ("promote", "ok")]


def test_reverting_continues_even_if_its_agent_is_killed_before_and_after_it(story: Story) -> None:
    no = {**WILLING, "type": "no", "failed": "abort", "undo": "all"}
    assert not story.life(no, "after:undo.began:stop")
    for dies in ("after:block.intent:stop", "before:block.result:stop", "after:block.result:freeze"):
        assert not story.life(no, dies), dies
    assert story.life(no)
    # Where nobody saw its end, an undo is done again: that is safe with what acts on a cluster.
    assert story.lines() == ["freeze", "stop", "not stop", "not stop", "not freeze"]
    papers = story.papers()
    assert papers.ended is not None and papers.ended.text.endswith("reverted: stop, freeze"), papers.ended


def test_an_abort_reverts_each_step_in_reverse_and_reports_what_is_left(story: Story) -> None:
    story.file.with_name("nodes.undo").write_text("stop\n")
    no = {**WILLING, "type": "no", "failed": "abort", "undo": "all"}
    with agent(story.dsn, story.place, program=NODES) as running:
        operator = Operator.of(running)
        operator.begin(BOOK, {"file": str(story.file), "to": "db2"})
        says, shown = answers(no), []

        def say(asked: Question) -> str | None:
            assert operator.view is not None
            if operator.view.state != "done" and "Revert" in asked.text:
                shown.append((asked.text.partition(" On ")[0], *(block.exact for block in operator.view.blocks)))
            return "skip by hand" if "cannot be reverted" in asked.text else says(asked)

        ending = operator.walk(say).ending
    assert shown[1:] == [
        ("Revert: Stop.", "revert: write stop\n-- what: stop"),
        ("Revert: Freeze.", "revert: write freeze\n-- what: freeze"),
    ]
    assert shown[0][0].startswith("Revert stop, freeze?")
    assert story.lines() == ["freeze", "stop", "not freeze"]
    assert ending.endswith("not reverted: stop (stop/action: stop cannot be reverted (by hand))"), ending


def test_nothing_before_the_point_of_no_return_is_reverted(story: Story) -> None:
    story.file.with_name("nodes.fails").write_text("thaw\n")
    with agent(story.dsn, story.place, program=NODES) as running:
        operator = Operator.of(running)
        operator.begin(BOOK, {"file": str(story.file), "to": "db2"})
        ending = operator.walk({**WILLING, "failed": "abort", "undo": "all"}).ending
    assert story.lines() == ["freeze", "stop", "promote", "not thaw"]
    assert "promote was a point of no return: nothing before it is reverted; reverted: thaw" in ending


def test_without_an_operator_the_named_steps_are_reverted_and_a_failed_undo_does_not_stop_others(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.file.with_name("nodes.undo").write_text("stop\n")
    done = story.command(monkeypatch, "--confirm", "stop=yes", "--confirm", "promote=db3", "--confirm", "undo=all")
    assert done.returncode == ExitCode.REFUSED, done.stdout
    assert story.lines() == ["freeze", "stop", "not freeze"]
    assert "reverted: freeze; not reverted: stop (stop/action: stop cannot be reverted" in done.stdout


def test_passwords_of_nodes_and_poolers_are_never_written_or_shown_by_a_run(story: Story) -> None:
    config = story.place / "config" / "dba-console" / "config.toml"
    config.parent.mkdir(parents=True)
    nodes = '[clusters.shop.nodes.db2]\ndsn = "host=b password=hush-of-db2"\n'
    config.write_text(nodes + '[clusters.shop.poolers.main]\ndsn = "postgresql://u:hush%2dof%2dpooler@c/pgbouncer"\n')
    config.chmod(0o600)
    story.file.with_name("nodes.says").write_text("it said hush-of-db2 and hush-of-pooler\n")
    with agent(story.dsn, story.place, program=NODES) as running:
        operator = Operator.of(running)
        operator.begin(BOOK, {"file": str(story.file), "to": "db2"})
        view = operator.walk(answers(WILLING))
        assert "hush" not in str((view, operator.events, operator.asked))
        running.end()
    assert any("it said ******** and ********" in record.text for record in story.papers().records)
    for path in (story.place / "sessions").rglob("*"):
        assert path.is_dir() or b"hush-of" not in path.read_bytes(), path


def test_a_run_starts_from_the_command_line_while_the_server_is_down(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = story.command(monkeypatch, "--confirm", "stop=yes", "--confirm", "promote=db2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "type `db2` to confirm" in done.stdout
    assert story.lines() == ["freeze", "stop", "promote", "thaw"]
    wrong = story.command(monkeypatch, "--confirm", "stop=yes", "--confirm", "promote=db3")
    assert wrong.returncode == ExitCode.REFUSED and "does not fit: 'db2' is required" in wrong.stdout
    # What is not named beforehand is not taken back.
    assert story.lines()[4:] == ["freeze", "stop"]
    assert "not reverted: stop, freeze" in wrong.stdout
