"""`dba-console stamp` compared with ts (moreutils), logger (util-linux) and cat: the same lines, alternating runs.

Its cost for the writer is measured by psql printing into it and into cat, in turn; cat against cat in the same rounds
shows how much of the difference is chance.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.console import PROGRAM
from bench.figure import Figure
from dba_console.demo.binaries import find_binaries
from dba_console.demo.temporary_server import Cluster

LINE = "pg_restore: processing item 12345 TABLE DATA public.orders_2026_{:07d}\n"
OURS = [PROGRAM, "stamp", "-t", "PGRESTORE"]
PEERS = {"ts": ["ts"], "logger": ["logger", "-t", "PGRESTORE", "--no-act", "-s", "--socket-errors=off"]}
"""logger sends nothing and writes its lines to stderr instead, so that no log daemon is measured with it."""
GOALS = {"ts": 4.0, "logger": 2.0}
SLOWER_PCT = 1.0


def run(smoke: bool = False) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-stamp-") as directory:
        return [*_rates(Path(directory), smoke), *_psql(smoke)]


def _rates(directory: Path, smoke: bool) -> list[Figure]:
    """Measure the time per line against each peer, including the start of the program."""
    count, rounds = (20_000, 1) if smoke else (300_000, 5)
    lines = directory / "lines"
    with open(lines, "w", encoding="ascii") as file:
        file.writelines(LINE.format(number) for number in range(count))
    commands = {"stamp": OURS, "cat": ["cat"], **_present()}
    took = _alternating({name: partial(_seconds, argv, lines) for name, argv in commands.items()}, rounds)
    rate = {name: count / statistics.median(seconds) for name, seconds in took.items()}
    rates = ", ".join(f"{name} {per_s / 1e6:.2f}" for name, per_s in rate.items())
    return [
        Figure(f"stamp, time per line against {name}", rate[name] / rate["stamp"], "×", 1 / GOALS[name],
               f"{rate['stamp'] / rate[name]:.1f} × its lines per second; millions of lines per second: {rates}")
        for name in GOALS if name in rate
    ]  # fmt: skip


def _present() -> dict[str, list[str]]:
    for name in PEERS:
        if shutil.which(name) is None:
            print(f"{name} is not installed: not compared", file=sys.stderr)
    return {name: argv for name, argv in PEERS.items() if shutil.which(name) is not None}


def _seconds(argv: Sequence[str], lines: Path) -> float:
    with open(lines, "rb") as file:
        begun = time.perf_counter()
        subprocess.run(argv, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begun


def _psql(smoke: bool) -> list[Figure]:
    rows, rounds = (20_000, 2) if smoke else (300_000, 21)
    binaries = find_binaries()
    with Cluster(binaries, durable=False) as cluster:
        sql = f"select g, md5(g::text), 'a line as long as those of a report' from generate_series(1, {rows}) g"
        psql = [str(binaries.program("psql")), "-X", "-A", "-t", "-v", "FETCH_COUNT=1000", "-c", sql, cluster.dsn()]
        took = _alternating(
            {
                "cat": lambda: _into(psql, ["cat"]),
                "stamp": lambda: _into(psql, OURS),
                "cat again": lambda: _into(psql, ["cat"]),
            },
            rounds,
        )
    slower, chance = _slower_pct(took["stamp"], took["cat"]), _slower_pct(took["cat again"], took["cat"])
    spread = statistics.quantiles((b / a - 1 for a, b in zip(took["cat"], took["cat again"], strict=True)), n=4)
    seconds = statistics.median(took["cat"])
    text = (
        f"{rows:,} rows in {seconds:.2f} s into cat; cat against cat {chance:+.1f} %, "
        f"half of the rounds between {spread[0] * 100:+.1f} and {spread[2] * 100:+.1f} %"
    )
    return [Figure("psql printing into stamp, slower than into cat", slower, "%", SLOWER_PCT, text)]


def _slower_pct(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over the rounds: slow changes of the machine affect both runs of a round."""
    return (statistics.median(a / b for a, b in zip(ours, theirs, strict=True)) - 1) * 100


def _into(psql: Sequence[str], reader: Sequence[str]) -> float:
    """Return the seconds of psql alone, into a reader that has started."""
    from_psql, to_reader = os.pipe()
    with open(os.devnull, "wb") as nothing:
        reading = subprocess.Popen(reader, stdin=from_psql, stdout=nothing)
        os.close(from_psql)
        # The first line is ours: once it is read, the program is loaded.
        os.write(to_reader, b"ready\n")
        _until_taken(to_reader)
        begun = time.perf_counter()
        subprocess.run(psql, stdout=to_reader, check=True)
        took = time.perf_counter() - begun
        os.close(to_reader)
        reading.wait()
    return took


def _until_taken(pipe: int) -> None:
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]:
        time.sleep(0.005)


def _alternating(measured: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run each in turn, round by round, in alternating order; the first round is not counted."""
    took: dict[str, list[float]] = {name: [] for name in measured}
    for number in range(rounds + 1):
        for name in sorted(measured, reverse=number % 2 == 1):
            seconds = measured[name]()
            if number:
                took[name].append(seconds)
    return took
