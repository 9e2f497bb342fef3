"""Time travel: from keys and arrivals to the moment shown. Used by the screen's thread only; draws nothing.

The cursor holds the time; the navigator finds its moment: the live state, the minutes in memory, or the recording,
in this order. Answers of the recording arrive later, through `take_arrivals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from dba_console.agent.protocol import RunLines, RunRefused, RunViewMessage
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import ConsoleError
from dba_console.jobs.history.duration_trend import TargetJobHistory
from dba_console.tui import time_cursor
from dba_console.tui.feed import (
    AgentConnectionChanged,
    AgentConnectionState,
    Arrival,
    AtTime,
    EventArrived,
    Feed,
    MomentArrived,
    NamedTime,
    NextNotable,
    NextSample,
    NoticeArrived,
    OtherHost,
    QueryRefused,
    RecordingEdge,
    RecordingQuery,
    SameMoment,
    SampleArrived,
)
from dba_console.tui.known_runs import KnownRuns, RecordedRunsArrived
from dba_console.tui.live_state import LiveState, Moment
from dba_console.tui.loaders import RunbooksArrived
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.samples.event import Event

# The feed receiver: takes samples and events into the live state, notices for the operator, the connection state.

_FINDING_MARK_EVENTS = ("finding.acknowledged", "finding.silenced", "finding.unsilenced")


class FeedReceiver:
    """The live state, and how current it is.

    `notice` is the newest sentence for the operator, until the screen removes it; `connection_state` is the state of
    the feed, with `connection_text` saying why it is lost.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.live_state = LiveState()
        self.runs = KnownRuns()
        self.host = 0
        """Which of the recorded hosts is shown."""
        self._recorded_runs: dict[int, RecordedRunsArrived] = {}
        self.runbooks: RunbooksArrived | None = None
        """The runbooks; None until they have been read."""
        self.job_history: TargetJobHistory | None = None
        """The history of dumps and restores; None until it has been read."""
        self.notice: str | None = None
        self.connection_state: AgentConnectionState = "connecting"
        self.connection_text = ""
        self.failure: ConsoleError | None = None
        """Why no console can be opened at all."""
        self.awaited_text: str | None = None
        """The text of a mark or note sent and not yet received among the events."""
        self.sent_notice: str | None = None
        """The notice shown after a request about a run; removed once the agent answers."""
        self.awaited_finding: str | None = None
        """The finding of which a change was requested, until the agent reports it."""
        self.last_sample_us: int | None = None
        """Monotonic time of the newest sample's arrival."""

    @property
    def silent_s(self) -> float | None:
        """Seconds since the agent last sent anything; None without an agent or before the first message."""
        return None if self.last_sample_us is None else (self._clock.mono_us() - self.last_sample_us) / 1e6

    def receive(self, arrival: Arrival) -> bool:
        """Take one arrival. Returns True if the live state has changed."""
        match arrival:
            case SampleArrived(data, point):
                self.live_state.add_sample(data, point)
                self.last_sample_us = self._clock.mono_us()
                return True
            case EventArrived(event):
                self.live_state.add_event(event)
                self.runs.add_event(event)
                self._confirm_recorded(event)
                return True
            case NoticeArrived(text):
                self.notice = text
            case RunbooksArrived():
                self.runbooks = arrival
            case TargetJobHistory():
                self.job_history = arrival
            case RecordedRunsArrived(runs, host):
                self._recorded_runs[host] = arrival
                if host == self.host:
                    self.runs.show_recorded(runs)
            case RunViewMessage() | RunLines() | RunRefused():
                self.runs.receive(arrival)
                self._take_run_answer()
            case AgentConnectionChanged(state, text, error, session):
                self.connection_state, self.connection_text = state, text
                self.failure = error or self.failure
                if session is not None:
                    self.runs.attached(session.runs)
        return False

    def _take_run_answer(self) -> None:
        """Handle the agent's answer about a run: accepted, or refused with a reason."""
        refused = self.runs.take_refusal()
        if refused is not None:
            self.notice = refused
        elif self.sent_notice is not None and self.notice == self.sent_notice:
            self.notice = self.sent_notice = None

    def _confirm_recorded(self, event: Event) -> None:
        """Show that the operator's own mark or note is recorded, once the agent reports it."""
        if (
            self.awaited_text is not None
            and event.kind in ("mark", "note")
            and event.text == (self.awaited_text or "mark")
        ):
            self.notice, self.awaited_text = f"{event.kind} recorded: {event.text}", None
        elif event.kind in _FINDING_MARK_EVENTS and event.details.get("id") == self.awaited_finding:
            self.notice, self.awaited_finding = event.text, None


