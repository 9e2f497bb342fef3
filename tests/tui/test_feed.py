"""The mailbox: bounded, counted, and what is lost is old."""

from __future__ import annotations

from msgspec import structs

from dba_console.agent.protocol import RunLines, RunViewMessage
from dba_console.tui.feed import (
    MAX_OTHERS,
    MAX_OUTPUT,
    MAX_SAMPLES,
    AgentConnectionChanged,
    EventArrived,
    Mailbox,
    NoticeArrived,
    SampleArrived,
)
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import decode_sample, encode_sample
from tests.tui.manual_feed import tick
from tests.walkthrough.sample_views import DROP
from tests.walkthrough.sample_views import OUTPUT as LINES


def test_everything_pending_is_taken_once() -> None:
    mailbox = Mailbox()
    mailbox.put(NoticeArrived("one"))
    assert mailbox.take() == ([NoticeArrived("one")], 0)
    assert mailbox.take() == ([], 0)


def test_a_screen_that_does_not_read_loses_the_oldest_samples_and_is_given_their_number() -> None:
    mailbox = Mailbox()
    for number in range(MAX_SAMPLES + 5):
        mailbox.put(SampleArrived(encode_sample(tick(number)), {}))
    arrivals, missed = mailbox.take()
    assert missed == 5 and len(arrivals) == MAX_SAMPLES
    last = arrivals[-1]
    assert isinstance(last, SampleArrived) and decode_sample(last.data).seq == MAX_SAMPLES + 5


def test_events_are_limited_too() -> None:
    mailbox = Mailbox()
    for number in range(MAX_OTHERS + 10):
        mailbox.put(EventArrived(Event(wall_us=number, kind="note", text="x")))
    assert len(mailbox.take()[0]) == MAX_OTHERS


def test_only_the_newest_view_of_a_run_is_kept() -> None:
    mailbox = Mailbox()
    for state in ("planned", "running", "done"):
        mailbox.put(RunViewMessage(view=structs.replace(DROP, state=state)))
    ((only,), _) = mailbox.take()
    assert isinstance(only, RunViewMessage) and only.view.state == "done"


def test_output_that_arrives_faster_than_it_is_read_is_counted_by_run() -> None:
    mailbox = Mailbox()
    for _ in range(MAX_OUTPUT + 3):
        mailbox.put(RunLines(run="a", block="b", lines=list(LINES[:2]), dropped=1))
    arrivals, _ = mailbox.take()
    assert arrivals[0] == RunLines(run="a", block="", lines=[], dropped=9) and len(arrivals) == MAX_OUTPUT + 1
    assert mailbox.take() == ([], 0)


def test_run_views_do_not_outlive_their_agent() -> None:
    mailbox = Mailbox()
    mailbox.put(RunViewMessage(view=DROP))
    mailbox.put(AgentConnectionChanged("lost"))
    assert mailbox.take() == ([AgentConnectionChanged("lost")], 0)


def test_every_put_wakes_the_screen() -> None:
    mailbox = Mailbox()
    woken: list[int] = []
    mailbox.wake = lambda: woken.append(1)
    mailbox.put(NoticeArrived("one"))
    mailbox.put(NoticeArrived("two"))
    assert len(woken) == 2
