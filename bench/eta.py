"""Accuracy of the predicted end of dumps and restores: real runs of databases of differing shape, read every second.

ETA_SCALE: size of the databases (1). Each reading is one object of `dba-console show progress --json --every 1s` beside
a recording agent; nothing is known of earlier runs. The second half of each run is evaluated. ETA_KEEP: a file to which
every reading is appended. ETA_ONLY: words that a run's name must contain, such as `pg_restore,one slow index`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.console import PROGRAM, own_directories, recording_agent
from bench.figure import Figure
from bench.restore_shapes import SHAPES, archive_of
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster

GOAL_PCT = 25.0
"""Maximum error of the predicted end of a restore in the second half of a run, percent of the run's time."""
GOAL_DUMP_PCT = 10.0
EXPLODED = 2.0
"""A time left of more than this multiple of the true one, for more than EXPLODED_S, is an explosion."""
EXPLODED_S = 5.0
POINTS = (0.25, 0.5, 0.75)
SETTINGS: dict[str, str | int] = {
    "shared_buffers": "128MB", "max_wal_size": "8GB", "maintenance_work_mem": "256MB", "autovacuum": "off",
    "max_locks_per_transaction": 256,
}  # fmt: skip
_DUMPED = {"ten equal tables": "-Fd -j2 -Z1", "one large table": "-Fc -Z1", "many small tables": "-Fd -j2 -Z1",
           "large objects": "-Fc -Z1", "documents": "-Fp", "partitions": "-Fd -j2 -Z1"}  # fmt: skip
"""Shapes that are dumped too, each in another way."""


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
    predicted: tuple[float | None, ...]
    """The predicted duration at each of POINTS; None: unknown then."""
    readings: int
    """Readings in its second half."""
    known: int
    """Of these, readings with an ETA."""
    worst_pct: float | None
    """Worst error of the predicted end, percent of the run's time."""
    exploded_s: float
    """Longest time for which the time left was more than EXPLODED times the true one."""
    backwards: int
    """Number of times the percentage decreased."""
    full: int
    """Number of readings of 100 or more before the end."""


def run(smoke: bool = False) -> list[Figure]:
    scale = float(os.environ.get("ETA_SCALE", "0.02" if smoke else "1"))
    judged: list[Judged] = []
    for shape in list(SHAPES)[: 1 if smoke else None]:
        if _wanted(_name("pg_restore", shape)) or _wanted(_name("pg_dump", shape)):
            judged += _shape(shape, archive_of(shape, scale))
    return [figure for one in judged for figure in _figures(one)]


def _name(kind: str, shape: str) -> str:
    how = "-j 2" if kind == "pg_restore" else _DUMPED.get(shape, "")
    return f"{kind} {how}, {shape}"


def _wanted(name: str) -> bool:
    return all(word in name for word in os.environ.get("ETA_ONLY", "").split(","))


def _shape(shape: str, archive: Path) -> Iterator[Judged]:
    """Restore the database from its directory; dump it in one way. A new agent knows nothing of the shapes before."""
    with (
        Cluster(settings=SETTINGS) as cluster,
        own_directories(),
        recording_agent(cluster.dsn()),
        _observing(cluster) as seen,
        tempfile.TemporaryDirectory(prefix="bench-eta-") as output,
    ):
        where = cluster.dsn(dbname="shape")
        program = {name: str(cluster.binaries.program(name)) for name in ("pg_restore", "pg_dump")}
        cluster.psql("create database shape")
        yield _run(
            _name("pg_restore", shape), "pg_restore", [program["pg_restore"], "-j2", "-d", where, str(archive)], seen
        )
        if shape in _DUMPED:
            cluster.psql("analyze", dbname="shape", timeout_s=600)
            dump = [program["pg_dump"], *_DUMPED[shape].split(), "-f", f"{output}/d", "-d", where]
            yield _run(_name("pg_dump", shape), "pg_dump", dump, seen)


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
    """Evaluate the predictions."""
    whole = ended - begun
    half = [reading for reading in readings if reading.at >= begun + whole / 2]
    off = [abs(one.at + one.eta_s - ended) for one in half if one.eta_s is not None]
    shares = [reading.pct for reading in readings if reading.pct is not None]
    return Judged(
        name, whole, tuple(_predicted(readings, begun, begun + point * whole) for point in POINTS), len(half), len(off),
        max((error / whole * 100 for error in off), default=None), _exploded_s(readings, ended),
        sum(after < before for before, after in pairwise(shares)), sum(share >= 100 for share in shares),
    )  # fmt: skip


def _predicted(readings: Sequence[Reading], begun: float, at: float) -> float | None:
    """Return the whole time as predicted at a moment."""
    nearest = min(readings, key=lambda one: abs(one.at - at), default=None)
    return None if nearest is None or nearest.eta_s is None else nearest.at + nearest.eta_s - begun


def _exploded_s(readings: Sequence[Reading], ended: float) -> float:
    longest, since = 0.0, None
    for one in readings:
        if one.eta_s is not None and one.eta_s > EXPLODED * (ended - one.at) > 0:
            since = one.at if since is None else since
            longest = max(longest, one.at - since)
        else:
            since = None
    return longest


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

        begun = threading.Event()

        def read(lines: Iterator[str]) -> None:
            for line in lines:
                seen.add(line)
                begun.set()

        reader = threading.Thread(target=read, args=(iter(process.stdout),), daemon=True)
        reader.start()
        try:
            begun.wait(120)  # on a busy host it starts slowly
            yield seen
        finally:
            process.terminate()
            reader.join(10)


def _figures(one: Judged) -> list[Figure]:
    goal = GOAL_PCT if one.name.startswith("pg_restore") else GOAL_DUMP_PCT
    at = ", ".join("?" if seconds is None else f"{seconds:.0f}" for seconds in one.predicted)
    text = f"{one.seconds:.0f} s; predicted at 25, 50, 75 %: {at}; known in {one.known} of {one.readings} readings"
    found = [Figure(f"time left of {one.name}: more than twice the true one for", one.exploded_s, "s", EXPLODED_S, "")]
    found.append(Figure(f"progress of {one.name}: times it decreased, or was 100 too early", one.backwards + one.full,
                        "", 0.0))  # fmt: skip
    if one.worst_pct is None:
        return [Figure(f"predicted end of {one.name}: never known in the second half", 0.0, "%", None, text), *found]
    return [
        Figure(f"predicted end of {one.name}: worst error in the second half", one.worst_pct, "%", goal, text),
        *found,
    ]
