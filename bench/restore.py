"""Restore of one database by a script (zcat into psql) and by the runbook `restore`, including ANALYZE, on one host.

RESTORE_GB: text of the plain dump (2.2). RESTORE_ROUNDS (1). RESTORE_WAYS: more ways, to measure each setting: names of
METHODS separated by semicolons, or `all`; each starts with a new server as initdb configures it.
RESTORE_DATABASES: only one of them. RESTORE_TIMELINE: any value prints the runbook's output with its seconds to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench.console import PROGRAM, own_directories
from bench.databases import Archives, archives
from bench.figure import Figure
from bench.process import cpu_ms
from dba_console.agent.find_or_start import list_agents
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster

GOAL = 2.0
"""Goal: this many times as fast as the script."""
DATABASE = "restored"
DEFAULTS: dict[str, str | int] = {"shared_buffers": "128MB"}
"""initdb's value; practice clusters use less."""
MEMORY: dict[str, str | int] = {
    "maintenance_work_mem": "512MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h",
    "max_parallel_maintenance_workers": 1,
}  # fmt: skip
NO_WAIT: dict[str, str | int] = {**MEMORY, "autovacuum": "off", "synchronous_commit": "off"}
MINIMAL: dict[str, str | int] = {**NO_WAIT, "wal_level": "minimal", "max_wal_senders": 0}
UNPROTECTED: dict[str, str | int] = {"fsync": "off", "full_page_writes": "off"}


class RestoreMethod(NamedTuple):
    """One way to restore."""

    settings: dict[str, str | int]
    restore: Callable[[Cluster, Archives], None]


class RestoreTimes(NamedTuple):
    """Durations of one restore, in seconds, and its rows."""

    restore_s: float
    analyze_s: float
    rows: int
    cpu_s: float = 0.0
    """CPU time of all programs but the server; less affected by other work of the machine than the duration."""

    @property
    def total_s(self) -> float:
        return self.restore_s + self.analyze_s


def run(smoke: bool = False) -> list[Figure]:
    size = int(float(os.environ.get("RESTORE_GB", "0.02" if smoke else "2.2")) * 1e9)
    rounds = int(os.environ.get("RESTORE_ROUNDS", "1"))
    wanted = [name for name in os.environ.get("RESTORE_WAYS", "").split(";") if name]
    more = [*BOOK, *METHODS] if wanted == ["all"] else wanted
    figures = []
    with archives(size, os.environ.get("RESTORE_DATABASES", "even uneven").split()) as both:
        for one in both:
            found: dict[str, list[RestoreTimes]] = {}
            for number in range(rounds):
                for name in dict.fromkeys(["script", "runbook", *more]):
                    times = by_runbook(one, BOOK[name]) if name in BOOK else _by_hand(one, METHODS[name])
                    found.setdefault(name, []).append(times)
                    print(f"  {one.name} {number + 1} {name}: {_summary(times)}", file=sys.stderr, flush=True)
            figures += _figures(one, found)
    return figures


def _by_hand(archive: Archives, method: RestoreMethod) -> RestoreTimes:
    with Cluster(settings={**DEFAULTS, **method.settings}) as cluster:
        cluster.psql(f"create database {DATABASE}")
        cluster.psql("checkpoint")
        begun = time.monotonic()
        method.restore(cluster, archive)
        restored = time.monotonic()
        _run("vacuumdb", "-q", "-Z", "-j", "1" if method.restore is _psql else "2", cluster=cluster)
        return RestoreTimes(restored - begun, time.monotonic() - restored, count_rows(cluster))


def by_runbook(archive: Archives, inputs: Mapping[str, str]) -> RestoreTimes:
    """Time the whole command, from start to end: checks, settings, restore, ANALYZE, settings reverted.

    Its questions are answered at once; if it asks for a restart of the server, the server is restarted.
    """
    with Cluster(settings=DEFAULTS) as cluster, own_directories():
        cluster.psql("checkpoint")
        argv = [PROGRAM, "runbook", "run", "restore", "--dsn", cluster.dsn(), "--plain", "--json"]
        given = {
            "archive": archive.directory, "database": DATABASE, "jobs": 2, "programs": cluster.binaries.directory,
            **inputs,
        }  # fmt: skip
        for name, value in given.items():
            argv += ["--input", f"{name}={value}"]
        before_s, begun = children_cpu_s(), time.monotonic()
        code, output = _run_answered(argv, cluster)
        total_s = time.monotonic() - begun
        spent_s = children_cpu_s() - before_s + sum(cpu_ms(agent.pid) for agent in list_agents()) / 1000
        if code:
            raise RuntimeError(f"the runbook ended with exit code {code}: {output[-1500:]}")
        return RestoreTimes(total_s, 0.0, count_rows(cluster), spent_s)


