"""Size of a recording, and how fast it opens and seeks.

Size is measured on what a real agent recorded under the load of `ground`. A day of 86,400 samples is built by
repeating the real blocks with shifted times, each encoded again: the contents are real, the day is not.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from bench.console import own_directories, recording_agent, wait_for_agent
from bench.figure import Figure
from bench.ground import ground
from bench.process import resident_mb
from dba_console.recording.backlog import Batch, BlockEnd, SampleRow
from dba_console.recording.layout import DATABASE, SAMPLES, new_meta, session_directory
from dba_console.recording.points import Point, pack_points, unpack_points
from dba_console.recording.recording import Recording
from dba_console.recording.sample_block import BlockWriter, SampleBlock
from dba_console.recording.store import Store
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Part, Sample, encode_sample

DAY = 86_400


def run(smoke: bool = False) -> list[Figure]:
    """Measure bytes per sample under load, and open and seek in a session of a day."""
    seconds, wanted, seeks = (15, 600, 30) if smoke else (500, DAY, 400)
    blocks, stored = record_blocks(seconds)
    samples = sum(len(block) for block, _ in blocks)
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        directory = write_day(Path(place), blocks, wanted)
        size = sum((directory / name).stat().st_size for name in (DATABASE, SAMPLES))
        blocks.clear()
        gc.collect()  # a reader does not hold the samples the day was built from
        opens = [_timed(lambda: Recording.open(directory).close()) for _ in range(20)]
        before = resident_mb(os.getpid())
        recording = Recording.open(directory)
        times = random.Random(1).sample(range(recording.first_us, recording.last_us), seeks)
        found, spent = _seeks(recording, times)
        history = _timed(lambda: recording.points(recording.last_us - 600_000_000, recording.last_us))
        grown = resident_mb(os.getpid()) - before
        recording.close()
    backends = f"{samples} samples of a real load"
    return [
        Figure("recording, blocks and chart values, per sample", stored / samples, "bytes", 1000, backends),
        Figure("recording, all files, per sample", size / wanted, "bytes", 1000, f"{wanted} samples"),
        Figure("recording, open, median", median(opens), "ms", 100),
        Figure("recording, open, slowest", max(opens), "ms", 100),
        Figure("recording, seek, p50", median(found), "ms", None),
        Figure("recording, seek, p99", quantiles(found, n=100)[98], "ms", 50),
        Figure("recording, seek, p99 of CPU time alone", quantiles(spent, n=100)[98], "ms", 50),
        Figure("recording, ten minutes of chart values", history, "ms", None),
        Figure("recording, memory of a reader after its seeks", grown, "MB", None),
    ]


def record_blocks(seconds: int) -> tuple[list[tuple[SampleBlock, list[Point]]], int]:
    """Return the sealed blocks of a real recording of that length with their chart values, and their bytes."""
    with ground(200) as here, own_directories():
        with recording_agent(here.dsn):
            time.sleep(seconds)
            agent = wait_for_agent()
        # The agent ended in order and sealed its last block.
        if agent.session is None:
            raise RuntimeError("the agent does not record")
        recording = Recording.open(agent.session)
        entries = recording.stored.blocks()
        # The first block contains the connection attempt, the last one is short.
        blocks = [read_block(recording, entry.first_seq) for entry in entries[1:-1] or entries]
        recording.close()
    return [(block, points) for block, points, _ in blocks], sum(size for _, _, size in blocks)


def read_block(recording: Recording, first_seq: int) -> tuple[SampleBlock, list[Point], int]:
    data, packed = recording.stored.block(first_seq), recording.stored.points(first_seq)
    return SampleBlock(data), [point for _, point in unpack_points(packed)], len(data) + len(packed)


def write_day(
    place: Path,
    blocks: list[tuple[SampleBlock, list[Point]]],
    wanted: int,
    events: Callable[[int], list[Event]] = lambda start_us: [],
) -> Path:
    """Build a session of `wanted` samples by repeating these blocks; `events` gives its events for its start."""
    meta = new_meta(target="bench", target_key="bench", host="bench", program_version="0")
    directory = session_directory(place, meta)
    directory.mkdir(mode=0o700)
    store = Store(directory, meta)
    seq, wall_us = 1, meta.start_wall_us
    originals = [(block.samples(), points) for block, points in blocks]
    while seq <= wanted:
        for samples, points in originals:
            samples, points = samples[: wanted + 1 - seq], points[: wanted + 1 - seq]
            if not samples:
                break
            store.write(Batch(_sealed(_shifted(samples, seq, wall_us), points), [], [], []))
            seq, wall_us = seq + len(samples), wall_us + len(samples) * 1_000_000
    store.write(Batch([], events(meta.start_wall_us), [], []))
    store.finish("made")
    store.close()
    return directory


def _shifted(samples: list[Sample], seq: int, wall_us: int) -> list[Sample]:
    """Return the samples shifted to that time. Times within readings stay: they are stored relative to it."""
    by_wall, by_mono = wall_us - samples[0].wall_us, wall_us - samples[0].wall_us
    shifted = []
    for offset, sample in enumerate(samples):
        parts = [
            Part(part.name, part.status, part.note, part.at_us + by_mono, part.took_us, part.reading)
            for part in sample.parts
        ]
        shifted.append(Sample(seq + offset, sample.wall_us + by_wall, sample.mono_us + by_mono, parts, sample.boot))
    return shifted


def _sealed(samples: list[Sample], points: list[Point]) -> list[SampleRow | BlockEnd]:
    writer = BlockWriter()  # the first sample of a real block is a key sample
    items: list[SampleRow | BlockEnd] = []
    for sample in samples:
        data = writer.add(sample.seq, sample.wall_us, encode_sample(sample))
        items.append(SampleRow(sample.seq, writer.base_seq, sample.wall_us, sample.mono_us, data))
    packed = pack_points(writer.base_seq, [sample.wall_us for sample in samples], points)
    return [*items, BlockEnd(writer.base_seq, packed)]


def _seeks(recording: Recording, times: list[int]) -> tuple[list[float], list[float]]:
    """Return the wall and CPU milliseconds of each seek: on a busy machine only CPU time shows the cost."""
    found, spent = [], []
    for at in times:
        cpu = time.process_time()
        # mypy infers no type for a lambda with a default, which binds this round's time.
        found.append(_timed(lambda at=at: recording.picture_at(at)))  # type: ignore[misc]
        spent.append((time.process_time() - cpu) * 1e3)
    return found, spent


def _timed(call: Callable[[], object]) -> float:
    """Return the duration of the call in milliseconds."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e3