# Pending queries to the recording: the operator's, or one for earlier charts.

SLOW_ANSWER_US = 1_000_000
"""Time after which a recording is shown as slow to answer."""

QueryOwner = Literal["operator", "charts", "evidence"]


class PendingQueries:
    """Sends queries and knows whose answer arrived. The operator's queries go before those for charts."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self._feed = feed
        self._clock = clock
        self._operator_query: tuple[int, int] | None = None
        self._charts_query: int | None = None
        self._charts_wanted = False
        self._evidence_query: int | None = None

    @property
    def operator_waits(self) -> bool:
        """True while the operator waits for an answer."""
        return self._operator_query is not None

    @property
    def slow(self) -> bool:
        """True while the answer takes long."""
        return self._operator_query is not None and self._clock.mono_us() - self._operator_query[1] > SLOW_ANSWER_US

    def ask_for_operator(self, query: RecordingQuery, host: int) -> bool:
        """Query one of the recorded hosts for the operator. Returns False if there is no recording."""
        if self._feed.recording is None:
            return False
        self._charts_query = self._evidence_query = None
        self._operator_query = (self._feed.recording.ask(query, host), self._clock.mono_us())
        return True

    def cancel_operator_query(self) -> None:
        """Drop the operator's query: the operator has moved elsewhere. The charts may be queried now."""
        self._operator_query = None
        if self._charts_wanted:
            self.ask_for_charts()

    def ask_for_evidence(self, query: RecordingQuery, host: int) -> None:
        """Query the minutes around a time, if no other query is pending."""
        if (
            self._feed.recording is not None
            and self._operator_query is None
            and self._charts_query is None
            and self._evidence_query is None
        ):
            self._evidence_query = self._feed.recording.ask(query, host)

    def ask_for_charts(self) -> None:
        """Query the minutes before now, as soon as no other query is pending."""
        self._charts_wanted = True
        if self._feed.recording is not None and self._operator_query is None:
            self._evidence_query = None
            self._charts_query = self._feed.recording.ask(RecordingEdge(1))

    def take_answer(self, answer: MomentArrived | QueryRefused) -> QueryOwner | None:
        """Return whose answer it is; None if it is no longer needed."""
        if self._operator_query is not None and answer.serial == self._operator_query[0]:
            self._operator_query = None
            return "operator"
        if answer.serial == self._charts_query:
            # Refused: without a recording only the older charts are missing, so no notice is needed.
            self._charts_query, self._charts_wanted = None, False
            return "charts"
        if answer.serial == self._evidence_query:
            self._evidence_query = None
            return "evidence"
        return None


