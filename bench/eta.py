"""How true the predicted end of a dump or restore is: real runs of both databases, looked at each second.

ETA_GB: text of the dump (2.2). Each look is one object of `dba-console show progress --json --every 1s` beside a
recording agent. Judged is the second half of each run. ETA_KEEP: a file into which every look is written. ETA_ONLY:
words a run must have in its name, as in `pg_restore,uneven`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from bench.console import PROGRAM, own_directories, recording_agent
from bench.databases import Archives, archives
from bench.figure import Figure
from dba_console.demo.cluster import Cluster
from dba_console.demo.server_account import clean_environment

GOAL_PCT = 15.0
"""Of the whole run's time, the predicted end may be off in its second half."""
SETTINGS: dict[str, str | int] = {
    "shared_buffers": "128MB", "max_wal_size": "8GB", "maintenance_work_mem": "256MB", "autovacuum": "off",
}  # fmt: skip


class Look(NamedTuple):
    """What was told of the job at one moment, host wall time in seconds."""

    at: float
    pct: float | None
    grade: str
    eta_s: float | None
    phase: str | None


class Judged(NamedTuple):
    """One run."""

    name: str
    seconds: float
    looks: int
    """In its second half."""
    told: int
    """Of these, with an ETA."""
    worst_pct: float | None
    """The predicted end off the true one, of the whole run's time."""
    median_pct: float | None
    left_pct: float | None
    """Median of the same, of what was left."""
    backwards: int
    """Times at which the share fell."""
    full: int
    """Times at which it was 100 or more before the end."""


def run(smoke: bool = False) -> list[Figure]:
    size = int(float(os.environ.get("ETA_GB", "0.05" if smoke else "2.2")) * 1e9)
    judged: list[Judged] = []
    with (
        archives(size) as both,
        Cluster(settings=SETTINGS) as cluster,
        own_directories(),
        recording_agent(cluster.dsn()),
        _looking(cluster) as seen,
    ):
        for archive in both:
            judged += _database(cluster, archive, seen)
    return [figure for one in judged for figure in _figures(one)]


def _database(cluster: Cluster, archive: Archives, seen: _Seen) -> Iterator[Judged]:
    """It is restored from its directory, dumped as a directory and as story S3 did, and restored as story S3 did."""
    where = cluster.dsn(dbname=archive.name)
    program = {name: str(cluster.binaries.program(name)) for name in ("pg_restore", "pg_dump", "psql")}
    with tempfile.TemporaryDirectory(prefix="bench-eta-") as place:
        packed = f"{place}/packed"
        unpacked = [program["psql"], where, str(archive.plain)]
        runs = {
            "pg_restore": ("-j 2", [program["pg_restore"], "-j2", "-d", where, str(archive.directory)]),
            "pg_dump": ("-j 2", [program["pg_dump"], "-Fd", "-j2", "-Z1", "-f", f"{place}/d", "-d", where]),
            "pg_dump ": ("into gzip", ["bash", "-c", '"$0" -d "$1" | gzip >"$2"', program["pg_dump"], where, packed]),
            "psql": ("from zcat", ["bash", "-c", 'zcat "$2" | "$0" -Xq -d "$1"', *unpacked]),
        }  # fmt: skip
        for kind, (how, argv) in runs.items():
            name = f"{kind.strip()} {how}, {archive.name}"
            if not all(word in name for word in os.environ.get("ETA_ONLY", "").split(",")):
                continue
            if kind in ("pg_restore", "psql"):
                cluster.psql(f"drop database if exists {archive.name}")
                cluster.psql(f"create database {archive.name}")
            yield _run(name, kind.strip(), argv, seen)


def _run(name: str, kind: str, argv: Sequence[str], seen: _Seen) -> Judged:
    begun = time.time()
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, cwd="/", env=clean_environment()
    )
    ended = time.time()
    time.sleep(5)  # the job is over for everybody
    looks = [look for look in seen.of(kind) if begun <= look.at <= ended]
    seen.keep(name, begun, ended, looks)
    judged = judge(name, begun, ended, looks)
    print(f"  {judged}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return judged


def judge(name: str, begun: float, ended: float, looks: Sequence[Look]) -> Judged:
    """What came true of what was told. The last second is not judged of what is left: it divides by nothing."""
    whole = ended - begun
    half = [look for look in looks if look.at >= begun + whole / 2]
    off = [(abs(look.at + look.eta_s - ended), ended - look.at) for look in half if look.eta_s is not None]
    shares = [look.pct for look in looks if look.pct is not None]
    return Judged(
        name, whole, len(half), len(off),
        max((error / whole * 100 for error, _ in off), default=None),
        statistics.median(error / whole * 100 for error, _ in off) if off else None,
        statistics.median(kept) if (kept := [error / left * 100 for error, left in off if left > 1]) else None,
        sum(after < before for before, after in pairwise(shares)),
        sum(share >= 100 for share in shares),
    )  # fmt: skip


class _Seen:
    """Looks, as another thread reads them."""

    def __init__(self) -> None:
        self._looks: list[tuple[str, Look]] = []

    def add(self, line: str) -> None:
        told = json.loads(line)
        at = datetime.fromisoformat(told["at"]).timestamp()
        for row in told["panels"]["progress"].get("operations", []):
            if row.get("scope") == "whole":
                self._looks.append((row["kind"], _look(at, row)))

    def of(self, kind: str) -> list[Look]:
        return [look for one, look in list(self._looks) if one == kind]

    def keep(self, name: str, begun: float, ended: float, looks: Sequence[Look]) -> None:
        if path := os.environ.get("ETA_KEEP"):
            with open(path, "a", encoding="utf-8") as file:
                print(json.dumps({"name": name, "begun": begun, "ended": ended, "looks": looks}), file=file)


def _look(at: float, row: dict[str, Any]) -> Look:
    return Look(at, row.get("pct"), row.get("grade", "unknown"), row.get("eta_s"), row.get("phase"))


@contextmanager
def _looking(cluster: Cluster) -> Iterator[_Seen]:
    seen = _Seen()
    argv = [PROGRAM, "show", "progress", "--json", "--every", "1s", cluster.dsn()]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def read(lines: Iterator[str]) -> None:
            for line in lines:
                seen.add(line)

        reader = threading.Thread(target=read, args=(iter(process.stdout),), daemon=True)
        reader.start()
        try:
            yield seen
        finally:
            process.terminate()
            reader.join(10)


def _figures(one: Judged) -> list[Figure]:
    if one.worst_pct is None or one.median_pct is None:
        return [
            Figure(f"ETA of {one.name}: looks with one, second half", 0.0, "%", None, f"of {one.looks}: never told")
        ]
    left = "" if one.left_pct is None else f", of what is left {one.left_pct:.0f} %"
    told = f"median {one.median_pct:.1f} %{left}; told in {one.told} of {one.looks} looks; {one.seconds:.0f} s"
    return [
        Figure(f"ETA of {one.name}: off at worst, second half, of the whole time", one.worst_pct, "%", GOAL_PCT, told),
        Figure(f"progress of {one.name}: times it went back, or was 100 too early", one.backwards + one.full, "", 0.0),
    ]