def _run_answered(argv: list[str], cluster: Cluster) -> tuple[int, str]:
    """Run the runbook, answer its questions; return exit code and output. Raises KeyError for an unknown question."""
    begun, lines = time.monotonic(), list[str]()
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if os.environ.get("RESTORE_TIMELINE"):
                    print(f"    {time.monotonic() - begun:6.2f} {line[:150].rstrip()}", file=sys.stderr, flush=True)
                event = json.loads(line)
                if event["event"] == "question":
                    process.stdin.write(_answer(event, cluster) + "\n")
                    process.stdin.flush()
        errors.seek(0)
        return process.returncode, "".join(lines) + errors.read()


def _answer(question: dict[str, Any], cluster: Cluster) -> str:
    if question["kind"] == "manual":
        cluster.restart()
    answers = {"start": "yes", "ack": "y", "type": str(question.get("expects")), "manual": "bench", "yes": "yes"}
    return answers[question["kind"]]


def _psql(cluster: Cluster, archive: Archives) -> None:
    """Restore by a script: zcat into psql."""
    psql = [str(cluster.binaries.program("psql")), "-Xq", "-d", cluster.dsn(dbname=DATABASE)]
    with subprocess.Popen(["zcat", str(archive.plain)], stdout=subprocess.PIPE) as unpacked:
        subprocess.run(psql, stdin=unpacked.stdout, stdout=subprocess.DEVNULL, check=True, env=clean_environment())
    if unpacked.returncode:
        raise subprocess.CalledProcessError(unpacked.returncode, "zcat")


def _pg_restore(jobs: int) -> Callable[[Cluster, Archives], None]:
    def restore(cluster: Cluster, archive: Archives) -> None:
        _run("pg_restore", "-j", str(jobs), str(archive.directory), cluster=cluster)

    return restore


METHODS: dict[str, RestoreMethod] = {
    "script": RestoreMethod({}, _psql),
    "script, no fsync, no autovacuum": RestoreMethod({"fsync": "off", "autovacuum": "off"}, _psql),
    "-j 2, as it is": RestoreMethod({}, _pg_restore(2)),
    "-j 2, memory and WAL": RestoreMethod(MEMORY, _pg_restore(2)),
    "-j 2, no waiting": RestoreMethod(NO_WAIT, _pg_restore(2)),
    "-j 2, wal_level minimal": RestoreMethod(MINIMAL, _pg_restore(2)),
    "-j 2, minimal, no fsync": RestoreMethod({**MINIMAL, **UNPROTECTED}, _pg_restore(2)),
    "-j 3, wal_level minimal": RestoreMethod(MINIMAL, _pg_restore(3)),
    "-j 4, wal_level minimal": RestoreMethod(MINIMAL, _pg_restore(4)),
}


BOOK: dict[str, dict[str, str]] = {
    "runbook": {"speed": "risky", "minimal_wal": "yes"},
    "runbook, protected": {"speed": "fast"},
}
"""Inputs of the runbook: all options, and those for a server with other users."""


def _run(program: str, *arguments: str, cluster: Cluster) -> None:
    argv = [str(cluster.binaries.program(program)), *arguments, "-d", cluster.dsn(dbname=DATABASE)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, check=True, env=clean_environment())


def count_rows(cluster: Cluster) -> int:
    """Count all rows, indexes and foreign keys, so that no way is fast because it omitted some."""
    sql = "select sum((xpath('/row/n/text()', query_to_xml(format('select count(*) as n from %s', oid::regclass), "
    sql += "false, true, '')))[1]::text::bigint) from pg_class "
    sql += "where relkind = 'r' and relnamespace = 'public'::regnamespace"
    rows = int(cluster.psql(sql, dbname=DATABASE, timeout_s=600))
    there = cluster.psql(
        "select (select count(*) from pg_index join pg_class on pg_class.oid = indexrelid "
        "where indisvalid and relnamespace = 'public'::regnamespace), "
        "(select count(*) from pg_constraint where convalidated and contype = 'f')", dbname=DATABASE,
    )  # fmt: skip
    if there != "31|20":
        raise RuntimeError(f"indexes and foreign keys restored: {there}, expected 31|20")
    return rows


def children_cpu_s() -> float:
    """Return the CPU time of the ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _summary(times: RestoreTimes) -> str:
    return f"{times.total_s:.1f} s ({times.restore_s:.1f} + {times.analyze_s:.1f}), load {os.getloadavg()[0]:.1f}"


def _figures(archive: Archives, found: dict[str, list[RestoreTimes]]) -> list[Figure]:
    if len({times.rows for taken in found.values() for times in taken}) != 1:
        raise RuntimeError("the ways restored different numbers of rows")
    total = {name: statistics.median(times.total_s for times in taken) for name, taken in found.items()}
    what = f"restore of {archive.text_bytes / 1e9:.2g} GB, {archive.name}"
    figures = [
        Figure(f"{what}: time of the runbook against the script", total["runbook"] / total["script"], "×", 1 / GOAL,
               f"{total['script'] / total['runbook']:.2f} × as fast: "
               f"{total['runbook']:.1f} s against {total['script']:.1f} s")
    ]  # fmt: skip
    for name, seconds in total.items():
        if name not in ("script", "runbook"):
            figures.append(
                Figure(
                    f"{what}: {name}", total["script"] / seconds, "× as fast as the script", None, f"{seconds:.1f} s"
                )
            )
    return figures
