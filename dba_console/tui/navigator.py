"""From keys and arrivals to the moment shown. Used by the screen's thread alone; draws nothing.

The cursor says where the operator stands; this finds the moment for it: the present, the minutes in memory, or the
recording, whichever has it first. Questions to the recording return later, through `take`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dba_console.clock import SYSTEM, Clock
from dba_console.errors import ConsoleError
from dba_console.frames.history import History
from dba_console.frames.model import Frame
from dba_console.samples.event import Event
from dba_console.tui import cursor as places
from dba_console.tui.feed import (
    At,
    Edge,
    EventArrived,
    Feed,
    LinkChanged,
    LinkState,
    MomentArrived,
    Named,
    NoticeArrived,
    Question,
    Refused,
    SampleArrived,
    Sign,
    Step,
)
from dba_console.tui.moment import Moment
from dba_console.tui.present import Present

MINUTE_US = 60_000_000
SLOW_ANSWER_US = 1_000_000
"""A recording that takes longer is said to be slow."""
CONTINUE_US = 120_000_000
"""While playing, up to this far the charts are continued instead of read again."""


class Navigator:
    """Holds the cursor, the present, and the moment shown.

    `notice` is the newest sentence for the operator, until it is taken away by the screen; `link` says how the feed
    stands, with `link_text` the sentence why it is lost.
    """

    def __init__(self, feed: Feed, clock: Clock = SYSTEM, *, begin_at: str | None = None) -> None:
        self._feed = feed
        self._clock = clock
        self._begin_at = begin_at
        self.cursor = places.start(has_present=feed.has_present)
        self.present = Present()
        self.notice: str | None = None
        self.link: LinkState = "connecting"
        self.link_text = ""
        self.awaited: str | None = None
        """The text of a mark or note sent and not yet seen among the events."""
        self.failure: ConsoleError | None = None
        """Why there is no console to open at all."""
        self._moment: Moment | None = None
        self._frame: Frame | None = None
        self._asked: tuple[int, int] | None = None
        self._recall: int | None = None
        self._recall_wanted = False
        self._played_us = 0
        self._last_us: int | None = None
        self._damage: str | None = None
        self.heard_us: int | None = None
        """Monotonic time of the newest sample's arrival."""

    # What is shown

    @property
    def moment(self) -> Moment | None:
        """The moment shown, None before anything is known."""
        return self.present.moment() if self.cursor.live else self._moment

    def frame(self) -> Frame | None:
        """The frame of the moment shown, derived once however often it is painted."""
        if self._frame is None and (moment := self.moment) is not None:
            self._frame = moment.frame()
        return self._frame

    @property
    def history(self) -> History:
        """The ten minutes before the moment shown."""
        moment = self.moment
        return History() if moment is None else moment.history

    @property
    def shown_us(self) -> int | None:
        """Wall time of the past moment shown; None while live."""
        return None if self.cursor.live else self.cursor.at_us

    @property
    def label(self) -> str:
        return places.label(self.cursor, self.present.at_us)

    @property
    def waiting(self) -> bool:
        """True while the recording is slow to answer."""
        return self._asked is not None and self._clock.mono_us() - self._asked[1] > SLOW_ANSWER_US

    @property
    def silent_s(self) -> float | None:
        """Seconds since the agent was last heard of; None where there is none, or nothing came yet."""
        return None if self.heard_us is None else (self._clock.mono_us() - self.heard_us) / 1e6

    # What arrives

    def take(self) -> bool:
        """Take in what the feed has left. True where the moment shown is another one now."""
        arrivals, missed = self._feed.mailbox.take()
        shown = False
        for arrival in arrivals:
            shown |= self._taken(arrival)
        if missed:
            self._ask_recall()
        if shown:
            self._frame = None
        return shown

    def _taken(self, arrival: object) -> bool:
        match arrival:
            case SampleArrived(data):
                self.present.absorb(data)
                self.heard_us = self._clock.mono_us()
                return self.cursor.live
            case EventArrived(event):
                self.present.happened(event)
                self._acknowledge(event)
                return self.cursor.live
            case NoticeArrived(text):
                self.notice = text
            case LinkChanged():
                self._linked(arrival)
            case MomentArrived():
                return self._arrived(arrival)
            case Refused(serial, text):
                self._refused(serial, text)
        return False

    def _acknowledge(self, event: Event) -> None:
        """Say that the operator's own mark or note is recorded, once the agent tells of it."""
        if self.awaited is not None and event.kind in ("mark", "note") and event.text == (self.awaited or "mark"):
            self.notice, self.awaited = f"{event.kind} recorded: {event.text}", None

    def _linked(self, change: LinkChanged) -> None:
        self.failure = change.error or self.failure
        self.link, self.link_text = change.state, change.text
        if change.state == "attached":
            self._ask_recall()
        elif change.state == "recording":
            self._ask(Named(self._begin_at) if self._begin_at else Edge(-1))

    def _ask_recall(self) -> None:
        """Ask for the ten minutes before; what the operator waits for goes first."""
        self._recall_wanted = True
        if self._feed.archive is not None and self._asked is None:
            self._recall = self._feed.archive.ask(Edge(1))

    def _arrived(self, answer: MomentArrived) -> bool:
        if answer.serial == self._recall:
            self._recall, self._recall_wanted = None, False
            self.present.recall(answer)
            return self.cursor.live
        if self._asked is None or answer.serial != self._asked[0]:
            return False
        self._asked = None
        self._last_us = answer.last_us
        self._tell_damage(answer.damage)
        if answer.continues and self._moment is not None:
            history = self._moment.history
        else:
            history = History()
        history.extend(answer.points)
        self._show(Moment(answer.picture, history, answer.events), answer.at_us)
        return True

    def _tell_damage(self, damage: str | None) -> None:
        if damage is not None and damage != self._damage:
            self._damage = self.notice = damage

    def _refused(self, serial: int, text: str) -> None:
        if serial == self._recall:
            self._recall, self._recall_wanted = (
                None,
                False,
            )  # a recording that is not there yet costs the older charts, which needs no words
        elif self._asked is not None and serial == self._asked[0]:
            self._asked = None
            self.notice = text

    # Where to go

    def space(self) -> None:
        """Hold the moment, or go on."""
        before = self.cursor
        self._turn(places.toggled(before, self.present.at_us))
        if before.live and not self.cursor.live and self.cursor.at_us is not None:
            self._moment = self.present.moment_at(self.cursor.at_us)

    def faster(self) -> None:
        if self.cursor.live:
            self.notice = "this is live: pause or step back first, then play"
        self._turn(places.faster(self.cursor))

    def slower(self) -> None:
        self._turn(places.slower(self.cursor))

    def live(self) -> None:
        """Back to the present; in a recording, to its end."""
        if self.cursor.has_present:
            self._asked = None
            self._turn(places.to_live(self.cursor))
            if self._recall_wanted:
                self._ask_recall()
        else:
            self._ask(Edge(1))

    def first(self) -> None:
        """To the start of the recording."""
        self._ask(Edge(-1))

    def step(self, direction: Literal[-1, 1]) -> None:
        """One sample back or on; what was playing is paused."""
        self._hold()
        here = self._here()
        if here is None:
            return
        at_us = self.present.step(here, direction)
        if at_us is not None and self._recall_moment(at_us):
            return
        if direction > 0 and self.cursor.has_present and here >= (self.present.at_us or 0):
            self.notice = "this is the newest sample"
            return
        self._ask(Step(here, direction))

    def minute(self, direction: Literal[-1, 1]) -> None:
        """A minute back or on; past the newest sample that is back to live."""
        here = self._here()
        if here is None:
            return
        at_us = here + direction * MINUTE_US
        if self.cursor.has_present and at_us >= (self.present.at_us or 0):
            self.live()
        elif not self._recall_moment(at_us):
            self._ask(At(at_us))

    def sign(self, direction: Literal[-1, 1]) -> None:
        """To the mark, note or finding before or after; what was playing is paused."""
        self._hold()
        here = self._here()
        if here is None:
            return
        if self._feed.archive is not None:
            self._ask(Sign(here, direction))
            return
        at_us = self.present.sign(here, direction)
        if at_us is None or not self._recall_moment(at_us):
            self.notice = "no mark, note or finding there"

    def go(self, text: str) -> None:
        """To a TIME as the contract writes it."""
        self._ask(Named(text, self.present.at_us))

    # Playing

    def play(self) -> bool:
        """Go on playing, called some times a second. True where another moment is shown."""
        now_us = self._clock.mono_us()
        target_us = places.advanced(self.cursor, now_us - self._played_us)
        if target_us is None or self._asked is not None:
            return False
        self._played_us = now_us
        if self.cursor.has_present and target_us >= (self.present.at_us or 0):
            self.live()
            return True
        if not self.cursor.has_present and self._last_us is not None and target_us >= self._last_us:
            self._turn(replace(self.cursor, mode="paused"))
            self.notice = "this is the end of the recording"
        if self._recall_moment(target_us):
            return True
        self._ask(At(target_us, self._since_us(target_us)))
        return False

    def _since_us(self, target_us: int) -> int | None:
        """The newest chart point at hand, where the charts may simply be continued to `target_us`."""
        last_us = None if self._moment is None else self._moment.history.last_us
        return last_us if last_us is not None and 0 <= target_us - last_us <= CONTINUE_US else None

    # The details

    def _here(self) -> int | None:
        return self.present.at_us if self.cursor.live else self.cursor.at_us

    def _hold(self) -> None:
        if self.cursor.playing:
            self._turn(replace(self.cursor, mode="paused", moved=True))

    def _turn(self, to: places.Cursor) -> None:
        if to.playing and not self.cursor.playing:
            self._played_us = self._clock.mono_us()
        self.cursor = to
        self._frame = None

    def _show(self, moment: Moment, at_us: int) -> None:
        self._turn(places.moved_to(self.cursor, at_us))
        self._moment = moment

    def _recall_moment(self, at_us: int) -> bool:
        """Show a moment that is still in memory. False where it is not."""
        moment = self.present.moment_at(at_us)
        if moment is None:
            return False
        self._asked = None
        self._show(moment, at_us)
        return True

    def _ask(self, question: Question) -> None:
        archive = self._feed.archive
        if archive is None:
            self.notice = "nothing is recorded, only the last minutes are in memory"
            return
        self._recall = None
        self._asked = (archive.ask(question), self._clock.mono_us())
