"""What tests of runs share: an agent for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.run_view import ENDED_STATES, Question
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.scripted_console import Operator


@pytest.fixture(scope="module")
def shared_agent(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    with agent(cluster.dsn(), tmp_path_factory.mktemp("agent")) as one:
        yield one


def ended_or_asking(operator: Operator, asked: Question | None) -> bool:
    """Whether the run has ended, or asks something else than before."""
    view = operator.view
    return view is not None and (view.state in ENDED_STATES or view.question not in (asked, None))


@pytest.fixture
def running(shared_agent: RunningAgent) -> Iterator[RunningAgent]:
    """The agent of the module, on the shared cluster. Runs that the test left open are aborted after it."""
    yield shared_agent
    shared_agent.close_clients()
    operator = Operator.of(shared_agent)
    for left in operator.runs:
        asked = operator.watch(left.run).question
        operator.control("take")
        operator.control("abort")
        operator.until(lambda: ended_or_asking(operator, asked), "the abort")  # noqa: B023
        operator.walk({"failed": "abort", "undo": "none"})
    shared_agent.close_clients()
