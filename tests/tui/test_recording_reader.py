"""Questions about the past: answered in a thread of their own, the newest one first, failures in words."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dba_console.core.errors import SessionError
from dba_console.tui.feed import (
    Arrival,
    AtTime,
    Mailbox,
    MomentArrived,
    NamedTime,
    NextNotable,
    NextSample,
    QueryRefused,
    RecordingEdge,
    RecordingQuery,
)
from dba_console.tui.recording_reader import RecordingReader, RecordingSource, is_notable, next_notable_us
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from tests.tui.manual_feed import START_US, MemoryRecording, S, seconds_after_start, tick

EVENTS = (
    Event(wall_us=START_US + 2 * S, kind="mark", text="here", seq=1),
    Event(wall_us=START_US + 3 * S, kind="heartbeat", text="", seq=2),
    Event(wall_us=START_US + 9 * S, kind="note", text="later", seq=3, occurred_us=START_US + 4 * S),
)


def answers(open_past: Callable[[], RecordingSource], *questions: RecordingQuery) -> list[Arrival]:
    """The answers to questions put one after the other."""
    mailbox, come = Mailbox(), threading.Semaphore(0)
    mailbox.wake = come.release
    archive = RecordingReader(open_past, mailbox, seconds_after_start)
    taken: list[Arrival] = []
    for question in questions:
        archive.ask(question)
        assert come.acquire(timeout=10)
        taken += mailbox.take()[0]
    archive.close()
    return taken


def places(*questions: RecordingQuery) -> list[float | str]:
    past = MemoryRecording([tick(number) for number in range(10)], EVENTS)
    return [
        (answer.at_us - START_US) / S if isinstance(answer, MomentArrived) else getattr(answer, "text", "")
        for answer in answers(lambda: past, *questions)
    ]


def test_each_kind_of_query_finds_its_time() -> None:
    assert places(
        AtTime(START_US + 5 * S),
        NextSample(START_US + 5 * S, 1),
        NextSample(START_US + 5 * S, -1),
        RecordingEdge(-1),
        RecordingEdge(1),
    ) == [
        5.0,
        6.0,
        4.0,
        0.0,
        9.0,
    ]
    assert places(NamedTime("+7s"), AtTime(START_US - 100 * S), AtTime(START_US + 100 * S)) == [7.0, 0.0, 9.0]


def test_notable_events_are_marks_and_notes_at_their_time_and_not_heartbeats() -> None:
    assert places(NextNotable(START_US, 1), NextNotable(START_US + 2 * S, 1), NextNotable(START_US + 9 * S, -1)) == [
        2.0,
        4.0,
        4.0,
    ]


def test_beyond_the_ends_the_answer_is_a_message() -> None:
    assert places(NextSample(START_US + 9 * S, 1), NextNotable(START_US, -1)) == [
        "this is the end of the recording",
        "no mark, note or finding before this",
    ]


def test_a_query_for_a_time_returns_the_points_and_events_before_it_and_none_after() -> None:
    past = MemoryRecording([tick(number) for number in range(10)], EVENTS)
    (moment,) = answers(lambda: past, AtTime(START_US + 5 * S))
    assert isinstance(moment, MomentArrived)
    assert [wall for wall, _ in moment.points] == [START_US + number * S for number in range(6)]
    assert [event.seq for event in moment.events] == [1, 2]


def test_playing_loads_only_the_points_not_yet_loaded() -> None:
    past = MemoryRecording([tick(number) for number in range(10)])
    (moment,) = answers(lambda: past, AtTime(START_US + 5 * S, since_us=START_US + 3 * S))
    assert isinstance(moment, MomentArrived)
    assert moment.continues and [wall for wall, _ in moment.points] == [START_US + 4 * S, START_US + 5 * S]


def test_an_unreadable_recording_gives_the_reason_and_a_secret_in_it_is_masked() -> None:
    def broken() -> RecordingSource:
        raise SessionError("cannot open postgresql://app:hunter2@db/x")

    def failing() -> RecordingSource:
        raise OSError("Input/output error")

    (refused,) = answers(broken, RecordingEdge(1))
    assert isinstance(refused, QueryRefused)
    assert "cannot open" in refused.text and "hunter2" not in refused.text
    (refused,) = answers(failing, RecordingEdge(1))
    assert isinstance(refused, QueryRefused) and "Input/output error" in refused.text


def test_an_empty_recording_is_reported_as_empty() -> None:
    (refused,) = answers(lambda: MemoryRecording([]), RecordingEdge(1))
    assert isinstance(refused, QueryRefused) and "nothing is recorded yet" in refused.text


def test_during_a_slow_query_only_the_newest_one_waits() -> None:
    begun, go_on, mailbox, come = threading.Event(), threading.Event(), Mailbox(), threading.Semaphore(0)
    past = MemoryRecording([tick(number) for number in range(10)])

    def slow_disk() -> RecordingSource:
        begun.set()
        assert go_on.wait(10)
        return past

    mailbox.wake = come.release
    archive = RecordingReader(slow_disk, mailbox, seconds_after_start)
    first = archive.ask(AtTime(START_US))
    assert begun.wait(10)
    for second in range(1, 6):
        last = archive.ask(AtTime(START_US + second * S))
    go_on.set()
    for _ in range(2):
        assert come.acquire(timeout=10)
    serials = [answer.serial for answer in mailbox.take()[0] if isinstance(answer, MomentArrived)]
    archive.close()
    assert serials == [first, last]


def test_a_problem_is_a_notable_event_like_a_finding() -> None:
    assert is_notable(Event(wall_us=1, kind="server.lost", text=""))
    assert is_notable(Event(wall_us=1, kind="anything", text="", severity="critical"))
    assert not is_notable(Event(wall_us=1, kind="console.attach", text=""))
    assert next_notable_us((), 5, 1) is None


def test_where_nothing_can_be_read_the_next_readable_sample_is_shown() -> None:
    class DamagedRecording(MemoryRecording):
        def picture_at(self, wall_us: int) -> Picture | None:
            return None if wall_us < START_US + 3 * S else super().picture_at(wall_us)

        def step(self, wall_us: int, direction: int) -> int | None:
            return super().step(max(wall_us, START_US + 2 * S), direction)

    past = DamagedRecording([tick(number) for number in range(10)], damage="the recording is damaged in places")
    (moment,) = answers(lambda: past, RecordingEdge(-1))
    assert isinstance(moment, MomentArrived)
    assert moment.at_us == START_US + 3 * S and moment.damage == "the recording is damaged in places"


def test_a_recording_without_readable_data_shows_what_is_wrong() -> None:
    class UnreadableRecording(MemoryRecording):
        def picture_at(self, wall_us: int) -> Picture | None:
            return None

    past = UnreadableRecording([tick(0), tick(1)], damage="its blocks are damaged")
    (refused,) = answers(lambda: past, RecordingEdge(-1))
    assert isinstance(refused, QueryRefused) and refused.text == "its blocks are damaged"
