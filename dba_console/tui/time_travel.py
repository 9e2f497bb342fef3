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
from dba_console.tui import time_cursor
from dba_console.tui.feed import AgentConnectionChanged, AgentConnectionState, Feed, MomentArrived, QueryRefused
from dba_console.tui.feed_receiver import FeedReceiver
from dba_console.tui.moment import Moment
from dba_console.tui.pending_queries import PendingQueries
from dba_console.tui.recorded_runs import RecordedRunsArrived
from dba_console.tui.recording_queries import AtTime, NamedTime, NextNotable, NextSample, RecordingEdge, RecordingQuery

MINUTE_US = 60_000_000
HALF_HISTORY_US = 300_000_000
"""Half of the minutes a recording answers with."""
MAX_CONTINUE_US = 120_000_000
"""While playing, up to this far the charts are continued instead of read again."""


class TimeNavigator(FeedReceiver):
    """Holds the cursor and the moment shown."""

    def __init__(self, feed: Feed, clock: Clock = SYSTEM, *, begin_at: str | None = None) -> None:
        super().__init__(clock)
        self._feed = feed
        self._begin_at = begin_at
        self._queries = PendingQueries(feed, clock)
        self.cursor = time_cursor.initial_cursor(can_go_live=feed.can_go_live)
        self._moment: Moment | None = None
        self._frame: Frame | None = None
        self._played_us = 0
        self._last_us: int | None = None
        self._damage: str | None = None
        self._evidence_history: tuple[int, ChartHistory] | None = None
        self._evidence_us = 0
        self.query_refusal: str | None = None
        """Why the recording last gave no answer."""

    # What is shown

    @property
    def moment(self) -> Moment | None:
        """The moment shown, None before anything is known."""
        return self.live_state.moment() if self.cursor.live else self._moment

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

    def history_around(self, at_us: int) -> ChartHistory | None:
        """The ten minutes around a moment, from the recording: None until it has answered, or where it cannot."""
        if self._evidence_history is not None and self._evidence_history[0] == at_us:
            return self._evidence_history[1]
        self._queries.ask_for_evidence(AtTime(at_us + HALF_HISTORY_US))
        self._evidence_us = at_us
        return None

    @property
    def shown_us(self) -> int | None:
        """Wall time of the past moment shown; None while live."""
        return None if self.cursor.live else self.cursor.at_us

    @property
    def label(self) -> str:
        return time_cursor.mode_label(self.cursor, self.live_state.at_us)

    @property
    def waiting(self) -> bool:
        """True while the recording is slow to answer."""
        return self._queries.slow

    # What arrives

    def take_arrivals(self) -> bool:
        """Take in what the feed has left. True where the moment shown is another one now."""
        arrivals, missed = self._feed.mailbox.take()
        shown = False
        for arrival in arrivals:
            if isinstance(arrival, MomentArrived | QueryRefused):
                shown |= self._take_answer(arrival)
            else:
                shown |= self.receive(arrival) and self.cursor.live
                if isinstance(arrival, AgentConnectionChanged):
                    self._connection_changed(arrival.state)
                elif isinstance(arrival, RecordedRunsArrived):
                    self.runs.show_at(self.cursor.at_us)
        if missed:
            self._queries.ask_for_charts()
        if shown:
            self._frame = None
        return shown

    def _connection_changed(self, state: AgentConnectionState) -> None:
        if state == "attached":
            self._queries.ask_for_charts()
        elif state == "recording":
            self._ask(NamedTime(self._begin_at) if self._begin_at else RecordingEdge(-1))

    def _take_answer(self, answer: MomentArrived | QueryRefused) -> bool:
        owner = self._queries.take_answer(answer)
        if owner == "evidence":
            return self._take_evidence(answer)
        if isinstance(answer, QueryRefused):
            if owner == "operator":
                self.notice = self.query_refusal = answer.text
            return False
        if owner == "charts":
            self.live_state.merge_recording(answer)
            return self.cursor.live
        if owner == "operator":
            self._show_past(answer)
        return owner is not None

    def _take_evidence(self, answer: MomentArrived | QueryRefused) -> bool:
        history = ChartHistory()
        if isinstance(answer, MomentArrived):
            history.extend(answer.points)
        self._evidence_history = (self._evidence_us, history)
        return True

    def _show_past(self, answer: MomentArrived) -> None:
        self._last_us = answer.last_us
        if answer.damage is not None and answer.damage != self._damage:
            self._damage = self.notice = answer.damage
        history = self._moment.history if answer.continues and self._moment is not None else ChartHistory()
        history.extend(answer.points)
        self._show(Moment(answer.picture, history, answer.events), answer.at_us)

    # Where to go

    def toggle_pause(self) -> None:
        """Hold the moment, or go on."""
        before = self.cursor
        self._set_cursor(time_cursor.toggled(before, self.live_state.at_us))
        if before.live and not self.cursor.live and self.cursor.at_us is not None:
            self._moment = self.live_state.moment_at(self.cursor.at_us)

    def faster(self) -> None:
        if self.cursor.live:
            self.notice = "this is live: pause or step back first, then play"
        self._set_cursor(time_cursor.faster(self.cursor))

    def slower(self) -> None:
        self._set_cursor(time_cursor.slower(self.cursor))

    def go_live(self) -> None:
        """Back to the present; in a recording, to its end."""
        if self.cursor.can_go_live:
            self._set_cursor(time_cursor.to_live(self.cursor))
            self._queries.cancel_operator_query()
        else:
            self._ask(RecordingEdge(1))

    def go_to_start(self) -> None:
        """To the start of the recording."""
        self._ask(RecordingEdge(-1))

    def step(self, direction: Literal[-1, 1]) -> None:
        """One sample back or on; what was playing is paused."""
        self._pause_playing()
        from_us = self._current_us()
        if from_us is None:
            return
        at_us = self.live_state.step(from_us, direction)
        if at_us is not None and self._show_from_memory(at_us):
            return
        if direction > 0 and self.cursor.can_go_live and from_us >= (self.live_state.at_us or 0):
            self.notice = "this is the newest sample"
            return
        self._ask(NextSample(from_us, direction))

    def step_minute(self, direction: Literal[-1, 1]) -> None:
        """A minute back or on; past the newest sample that is back to live."""
        from_us = self._current_us()
        if from_us is None:
            return
        at_us = from_us + direction * MINUTE_US
        if self.cursor.can_go_live and at_us >= (self.live_state.at_us or 0):
            self.go_live()
        elif not self._show_from_memory(at_us):
            self._ask(AtTime(at_us))

    def go_to_notable(self, direction: Literal[-1, 1]) -> None:
        """To the mark, note or finding before or after; what was playing is paused."""
        self._pause_playing()
        from_us = self._current_us()
        if from_us is None:
            return
        if self._feed.recording is not None:
            self._ask(NextNotable(from_us, direction))
            return
        at_us = self.live_state.next_notable_us(from_us, direction)
        if at_us is None or not self._show_from_memory(at_us):
            self.notice = "no mark, note or finding there"

    def go_to_time(self, text: str) -> None:
        """To a TIME as the contract writes it."""
        self._ask(NamedTime(text, self.live_state.at_us))

    # Playing

    def play(self) -> bool:
        """Go on playing, called some times a second. True where another moment is shown."""
        now_us = self._clock.mono_us()
        target_us = time_cursor.playback_us(self.cursor, now_us - self._played_us)
        if target_us is None or self._queries.operator_waits:
            return False
        self._played_us = now_us
        if self.cursor.can_go_live and target_us >= (self.live_state.at_us or 0):
            self.go_live()
            return True
        if not self.cursor.can_go_live and self._last_us is not None and target_us >= self._last_us:
            self._set_cursor(replace(self.cursor, mode="paused"))
            self.notice = "this is the end of the recording"
        if self._show_from_memory(target_us):
            return True
        self._ask(AtTime(target_us, self._since_us(target_us)))
        return False

    def _since_us(self, target_us: int) -> int | None:
        """The newest chart point at hand, where the charts may simply be continued to `target_us`."""
        last_us = None if self._moment is None else self._moment.history.last_us
        return last_us if last_us is not None and 0 <= target_us - last_us <= MAX_CONTINUE_US else None

    # The details

    def _current_us(self) -> int | None:
        return self.live_state.at_us if self.cursor.live else self.cursor.at_us

    def _pause_playing(self) -> None:
        if self.cursor.playing:
            self._set_cursor(replace(self.cursor, mode="paused", moved=True))

    def _set_cursor(self, cursor: time_cursor.TimeCursor) -> None:
        if cursor.playing and not self.cursor.playing:
            self._played_us = self._clock.mono_us()
        self.cursor = cursor
        self._frame = None

    def _show(self, moment: Moment, at_us: int) -> None:
        self._set_cursor(time_cursor.moved_to(self.cursor, at_us))
        self._moment = moment
        self.runs.show_at(at_us)

    def _show_from_memory(self, at_us: int) -> bool:
        """Show a moment that is still in memory. False where it is not."""
        moment = self.live_state.moment_at(at_us)
        if moment is None:
            return False
        self._queries.cancel_operator_query()
        self._show(moment, at_us)
        return True

    def _ask(self, query: RecordingQuery) -> None:
        if not self._queries.ask_for_operator(query):
            self.notice = "nothing is recorded, only the last minutes are in memory"
