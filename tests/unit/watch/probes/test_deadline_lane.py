"""A call that may hang runs in a thread where it blocks no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dba_console.core.clock import SYSTEM
from dba_console.watch.probes.deadline_lane import REPLACEMENTS, Lane, LaneTimeout, PolledCall
from tests.background import wait_until

LONG_S = 20.0
AT_ONCE_S = 0.01


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What jobs that hang wait for; they are let go at the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def lane() -> Iterator[Lane]:
    lane = Lane("test")
    yield lane
    lane.close()


def hang(lane: Lane, held: threading.Event) -> None:
    with pytest.raises(LaneTimeout, match="test"):
        lane.call(held.wait, AT_ONCE_S)


def test_a_call_returns_its_result_and_raises_its_error(lane: Lane) -> None:
    assert lane.call(lambda: 7, LONG_S) == 7
    with pytest.raises(ZeroDivisionError):
        lane.call(lambda: 1 // 0, LONG_S)
    assert lane.call(threading.get_ident, LONG_S) != threading.get_ident()


def test_calls_that_end_use_one_thread(lane: Lane) -> None:
    assert len({lane.call(threading.get_ident, LONG_S) for _ in range(5)}) == 1


def test_a_hanging_call_is_abandoned_and_the_next_one_is_done(lane: Lane, held: threading.Event) -> None:
    hang(lane, held)
    assert lane.stuck == 1
    assert lane.call(lambda: 7, LONG_S) == 7


def test_a_thread_that_returns_is_no_longer_stuck(lane: Lane, held: threading.Event) -> None:
    hang(lane, held)
    held.set()
    wait_until(lambda: lane.stuck == 0)


def test_a_lane_with_too_many_stuck_threads_accepts_no_call_until_one_returns(
    lane: Lane, held: threading.Event
) -> None:
    for _ in range(REPLACEMENTS):
        hang(lane, held)
    done: list[int] = []
    with pytest.raises(LaneTimeout):
        lane.start(lambda: done.append(1))
    held.set()
    wait_until(lambda: lane.stuck == 0)
    assert done == []
    assert lane.call(lambda: 7, LONG_S) == 7


def test_an_unfinished_polled_call_continues(lane: Lane, held: threading.Event) -> None:
    pending = lane.start(held.wait)
    assert not pending.ready(SYSTEM.mono_us())
    held.set()
    assert pending.result(SYSTEM.mono_us() + int(LONG_S * 1e6)) is True
    assert lane.stuck == 0


def test_a_polled_call_is_taken_once_it_has_ended(held: threading.Event) -> None:
    call: PolledCall[bool] = PolledCall("test")
    assert call.idle(0)
    assert not call.ended()
    assert call.start(held.wait)
    assert (call.pending, call.ended()) == (True, False)
    held.set()
    assert call.ended(SYSTEM.mono_us() + int(LONG_S * 1e6))
    assert call.take() is True
    assert not call.pending
    call.close()


def test_a_polled_call_that_exceeds_its_timeout_is_abandoned(held: threading.Event) -> None:
    call: PolledCall[bool] = PolledCall("test", SYSTEM, timeout_us=1)
    for _ in range(REPLACEMENTS):
        assert call.start(held.wait)
        wait_until(call.ended)
        with pytest.raises(LaneTimeout):
            call.take()
    assert call.stuck == REPLACEMENTS
    assert not call.start(held.wait)
    assert not call.pending


def test_a_polled_call_raises_the_error_of_its_call() -> None:
    call: PolledCall[float] = PolledCall("test")
    assert call.start(lambda: 1 / 0)
    wait_until(call.ended)
    with pytest.raises(ZeroDivisionError):
        call.take()
    assert call.idle(0)
    call.close()
