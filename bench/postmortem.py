"""The report of an incident of one hour in a session of a day: time, memory and size.

The day is built from real blocks as in `recording`; the events of the incident are made: findings that change every
minute, acknowledgements and decisions, and in the second round 100,000 lines of a failing probe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.figure import Figure
from bench.recording import DAY, record_blocks, write_day
from dba_console.watch.samples.event import Event

HOUR = 3600
BEGAN_S = 10 * HOUR
DECISIONS = 20
NOISE = 100_000
FINDING = "connections-filling"


class Made(NamedTuple):
    seconds: float
    cpu_s: float
    mb: float
    html_kb: float


def run(smoke: bool = False) -> list[Figure]:
    """Measure the command as users run it."""
    seconds, wanted, rounds, events = (10, 2 * HOUR, 1, 2000) if smoke else (500, DAY, 5, NOISE)
    began_s = HOUR // 2 if smoke else BEGAN_S
    blocks, _ = record_blocks(seconds)
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        for number, noise in enumerate((0, events)):
            scratch = Path(place, str(number))
            scratch.mkdir()
            day = write_day(scratch, blocks, wanted, lambda start_us, noise=noise: _events(start_us, began_s, noise))  # type: ignore[misc]
            made = [_report(day, scratch / f"report-{turn}") for turn in range(rounds)]
            name = "postmortem of an hour in a day" + (f", {noise} events" if noise else "")
            figures += [
                Figure(
                    name,
                    median(one.seconds for one in made),
                    "s",
                    3,
                    f"{wanted} samples of a real load; {median(one.cpu_s for one in made):.1f} s of CPU",
                ),
                Figure(f"{name}, memory", max(one.mb for one in made), "MB"),
                Figure(f"{name}, HTML", max(one.html_kb for one in made), "kB", 500),
            ]
    return figures


def _events(start_us: int, began_s: int, noise: int) -> list[Event]:
    began_us = start_us + began_s * 1_000_000

    def event(second: float, kind: str, text: str, who: str | None = None) -> Event:
        details: dict[str, object] = {
            "id": FINDING, "name": FINDING, "severity": "critical", "since_us": began_us, "chain": [FINDING],
            "also": [], "evidence": {"used": 240}, "runbook": "connection-storm", "state": "open",
        }  # fmt: skip
        details = details if kind.startswith("finding") else {}
        at_us = began_us + int(second * 1e6)
        return Event(wall_us=at_us, kind=kind, text=text, who=who, severity="warning", details=details)

    found = [event(5, "finding.raised", "finding raised, critical: Connections fill (240 of 247 usable)")]
    found += [event(60 * n, "finding.changed", f"finding changed, critical: {n} minutes") for n in range(1, 60)]
    found += [event(HOUR * n / DECISIONS, "run.started", "started by ann", "ann") for n in range(1, DECISIONS)]
    found += [event(HOUR * n / noise, "probe.failed", f"{n} ms") for n in range(noise)]
    return sorted([*found, event(HOUR, "finding.cleared", "finding cleared")], key=lambda one: one.wall_us)


def _report(day: Path, out: Path) -> Made:
    command = [
        sys.executable, "-m", "dba_console", "report", "postmortem", str(day), "--finding", FINDING, "--out", str(out),
    ]  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        raise RuntimeError(f"the report failed: {status}")
    return Made(
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        (out / "postmortem.html").stat().st_size / 1024,
    )
