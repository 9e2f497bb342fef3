"""Reading a recording back: the same pictures as live, at any time, while it is written and afterwards."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dba_console.core.errors import SessionError
from dba_console.recording import recording as recording_room
from dba_console.recording import timeline
from dba_console.recording.recording import Recording
from dba_console.watch.samples.event import Event
from tests.build import NOW_US
from tests.unit.recording.recordings import (
    little_point,
    live_pictures,
    meta,
    record,
    record_samples,
    recorder,
    same_picture,
    ticks,
)


def test_every_frame_is_the_one_a_console_showed_live(tmp_path: Path) -> None:
    samples = ticks(95)
    with closing(Recording.open(record(tmp_path, samples))) as recording:
        for sample, live in zip(samples, live_pictures(samples), strict=True):
            found = recording.picture_at(sample.wall_us)
            assert found is not None
            assert same_picture(found, live)


def test_between_two_samples_the_earlier_one_is_shown(tmp_path: Path) -> None:
    samples = ticks(25)
    with closing(Recording.open(record(tmp_path, samples))) as recording:
        between = recording.picture_at(samples[10].wall_us + 400_000)
        assert between is not None
        assert between.seq == 11
        assert recording.picture_at(samples[0].wall_us - 1) is None
        after = recording.picture_at(samples[-1].wall_us + 10**12)
        assert after is not None
        assert after.seq == 25


def test_steps_visit_every_sample_once_in_both_directions(tmp_path: Path) -> None:
    samples = ticks(33)
    with closing(Recording.open(record(tmp_path, samples))) as recording:
        forward, at = [recording.first_us], recording.step(recording.first_us, 1)
        while at is not None:
            forward.append(at)
            at = recording.step(at, 1)
        backward, at = [recording.last_us], recording.step(recording.last_us, -1)
        while at is not None:
            backward.append(at)
            at = recording.step(at, -1)
        assert forward == [sample.wall_us for sample in samples]
        assert backward == forward[::-1]
        assert recording.step(recording.first_us - 10**9, 1) == recording.first_us
        assert recording.step(recording.last_us + 10**9, -1) == recording.last_us


def test_a_session_being_written_shows_the_committed_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_room, "default_point_of", lambda: little_point)
    samples = ticks(36)
    made = recorder(tmp_path)
    record_samples(made, samples[:4])
    with closing(Recording.open(made.directory)) as recording:
        assert (recording.state, recording.samples) == ("live", 4)
        for upto in (9, 10, 11, 25, 36):
            record_samples(made, samples[recording.samples : upto])
            assert recording.refresh() == samples[upto - 1].wall_us
            assert recording.samples == upto
            picture = recording.picture_at(recording.last_us)
            assert picture is not None
            assert picture.seq == upto
            points = recording.points(recording.first_us, recording.last_us)
            assert [point["seq"] for _, point in points] == list(range(1, upto + 1))
    made.close("done")


def test_chart_values_of_a_range_include_both_ends(tmp_path: Path) -> None:
    samples = ticks(40)
    with closing(Recording.open(record(tmp_path, samples))) as recording:
        points = recording.points(samples[8].wall_us, samples[31].wall_us)
        assert [point["seq"] for _, point in points] == list(range(9, 33))
        assert points[0] == (samples[8].wall_us, {"seq": 9.0, "half": 4.5})


def test_a_clock_set_back_during_a_session_hides_nothing(tmp_path: Path) -> None:
    samples = ticks(40)
    moved = samples[:25] + [replace(sample, wall_us=sample.wall_us - 3_600_000_000) for sample in samples[25:]]
    with closing(Recording.open(record(tmp_path, moved))) as recording:
        for sample in moved:
            found = recording.picture_at(sample.wall_us)
            assert found is not None
            assert found.seq == sample.seq
        visited, at = [recording.first_us], recording.step(recording.first_us, 1)
        while at is not None:
            visited.append(at)
            at = recording.step(at, 1)
        assert visited == [sample.wall_us for sample in moved]


def test_the_last_events_before_a_time_are_in_order(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    for n in range(10):
        made.put_event(Event(wall_us=n + 1, kind="mark", text=f"m{n}"))
    made.close("done")
    with closing(Recording.open(made.directory)) as recording:
        assert [event.text for event in recording.events(to_us=5, limit=3)] == ["m2", "m3", "m4"]
        assert [event.text for event in recording.events(from_us=8, to_us=9)] == ["m7", "m8"]


@pytest.mark.parametrize("close", [True, False])
def test_events_one_after_the_other_are_the_same_and_few_are_in_memory(tmp_path: Path, close: bool) -> None:
    made = recorder(tmp_path)
    for n in range(2500):
        made.put_event(Event(wall_us=NOW_US + n, kind="mark", text=f"{n} {'x' * 1500}"))
        assert n % 1000 or made.flush()
    for about_us in (NOW_US + 2000, NOW_US + 10):
        made.put_event(Event(wall_us=NOW_US + 2500, occurred_us=about_us, kind="note", text=f"about {about_us}"))
    assert made.close("done") if close else made.flush()
    recording = Recording.open(made.directory)

    def peak(read: Callable[[int, int], Iterable[Event]]) -> tuple[list[int], int]:
        tracemalloc.start()
        seen = [event.seq for event in read(NOW_US - 1, NOW_US + 3000)]
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return seen, size

    streamed, streamed_bytes = peak(recording.each_event)
    listed, listed_bytes = peak(recording.events)
    assert streamed == listed and len(listed) >= 2502
    assert streamed_bytes < listed_bytes * 0.6
    recording.close()


def test_a_session_without_a_sample_opens(tmp_path: Path) -> None:
    with closing(Recording.open(record(tmp_path, []))) as recording:
        assert recording.samples == 0
        assert recording.first_us == recording.last_us
        assert recording.picture_at(recording.last_us) is None
        assert recording.step(recording.last_us, 1) is None
        assert recording.points(0, 1 << 60) == []


def test_an_invalid_recording_is_distinguished(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"session\.db is missing"):
        Recording.open(tmp_path)
    (tmp_path / "session.db").write_bytes(b"")
    with pytest.raises(SessionError, match="empty"):
        Recording.open(tmp_path)
    (tmp_path / "session.db").write_bytes(b"hello " * 5000)
    with pytest.raises(SessionError, match="cannot read the recording"):
        Recording.open(tmp_path)
    (tmp_path / "session.db").unlink()
    foreign = sqlite3.connect(tmp_path / "session.db")
    foreign.execute("CREATE TABLE t (a)")
    foreign.close()
    with pytest.raises(SessionError, match="not a recording"):
        Recording.open(tmp_path)


def test_a_newer_format_names_the_version_that_reads_it(tmp_path: Path) -> None:
    directory = record(tmp_path, ticks(3))
    connection = sqlite3.connect(directory / "session.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SessionError, match="format 99") as raised:
        Recording.open(directory)
    assert raised.value.hint


def test_a_session_closed_while_it_is_read_stays_readable(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    record_samples(made, ticks(17))
    with closing(Recording.open(made.directory)) as reading:
        assert made.close("done")
        assert reading.refresh() == ticks(17)[-1].wall_us
        assert reading.picture_at(reading.last_us) is not None
        assert [event.kind for event in reading.events()] == ["session.start", "session.end"]
    with closing(Recording.open(made.directory)) as again:
        assert (again.state, again.samples, again.damage) == ("closed", 17, None)


def test_the_metadata_of_a_session_is_stored(tmp_path: Path) -> None:
    about = meta(run="run1", continues="aaaaaaaa")
    with closing(Recording.open(record(tmp_path, ticks(1), about))) as recording:
        assert recording.meta == about


def test_decoded_blocks_stay_within_their_byte_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "CACHE_BYTES", 1)
    samples = ticks(95)
    with closing(Recording.open(record(tmp_path, samples))) as recording:
        for sample in samples:
            recording.picture_at(sample.wall_us)
        assert len(recording._timeline._kept) == timeline.CACHE_LEAST
