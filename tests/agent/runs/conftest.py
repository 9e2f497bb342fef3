"""What tests of runs share: an agent of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from tests.agent.running import RunningAgent, agent


@pytest.fixture
def running(cluster: Cluster, tmp_path: Path) -> Iterator[RunningAgent]:
    """An agent on the shared cluster, ended with the test."""
    with agent(cluster.dsn(), tmp_path) as one:
        yield one
