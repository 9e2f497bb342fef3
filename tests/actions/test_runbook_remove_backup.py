"""The runbook `remove-backup`, walked in a real agent: to its end, refused where it must be, taken back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dba_console.actions.shrink.candidate import SUFFIX
from dba_console.agent.client import AgentConnectionLost
from dba_console.core.errors import ConnectError
from dba_console.demo.cluster import Cluster
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


def answer_giving_up(asked: Question) -> str | None:
    return GIVE_UP.get(asked.kind) or WILLING(asked)


def decline_shrink(asked: Question) -> str | None:
    declines = asked.block.startswith("truncate-it/") and asked.kind == "type"
    return "no" if declines else answer_giving_up(asked)


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


def test_the_file_is_gone_at_the_end_and_no_other_file_is_left(running: RunningAgent, tmp_path: Path) -> None:
    path, other = big_file(tmp_path, 24), big_file(tmp_path, 1, "newest.dump")
    operator = run_runbook(running, path)
    assert operator.view is not None
    assert operator.view.state == "done", operator.view.ending
    assert sorted(tmp_path.iterdir()) == [other]
    assert [asked.expects for asked in operator.asked if asked.kind == "type"][-1] == "it may go"


def test_a_link_fails_the_first_check(running: RunningAgent, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(big_file(tmp_path, 1))
    operator = run_runbook(running, tmp_path / "link", answer_giving_up)
    assert operator.view is not None
    assert operator.view.state == "failed"
    assert (tmp_path / "link").is_symlink()


def test_a_servers_own_file_is_refused_and_stays(running: RunningAgent, cluster: Cluster) -> None:
    path = big_file(cluster.data_directory, 1)
    try:
        operator = run_runbook(running, path, answer_giving_up)
        assert operator.view is not None
        assert operator.view.state == "failed"
        reported = " ".join(asked.text for asked in operator.asked)
        assert f"lies in the data directory {cluster.data_directory}" in reported
        assert path.exists()
    finally:
        path.unlink()


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
