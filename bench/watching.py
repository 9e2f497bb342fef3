"""What watching and running adds to a dump and a restore: the same command bare, watched, and run under a keeper.

Bare is measured twice in each round: how far bare differs from bare is what this machine can resolve. The commands' own
time is taken, from their start to their end. WATCHING_GB: text of the dump (0.4). WATCHING_ROUNDS (9).
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
from dba_console.demo.cluster import Cluster
from dba_console.demo.server_account import clean_environment
from dba_console.keeper.launch import CommandSpec, start

GOAL_PCT = 1.0
SETTLED_S = 8.0
"""An agent and a console past their start: a console that is opened costs more than one that is open."""
SETTINGS: dict[str, str | int] = {"max_wal_size": "4GB", "autovacuum": "off", "shared_buffers": "128MB"}
"""No checkpoint in the middle of one run and not of the other; the rest as it is."""
ROUNDS = 9


def run(smoke: bool = False) -> list[Figure]:
    size = int(float(os.environ.get("WATCHING_GB", "0.02" if smoke else "0.4")) * 1e9)
    rounds = int(os.environ.get("WATCHING_ROUNDS", "1" if smoke else f"{ROUNDS}"))
    with archives(size, ["even"]) as (archive,), Cluster(settings=SETTINGS) as cluster:
        bench = _Bench(cluster, archive)
        bench.restore(_bare)  # the database that is dumped; and all of it read once
        return [*_figures("dump", bench.dump, rounds, cluster), *_figures("restore", bench.restore, rounds, cluster)]


Timer = Callable[[Sequence[str]], float]
"""Runs a command; its seconds."""


class _Bench:
    def __init__(self, cluster: Cluster, archive: Archives) -> None:
        self._cluster, self._archive = cluster, archive

    def dump(self, timer: Timer) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-watching-") as place:
            return timer([self._program("pg_dump"), "-v", "-Fd", "-j2", "-Z1", "-f", f"{place}/dump", *self._where()])

    def restore(self, timer: Timer) -> float:
        self._cluster.psql("drop database if exists watched")
        self._cluster.psql("create database watched")
        self._cluster.psql("checkpoint")
        return timer([self._program("pg_restore"), "-v", "-j2", *self._where(), str(self._archive.directory)])

    def _program(self, name: str) -> str:
        return str(self._cluster.binaries.program(name))

    def _where(self) -> list[str]:
        return ["-d", self._cluster.dsn(dbname="watched")]


def _bare(argv: Sequence[str]) -> float:
    begun = time.monotonic()
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, cwd="/",
        env=clean_environment(),
    )  # fmt: skip
    return time.monotonic() - begun


def _kept(argv: Sequence[str]) -> float:
    """Under a keeper that stamps each of its lines; the command's own time, as the keeper saw it begin and end."""
    directory = tempfile.mkdtemp(prefix="bench-keeper-")
    try:
        handle = start(CommandSpec(tuple(argv), directory, "BENCH", "bench", env=clean_environment()))
        ended = handle.wait(1800).exit
        if ended is None or not ended.ok:
            raise RuntimeError(f"under its keeper the command ended with {ended}")
        return ended.wall_s
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _watching(cluster: Cluster) -> Iterator[Callable[[], float]]:
    """An agent that records, and a console with its progress panel; what both have used of a processor, ms."""
    with own_directories(), Terminal("watching") as screen:
        screen.start([PROGRAM, cluster.dsn()])
        screen.wait_for("usable", 60)
        pids = [wait_for_agent().pid, screen.pid()]
        time.sleep(SETTLED_S)
        yield lambda: sum(map(cpu_ms, pids))


def _figures(what: str, measured: Callable[[Timer], float], rounds: int, cluster: Cluster) -> list[Figure]:
    took: dict[str, list[float]] = {name: [] for name in ("bare", "watched", "run", "bare again")}
    used_ms: list[float] = []

    def watched(timer: Timer) -> float:
        with _watching(cluster) as used:
            before = used()
            seconds = measured(timer)
            used_ms.append((used() - before) / seconds)
            return seconds

    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: measured(_bare), "watched": lambda: watched(_bare), "run": lambda: watched(_kept),
        "bare again": lambda: measured(_bare),
    }  # fmt: skip
    for number in range(rounds):
        names = list(ways)
        for name in names[number % 4 :] + names[: number % 4]:  # each is first, second, … as often as the others
            took[name].append(ways[name]())
        last = ", ".join(f"{name} {taken[-1]:.2f}" for name, taken in took.items())
        print(f"  {what} {number + 1}: {last} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    bare, again = took["bare"], took["bare again"]
    chance = _spread(again, bare)
    told = (
        f"{statistics.median(bare):.1f} s bare; bare against bare {_slower(again, bare):+.1f} %, "
        f"half of its rounds between {chance[0]:+.1f} and {chance[1]:+.1f} %; {rounds} rounds; "
        f"agent and console {statistics.median(used_ms):.0f} ms of processor a second"
    )
    return [
        Figure(f"{what}, slower while an agent and a console watch", _slower(took["watched"], bare), "%",
               GOAL_PCT, told),
        Figure(f"{what}, slower under a keeper, watched", _slower(took["run"], bare), "%", GOAL_PCT, ""),
    ]  # fmt: skip


def _slower(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Percent, median over the rounds: what changes slowly on the machine changes both of a round."""
    return (statistics.median(a / b for a, b in zip(ours, theirs, strict=True)) - 1) * 100


def _spread(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Percent: the middle half of the rounds."""
    ratios = [(a / b - 1) * 100 for a, b in zip(ours, theirs, strict=True)]
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    quarters = statistics.quantiles(ratios, n=4)
    return quarters[0], quarters[2]
