"""From keys to times: live samples continue while the past is shown, and every event is found at its time."""

from __future__ import annotations

import threading

import pytest

from dba_console.tui.feed import AgentConnectionChanged, EventArrived, NoticeArrived
from dba_console.tui.time_travel import TimeNavigator
from dba_console.watch.samples.event import Event
from tests.clocks import HeldClock
from tests.tui.manual_feed import START_US, ManualFeed, MemoryRecording, S, tick


class NavigatorSetup:
    """A navigator with its feed: the test gives samples and waits for answers."""

    def __init__(
        self, past: MemoryRecording | None = None, *, can_go_live: bool = True, begin_at: str | None = None
    ) -> None:
        self.clock = HeldClock()
        self.feed = ManualFeed(past, can_go_live=can_go_live)
        self._arrived = threading.Semaphore(0)
        self.feed.mailbox.wake = self._arrived.release
        self.navigator = TimeNavigator(self.feed, self.clock, begin_at=begin_at)

    def give(self, *numbers: int) -> NavigatorSetup:
        self.feed.give(*(tick(number) for number in numbers))
        self.navigator.take_arrivals()
        while self._arrived.acquire(blocking=False):
            pass
        return self

    def take_answer(self) -> None:
        """Wait for one thing to arrive and take it."""
        assert self._arrived.acquire(timeout=10)
        self.navigator.take_arrivals()

    @property
    def second(self) -> float | None:
        """The second shown."""
        moment = self.navigator.moment
        return None if moment is None else (moment.picture.wall_us - START_US) / S


def test_nothing_is_shown_before_the_first_sample() -> None:
    setup = NavigatorSetup()
    assert setup.navigator.frame() is None
    setup.navigator.step(-1)
    setup.navigator.toggle_pause()
    assert setup.navigator.cursor.live


def test_live_shows_the_newest_sample() -> None:
    setup = NavigatorSetup().give(0, 1, 2)
    assert setup.second == 2
    frame = setup.navigator.frame()
    assert frame is not None and frame.connections.used == 3


def test_a_frame_is_built_once_however_often_it_is_painted() -> None:
    setup = NavigatorSetup().give(0, 1)
    assert setup.navigator.frame() is setup.navigator.frame()


def test_while_paused_live_data_continues_and_the_frame_stays() -> None:
    setup = NavigatorSetup().give(0, 1)
    setup.navigator.toggle_pause()
    setup.give(*range(2, 44))
    assert setup.second == 1
    assert setup.navigator.label == "PAUSED -00:42"
    setup.navigator.toggle_pause()
    assert setup.second == 43 and setup.navigator.label == "LIVE"


def test_charts_of_a_paused_time_end_with_it() -> None:
    setup = NavigatorSetup().give(0, 1)
    setup.navigator.toggle_pause()
    setup.give(2, 3)
    assert setup.navigator.history.last_us == START_US + 1 * S


def test_stepping_back_from_live_pauses_on_the_sample_before() -> None:
    setup = NavigatorSetup().give(0, 1, 2)
    setup.navigator.step(-1)
    assert setup.second == 1
    setup.navigator.step(1)
    assert setup.second == 2
    setup.navigator.step(1)
    assert setup.navigator.notice == "this is the newest sample"


def test_without_a_recording_only_the_minutes_in_memory_are_available() -> None:
    setup = NavigatorSetup().give(0, 1)
    setup.navigator.step_minute(-1)
    assert setup.navigator.notice is not None and "only the last minutes" in setup.navigator.notice
    assert setup.navigator.cursor.live


def test_beyond_memory_the_recording_is_queried() -> None:
    setup = NavigatorSetup(MemoryRecording([tick(number) for number in range(100)])).give(*range(95, 100))
    setup.navigator.step_minute(-1)
    setup.take_answer()
    assert setup.second == 39 and not setup.navigator.cursor.live


def test_a_minute_forward_past_the_newest_sample_is_live_again() -> None:
    setup = NavigatorSetup().give(*range(10))
    setup.navigator.step(-1)
    setup.navigator.step_minute(1)
    assert setup.navigator.cursor.live


def test_brackets_go_from_mark_to_mark() -> None:
    marks = [Event(wall_us=START_US + at * S, kind="mark", text="", seq=at) for at in (20, 60)]
    setup = NavigatorSetup(MemoryRecording([tick(number) for number in range(100)], marks)).give(*range(95, 100))
    seen = []
    for direction in (-1, -1, 1):
        setup.navigator.go_to_notable(direction)
        setup.take_answer()
        seen.append(setup.second)
    assert seen == [60, 20, 60]


def test_marks_without_a_recording_are_found_among_the_events_in_memory() -> None:
    setup = NavigatorSetup().give(*range(10))
    setup.feed.mailbox.put(EventArrived(Event(wall_us=START_US + 4 * S, kind="mark", text="", seq=1)))
    setup.navigator.take_arrivals()
    setup.navigator.go_to_notable(-1)
    assert setup.second == 4
    setup.navigator.go_to_notable(-1)
    assert setup.navigator.notice == "no mark, note or finding in this direction"


def test_an_answer_to_a_cancelled_query_changes_nothing() -> None:
    setup = NavigatorSetup(MemoryRecording([tick(number) for number in range(100)])).give(*range(95, 100))
    setup.navigator.go_to_start()
    setup.navigator.go_live()
    setup.take_answer()
    assert setup.navigator.cursor.live and setup.second == 99


def test_attaching_loads_the_earlier_charts_and_events() -> None:
    events = [Event(wall_us=START_US + 50 * S, kind="mark", text="before", seq=7)]
    setup = NavigatorSetup(MemoryRecording([tick(number) for number in range(100)], events))
    setup.feed.start()
    setup.give(99)
    setup.take_answer()
    history = setup.navigator.history
    assert len(history.series("connections.used")) == 100
    moment = setup.navigator.moment
    assert moment is not None and [event.seq for event in moment.events] == [7]


