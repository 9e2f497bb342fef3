"""Questions to the recording that have no answer yet: the operator's, or one for the charts of before."""

from __future__ import annotations

from typing import Literal

from dba_console.clock import Clock
from dba_console.tui.feed import Feed, MomentArrived, Refused
from dba_console.tui.questions import Edge, Question

SLOW_US = 1_000_000
"""A recording that takes longer to answer is said to be slow."""

Whose = Literal["operator", "charts", "evidence"]


class Inquiry:
    """Asks, and knows whose answer came. What the operator waits for goes before the charts."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self._feed = feed
        self._clock = clock
        self._asked: tuple[int, int] | None = None
        self._recall: int | None = None
        self._recall_wanted = False
        self._aside: int | None = None

    @property
    def open(self) -> bool:
        """True while the operator waits for an answer."""
        return self._asked is not None

    @property
    def slow(self) -> bool:
        """True while the answer takes long."""
        return self._asked is not None and self._clock.mono_us() - self._asked[1] > SLOW_US

    def ask(self, question: Question) -> bool:
        """Ask for the operator. False where there is no recording to ask."""
        if self._feed.archive is None:
            return False
        self._recall = self._aside = None
        self._asked = (self._feed.archive.ask(question), self._clock.mono_us())
        return True

    def give_up(self) -> None:
        """The operator went elsewhere: an answer still to come is nobody's. The charts may be asked for now."""
        self._asked = None
        if self._recall_wanted:
            self.recall()

    def aside(self, question: Question) -> None:
        """Ask for the minutes around something, where nobody waits for anything else."""
        if self._feed.archive is not None and self._asked is None and self._recall is None and self._aside is None:
            self._aside = self._feed.archive.ask(question)

    def recall(self) -> None:
        """Ask for the minutes before now, as soon as nobody waits for something else."""
        self._recall_wanted = True
        if self._feed.archive is not None and self._asked is None:
            self._aside = None
            self._recall = self._feed.archive.ask(Edge(1))

    def settle(self, answer: MomentArrived | Refused) -> Whose | None:
        """Whose answer it is; None for one nobody waits for any more."""
        if self._asked is not None and answer.serial == self._asked[0]:
            self._asked = None
            return "operator"
        if answer.serial == self._recall:
            # Refused: a recording that is not there yet costs the older charts, and needs no words.
            self._recall, self._recall_wanted = None, False
            return "charts"
        if answer.serial == self._aside:
            self._aside = None
            return "evidence"
        return None
