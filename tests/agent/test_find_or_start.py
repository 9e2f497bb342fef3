"""The first console starts an agent, and every other one finds it, at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.agent.client import AgentClient
from dba_console.agent.find_or_start import list_agents, start_agent
from dba_console.core.config import AgentConfig, Config
from dba_console.core.errors import ConsoleError
from dba_console.core.target import Target, make_target
from dba_console.demo.temporary_server import Cluster
from tests.agent.agents import environment
from tests.background import wait_until


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    yield
    for agent in list_agents():
        os.kill(agent.pid, signal.SIGTERM)
    wait_until(lambda: not list_agents(), 120, what="the agents' end")


@pytest.fixture
def target(cluster: Cluster) -> Target:
    return make_target(cluster.dsn())


def test_many_consoles_started_at_once_share_one_agent(target: Target) -> None:
    pids: list[int] = []

    def console() -> None:
        client = AgentClient.connect(start_agent(target, Config()).wait(), timeout_s=60.0)
        pids.append(client.agent_description.pid)
        client.close()

    threads = [threading.Thread(target=console) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(pids) == 5
    assert len(set(pids)) == 1


def test_an_agent_without_consoles_ends_after_its_grace_time(target: Target) -> None:
    config = Config(agent=AgentConfig(grace="5s"))
    client = AgentClient.connect(start_agent(target, config).wait(), timeout_s=60.0)
    pid = client.agent_description.pid
    assert client.agent_description.grace_s == 5.0
    client.close()
    wait_until(lambda: not list_agents(), 120, what="the end of the grace time")
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), 120, what="the end of the process")


def test_an_agent_outlives_the_session_that_started_it(target: Target) -> None:
    client = AgentClient.connect(start_agent(target, Config()).wait())
    assert os.getsid(client.agent_description.pid) == client.agent_description.pid
    assert os.getsid(client.agent_description.pid) != os.getsid(0)
    client.close()


def test_the_caller_reports_what_keeps_an_agent_from_starting(target: Target) -> None:
    with pytest.raises(ConsoleError, match="not a duration"):
        start_agent(target, Config(agent=AgentConfig(grace="soon"))).wait()


def test_an_open_file_limit_that_keeps_an_agent_from_starting_is_named(target: Target, tmp_path: Path) -> None:
    done = subprocess.run(
        ["prlimit", "--nofile=16", sys.executable, "-m", "dba_console", "record", target.conninfo, "--for", "1s"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode != 0 and ("the limit is 16" in done.stderr or "Too many open files" in done.stderr), done
