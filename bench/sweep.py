"""`dba-console dumps sweep` compared with an exhaustive sweep: a complete dump with each number of jobs from 1 to 8.

SWEEP_MB: size of the tables (600). SWEEP_ROUNDS (3). Two databases: ten equal tables, and one big table among
small ones. Each round runs both, with discarded output; the result of the sweep is rated by the median time of that
number of jobs in the exhaustive sweeps.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import NamedTuple

from bench.figure import Figure
from dba_console.core.target import Target, make_target
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.tools import host_usage
from dba_console.jobs.tools.client_programs import find_program
from dba_console.jobs.tools.job_count_sweep import SweepOptions, sweep
from dba_console.jobs.tools.jobs_curve import TrialRun
from dba_console.jobs.tools.scratch_directory import memory_directory, scratch_directory
from dba_console.jobs.tools.server_connection import client_environment, open_server, read_tables
from dba_console.jobs.tools.trial_dump import TrialSettings, run_trial

MAX_JOBS = 8
SHAPES = {"ten equal tables": [10] * 10, "one big table among ten small ones": [80] + [2] * 10}
"""Relative sizes of the tables."""
_BYTES_PER_ROW = 100
NICENESS = 0
"""Of both: with another niceness, other work of the machine would affect runs of one and of ten minutes differently."""


class Round(NamedTuple):
    """One sweep and one exhaustive sweep."""

    jobs: int
    over_best: float
    """Time of its number of jobs in the exhaustive sweep, divided by the best time there."""
    share: float
    """Duration of the sweep, divided by that of the exhaustive sweep."""
    every: dict[int, float]
    took_s: float


def run(smoke: bool = False) -> list[Figure]:
    size = int(os.environ.get("SWEEP_MB", "40" if smoke else "600")) << 20
    rounds = int(os.environ.get("SWEEP_ROUNDS", "1" if smoke else "3"))
    figures: list[Figure] = []
    with Cluster(settings={"max_connections": 40, "shared_buffers": "512MB"}, durable=False) as cluster:
        for number, (shape, parts) in enumerate([*SHAPES.items()][: 1 if smoke else None]):
            database = f"shape{number}"
            _fill(cluster, database, parts, size)
            target = make_target(cluster.dsn(dbname=database))
            found = [_round(target, str(cluster.binaries.directory)) for _ in range(rounds)]
            for one in found:
                print(f"  {shape}: {_summary(one)}", file=sys.stderr, flush=True)
            figures += _figures(shape, found)
    return figures


def _fill(cluster: Cluster, database: str, parts: list[int], size: int) -> None:
    cluster.psql(f"create database {database}")
    for number, part in enumerate(parts):
        rows = max(1000, int(size * part / sum(parts) / _BYTES_PER_ROW))
        cluster.psql(
            f"create table t{number} as select i, md5(i::text) as name, repeat(md5((i / 7)::text), 1) as filler"
            f" from generate_series(1, {rows}) i",
            dbname=database, timeout_s=3600,
        )  # fmt: skip
    cluster.psql("vacuum analyze", dbname=database, timeout_s=3600)


def _round(target: Target, bindir: str) -> Round:
    begun = time.monotonic()
    kept = sweep(target, SweepOptions(bindir=bindir, max_jobs=MAX_JOBS, niceness=NICENESS), _print_progress)
    took = time.monotonic() - begun
    every = {run.jobs: run.wall_s for run in _exhaustive(target, bindir)}
    return Round(kept.jobs, every[kept.jobs] / min(every.values()), took / sum(every.values()), every, took)


def _exhaustive(target: Target, bindir: str) -> list[TrialRun]:
    """Run a complete dump with each number of jobs, one after the other."""
    program = find_program("pg_dump", bindir=bindir)
    with open_server(target.conninfo) as server, scratch_directory(memory_directory()) as place:
        tables, _ = read_tables(server)
        way = TrialSettings(
            program.path, client_environment(target.conninfo), (), NICENESS, True, host_usage.is_local_server(server)
        )
        host = host_usage.HostMeter(None, None)
        return [run_trial(way, server, host, place, tables, jobs, lambda: 86400.0) for jobs in range(1, MAX_JOBS + 1)]


def _print_progress(text: str, replaced: bool) -> None:
    if not replaced:
        print(f"    {text}", file=sys.stderr, flush=True)


def _summary(one: Round) -> str:
    every = ", ".join(f"-j {jobs} {seconds:.1f} s" for jobs, seconds in one.every.items())
    return (
        f"-j {one.jobs} after {one.took_s:.1f} s ({100 * one.share:.0f} %), {one.over_best:.2f} of the best ({every})"
    )


def _figures(shape: str, found: list[Round]) -> list[Figure]:
    """Return the medians over the rounds."""
    every = {jobs: statistics.median(one.every[jobs] for one in found) for jobs in found[0].every}
    over = statistics.median(every[one.jobs] for one in found) / min(every.values())
    share = statistics.median(one.share for one in found)
    answers = ", ".join(f"-j {one.jobs}" for one in found)
    spent = statistics.median(one.took_s for one in found)
    return [
        Figure(f"dump-jobs, {shape}: wall time with its -j against the best of 1 to 8", over, "×", 1.1,
               f"{answers}; " + ", ".join(f"-j {jobs} {took:.1f} s" for jobs, took in every.items())),
        Figure(f"dump-jobs, {shape}: its time against the exhaustive sweep's", share, "×", 0.5,
               f"{spent:.0f} s against {statistics.median(sum(one.every.values()) for one in found):.0f} s"),
    ]  # fmt: skip
