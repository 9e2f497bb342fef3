"""What others may have made, changed at random: each case must be refused or read; time and memory.

FUZZ_CASES (10,000) and FUZZ_SEED (1) are variables. Failures are printed with their seed and number.
"""

from __future__ import annotations

import os
import sys

from bench.console import own_directories, recording_agent
from bench.figure import Figure
from bench.process import peak_mb
from dba_console.demo.temporary_server import Cluster
from tests.attacks.fuzzing import Outcome, fuzz_in_process

LIMIT_S = 20.0
GOAL_S = 2.0
GOAL_MB = 300.0
AGENT_GOAL_MB = 96.0


def run(smoke: bool = False) -> list[Figure]:
    count, seed = 50 if smoke else int(os.environ.get("FUZZ_CASES", "10000")), int(os.environ.get("FUZZ_SEED", "1"))
    figures = []
    for kind in ("documents", "sessions", "bundles", "journals", "dumps"):
        outcome = fuzz_in_process(kind, count, seed, LIMIT_S)
        figures += _figures(kind, outcome, "CPU time", outcome.peak_mb, GOAL_MB)
    with Cluster(durable=False) as cluster, own_directories(), recording_agent(cluster.dsn()) as agent:
        outcome = fuzz_in_process("frames", count, seed, LIMIT_S, agent=str(agent.path))
        figures += _figures("frames", outcome, "until the next handshake", peak_mb(agent.pid), AGENT_GOAL_MB)
    return figures


def _figures(kind: str, outcome: Outcome, measured: str, peak: float, goal_mb: float) -> list[Figure]:
    for failure in outcome.failures:
        print(failure, file=sys.stderr)
    what = f"{outcome.cases:,} {kind} changed at random"
    return [
        Figure(f"{what}, neither refused nor read", len(outcome.failures), "cases", 0.0, ""),
        Figure(f"{what}, longest", outcome.longest_s, "s", GOAL_S, measured),
        Figure(f"{what}, memory at its peak", peak, "MB", goal_mb, "of the agent" if kind == "frames" else ""),
    ]
