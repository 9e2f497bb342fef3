"""From keys and arrivals to the moment shown. Used by the screen's thread alone; draws nothing.

The cursor says where the operator stands; this finds the moment for it: the present, the minutes in memory, or the
recording, whichever has it first. Questions to the recording return later, through `take`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dba_console.clock import SYSTEM, Clock
from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.tui import cursor as places
from dba_console.tui.feed import Feed, LinkChanged, LinkState, MomentArrived, Refused
from dba_console.tui.inquiry import Inquiry
from dba_console.tui.moment import Moment
from dba_console.tui.questions import At, Edge, Named, Question, Sign, Step
from dba_console.tui.reception import Reception
from dba_console.tui.recorded_runs import RunsRecorded

MINUTE_US = 60_000_000
HALF_US = 300_000_000
"""Half of the minutes a recording answers with."""
CONTINUE_US = 120_000_000
"""While playing, up to this far the charts are continued instead of read again."""


class Navigator(Reception):
    """Holds the cursor and the moment shown."""

    def __init__(self, feed: Feed, clock: Clock = SYSTEM, *, begin_at: str | None = None) -> None:
        super().__init__(clock)
        self._feed = feed
        self._begin_at = begin_at
        self._inquiry = Inquiry(feed, clock)
        self.cursor = places.start(has_present=feed.has_present)
        self._moment: Moment | None = None
        self._frame: Frame | None = None
        self._played_us = 0
        self._last_us: int | None = None
        self._damage: str | None = None
        self._around: tuple[int, ChartHistory] | None = None
        self._around_us = 0
        self.refusal: str | None = None
        """Why the recording last gave no answer."""

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
    def history(self) -> ChartHistory:
        """The ten minutes before the moment shown."""
        moment = self.moment
        return ChartHistory() if moment is None else moment.history

    def around(self, at_us: int) -> ChartHistory | None:
        """The ten minutes around a moment, from the recording: None until it has answered, or where it cannot."""
        if self._around is not None and self._around[0] == at_us:
            return self._around[1]
        self._inquiry.aside(At(at_us + HALF_US))
        self._around_us = at_us
        return None

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
        return self._inquiry.slow

    # What arrives

    def take(self) -> bool:
        """Take in what the feed has left. True where the moment shown is another one now."""
        arrivals, missed = self._feed.mailbox.take()
        shown = False
        for arrival in arrivals:
            if isinstance(arrival, MomentArrived | Refused):
                shown |= self._answered(arrival)
            else:
                shown |= self.receive(arrival) and self.cursor.live
                if isinstance(arrival, LinkChanged):
                    self._linked(arrival.state)
                elif isinstance(arrival, RunsRecorded):
                    self.runs.show_at(self.cursor.at_us)
        if missed:
            self._inquiry.recall()
        if shown:
            self._frame = None
        return shown

    def _linked(self, state: LinkState) -> None:
        if state == "attached":
            self._inquiry.recall()
        elif state == "recording":
            self._ask(Named(self._begin_at) if self._begin_at else Edge(-1))

    def _answered(self, answer: MomentArrived | Refused) -> bool:
        whose = self._inquiry.settle(answer)
        if whose == "evidence":
            return self._take_around(answer)
        if isinstance(answer, Refused):
            if whose == "operator":
                self.notice = self.refusal = answer.text
            return False
        if whose == "charts":
            self.present.recall(answer)
            return self.cursor.live
        if whose == "operator":
            self._show_past(answer)
        return whose is not None

    def _take_around(self, answer: MomentArrived | Refused) -> bool:
        history = ChartHistory()
        if isinstance(answer, MomentArrived):
            history.extend(answer.points)
        self._around = (self._around_us, history)
        return True

    def _show_past(self, past: MomentArrived) -> None:
        self._last_us = past.last_us
        if past.damage is not None and past.damage != self._damage:
            self._damage = self.notice = past.damage
        history = self._moment.history if past.continues and self._moment is not None else ChartHistory()
        history.extend(past.points)
        self._show(Moment(past.picture, history, past.events), past.at_us)

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
            self._turn(places.to_live(self.cursor))
            self._inquiry.give_up()
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
        if target_us is None or self._inquiry.open:
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
        self.runs.show_at(at_us)

    def _recall_moment(self, at_us: int) -> bool:
        """Show a moment that is still in memory. False where it is not."""
        moment = self.present.moment_at(at_us)
        if moment is None:
            return False
        self._inquiry.give_up()
        self._show(moment, at_us)
        return True

    def _ask(self, question: Question) -> None:
        if not self._inquiry.ask(question):
            self.notice = "nothing is recorded, only the last minutes are in memory"
