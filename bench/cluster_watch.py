"""Cost of monitoring a cluster of three nodes and a pooler: CPU, memory and tick duration of the agent.

Also the time from two primaries to the finding: from the promotion of a standby to the sample of an agent that ticks
once per second, each round with another pair and at another phase of the tick.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.console import PROGRAM, own_directories, wait_for_agent
from bench.figure import Figure
from bench.ground import Ground, ground
from bench.process import resident_mb
from dba_console.agent.client import AgentClient
from dba_console.agent.collector import Collector
from dba_console.agent.protocol import SampleMessage
from dba_console.cli.config_file import load_config
from dba_console.core.config import Config
from dba_console.core.target import make_target
from dba_console.demo.temporary_server import Cluster, make_standby
from dba_console.watch.samples.findings import FindingsNow
from dba_console.watch.samples.sample import Part, decode_sample
from tests.postgres.pgbouncer import running_pgbouncer

SETTLED_S = 5.0


def run(smoke: bool = False) -> list[Figure]:
    """Measure two agents of one server in the same seconds, one with a cluster; then let collectors tick in turns."""
    seconds, settled_s = (2.0, 1.0) if smoke else (60.0, SETTLED_S)
    with ground(200) as here, own_directories() as place, _cluster(here, place):
        with _agent(here.cluster.dsn(dbname="template1"), place, "alone") as alone, _agent(
            here.dsn, place, "cluster"
        ) as watching:  # fmt: skip
            while len(here.pid_of("dba-console")) < 3:  # two agents, and the connection to node db1
                time.sleep(0.5)
            time.sleep(settled_s)
            spent = _spent(alone, watching, seconds)
            grown_mb = resident_mb(watching) - resident_mb(alone)
        one, several = _ticks(here.dsn, 5 if smoke else 40)
    seen_s = [_split_brain(settled_s + number / 5) for number in range(1 if smoke else 10)]
    text = f"{spent[1]:.2f} ms/s against {spent[0]:.2f} ms/s"
    took = f"median {several:.1f} ms against {one:.1f} ms"
    return [
        Figure("agent of a cluster of three nodes and a pooler, CPU against an agent of one server",
               spent[1] / spent[0], "×", 1.5, text),
        Figure("the same: time a tick takes", several / one, "×", 1.5, took),
        Figure("the same: additional memory", grown_mb, "MB"),
        Figure("from pg_promote() while the primary runs to the finding split-brain, slowest", max(seen_s), "s", 5.0,
               f"median {statistics.median(seen_s):.1f} s of {len(seen_s)} rounds"),
    ]  # fmt: skip


@contextmanager
def _cluster(here: Ground, place: Path) -> Iterator[None]:
    """Create two standbys and a PgBouncer of the server; write them to the configuration of the agent `cluster`."""
    with ExitStack() as around:
        nodes = [here.cluster]
        for number in (2, 3):
            standby = make_standby(here.cluster, slot=f"to_db{number}")
            around.callback(standby.close)
            standby.start()
            nodes.append(standby)
        pooled = around.enter_context(running_pgbouncer(here.cluster, "transaction", admin=True))
        _configure(place, nodes, [pooled.replace("dbname=postgres", "dbname=pgbouncer")])
        yield


def _configure(place: Path, nodes: Sequence[Cluster], poolers: Sequence[str]) -> None:
    lines = [f'[clusters.shop.nodes.db{number}]\ndsn = "{node.dsn()}"' for number, node in enumerate(nodes, 1)]
    lines += [f'[clusters.shop.poolers.p{number}]\ndsn = "{dsn}"' for number, dsn in enumerate(poolers, 1)]
    file = place / "config" / "dba-console" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n")


@contextmanager
def _agent(dsn: str, place: Path, name: str) -> Iterator[int]:
    """Start a recording agent and yield its pid; only the one named `cluster` finds a configuration."""
    config = place / ("config" if name == "cluster" else "none")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(config), "DBA_CONSOLE_RUNTIME": f"{place}/run-{name}"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([PROGRAM, "record", dsn], stdin=quiet, stdout=quiet, stderr=quiet, env=environ)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def _spent(alone: int, watching: int, seconds: float) -> tuple[float, float]:
    """Return the CPU of both agents, ms/s, from schedstat: ticks of 10 ms would hide the difference."""
    before, begun = (_cpu_ms(alone), _cpu_ms(watching)), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    return (_cpu_ms(alone) - before[0]) / elapsed, (_cpu_ms(watching) - before[1]) / elapsed


def _cpu_ms(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e6


def _split_brain(settled_s: float) -> float:
    """Return the seconds from the call of pg_promote() to the sample with the finding, both by this host's clock."""
    with Cluster(durable=False) as primary, own_directories() as place, ExitStack() as around:
        standby = make_standby(primary, slot="to_db2")
        around.callback(standby.close)
        standby.start()
        _configure(place, [primary, standby], [])
        around.enter_context(_agent(primary.dsn(), place, "cluster"))
        os.environ["DBA_CONSOLE_RUNTIME"] = f"{place}/run-cluster"
        client = AgentClient.connect(wait_for_agent().path, role="show")
        around.callback(client.close)
        _next(client, lambda part: part.name == "cluster" and all(node.answers for node in part.decode().nodes))
        time.sleep(settled_s)
        begun_us = time.time_ns() // 1000
        standby.psql("select pg_promote()")
        found_us = _next(client, lambda part: part.name == "findings" and _open(part.decode(), "split-brain"))
        return (found_us - begun_us) / 1e6


def _open(conclusions: FindingsNow, rule: str) -> bool:
    return any(row.rule == rule for row in conclusions.rows)


def _next(client: AgentClient, wanted: Callable[[Part], bool]) -> int:
    """Return the wall time of the first sample with a wanted part, microseconds."""
    while True:
        message = client.receive(30.0)
        if isinstance(message, SampleMessage):
            sample = decode_sample(message.data)
            if any(wanted(part) for part in sample.parts):
                return sample.wall_us


def _ticks(dsn: str, count: int) -> tuple[float, float]:
    """Return the milliseconds of a tick without and with the cluster, medians of alternating ticks."""
    made = [Collector(make_target(dsn), config) for config in (Config(), load_config().config)]
    took: list[list[float]] = [[], []]
    try:
        for tick in range(count + 5):
            for which, collector in enumerate(made):
                begun = time.perf_counter()
                collector.tick()
                if tick >= 5:
                    took[which].append((time.perf_counter() - begun) * 1000)
                time.sleep(0.5)
    finally:
        for collector in made:
            collector.close()
    return statistics.median(took[0]), statistics.median(took[1])
