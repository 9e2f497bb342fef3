"""The summary of a week, the comparison of two moments, and chat lines as notes.

A day is built from the recording that is shipped for practice, as for `exports`, with 100,000 events; the week is seven
copies of it. Each command is a process of its own, as a user runs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.exports import PRACTICE
from bench.figure import Figure
from bench.recording import DAY, read_block, write_day
from dba_console.recording.late_notes import append_notes
from dba_console.recording.recording import Recording
from dba_console.watch.samples.event import Event

_COMMAND = """
import os, sys
from bench.process import peak_mb
from dba_console.__main__ import main
code = main()
print(peak_mb(os.getpid()))
sys.exit(code)
"""


def run(smoke: bool = False) -> list[Figure]:
    """Measure on days; the smoke run on ten minutes."""
    seconds, events, lines = (600, 200, 100) if smoke else (DAY, 100_000, 10_000)
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        recording = Recording.open(PRACTICE)
        blocks = [read_block(recording, entry.first_seq)[:2] for entry in recording.stored.blocks()]
        recording.close()
        session = write_day(Path(place), blocks, seconds)
        first_us = _add_findings(session, events, seconds)
        week = [session, *(Path(place) / f"{session.name[:-1]}{digit}" for digit in "ghijkl")]
        for copy in week[1:]:
            shutil.copytree(session, copy)
        took_s, peak = _run("report", "summary", *map(str, week), "--since", "7d", "--out", str(Path(place) / "out"))
        figures = [
            Figure("summary of seven days, 100,000 events each", took_s, "s", 60, "seven sessions of 24 h"),
            Figure("summary of seven days: peak memory", peak, "MB", None),
        ]
        took_s, _ = _run("show", "--diff", "+10s", "-10s", "--session", str(session))
        figures.append(Figure("comparison of two moments in a day", took_s, "s", 3))
        return figures + _notes(session, lines, first_us)


def _add_findings(session: Path, events: int, seconds: int) -> int:
    """Add findings that are raised and cleared. Return the start of the session."""
    recording = Recording.open(session)
    first_us = recording.first_us
    recording.close()
    kinds = ("finding.raised", "finding.cleared")
    append_notes(
        session,
        [
            Event(
                wall_us=first_us + number * seconds * 1_000_000 // events, kind=kinds[number % 2],
                text=f"finding of rule {number % 40}", severity="warning",
                details={"id": f"rule-{number // 2 % 20}", "severity": "warning"},
            )
            for number in range(events)
        ],
    )  # fmt: skip
    return first_us


def _notes(session: Path, lines: int, first_us: int) -> list[Figure]:
    chat = session.parent / "chat.txt"
    chat.write_text("".join(f"2026-11-20T14:53:07Z user{number % 9}: message {number}\n" for number in range(lines)))
    took_s, _ = _run("session", "import-notes", str(session), str(chat))
    recording = Recording.open(session)
    recording.events(limit=1)
    spent = []
    for step in range(20):
        began = time.perf_counter()
        recording.events(to_us=first_us + step * 1_000_000, limit=200)
        spent.append(time.perf_counter() - began)
    recording.close()
    return [
        Figure(f"import of {lines:,} chat lines", took_s, "s", 5),
        Figure("events of a moment in replay, with these notes", median(spent) * 1000, "ms", 50),
    ]


def _run(*arguments: str) -> tuple[float, float]:
    """Run a command; return seconds and peak memory in MB."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments], capture_output=True, text=True, check=True, timeout=600
    )
    return time.perf_counter() - began, float(done.stdout.splitlines()[-1])
