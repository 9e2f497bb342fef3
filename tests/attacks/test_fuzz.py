"""Frames, documents, sessions and journals changed at random: refused or read, never a traceback, never without end.

The same cases each time. `python -m bench fuzz` tries 10,000 of each kind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.process import peak_mb
from dba_console.demo.temporary_server import Cluster
from tests.attacks.fuzzing import fuzz_in_process
from tests.cli.console import Console

LIMIT_S = 60.0
"""What takes so long does not end: nothing here takes a second of a processor of its own."""
SMALL_MB = 400
MB = 1 << 20


@pytest.mark.parametrize(
    ("kind", "count"), [("documents", 100), ("sessions", 150), ("bundles", 100), ("journals", 300), ("dumps", 150)]
)
def test_a_changed_recording_is_refused_or_read(kind: str, count: int) -> None:
    outcome = fuzz_in_process(kind, count, 1, LIMIT_S)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.peak_mb < SMALL_MB


def test_after_any_input_the_agent_serves_the_next_console(cluster: Cluster, tmp_path: Path) -> None:
    console = Console(tmp_path)
    with console.watching(cluster.dsn()) as agent:
        outcome = fuzz_in_process("frames", 200, 1, LIMIT_S, agent=str(agent.socket))
        peak = peak_mb(agent.process.pid)
        agent.end()
    assert not outcome.failures, "\n".join(outcome.failures)
    assert peak < SMALL_MB
    assert not list(tmp_path.rglob("crash-*")), "a defect was met"
