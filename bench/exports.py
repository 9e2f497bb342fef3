"""Exports of a day: samples a second, and the memory of the process; and the screens of an hour and of a moment.

The day is built from the recording that is shipped for practice (174 sessions, 4 devices, 5 databases, a tick each
second): its contents are real, the day is not. Each format is exported by a process of its own, as a user does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dba_console.demo.recordings
from bench.figure import Figure
from bench.recording import DAY, read_block, write_day
from dba_console.recording.recording import Recording

PRACTICE = Path(dba_console.demo.recordings.__file__).parent / "reclaim-stall"
FORMATS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("openmetrics", ()),
    ("otlp", ("--signal", "metrics")),
    ("csv", ("--every", "15s")),
    ("jsonl", ("--table", "io.devices", "--every", "15s")),
)
SCREENS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("asciicast", ("--to", "+60m")),
    ("asciicast", ("--every", "10s", "--to", "+60m")),
    ("svg", ()),
    ("png", ()),
    ("text", ("--at", "+10m")),
)
"""Screens of 160 columns and 50 lines."""


def run(smoke: bool = False) -> list[Figure]:
    """Measure each format on a day, the smoke run on ten minutes."""
    seconds = 600 if smoke else DAY
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        recording = Recording.open(PRACTICE)
        blocks = [read_block(recording, entry.first_seq)[:2] for entry in recording.stored.blocks()]
        recording.close()
        session = write_day(Path(place), blocks, seconds)
        for format, options in FORMATS:
            out = Path(place) / f"export.{format}"
            took_s, peak = _export(session, out, format, options)
            figures += _figures(format, options, out, took_s, peak, seconds)
            out.unlink()
        figures += _load(session, Path(place))
        for format, options in SCREENS:
            out = Path(place) / f"export.{format}"
            took_s, peak = _export(session, out, format, options)
            size = f"{out.stat().st_size / 1e6:.2g} MB"
            name = " ".join((f"export, {format}", *options))
            figures += [Figure(name, took_s, "s", None, size), Figure(f"{name}: peak memory", peak, "MB", 100)]
            out.unlink()
    return figures


def _figures(
    format: str, options: tuple[str, ...], out: Path, took_s: float, peak: float, seconds: int
) -> list[Figure]:
    size = f"{out.stat().st_size / 1e6:.0f} MB from {seconds / 3600:.1f} h, in {took_s:.1f} s"
    name = " ".join((f"export, {format}", *options))
    count, noun = _samples(format, out)
    goal = 1.0 if noun == "samples" else None
    rate = Figure(f"{name}: time per 20,000 {noun}", took_s / count * 20_000, "s", goal, f"{count} {noun}; {size}")
    return [rate, Figure(f"{name}: peak memory", peak, "MB", 100)]


def _samples(format: str, out: Path) -> tuple[int, str]:
    """Return what was exported and its noun: values of a metric, or rows of a table."""
    with out.open("rb") as lines:
        if format == "openmetrics":
            return sum(not line.startswith(b"#") for line in lines), "samples"
        if format == "otlp":
            return sum(line.count(b'"timeUnixNano"') for line in lines), "samples"
        if format == "csv":
            columns = next(lines).count(b",") + 1
            return columns * sum(1 for _ in lines), "values"
        columns = len(json.loads(next(lines))["fields"])
        return columns * sum(1 for _ in lines), "values"


_COMMAND = """
import os, sys
from bench.process import peak_mb
from dba_console.__main__ import main
code = main()
print(peak_mb(os.getpid()))
sys.exit(code)
"""
"""The command, and its own peak memory: the kernel's figure of an ended process may be that of the one it came from."""


def _export(session: Path, out: Path, format: str, options: tuple[str, ...]) -> tuple[float, float]:
    """Return seconds and peak memory in MB (2^20) of the command."""
    arguments = ["session", "export", str(session), "--format", format, *options, "--out", str(out)]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _COMMAND, *arguments], capture_output=True, text=True, check=True)
    return time.monotonic() - began, float(done.stdout)


def _load(session: Path, place: Path) -> list[Figure]:
    """Return the time promtool takes for an hour, if it is installed: it reads a file once for every two hours."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return []
    out = place / "hour.om"
    _export(session, out, "openmetrics", ("--from", "-1h"))
    began = time.monotonic()
    load = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(out), str(place / "blocks")]
    subprocess.run(load, check=True, capture_output=True)
    took_s = time.monotonic() - began
    return [
        Figure(
            "export, openmetrics of an hour: load by promtool",
            took_s,
            "s",
            None,
            f"{_samples('openmetrics', out)[0]} samples",
        )
    ]
