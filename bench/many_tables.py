"""Dump and restore of 10,000 tables: the agent's CPU per tick, and the time a console needs to derive and lay out.

MANY_TABLES: number of tables (10000). The panel is derived and laid out here from the agent's samples, as `show` and
the screen do it; the agent's cost is its CPU time between two samples, under the load of the job.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.console import own_directories, recording_agent
from bench.figure import Figure
from dba_console.agent.client import AgentClient
from dba_console.agent.find_or_start import RunningAgent
from dba_console.agent.protocol import SampleMessage
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.pages.job_page import job_page
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.progress.layout import compact, full, is_job
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.sample import decode_sample

GOAL_MS = 50.0
SCREEN = (160, 50)
SETTINGS: dict[str, str | int] = {
    "max_locks_per_transaction": 2048, "autovacuum": "off", "max_wal_size": "4GB", "shared_buffers": "256MB",
}  # fmt: skip
BATCH = 500
"""Tables created in one transaction."""
ROWS = 50
FREE_BYTES = 4 << 30


class Tick(NamedTuple):
    """One tick, times in milliseconds; `objects`: states of the job's listed objects, in order."""

    kind: str
    agent_ms: float
    decode_ms: float
    panel_ms: float
    bytes: int
    objects: tuple[str, ...]


def run(smoke: bool = False) -> list[Figure]:
    tables = int(os.environ.get("MANY_TABLES", "300" if smoke else "10000"))
    with tempfile.TemporaryDirectory(prefix="bench-many-", dir=_in_memory()) as place, _server(place) as cluster:
        _make(cluster, tables)
        with own_directories(), recording_agent(cluster.dsn()) as agent, _watched(agent) as ticks:
            time.sleep(5)
            idle = len(ticks)
            _run(
                [
                    _program(cluster, "pg_dump"),
                    "-v",
                    "-Fd",
                    "-j2",
                    "-Z1",
                    "-f",
                    f"{place}/dump",
                    "-d",
                    _in(cluster, "many"),
                ]
            )
            cluster.psql("create database again")
            _run([_program(cluster, "pg_restore"), "-v", "-j2", "-d", _in(cluster, "again"), f"{place}/dump"])
        quiet = statistics.median(tick.agent_ms for tick in ticks[1:idle])
        return [figure for kind in ("pg_dump", "pg_restore") for figure in _figures(kind, tables, ticks, quiet)]


def _in_memory() -> str | None:
    """Return /dev/shm if it has space: removing 100,000 files from a disk takes minutes, and disks are not measured."""
    place = "/dev/shm"
    return place if os.path.isdir(place) and shutil.disk_usage(place).free > FREE_BYTES else None


def _server(place: str) -> Cluster:
    os.chmod(place, 0o711)  # the server's user needs access to a subdirectory
    return Cluster(base=Path(place) / "server", settings=SETTINGS, durable=False)


def _make(cluster: Cluster, tables: int) -> None:
    cluster.psql("create database many")
    for first in range(0, tables, BATCH):
        cluster.psql(
            f"do $$ begin for n in {first}..{min(first + BATCH, tables) - 1} loop "
            "execute format('create table t%s (id int primary key, name text)', n); "
            f"execute format('insert into t%s select i, md5(i::text) from generate_series(1, {ROWS}) i', n); "
            "execute format('create index on t%s (name)', n); end loop; end $$",
            dbname="many", timeout_s=600,
        )  # fmt: skip
    cluster.psql("analyze", dbname="many", timeout_s=600)


def _run(argv: Sequence[str]) -> None:
    begun = time.monotonic()
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd="/",
        env=clean_environment(),
    )  # fmt: skip
    print(f"  {argv[0]}: {time.monotonic() - begun:.0f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def _program(cluster: Cluster, name: str) -> str:
    return str(cluster.binaries.program(name))


def _in(cluster: Cluster, database: str) -> str:
    return cluster.dsn(dbname=database)


@contextmanager
def _watched(agent: RunningAgent) -> Iterator[list[Tick]]:
    ticks: list[Tick] = []
    over = threading.Event()

    def watch() -> None:
        client, console = AgentClient.connect(agent.path, role="show"), _Console()
        try:
            while not over.is_set():
                message = client.receive(5.0)
                if isinstance(message, SampleMessage):
                    ticks.append(console.tick(message.data))
        finally:
            client.close()

    reader = threading.Thread(target=watch, daemon=True)
    reader.start()
    try:
        yield ticks
    finally:
        over.set()
        reader.join(10)


class _Console:
    """Process each sample as a console does, and measure the CPU time."""

    def __init__(self) -> None:
        self._picture, self._history = Picture(), ChartHistory()
        self._spent_us: int | None = None

    def tick(self, encoded: bytes) -> Tick:
        begun = time.thread_time()
        self._picture = self._picture.with_sample(decode_sample(encoded))
        decoded = time.thread_time()
        frame = derive(self._picture, self._history)
        width, height = SCREEN
        compact(frame, width // 2, height // 4, self._history)
        full(frame, width, self._history)
        for row in frame.progress.operations:
            if is_job(row):
                job_page(frame, row, width)
        drawn = time.thread_time()
        kind, objects = _job(frame)
        return Tick(
            kind, self._agent_ms(), (decoded - begun) * 1000, (drawn - decoded) * 1000, len(encoded), objects
        )  # fmt: skip

    def _agent_ms(self) -> float:
        reading = self._picture.now("self", AgentHealth)
        spent, before = (reading.cpu_us if reading is not None else 0), self._spent_us
        self._spent_us = spent
        return 0.0 if before is None else (spent - before) / 1000


def _job(frame: Frame) -> tuple[str, tuple[str, ...]]:
    row = next((row for row in frame.progress.operations if row.scope == "whole"), None)
    return ("", ()) if row is None else (row.kind, tuple(one.state for one in row.objects))


def _figures(kind: str, tables: int, ticks: Sequence[Tick], quiet_ms: float) -> list[Figure]:
    """Return the figures of one job. Its plan is read in its first ticks."""
    those = [tick for tick in ticks if tick.kind == kind]
    if not those:
        return [Figure(f"{kind} of {tables:,} tables: ticks that showed it", 0.0, "", None, "never observed")]
    agent, panel = sorted(tick.agent_ms for tick in those), sorted(tick.panel_ms for tick in those)
    decode = statistics.median(tick.decode_ms for tick in those)
    wrong = sum("running" in tick.objects[tick.objects.count("running") :] for tick in those)
    what = f"{kind} of {tables:,} tables"
    size = statistics.median(tick.bytes for tick in those) / 1024
    return [
        Figure(f"{what}: agent, CPU per tick", statistics.median(agent), "ms", GOAL_MS,
               f"worst {agent[-1]:.0f} ms, without a job {quiet_ms:.0f}; {len(those)} ticks, {size:.0f} kB per sample"),
        Figure(f"{what}: progress panel and page derived and laid out, worst", panel[-1], "ms", GOAL_MS,
               f"median {statistics.median(panel):.1f} ms, plus decoding {decode:.1f} ms"),
        Figure(f"{what}: ticks in which running objects were not listed first", wrong, "", 0.0),
    ]  # fmt: skip
