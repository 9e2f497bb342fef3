"""All nodes and poolers of a cluster, asked at the same time: who does not answer holds up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from dba_console.clock import Clock
from dba_console.clusters.node import NodeState, read_node
from dba_console.clusters.pooler import PoolerState, read_pooler
from dba_console.config import ClusterConfig

PATIENCE_S = 15.0
"""For all together: each has its own limits; resolving a name has none but this."""
T = TypeVar("T", NodeState, PoolerState)


class Survey(Struct, frozen=True, kw_only=True):
    """One look at a cluster. Nodes and poolers stand in the order of the configuration."""

    cluster: str
    nodes: tuple[NodeState, ...]
    poolers: tuple[PoolerState, ...] = ()
    took_s: float = 0.0

    @property
    def primaries(self) -> list[NodeState]:
        return [node for node in self.nodes if node.role == "primary"]

    def node(self, name: str) -> NodeState | None:
        return next((node for node in self.nodes if node.name == name), None)


def survey(name: str, config: ClusterConfig, clock: Clock) -> Survey:
    """Ask everybody. Never raises; takes as long as the slowest, at most PATIENCE_S."""
    begun_us = clock.mono_us()
    asked: dict[str, Callable[[], NodeState | PoolerState]] = {}
    for node, of_node in config.nodes.items():
        asked[f"node {node}"] = lambda node=node, of_node=of_node: read_node(node, of_node, clock)  # type: ignore[misc]
    for pooler, of_pooler in config.poolers.items():
        asked[f"pooler {pooler}"] = lambda one=pooler, of=of_pooler: read_pooler(one, of, clock)  # type: ignore[misc]
    answers = _all(asked, clock)
    late = f"no answer within {PATIENCE_S:g} s"
    wall_us = clock.wall_us()
    return Survey(
        cluster=name,
        nodes=tuple(
            _answer(answers, f"node {one}", NodeState(name=one, error=late, asked_us=wall_us)) for one in config.nodes
        ),
        poolers=tuple(
            _answer(answers, f"pooler {one}", PoolerState(name=one, error=late, asked_us=wall_us))
            for one in config.poolers
        ),
        took_s=(clock.mono_us() - begun_us) / 1e6,
    )


def _all(
    asked: Mapping[str, Callable[[], NodeState | PoolerState]], clock: Clock
) -> dict[str, NodeState | PoolerState]:
    answers: dict[str, NodeState | PoolerState] = {}

    def answer(name: str, ask: Callable[[], NodeState | PoolerState]) -> None:
        answers[name] = ask()

    # Daemons: one that hangs in a name server must not keep the command from ending.
    threads = [threading.Thread(target=answer, args=one, name=one[0], daemon=True) for one in asked.items()]
    for thread in threads:
        thread.start()
    until_us = clock.mono_us() + int(PATIENCE_S * 1e6)
    for thread in threads:
        thread.join(max(0.0, (until_us - clock.mono_us()) / 1e6))
    return dict(answers)


def _answer(answers: Mapping[str, NodeState | PoolerState], key: str, silent: T) -> T:
    found = answers.get(key)
    return found if isinstance(found, type(silent)) else silent
