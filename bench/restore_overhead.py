"""What the runbook `restore` takes beside the same restore by hand, with the same settings.

By hand: ALTER SYSTEM and a reload, pg_restore without the foreign keys, vacuumdb, the keys several at a time, settings
reverted. Without our own checks, questions, journal and agent.

RESTORE_GB: sizes of the plain dump ("0.7 2.2"). RESTORE_ROUNDS (3), in turns. RESTORE_DATABASES (uneven).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.databases import Archives, archives
from bench.figure import Figure
from bench.restore import BOOK, DATABASE, DEFAULTS, RestoreTimes, by_runbook, children_cpu_s, count_rows
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.tools.client_programs import list_without_keys
from dba_console.jobs.tools.create_foreign_keys import create_keys

GOAL, GOAL_S = 1.05, 3.0
JOBS = 2
SERVER = {"max_wal_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off"}
SESSION = "-c synchronous_commit=off -c maintenance_work_mem=512MB -c max_parallel_maintenance_workers=1"
"""What the runbook sets with speed=fast, for two jobs on two processors."""


def run(smoke: bool = False) -> list[Figure]:
    sizes = os.environ.get("RESTORE_GB", "0.02" if smoke else "0.7 2.2").split()
    rounds = int(os.environ.get("RESTORE_ROUNDS", "1" if smoke else "3"))
    figures = []
    for size in sizes:
        with archives(int(float(size) * 1e9), os.environ.get("RESTORE_DATABASES", "uneven").split()) as both:
            for one in both:
                pairs = [_pair(one, number) for number in range(rounds)]
                figures += _figures(f"restore of {size} GB, {one.name}", float(size), pairs)
    return figures


def _pair(archive: Archives, number: int) -> tuple[RestoreTimes, RestoreTimes]:
    """Restore by the runbook and by hand; each round starts with the other one."""
    ways = {"runbook": lambda: by_runbook(archive, BOOK["runbook, protected"]), "hand": lambda: _by_hand(archive)}
    took = {}
    for name in sorted(ways, reverse=number % 2 == 0):
        took[name] = one = ways[name]()
        load = os.getloadavg()[0]
        print(
            f"  {archive.name} {number + 1} {name}: {one.total_s:.1f} s, CPU {one.cpu_s:.2f} s, load {load:.1f}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return took["runbook"], took["hand"]


def _by_hand(archive: Archives) -> RestoreTimes:
    with Cluster(settings=DEFAULTS) as cluster, tempfile.TemporaryDirectory() as directory:
        cluster.psql("checkpoint")
        before_s, begun = children_cpu_s() + time.process_time(), time.monotonic()
        for name, value in SERVER.items():
            cluster.psql(f"alter system set {name} = '{value}'")
        cluster.psql("select pg_reload_conf()")
        cluster.psql(f"create database {DATABASE}")
        chosen = Path(directory) / "list"
        chosen.write_text(list_without_keys(archive.directory, str(cluster.binaries.directory)))
        _client(cluster, "pg_restore", "-v", "-j", str(JOBS), "-L", str(chosen), str(archive.directory))
        _client(cluster, "vacuumdb", "-Z", "-j", str(JOBS))
        os.environ["PGOPTIONS"] = SESSION
        dsn, programs = cluster.dsn(dbname=DATABASE), str(cluster.binaries.directory)
        created = create_keys(archive.directory, dsn, JOBS, bindir=programs, report=lambda text: None)
        del os.environ["PGOPTIONS"]
        for name in SERVER:
            cluster.psql(f"alter system reset {name}")
        cluster.psql("select pg_reload_conf()")
        took_s, spent_s = time.monotonic() - begun, children_cpu_s() + time.process_time() - before_s
        if created.errors:
            raise RuntimeError("the restore by hand failed")
        return RestoreTimes(took_s, 0.0, count_rows(cluster), spent_s)


def _client(cluster: Cluster, program: str, *arguments: str) -> None:
    argv = [str(cluster.binaries.program(program)), *arguments, "-d", cluster.dsn(dbname=DATABASE)]
    environment = clean_environment() | {"PGOPTIONS": SESSION}
    subprocess.run(argv, check=True, env=environment, stdin=subprocess.DEVNULL, capture_output=True)


def _figures(what: str, size: float, pairs: list[tuple[RestoreTimes, RestoreTimes]]) -> list[Figure]:
    ratio = statistics.median(book.total_s / hand.total_s for book, hand in pairs)
    beside = statistics.median(book.total_s - hand.total_s for book, hand in pairs)
    spent = statistics.median(book.cpu_s - hand.cpu_s for book, hand in pairs)
    rounds = ", ".join(f"{book.total_s:.1f} against {hand.total_s:.1f} s" for book, hand in pairs)
    return [
        Figure(
            f"{what}: time of the runbook against the same by hand", ratio, "×", GOAL if size >= 2 else None, rounds
        ),
        Figure(f"{what}: the same, in addition", beside, "s", GOAL_S, f"CPU {spent:.2f} s"),
    ]
