"""The minutes in memory: any of their moments can be shown again, and they never grow beyond their bounds."""

from __future__ import annotations

from dba_console.tui.live_state import SampleBuffer
from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.samples.sample import Sample
from tests import build

S = 1_000_000


def tick(number: int, *, slow: bool = False) -> Sample:
    parts = [build.part("pg.progress", Operations([Operation("vacuum", number, None, None, None, None, None, "", {})]),
                        at_s=number)]  # fmt: skip
    if slow:
        parts.append(build.part("pg.xids", None, at_s=number))
    return build.sample(*parts, at_s=number, seq=number, wall_us=number * S)


def pid_at(ring: SampleBuffer, second: float) -> int | None:
    picture = ring.picture_at(int(second * S))
    reading = None if picture is None else picture.now("pg.progress", Operations)
    return None if reading is None else reading.rows[0].pid


def test_the_frame_at_a_time_is_the_newest_sample_before_it() -> None:
    ring = SampleBuffer()
    for number in (1, 2, 3):
        ring.add(tick(number), 10)
    assert pid_at(ring, 2.7) == 2
    assert pid_at(ring, 9) == 3
    assert pid_at(ring, 0.5) is None


def test_a_frame_from_memory_still_has_its_previous_reading() -> None:
    ring = SampleBuffer(samples=2)
    for number in (1, 2, 3, 4):
        ring.add(tick(number), 10)
    picture = ring.picture_at(3 * S)
    assert picture is not None
    before = picture.before("pg.progress", Operations)
    assert before is not None and before.rows[0].pid == 2


def test_what_was_read_before_the_sample_buffer_starts_is_kept() -> None:
    ring = SampleBuffer(samples=2)
    ring.add(tick(1, slow=True), 10)
    for number in (2, 3, 4):
        ring.add(tick(number), 10)
    picture = ring.picture_at(4 * S)
    assert picture is not None and "pg.xids" in picture.latest


def test_the_sample_buffer_is_limited_by_count_and_bytes_and_keeps_the_newest() -> None:
    ring = SampleBuffer(samples=100, size=25)
    for number in range(1, 6):
        ring.add(tick(number), 10)
    assert (ring.first_us, ring.last_us) == (4 * S, 5 * S)
    ring.add(tick(6), 1000)
    assert ring.first_us == ring.last_us == 6 * S


def test_stepping_finds_the_neighbour_and_nothing_beyond_the_ends() -> None:
    ring = SampleBuffer()
    for number in (1, 2, 3):
        ring.add(tick(number), 10)
    assert ring.step(2 * S, 1) == 3 * S
    assert ring.step(2 * S, -1) == 1 * S
    assert ring.step(3 * S, 1) is None
    assert ring.step(1 * S, -1) is None
