"""How long sharing a session takes, and whether an original is left.

Names are planted by tests/unit/reports/planted.py: 200 of each of ten kinds, in typed fields and in every kind of text.
The hour and the day are built from a real load as in `recording`; their contents are real, the day is not.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from pathlib import Path

import msgspec

from bench.figure import Figure
from bench.process import resident_mb
from bench.recording import DAY, record_blocks, write_day
from dba_console.recording.points import unpack_points
from dba_console.recording.recording import Recording
from dba_console.recording.sample_block import SampleBlock
from dba_console.recording.shared_file import extract
from dba_console.reports.share import SessionSharer
from dba_console.reports.share_names import NameMap
from tests.unit.reports.planted import planted, record_planted

HOUR = 3_600


def run(smoke: bool = False) -> list[Figure]:
    """Measure the duration for an hour and a day, and count what is left of 2,000 planted originals."""
    each, seconds, lengths = (20, 15, (("a minute", 60),)) if smoke else (200, 500, (("1 h", HOUR), ("24 h", DAY)))
    figures = _planted(each)
    blocks, _ = record_blocks(seconds)
    for called, wanted in lengths:
        with tempfile.TemporaryDirectory(prefix="bench-") as place:
            session = write_day(Path(place), blocks, wanted)
            gc.collect()
            before = resident_mb(os.getpid())
            took, used = _share(session)
            size, shared = _size(session), (session.parent / "shared.zip").stat().st_size
            details = f"{wanted} samples under load, {size / 1e6:.0f} MB"
            figures += [
                Figure(f"share, {called}", took, "s", None, details),
                Figure(f"share, {called}, CPU time", used, "s"),
                Figure(f"share, {called}, size of the file against the session", 100 * shared / size, "%"),
                Figure(f"share, {called}, memory", resident_mb(os.getpid()) - before, "MB"),
            ]
    return figures


def _planted(each: int) -> list[Figure]:
    what = planted(each)
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        session = record_planted(Path(place), what)
        took, _ = _share(session)
        opened = Path(place) / "opened"
        opened.mkdir()
        content = _content(extract(session.parent / "shared.zip", opened))
        names = what.names()
        left = sum(name.lower().encode() in content for name in names)
        there = sum(name.lower().encode() in _content(session) for name in names[:20])
    return [
        Figure(
            "share, planted originals left in the file", left, "", 0, f"of {len(names)}; {there} of 20 in the original"
        ),
        Figure("share, session with planted originals", took, "s", None, f"{each} ticks, {len(names)} originals"),
    ]


def _share(session: Path) -> tuple[float, float]:
    """Share a session; return the seconds, and those of CPU time."""
    began, used = time.perf_counter(), time.process_time()
    recording = Recording.open(session)
    sharer = SessionSharer(recording, NameMap(), "names")
    sharer.learn(lambda _: None)
    with (session.parent / "shared.zip").open("wb") as file:
        sharer.write(file, session.parent, lambda _: None)
    recording.close()
    return time.perf_counter() - began, time.process_time() - used


def _content(session: Path) -> bytes:
    """Return all bytes of a session in lower case, its samples decompressed."""
    parts = [path.read_bytes() for path in session.rglob("*") if path.is_file()]
    recording = Recording.open(session)
    for entry in recording.stored.blocks():
        parts += map(msgspec.msgpack.encode, SampleBlock(recording.stored.block(entry.first_seq)).samples())
        parts += ["\n".join(point).encode() for _, point in unpack_points(recording.stored.points(entry.first_seq))]
    recording.close()
    return b"\n".join(parts).lower()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
