"""Accuracy of the predicted end of dumps and restores: real runs of both databases, read every second.

ETA_GB: text of the dump (2.2). Each reading is one object of `dba-console show progress --json --every 1s` beside a
recording agent. The second half of each run is evaluated. ETA_KEEP: a file to which every reading is appended.
ETA_ONLY: words that a run's name must contain, such as `pg_restore,uneven`.
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
"""Maximum error of the predicted end in the second half of a run, percent of the run's time."""
SETTINGS: dict[str, str | int] = {
    "shared_buffers": "128MB", "max_wal_size": "8GB", "maintenance_work_mem": "256MB", "autovacuum": "off",
}  # fmt: skip


class Reading(NamedTuple):
    """One reading of the job; `at` is host wall time in seconds."""

    at: float
    pct: float | None
    grade: str
    eta_s: float | None
    phase: str | None


class Judged(NamedTuple):
    """The evaluation of one run."""

    name: str
    seconds: float
    readings: int
    """Readings in its second half."""
    predicted: int
    """Of these, readings with an ETA."""
    worst_pct: float | None
    """Worst error of the predicted end, percent of the run's time."""
    median_pct: float | None
    left_pct: float | None
    """Median error, percent of the remaining time."""
    backwards: int
    """Number of times the percentage decreased."""
    full: int
    """Number of readings of 100 or more before the end."""


def run(smoke: bool = False) -> list[Figure]:
    size = int(float(os.environ.get("ETA_GB", "0.05" if smoke else "2.2")) * 1e9)
    judged: list[Judged] = []
    with (
        archives(size) as both,
        Cluster(settings=SETTINGS) as cluster,
        own_directories(),
        recording_agent(cluster.dsn()),
        _observing(cluster) as seen,
    ):
        for archive in both:
            judged += _database(cluster, archive, seen)
    return [figure for one in judged for figure in _figures(one)]


def _database(cluster: Cluster, archive: Archives, seen: _Readings) -> Iterator[Judged]:
    """Restore the database from its directory, dump it as a directory and as in story S3, and restore it as in S3."""
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


def _run(name: str, kind: str, argv: Sequence[str], seen: _Readings) -> Judged:
    begun = time.time()
    subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, cwd="/", env=clean_environment()
    )
    ended = time.time()
    time.sleep(5)  # every reader has seen the end of the job
    readings = [reading for reading in seen.of(kind) if begun <= reading.at <= ended]
    seen.keep(name, begun, ended, readings)
    judged = judge(name, begun, ended, readings)
    print(f"  {judged}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return judged


def judge(name: str, begun: float, ended: float, readings: Sequence[Reading]) -> Judged:
    """Evaluate the predictions. The last second has no error of the remaining time: that would divide by zero."""
    whole = ended - begun
    half = [reading for reading in readings if reading.at >= begun + whole / 2]
    off = [(abs(one.at + one.eta_s - ended), ended - one.at) for one in half if one.eta_s is not None]
    shares = [reading.pct for reading in readings if reading.pct is not None]
    return Judged(
        name, whole, len(half), len(off),
        max((error / whole * 100 for error, _ in off), default=None),
        statistics.median(error / whole * 100 for error, _ in off) if off else None,
        statistics.median(kept) if (kept := [error / left * 100 for error, left in off if left > 1]) else None,
        sum(after < before for before, after in pairwise(shares)),
        sum(share >= 100 for share in shares),
    )  # fmt: skip


class _Readings:
    """Readings collected by another thread."""

    def __init__(self) -> None:
        self._readings: list[tuple[str, Reading]] = []

    def add(self, line: str) -> None:
        shown = json.loads(line)
        at = datetime.fromisoformat(shown["at"]).timestamp()
        for row in shown["panels"]["progress"].get("operations", []):
            if row.get("scope") == "whole":
                self._readings.append((row["kind"], _reading(at, row)))

    def of(self, kind: str) -> list[Reading]:
        return [reading for one, reading in list(self._readings) if one == kind]

    def keep(self, name: str, begun: float, ended: float, readings: Sequence[Reading]) -> None:
        if path := os.environ.get("ETA_KEEP"):
            with open(path, "a", encoding="utf-8") as file:
                print(json.dumps({"name": name, "begun": begun, "ended": ended, "looks": readings}), file=file)


def _reading(at: float, row: dict[str, Any]) -> Reading:
    return Reading(at, row.get("pct"), row.get("grade", "unknown"), row.get("eta_s"), row.get("phase"))


@contextmanager
def _observing(cluster: Cluster) -> Iterator[_Readings]:
    seen = _Readings()
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
            Figure(f"ETA of {one.name}: readings with one, second half", 0.0, "%", None, f"of {one.readings}: never")
        ]
    left = "" if one.left_pct is None else f", of the remaining time {one.left_pct:.0f} %"
    shown = f"shown in {one.predicted} of {one.readings} readings"
    text = f"median {one.median_pct:.1f} %{left}; {shown}; {one.seconds:.0f} s"
    return [
        Figure(
            f"ETA of {one.name}: worst error in the second half, of the whole time", one.worst_pct, "%", GOAL_PCT, text
        ),
        Figure(f"progress of {one.name}: times it decreased, or was 100 too early", one.backwards + one.full, "", 0.0),
    ]