def test_an_event_received_twice_counts_once() -> None:
    setup = NavigatorSetup().give(0)
    for seq in (0, 5):
        # The agent tells it without the number that the recording gives it.
        setup.feed.mailbox.put(EventArrived(Event(wall_us=START_US, kind="mark", text="x", seq=seq)))
    setup.navigator.take_arrivals()
    moment = setup.navigator.moment
    assert moment is not None and len(moment.events) == 1


def test_a_recording_opens_at_its_start_or_at_a_given_time() -> None:
    past = MemoryRecording([tick(number) for number in range(10)])
    for begin_at, second in ((None, 0), ("+7s", 7)):
        setup = NavigatorSetup(past, can_go_live=False, begin_at=begin_at)
        setup.feed.start()
        setup.take_answer()
        setup.take_answer()
        assert setup.second == second
        assert setup.navigator.label.startswith("REPLAY")


def test_playing_advances_with_real_time_and_stops_at_the_end() -> None:
    setup = NavigatorSetup(MemoryRecording([tick(number) for number in range(10)]), can_go_live=False)
    setup.feed.start()
    setup.take_answer()
    setup.take_answer()
    setup.navigator.toggle_pause()
    setup.clock.advance(3)
    setup.navigator.play()
    setup.take_answer()
    assert setup.second == 3
    setup.navigator.faster()
    setup.clock.advance(2)
    setup.navigator.play()
    setup.take_answer()
    assert setup.second == 7
    setup.clock.advance(60)
    setup.navigator.play()
    setup.take_answer()
    assert setup.second == 9 and not setup.navigator.cursor.playing
    assert setup.navigator.notice == "this is the end of the recording"


def test_playing_a_live_session_reaches_its_newest_sample_and_is_live() -> None:
    setup = NavigatorSetup().give(*range(10))
    setup.navigator.step(-1)
    setup.navigator.step(-1)
    setup.navigator.toggle_pause()
    setup.clock.advance(1)
    assert setup.navigator.play() and setup.second == 8
    setup.clock.advance(5)
    setup.navigator.play()
    assert setup.navigator.cursor.live


def test_stepping_while_playing_pauses() -> None:
    setup = NavigatorSetup().give(*range(10))
    setup.navigator.step(-1)
    setup.navigator.toggle_pause()
    setup.navigator.step(-1)
    assert setup.navigator.cursor.mode == "paused" and setup.second == 7


def test_a_refusal_is_shown_and_the_screen_stays_at_its_time() -> None:
    setup = NavigatorSetup(MemoryRecording([])).give(0, 1)
    setup.navigator.go_to_start()
    setup.take_answer()
    assert setup.navigator.notice == "nothing is recorded yet"
    assert setup.navigator.cursor.live


def test_a_damaged_recording_is_reported_once() -> None:
    setup = NavigatorSetup(
        MemoryRecording([tick(0), tick(1)], damage="the recording is damaged in places"), can_go_live=False
    )
    setup.feed.start()
    setup.take_answer()
    setup.take_answer()
    assert setup.navigator.notice == "the recording is damaged in places"
    setup.navigator.notice = None
    setup.navigator.step(1)
    setup.take_answer()
    assert setup.navigator.notice is None


def test_a_slow_recording_is_reported_as_slow() -> None:
    setup = NavigatorSetup(MemoryRecording([tick(0)])).give(5)
    setup.navigator.go_to_start()
    assert not setup.navigator.waiting
    setup.clock.advance(2)
    assert setup.navigator.waiting


def test_a_lost_agent_is_reported_with_its_reason_and_the_last_frame_stays() -> None:
    setup = NavigatorSetup().give(0, 1)
    setup.feed.mailbox.put(AgentConnectionChanged("lost", "the agent is gone"))
    setup.feed.mailbox.put(NoticeArrived("3 samples were dropped for this console"))
    setup.navigator.take_arrivals()
    assert (setup.navigator.connection_state, setup.navigator.connection_text) == ("lost", "the agent is gone")
    assert setup.navigator.notice == "3 samples were dropped for this console"
    assert setup.second == 1


@pytest.mark.parametrize("garbage", [b"", b"\xff\x00", b"not a sample"])
def test_a_sample_that_cannot_be_read_is_counted_and_skipped(garbage: bytes) -> None:
    setup = NavigatorSetup().give(0)
    setup.navigator.live_state.add_sample(garbage, {})
    assert setup.navigator.live_state.damaged == 1 and setup.second == 0


def test_samples_lost_in_a_stall_are_reread_from_the_recording() -> None:
    setup = NavigatorSetup(MemoryRecording([tick(number) for number in range(200)])).give(*range(200))
    setup.take_answer()
    assert len(setup.navigator.history.series("connections.used")) == 200


def test_another_agent_run_keeps_the_charts_and_reports_its_own_events() -> None:
    """Events are numbered anew in each session; the charts a console has seen are recorded in the one before."""
    past = MemoryRecording(
        [tick(number) for number in range(50, 60)], [Event(wall_us=START_US + 50 * S, kind="note", text="new", seq=1)]
    )
    setup = NavigatorSetup(past).give(*range(40))
    setup.feed.mailbox.put(EventArrived(Event(wall_us=START_US, kind="note", text="old", seq=1)))
    setup.feed.start()
    for _ in ("the event", "the link", "the answer"):
        setup.take_answer()
    moment = setup.navigator.moment
    assert moment is not None and [event.text for event in moment.events] == ["old", "new"]
    assert len(moment.history.series("connections.used")) == 50
