"""Recordings for tests: hand-made samples of a busy server, a clock that stands still, a recorder run to its end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dba_console.recording.layout import SessionMeta, new_meta, session_directory
from dba_console.recording.points import Point
from dba_console.recording.recorder import Recorder
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.sample import PARTS, Part, Sample, encode_sample, make_part
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.readings import busy_server


def ticks(count: int, *, sessions: int = 10, first: int = 1, boot: str = "run1") -> list[Sample]:
    """Samples one second apart from NOW_US on, each part read at its own cadence."""
    made = []
    for tick in range(first, first + count):
        wall_us, mono_us = NOW_US + tick * 1_000_000, 1_000_000_000 + tick * 1_000_000
        readings = busy_server(sessions, tick)
        parts: list[Part] = []
        for name, reading in readings.items():
            if tick == 1 or tick % PARTS[name].every_s == 0:
                parts.append(make_part(name, reading, at_us=mono_us + len(parts), took_us=100 + tick % 7))
        if tick % 5 == 0:
            parts.append(Part("pg.sizes", "timeout", "took longer than 2 s", mono_us + 999, 2_000_000, None))
        made.append(Sample(tick, wall_us, mono_us, parts, boot))
    return made


def meta(**fields: object) -> SessionMeta:
    clock = HeldClock()
    return new_meta(target="appdb", target_key="key1", host="db2.example", program_version="0.1", clock=clock, **fields)  # type: ignore[arg-type]


def little_point(picture: Picture) -> Point:
    """A point that does not depend on how frames are derived."""
    return {"seq": float(picture.seq), "half": picture.seq / 2}


def recorder(
    sessions: Path, about: SessionMeta | None = None, *, block: int = 10, clock: HeldClock | None = None
) -> Recorder:
    about = about or meta()
    return Recorder(
        session_directory(sessions, about), about, clock or HeldClock(), point_of=little_point, block_samples=block
    )


def record(sessions: Path, samples: Iterable[Sample], about: SessionMeta | None = None, *, block: int = 10) -> Path:
    """A closed session of these samples."""
    made = recorder(sessions, about, block=block)
    record_samples(made, samples)
    assert made.close("done")
    return made.directory


def record_samples(made: Recorder, samples: Iterable[Sample]) -> None:
    for sample in samples:
        made.put_sample(sample, encode_sample(sample))
    assert made.flush()


def live_pictures(samples: Iterable[Sample]) -> list[Picture]:
    """The pictures a console saw that was there from the start."""
    pictures, picture = [], Picture()
    for sample in samples:
        picture = picture.with_sample(sample)
        pictures.append(picture)
    return pictures


def same_picture(left: Picture, right: Picture) -> bool:
    """Equal in all that a frame can be made of."""
    if (left.seq, left.wall_us, left.mono_us, left.boot) != (right.seq, right.wall_us, right.mono_us, right.boot):
        return False
    return _plain(left) == _plain(right)


def _plain(picture: Picture) -> list[dict[str, object]]:
    return [
        {name: (each.part.at_us, each.part.status, each.part.note, each.value()) for name, each in readings.items()}
        for readings in (picture.latest, picture.current, picture.previous)
    ]
