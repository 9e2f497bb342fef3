"""From keys to moments: the present goes on while the past is looked at, and every place is found where it lies."""

from __future__ import annotations

import threading

import pytest

from dba_console.tui.feed import AgentConnectionChanged, EventArrived, NoticeArrived
from dba_console.tui.time_travel import TimeNavigator
from dba_console.watch.samples.event import Event
from tests.clocks import HeldClock
from tests.tui.hand_feed import START_US, HandFeed, MemoryPast, S, tick


class Stand:
    """A navigator with its feed: the test gives samples and waits for answers."""

    def __init__(
        self, past: MemoryPast | None = None, *, can_go_live: bool = True, begin_at: str | None = None
    ) -> None:
        self.clock = HeldClock()
        self.feed = HandFeed(past, can_go_live=can_go_live)
        self._come = threading.Semaphore(0)
        self.feed.mailbox.wake = self._come.release
        self.navigator = TimeNavigator(self.feed, self.clock, begin_at=begin_at)

    def give(self, *numbers: int) -> None:
        self.feed.give(*(tick(number) for number in numbers))
        self.navigator.take_arrivals()
        while self._come.acquire(blocking=False):
            pass

    def answered(self) -> None:
        """Wait for one thing to arrive and take it."""
        assert self._come.acquire(timeout=10)
        self.navigator.take_arrivals()

    @property
    def second(self) -> float | None:
        """The second shown."""
        moment = self.navigator.moment
        return None if moment is None else (moment.picture.wall_us - START_US) / S


def test_nothing_is_shown_before_the_first_sample() -> None:
    stand = Stand()
    assert stand.navigator.frame() is None
    stand.navigator.step(-1)
    stand.navigator.toggle_pause()
    assert stand.navigator.cursor.live


def test_live_shows_the_newest_sample() -> None:
    stand = Stand()
    stand.give(0, 1, 2)
    assert stand.second == 2
    frame = stand.navigator.frame()
    assert frame is not None and frame.connections.used == 3


def test_a_frame_is_built_once_however_often_it_is_painted() -> None:
    stand = Stand()
    stand.give(0, 1)
    assert stand.navigator.frame() is stand.navigator.frame()


def test_while_paused_live_data_continues_and_the_frame_stays() -> None:
    stand = Stand()
    stand.give(0, 1)
    stand.navigator.toggle_pause()
    stand.give(*range(2, 44))
    assert stand.second == 1
    assert stand.navigator.label == "PAUSED -00:42"
    stand.navigator.toggle_pause()
    assert stand.second == 43 and stand.navigator.label == "LIVE"


def test_charts_of_a_paused_time_end_with_it() -> None:
    stand = Stand()
    stand.give(0, 1)
    stand.navigator.toggle_pause()
    stand.give(2, 3)
    assert stand.navigator.history.last_us == START_US + 1 * S


def test_stepping_back_from_live_pauses_on_the_sample_before() -> None:
    stand = Stand()
    stand.give(0, 1, 2)
    stand.navigator.step(-1)
    assert stand.second == 1
    stand.navigator.step(1)
    assert stand.second == 2
    stand.navigator.step(1)
    assert stand.navigator.notice == "this is the newest sample"


def test_without_a_recording_only_the_minutes_in_memory_are_available() -> None:
    stand = Stand()
    stand.give(0, 1)
    stand.navigator.step_minute(-1)
    assert stand.navigator.notice is not None and "only the last minutes" in stand.navigator.notice
    assert stand.navigator.cursor.live


def test_beyond_memory_the_recording_is_queried() -> None:
    stand = Stand(MemoryPast([tick(number) for number in range(100)]))
    stand.give(*range(95, 100))
    stand.navigator.step_minute(-1)
    stand.answered()
    assert stand.second == 39 and not stand.navigator.cursor.live


def test_a_minute_forward_past_the_newest_sample_is_live_again() -> None:
    stand = Stand()
    stand.give(*range(10))
    stand.navigator.step(-1)
    stand.navigator.step_minute(1)
    assert stand.navigator.cursor.live


def test_brackets_go_from_mark_to_mark() -> None:
    marks = [Event(wall_us=START_US + at * S, kind="mark", text="", seq=at) for at in (20, 60)]
    stand = Stand(MemoryPast([tick(number) for number in range(100)], marks))
    stand.give(*range(95, 100))
    seen = []
    for direction in (-1, -1, 1):
        stand.navigator.go_to_notable(direction)
        stand.answered()
        seen.append(stand.second)
    assert seen == [60, 20, 60]


def test_marks_without_a_recording_are_found_among_the_events_in_memory() -> None:
    stand = Stand()
    stand.give(*range(10))
    stand.feed.mailbox.put(EventArrived(Event(wall_us=START_US + 4 * S, kind="mark", text="", seq=1)))
    stand.navigator.take_arrivals()
    stand.navigator.go_to_notable(-1)
    assert stand.second == 4
    stand.navigator.go_to_notable(-1)
    assert stand.navigator.notice == "no mark, note or finding in this direction"


def test_an_answer_to_a_cancelled_query_changes_nothing() -> None:
    stand = Stand(MemoryPast([tick(number) for number in range(100)]))
    stand.give(*range(95, 100))
    stand.navigator.go_to_start()
    stand.navigator.go_live()
    stand.answered()
    assert stand.navigator.cursor.live and stand.second == 99


def test_attaching_loads_the_earlier_charts_and_events() -> None:
    events = [Event(wall_us=START_US + 50 * S, kind="mark", text="before", seq=7)]
    stand = Stand(MemoryPast([tick(number) for number in range(100)], events))
    stand.feed.start()
    stand.give(99)
    stand.answered()
    history = stand.navigator.history
    assert len(history.series("connections.used")) == 100
    moment = stand.navigator.moment
    assert moment is not None and [event.seq for event in moment.events] == [7]


