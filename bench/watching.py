"""Slowdown of a dump and a restore: the same command bare, observed by an agent, and run under a keeper.

Bare is measured twice in each round: its difference from itself is the resolution of this machine. Measured is the
commands' own time, from start to end. WATCHING_GB: text of the dump (0.4). WATCHING_ROUNDS (9).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.console import PROGRAM, own_directories, wait_for_agent
from bench.databases import Archives, archives
from bench.figure import Figure
from bench.process import cpu_ms
from bench.terminal import Terminal
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster
from dba_console.keeper.launch import CommandSpec, start

GOAL_PCT = 1.0
SETTLED_S = 8.0
"""Time for agent and console to finish their start, which costs more than running."""
SETTINGS: dict[str, str | int] = {"max_wal_size": "4GB", "autovacuum": "off", "shared_buffers": "128MB"}
"""Avoid a checkpoint in the middle of only one of the runs; the rest is default."""
ROUNDS = 9


def run(smoke: bool = False) -> list[Figure]:
    size = int(float(os.environ.get("WATCHING_GB", "0.02" if smoke else "0.4")) * 1e9)
    rounds = int(os.environ.get("WATCHING_ROUNDS", "1" if smoke else f"{ROUNDS}"))
    with archives(size, ["even"]) as (archive,), Cluster(settings=SETTINGS) as cluster:
        bench = _Bench(cluster, archive)
        bench.restore(_bare)  # creates the database to dump, and reads the archive once
        return [*_figures("dump", bench.dump, rounds, cluster), *_figures("restore", bench.restore, rounds, cluster)]


Timer = Callable[[Sequence[str]], float]
"""Runs a command and returns its seconds."""


class _Bench:
    def __init__(self, cluster: Cluster, archive: Archives) -> None:
        self._cluster, self._archive = cluster, archive

    def dump(self, timer: Timer) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-watching-") as place:
            return timer(
                [
                    self._program("pg_dump"),
                    "-v",
                    "-Fd",
                    "-j2",
                    "-Z1",
                    "-f",
                    f"{place}/dump",
                    *self._connection_options(),
                ]
            )

    def restore(self, timer: Timer) -> float:
        self._cluster.psql("drop database if exists watched")
        self._cluster.psql("create database watched")
        self._cluster.psql("checkpoint")
        return timer(
            [self._program("pg_restore"), "-v", "-j2", *self._connection_options(), str(self._archive.directory)]
        )

    def _program(self, name: str) -> str:
        return str(self._cluster.binaries.program(name))

    def _connection_options(self) -> list[str]:
        return ["-d", self._cluster.dsn(dbname="watched")]


def _bare(argv: Sequence[str]) -> float:
    begun = time.monotonic()
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, cwd="/",
        env=clean_environment(),
    )  # fmt: skip
    return time.monotonic() - begun


def _under_keeper(argv: Sequence[str]) -> float:
    """Run the command under a keeper that stamps its lines; return its own time, as the keeper recorded it."""
    directory = tempfile.mkdtemp(prefix="bench-keeper-")
    try:
        handle = start(CommandSpec(tuple(argv), directory, "BENCH", "bench", env=clean_environment()))
        ended = handle.wait(1800).exit
        if ended is None or not ended.ok:
            raise RuntimeError(f"the command ended under its keeper with {ended}")
        return ended.wall_s
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _agent_and_console(cluster: Cluster, settled_s: float) -> Iterator[Callable[[], float]]:
    """Run a recording agent and a console; yield a function that returns the CPU of both, ms."""
    with own_directories(), Terminal("watching") as screen:
        screen.start([PROGRAM, cluster.dsn()])
        screen.wait_for("usable", 60)
        pids = [wait_for_agent().pid, screen.pid()]
        time.sleep(settled_s)
        yield lambda: sum(map(cpu_ms, pids))


def _figures(what: str, measured: Callable[[Timer], float], rounds: int, cluster: Cluster) -> list[Figure]:
    took: dict[str, list[float]] = {name: [] for name in ("bare", "watched", "run", "bare again")}
    used_ms: list[float] = []

    def watched(timer: Timer) -> float:
        with _agent_and_console(cluster, SETTLED_S if rounds > 1 else 0.5) as used:
            before = used()
            seconds = measured(timer)
            used_ms.append((used() - before) / seconds)
            return seconds

    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: measured(_bare), "watched": lambda: watched(_bare), "run": lambda: watched(_under_keeper),
        "bare again": lambda: measured(_bare),
    }  # fmt: skip
    for number in range(rounds):
        names = list(ways)
        for name in names[number % 4 :] + names[: number % 4]:  # each takes every position equally often
            took[name].append(ways[name]())
        last = ", ".join(f"{name} {taken[-1]:.2f}" for name, taken in took.items())
        print(f"  {what} {number + 1}: {last} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    bare, again = took["bare"], took["bare again"]
    chance = _spread(again, bare)
    text = (
        f"{statistics.median(bare):.1f} s bare; bare against bare {_slower(again, bare):+.1f} %, "
        f"half of the rounds between {chance[0]:+.1f} and {chance[1]:+.1f} %; {rounds} rounds; "
        f"agent and console {statistics.median(used_ms):.0f} ms of CPU per second"
    )
    return [
        Figure(f"{what}, slower while an agent and a console watch", _slower(took["watched"], bare), "%",
               GOAL_PCT, text),
        Figure(f"{what}, slower under a keeper, watched", _slower(took["run"], bare), "%", GOAL_PCT, ""),
    ]  # fmt: skip


def _slower(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return percent, the median over the rounds: slow changes of the machine affect both runs of a round."""
    return (statistics.median(a / b for a, b in zip(ours, theirs, strict=True)) - 1) * 100


def _spread(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the quartiles of the rounds, percent."""
    ratios = [(a / b - 1) * 100 for a, b in zip(ours, theirs, strict=True)]
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    quarters = statistics.quantiles(ratios, n=4)
    return quarters[0], quarters[2]
