"""Questions to the recording that have no answer yet: the operator's, or one for the charts of before."""

from __future__ import annotations

from typing import Literal

from dba_console.clock import Clock
from dba_console.tui.feed import Feed, MomentArrived, QueryRefused
from dba_console.tui.recording_queries import RecordingEdge, RecordingQuery

SLOW_ANSWER_US = 1_000_000
"""A recording that takes longer to answer is said to be slow."""

QueryOwner = Literal["operator", "charts", "evidence"]


class PendingQueries:
    """Asks, and knows whose answer came. What the operator waits for goes before the charts."""

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

    def ask_for_operator(self, query: RecordingQuery) -> bool:
        """Ask for the operator. False where there is no recording to ask."""
        if self._feed.recording is None:
            return False
        self._charts_query = self._evidence_query = None
        self._operator_query = (self._feed.recording.ask(query), self._clock.mono_us())
        return True

    def cancel_operator_query(self) -> None:
        """The operator went elsewhere: an answer still to come is nobody's. The charts may be asked for now."""
        self._operator_query = None
        if self._charts_wanted:
            self.ask_for_charts()

    def ask_for_evidence(self, query: RecordingQuery) -> None:
        """Ask for the minutes around something, where nobody waits for anything else."""
        if (
            self._feed.recording is not None
            and self._operator_query is None
            and self._charts_query is None
            and self._evidence_query is None
        ):
            self._evidence_query = self._feed.recording.ask(query)

    def ask_for_charts(self) -> None:
        """Ask for the minutes before now, as soon as nobody waits for something else."""
        self._charts_wanted = True
        if self._feed.recording is not None and self._operator_query is None:
            self._evidence_query = None
            self._charts_query = self._feed.recording.ask(RecordingEdge(1))

    def take_answer(self, answer: MomentArrived | QueryRefused) -> QueryOwner | None:
        """Whose answer it is; None for one nobody waits for any more."""
        if self._operator_query is not None and answer.serial == self._operator_query[0]:
            self._operator_query = None
            return "operator"
        if answer.serial == self._charts_query:
            # Refused: a recording that is not there yet costs the older charts, and needs no words.
            self._charts_query, self._charts_wanted = None, False
            return "charts"
        if answer.serial == self._evidence_query:
            self._evidence_query = None
            return "evidence"
        return None