def test_an_event_received_twice_counts_once() -> None:
    stand = Stand()
    stand.give(0)
    for seq in (0, 5):
        # The agent tells it without the number that the recording gives it.
        stand.feed.mailbox.put(EventArrived(Event(wall_us=START_US, kind="mark", text="x", seq=seq)))
    stand.navigator.take_arrivals()
    moment = stand.navigator.moment
    assert moment is not None and len(moment.events) == 1


def test_a_recording_opens_at_its_start_or_at_a_given_time() -> None:
    past = MemoryPast([tick(number) for number in range(10)])
    for begin_at, second in ((None, 0), ("+7s", 7)):
        stand = Stand(past, can_go_live=False, begin_at=begin_at)
        stand.feed.start()
        stand.answered()
        stand.answered()
        assert stand.second == second
        assert stand.navigator.label.startswith("REPLAY")


def test_playing_advances_with_real_time_and_stops_at_the_end() -> None:
    stand = Stand(MemoryPast([tick(number) for number in range(10)]), can_go_live=False)
    stand.feed.start()
    stand.answered()
    stand.answered()
    stand.navigator.toggle_pause()
    stand.clock.advance(3)
    stand.navigator.play()
    stand.answered()
    assert stand.second == 3
    stand.navigator.faster()
    stand.clock.advance(2)
    stand.navigator.play()
    stand.answered()
    assert stand.second == 7
    stand.clock.advance(60)
    stand.navigator.play()
    stand.answered()
    assert stand.second == 9 and not stand.navigator.cursor.playing
    assert stand.navigator.notice == "this is the end of the recording"


def test_playing_a_live_session_reaches_its_newest_sample_and_is_live() -> None:
    stand = Stand()
    stand.give(*range(10))
    stand.navigator.step(-1)
    stand.navigator.step(-1)
    stand.navigator.toggle_pause()
    stand.clock.advance(1)
    assert stand.navigator.play() and stand.second == 8
    stand.clock.advance(5)
    stand.navigator.play()
    assert stand.navigator.cursor.live


def test_stepping_while_playing_pauses() -> None:
    stand = Stand()
    stand.give(*range(10))
    stand.navigator.step(-1)
    stand.navigator.toggle_pause()
    stand.navigator.step(-1)
    assert stand.navigator.cursor.mode == "paused" and stand.second == 7


def test_a_refusal_is_shown_and_the_screen_stays_at_its_time() -> None:
    stand = Stand(MemoryPast([]))
    stand.give(0, 1)
    stand.navigator.go_to_start()
    stand.answered()
    assert stand.navigator.notice == "nothing is recorded yet"
    assert stand.navigator.cursor.live


def test_a_damaged_recording_is_reported_once() -> None:
    stand = Stand(MemoryPast([tick(0), tick(1)], damage="the recording is damaged in places"), can_go_live=False)
    stand.feed.start()
    stand.answered()
    stand.answered()
    assert stand.navigator.notice == "the recording is damaged in places"
    stand.navigator.notice = None
    stand.navigator.step(1)
    stand.answered()
    assert stand.navigator.notice is None


def test_a_slow_recording_is_reported_as_slow() -> None:
    stand = Stand(MemoryPast([tick(0)]))
    stand.give(5)
    stand.navigator.go_to_start()
    assert not stand.navigator.waiting
    stand.clock.advance(2)
    assert stand.navigator.waiting


def test_a_lost_agent_is_reported_with_its_reason_and_the_last_frame_stays() -> None:
    stand = Stand()
    stand.give(0, 1)
    stand.feed.mailbox.put(AgentConnectionChanged("lost", "the agent is gone"))
    stand.feed.mailbox.put(NoticeArrived("3 samples were dropped for this console"))
    stand.navigator.take_arrivals()
    assert (stand.navigator.connection_state, stand.navigator.connection_text) == ("lost", "the agent is gone")
    assert stand.navigator.notice == "3 samples were dropped for this console"
    assert stand.second == 1


@pytest.mark.parametrize("garbage", [b"", b"\xff\x00", b"not a sample"])
def test_a_sample_that_cannot_be_read_is_counted_and_skipped(garbage: bytes) -> None:
    stand = Stand()
    stand.give(0)
    stand.navigator.live_state.add_sample(garbage)
    assert stand.navigator.live_state.damaged == 1 and stand.second == 0


def test_samples_lost_in_a_stall_are_reread_from_the_recording() -> None:
    stand = Stand(MemoryPast([tick(number) for number in range(200)]))
    stand.give(*range(200))
    stand.answered()
    assert len(stand.navigator.history.series("connections.used")) == 200


def test_another_agent_run_keeps_the_charts_and_reports_its_own_events() -> None:
    """Events are numbered anew in each session; the charts a console has seen are recorded in the one before."""
    past = MemoryPast(
        [tick(number) for number in range(50, 60)], [Event(wall_us=START_US + 50 * S, kind="note", text="new", seq=1)]
    )
    stand = Stand(past)
    stand.give(*range(40))
    stand.feed.mailbox.put(EventArrived(Event(wall_us=START_US, kind="note", text="old", seq=1)))
    stand.feed.start()
    for _ in ("the event", "the link", "the answer"):
        stand.answered()
    moment = stand.navigator.moment
    assert moment is not None and [event.text for event in moment.events] == ["old", "new"]
    assert len(moment.history.series("connections.used")) == 50
