"""Removal of a big file by rm, by a loop of truncate and by shrink-file: duration, and latency of commits beside it.

SHRINK_ROUNDS (3). SHRINK_GB: size of the file (8). Root only: file systems on loop devices are mounted.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure
from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.shrink_file import ShrinkFile, ShrinkFileSettings

MIB = 1 << 20
FILE_SYSTEMS = ("ext3", "ext4")
LOOP_STEP, LOOP_SLEEP_S = 10 * MIB, 0.02
PROBE_PAUSE_S = 0.005
QUIET_S = 2.0
"""Pause before each deletion, and after it for the file system's deferred commits."""
TRIES = 20
"""A server that is starting elsewhere on the machine works in / for a moment; shrink-file then refuses."""


class Round(NamedTuple):
    """The measurements of one deletion, in seconds."""

    total_s: float
    """Duration until the space is free on the disk."""
    worst_s: float
    hundredth_s: float
    """99th percentile of the commits: depends less on other work of the machine than the worst."""
    typical_s: float
    probes: int


def run(smoke: bool = False) -> list[Figure]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that file systems are unmounted
    if os.geteuid() != 0 or shutil.which("mkfs.ext3") is None:
        print("shrink: not measured: needs root and mkfs.ext3", file=sys.stderr)
        return []
    size = int(float(os.environ.get("SHRINK_GB", "0.06" if smoke else "8")) * 1024) * MIB
    rounds = int(os.environ.get("SHRINK_ROUNDS", "1" if smoke else "3"))
    figures = []
    for kind in FILE_SYSTEMS[-1:] if smoke else FILE_SYSTEMS:
        with _file_system(kind, size + 600 * MIB) as place:
            found: dict[str, list[Round]] = {way: [] for way in METHODS}
            for number in range(rounds):
                for way, delete in METHODS.items():
                    found[way].append(_round(place, size, delete))
                    print(f"  {kind} {number + 1} {way}: {_summary(found[way][-1])}", file=sys.stderr, flush=True)
        figures += _figures(kind, size, found)
    return figures


def _rm(path: Path) -> None:
    path.unlink()
    _settle(path.parent)


def _loop(path: Path) -> None:
    """Run the loop (truncate -s -10M, sleep 0.02) without the time a shell takes to start truncate."""
    size = path.stat().st_size
    while size > 0:
        size = max(0, size - LOOP_STEP)
        os.truncate(path, size)
        time.sleep(LOOP_SLEEP_S)
    path.unlink()
    _settle(path.parent)


def _shrink(path: Path) -> None:
    action, settings, context = ShrinkFile(), ShrinkFileSettings(path=str(path)), ActionContext()
    preview = action.preview(settings, context)
    for _ in range(TRIES):
        if preview.refusal is None:
            break
        print(f"  retried: {preview.refusal}", file=sys.stderr)
        time.sleep(0.1)
        preview = action.preview(settings, context)
    assert preview.refusal is None, preview.refusal
    done = action.act(settings, preview, context, PlainControl())
    assert done.state == "ok", done.text
    print(f"  {done.text}; {done.values}", file=sys.stderr)
    _settle(path.parent)


METHODS: dict[str, Callable[[Path], None]] = {"rm": _rm, "loop": _loop, "shrink-file": _shrink}


def _settle(directory: Path) -> None:
    """Wait until the removal is on the disk."""
    opened = os.open(directory, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


def _round(place: Path, size: int, delete: Callable[[Path], None]) -> Round:
    path = place / "oldest.dump"
    _write(path, size)
    stop = multiprocessing.Event()
    answers: multiprocessing.Queue[Any] = multiprocessing.Queue()
    probe = multiprocessing.Process(target=_probe, args=(str(place), stop, answers), daemon=True)
    probe.start()
    try:
        answers.get(timeout=60)
        time.sleep(QUIET_S)
        begun = time.monotonic()
        delete(path)
        ended = time.monotonic()
        time.sleep(QUIET_S)
        stop.set()
        timed: list[tuple[float, float]] = answers.get(timeout=60)
        probe.join(60)
    finally:
        probe.kill()  # an open file would keep the file system mounted
        probe.join()
    felt = [took for at, took in timed if at + took >= begun and at <= ended + 0.5]
    quiet = [took for at, took in timed if at + took < begun]
    hundredth = sorted(felt)[len(felt) * 99 // 100]
    return Round(ended - begun, max(felt), hundredth, statistics.median(quiet), len(felt))


def _write(path: Path, size: int) -> None:
    """Write a file and evict it from all caches, like a backup of last month."""
    block = os.urandom(4 * MIB)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _probe(place: str, stop: Event, answers: multiprocessing.Queue[Any]) -> None:
    """Write and sync a page every 5 ms, as WAL is; put the start and duration of each."""
    fd = os.open(f"{place}/wal", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(MIB), 0)
    os.fsync(fd)
    timed, number = [], 0
    answers.put("ready")
    while not stop.is_set():
        begun = time.monotonic()
        os.pwrite(fd, os.urandom(8192), number % 128 * 8192)
        os.fsync(fd)
        timed.append((begun, time.monotonic() - begun))
        number += 1
        time.sleep(PROBE_PAUSE_S)
    answers.put(timed)


@contextmanager
def _file_system(kind: str, size: int) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="bench-shrink-"))
    image, place = directory / "image", directory / "place"
    place.mkdir()
    try:
        with image.open("wb") as file:
            file.truncate(size)
        options = ["-q", "-m", "0", "-E", "lazy_itable_init=0,nodiscard"]
        subprocess.run([f"mkfs.{kind}", *options, str(image)], check=True)
        subprocess.run(["mount", "-t", kind, "-o", "loop,discard,noatime", str(image), str(place)], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        shutil.rmtree(directory)


def _summary(one: Round) -> str:
    return (
        f"{one.total_s:.2f} s, commits {one.typical_s * 1000:.1f} ms before, worst {one.worst_s * 1000:.1f} ms, "
        f"p99 {one.hundredth_s * 1000:.1f} ms ({one.probes})"
    )


def _figures(kind: str, size: int, found: dict[str, list[Round]]) -> list[Figure]:
    """Return the medians over the rounds."""
    worst = {way: statistics.median(one.worst_s for one in rounds) * 1000 for way, rounds in found.items()}
    total = {way: statistics.median(one.total_s for one in rounds) for way, rounds in found.items()}
    what = f"{size / (1 << 30):g} GB on {kind}"
    beside = ", ".join(f"{way} {worst[way]:.3g} ms" for way in ("rm", "loop"))
    spread = ", ".join(f"{one.worst_s * 1000:.3g}" for one in found["shrink-file"])
    return [
        Figure(f"shrink-file, {what}: worst commit (rounds: {spread})", worst["shrink-file"], "ms",
               min(worst["rm"] / 3, worst["loop"]), beside),
        Figure(f"shrink-file, {what}: time", total["shrink-file"], "s", total["loop"] / 2,
               f"rm {total['rm']:.3g} s, loop {total['loop']:.3g} s"),
    ]  # fmt: skip
