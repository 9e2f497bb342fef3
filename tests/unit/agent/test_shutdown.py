"""An agent ends when it should and not before."""

from __future__ import annotations

import os
import signal

from dba_console.agent.agent_process import GracePeriod, StopRequest

SECOND = 1_000_000


def test_an_agent_without_any_attach_ends_after_its_grace_time() -> None:
    grace = GracePeriod(10, 0)
    assert not grace.is_over(0, 9 * SECOND)
    assert grace.is_over(0, 10 * SECOND)


def test_the_grace_time_counts_from_the_last_console() -> None:
    grace = GracePeriod(10, 0)
    assert not grace.is_over(1, 100 * SECOND)
    assert not grace.is_over(0, 101 * SECOND)
    assert not grace.is_over(0, 110 * SECOND)
    assert grace.is_over(0, 111 * SECOND)


def test_recording_on_purpose_never_ends_automatically() -> None:
    assert not GracePeriod(None, 0).is_over(0, 10**15)


def test_the_first_reason_to_end_is_kept() -> None:
    stop = StopRequest()
    stop.request("the time asked for is over")
    stop.request("asked to end by SIGTERM")
    assert stop.wait(60)
    assert stop.reason == "the time asked for is over"


def test_a_signal_ends_the_wait_with_its_name() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        stop = StopRequest()
        stop.install_signal_handlers(ignore_hangup=True)
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        assert stop.reason == "stopped by SIGTERM"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