MINUTE_US = 60_000_000
HALF_HISTORY_US = 300_000_000
"""Half of the minutes in a recording's answer."""
MAX_CONTINUE_US = 120_000_000
"""While playing, charts are continued up to this distance instead of read again."""


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
        self.others: Sequence[OtherHost] = ()
        """The recorded hosts that are not shown, at the moment shown, the next one first."""
        self.query_refusal: str | None = None
        """Why the recording last refused a query."""

    @property
    def mono_us(self) -> int:
        """Microseconds of the screen's monotonic clock."""
        return self._clock.mono_us()

    # What is shown

    @property
    def moment(self) -> Moment | None:
        """The moment shown, None before anything is known."""
        return self.live_state.moment() if self.cursor.live else self._moment

    def frame(self) -> Frame | None:
        """The frame of the moment shown, built once per moment."""
        if self._frame is None and (moment := self.moment) is not None:
            self._frame = moment.frame()
        return self._frame

    @property
    def history(self) -> ChartHistory:
        """The ten minutes before the moment shown."""
        moment = self.moment
        return ChartHistory() if moment is None else moment.history

    def history_around(self, at_us: int) -> ChartHistory | None:
        """The ten minutes around a time, from the recording; None until it has answered, or if it cannot."""
        if self._evidence_history is not None and self._evidence_history[0] == at_us:
            return self._evidence_history[1]
        self._queries.ask_for_evidence(AtTime(at_us + HALF_HISTORY_US), self.host)
        self._evidence_us = at_us
        return None

    @property
    def shown_us(self) -> int | None:
        """Wall-clock time of the past moment shown; None while live."""
        return None if self.cursor.live else self.cursor.at_us

    @property
    def label(self) -> str:
        return time_cursor.mode_label(self.cursor, self.live_state.at_us)

    @property
    def waiting(self) -> bool:
        """True while the recording is slow to answer."""
        return self._queries.slow

    # Arrivals

    def take_arrivals(self) -> bool:
        """Take all arrivals of the feed. Returns True if the moment shown has changed."""
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
        if answer.host != self.host:
            self._show_host(answer.host)
        self._last_us, self.others = answer.last_us, answer.others
        damage = answer.damage if answer.damage != self._damage else None
        self._damage = damage or self._damage
        self.notice = "; ".join(filter(None, (answer.notice, damage))) or self.notice
        history = self._moment.history if answer.continues and self._moment is not None else ChartHistory()
        history.extend(answer.points)
        self._show(Moment(answer.picture, history, answer.events), answer.at_us)

    def _show_host(self, host: int) -> None:
        """Forget what is known of the host shown before."""
        self.host, self._feed.session = host, self._feed.hosts[host]
        self._damage = self._evidence_history = self.job_history = None
        recorded = self._recorded_runs.get(host)
        self.runs.show_recorded(() if recorded is None else recorded.runs)

    def go_to_other_host(self) -> None:
        """Show the next of the recorded hosts that has this moment, at the same moment."""
        at_us = self._current_us()
        if not self.others or at_us is None:
            self.notice = "one host is shown; `dba-console replay SESSION --with OTHER` shows several"
            return
        other = next((other for other in self.others if not other.problem), self.others[0])
        self._ask(SameMoment(at_us, self.host), other.host)

    # Moving in time

    def toggle_pause(self) -> None:
        """Pause, or continue."""
        before = self.cursor
        self._set_cursor(time_cursor.toggled(before, self.live_state.at_us))
        if before.live and not self.cursor.live and self.cursor.at_us is not None:
            self._moment = self.live_state.moment_at(self.cursor.at_us)

    def faster(self) -> None:
        if self.cursor.live:
            self.notice = "live: pause or step back first, then play"
        self._set_cursor(time_cursor.faster(self.cursor))

    def slower(self) -> None:
        self._set_cursor(time_cursor.slower(self.cursor))

    def go_live(self) -> None:
        """Return to live; in a recording, go to its end."""
        if self.cursor.can_go_live:
            self._set_cursor(time_cursor.to_live(self.cursor))
            self._queries.cancel_operator_query()
        else:
            self._ask(RecordingEdge(1))

    def go_to_start(self) -> None:
        """Go to the start of the recording."""
        self._ask(RecordingEdge(-1))

    def step(self, direction: Literal[-1, 1]) -> None:
        """Go to the previous or next sample; playing is paused."""
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
        """Go a minute back or forward; past the newest sample return to live."""
        from_us = self._current_us()
        if from_us is None:
            return
        at_us = from_us + direction * MINUTE_US
        if self.cursor.can_go_live and at_us >= (self.live_state.at_us or 0):
            self.go_live()
        elif not self._show_from_memory(at_us):
            self._ask(AtTime(at_us))

    def go_to_notable(self, direction: Literal[-1, 1]) -> None:
        """Go to the previous or next mark, note or finding; playing is paused."""
        self._pause_playing()
        from_us = self._current_us()
        if from_us is None:
            return
        if self._feed.recording is not None:
            self._ask(NextNotable(from_us, direction))
            return
        at_us = self.live_state.next_notable_us(from_us, direction)
        if at_us is None or not self._show_from_memory(at_us):
            self.notice = "no mark, note or finding in this direction"

    def go_to_time(self, text: str) -> None:
        """Go to a TIME as the contract writes it."""
        self._ask(NamedTime(text, self.live_state.at_us))

    # Playing

    def play(self) -> bool:
        """Continue playing; called several times a second. Returns True if another moment is shown."""
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
        """Return the newest chart point in memory if the charts can be continued from it to `target_us`."""
        last_us = None if self._moment is None else self._moment.history.last_us
        return last_us if last_us is not None and 0 <= target_us - last_us <= MAX_CONTINUE_US else None

    # Internals

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
        """Show a moment that is still in memory. Returns False if it is not."""
        moment = self.live_state.moment_at(at_us)
        if moment is None:
            return False
        self._queries.cancel_operator_query()
        self._show(moment, at_us)
        return True

    def _ask(self, query: RecordingQuery, host: int | None = None) -> None:
        if not self._queries.ask_for_operator(query, self.host if host is None else host):
            self.notice = "no recording: only the last minutes are in memory"
