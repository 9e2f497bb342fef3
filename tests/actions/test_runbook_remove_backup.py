"""The runbook `remove-backup` in a real agent: taken back, killed while it cuts, resumed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dba_console.actions.shrink.candidate import SUFFIX
from dba_console.agent.client import AgentConnectionLost
from dba_console.core.errors import ConnectError
from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.library import SHIPPED
from dba_console.runbooks.run_view import Question
from tests.actions.shrink_files import big_file
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.scripted_console import AnswerFunction, Operator, answers
from tests.background import wait_until
from tests.requirements import require_root

TEXT = (SHIPPED / "remove-backup.md").read_text()
WILLING = answers({"start": "yes", "manual": "ticket 4711", "*": "="})
GIVE_UP = {"start": "yes", "failed": "abort", "undo": "all"}
"""By the kind of question, whatever block it is about."""


def decline_shrink(asked: Question) -> str | None:
    declines = asked.block.startswith("truncate-it/") and asked.kind == "type"
    return "no" if declines else GIVE_UP.get(asked.kind) or WILLING(asked)


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    require_root()
    with agent(cluster.dsn(), tmp_path_factory.mktemp("agent"), extra={"DBA_CONSOLE_AGENT_INTERVAL": "250ms"}) as one:
        yield one


def run_runbook(running: RunningAgent, path: Path, script: AnswerFunction = WILLING) -> Operator:
    operator = Operator.of(running)
    operator.begin(TEXT, {"file": str(path)})
    operator.walk(script)
    return operator


def test_before_the_first_cut_the_file_gets_its_name_back(running: RunningAgent, tmp_path: Path) -> None:
    path = big_file(tmp_path, 8)
    operator = run_runbook(running, path, decline_shrink)
    assert operator.view is not None
    assert operator.view.state == "failed"
    assert path.exists()
    assert not path.with_name(path.name + SUFFIX).exists()


def test_a_run_killed_while_cutting_resumes_the_cut(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody is there to decide about a failure: it is confirmed as at first, and the rest goes."""
    require_root()
    path, place = big_file(tmp_path, 96), tmp_path / "agent"
    place.mkdir()
    rest = path.with_name(path.name + SUFFIX)
    with agent(cluster.dsn(), place) as one:
        operator = Operator.of(one)
        operator.begin(TEXT, {"file": str(path)})
        with suppress(AgentConnectionLost, ConnectError):
            operator.walk(lambda asked: kill_agent_when_smaller(asked, one, rest))
    assert 0 < rest.stat().st_size < 96 << 20
    with agent(cluster.dsn(), place) as one:
        operator = Operator.of(one)
        operator.resume(operator.until(lambda: operator.view is not None, "the interrupted run").run)
        operator.walk(lambda asked: None if asked.kind == "failed" else WILLING(asked))
        assert operator.view is not None and operator.view.state == "done", operator.view
    assert not path.exists() and not rest.exists()


def kill_agent_when_smaller(asked: Question, running: RunningAgent, rest: Path) -> str | None:
    """Confirms, and has the agent killed once something is cut."""
    if asked.block.startswith("truncate-it/"):
        whole = rest.stat().st_size

        def kill() -> None:
            wait_until(lambda: rest.stat().st_size < whole, what="the first cut")
            running.process.kill()

        threading.Thread(target=kill).start()
    return WILLING(asked)


def test_a_deletion_an_earlier_run_left_is_resumed(running: RunningAgent, tmp_path: Path) -> None:
    path = big_file(tmp_path, 8)
    path.rename(path.with_name(path.name + SUFFIX))
    operator = run_runbook(running, path)
    assert operator.view is not None
    assert operator.view.state == "done", operator.view.ending
    assert list(tmp_path.iterdir()) == []
