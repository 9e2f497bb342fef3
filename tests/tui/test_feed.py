"""The mailbox: bounded, counted, and what is lost is old."""

from __future__ import annotations

from dba_console.samples.event import Event
from dba_console.samples.sample import decode_sample, encode_sample
from dba_console.tui.feed import OTHERS, SAMPLES, EventArrived, Mailbox, NoticeArrived, SampleArrived
from tests.tui.scenes import tick


def test_everything_left_is_taken_once() -> None:
    mailbox = Mailbox()
    mailbox.put(NoticeArrived("one"))
    assert mailbox.take() == ([NoticeArrived("one")], 0)
    assert mailbox.take() == ([], 0)


def test_a_screen_that_does_not_read_loses_the_oldest_samples_and_is_told_how_many() -> None:
    mailbox = Mailbox()
    for number in range(SAMPLES + 5):
        mailbox.put(SampleArrived(encode_sample(tick(number))))
    arrivals, missed = mailbox.take()
    assert missed == 5 and len(arrivals) == SAMPLES
    last = arrivals[-1]
    assert isinstance(last, SampleArrived) and decode_sample(last.data).seq == SAMPLES + 5


def test_events_are_bounded_too() -> None:
    mailbox = Mailbox()
    for number in range(OTHERS + 10):
        mailbox.put(EventArrived(Event(wall_us=number, kind="note", text="x")))
    assert len(mailbox.take()[0]) == OTHERS


def test_every_put_wakes_the_screen() -> None:
    mailbox = Mailbox()
    woken: list[int] = []
    mailbox.wake = lambda: woken.append(1)
    mailbox.put(NoticeArrived("one"))
    mailbox.put(NoticeArrived("two"))
    assert len(woken) == 2
