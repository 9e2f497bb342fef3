"""A job's messages on their way into its ledger: where they are read, or why they cannot be."""

from __future__ import annotations

from collections import deque

from dba_console.archives.object_progress import ObjectProgress
from dba_console.archives.program_messages import is_english
from dba_console.probes.jobs.stderr_reader import MessageLine, NewMessages

HELD_LINES = 5000
"""Lines kept until there is a plan to read them by."""


class MessageFeed:
    """Used by one thread."""

    def __init__(self) -> None:
        self.source: str | None = None
        self.unknown: str | None = None
        self.run: str | None = None
        self._english: bool | None = None
        self._held: deque[MessageLine] = deque(maxlen=HELD_LINES)
        self._dropped = 0
        self._begun = False
        self._from_start = False

    @property
    def is_complete(self) -> bool:
        """Its messages tell which object begins when: it is verbose, and all of them were read."""
        return self._begun and self._from_start

    @property
    def reports_ends(self) -> bool:
        """Then what is not seen at work any more is not called done before they say so."""
        return self.is_complete and not self._dropped

    @property
    def can_be_read(self) -> bool:
        return self.source is not None

    @property
    def is_not_english(self) -> bool:
        """It speaks, and not in English: of its objects and errors its messages tell nothing."""
        return self._english is False

    def feed(self, words: NewMessages, ledger: ObjectProgress, *, wait: bool) -> None:
        """Take in what was said since; `wait` while a plan is still to come."""
        self.source, self.unknown = words.source or self.source, words.unknown
        self.run = words.run or self.run
        self._from_start = words.from_start if not self._begun else self._from_start
        self._dropped += words.dropped
        self._held.extend(words.lines)
        if not wait:
            self.flush(ledger)

    def flush(self, ledger: ObjectProgress) -> None:
        """Nothing more is waited for."""
        before = ledger.counts()
        for said in self._held:
            ledger.add_line(said.wall_us, said.text, said.stream)
            if not self._english:
                known = is_english(said.text)
                self._english = self._english if known is None else known
        if self._held and ledger.counts() != before:
            self._begun = True
        self._held.clear()
