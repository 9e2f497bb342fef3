"""A run's records on their way to the disk: nothing goes on that was not written, unless a person says how.

Rule 9: where the disk takes no record, the operator is asked whether the journal goes on in memory. Nobody else decides
it, and while they think about it the disk is tried again. An abort needs no such answer: the journal keeps a reserve
for the end of a run and for what is reverted.
"""

from __future__ import annotations

from collections.abc import Callable

from dba_console.agent.runs.questions import OperatorQuestions
from dba_console.plans.journal_record import JournalRecord
from dba_console.plans.run_view import Option, quote_for_typing
from dba_console.runbook.requests import AskRequest
from dba_console.samples.event import Event
from dba_console.session.run_journal import JournalError, RunJournal

IN_MEMORY, AGAIN = "in memory", "retry"
OPTIONS = (
    Option(key=IN_MEMORY, text="the journal goes on in memory-backed storage, which a reboot empties"),
    Option(key=AGAIN, text="try the disk again now"),
)


class JournalWriter:
    """Writes the journal of one run; used by its thread alone."""

    def __init__(self, journal: RunJournal, desk: OperatorQuestions, tag: str, emit: Callable[[Event], None]) -> None:
        self._journal, self._questions, self._tag, self._emit = journal, desk, tag, emit

    @property
    def error(self) -> str:
        """What is wrong with the journal, for the view; empty where nothing is."""
        return self._journal.trouble

    def write(self, record: JournalRecord) -> JournalRecord:
        """The record as it was written: durably. Raises Left where the agent ends before that was possible."""
        while True:
            try:
                return self.try_once(record)
            except JournalError as trouble:
                written = self._ask(record, trouble)
                if written is not None:
                    return written

    def try_once(self, record: JournalRecord) -> JournalRecord:
        """The record as it was written. Raises JournalTrouble where it was not."""
        # After the intent an abort keeps the act from being begun; an intent with an item reverts something.
        ends = self._questions.abort_asked() or bool(record.fields.get("item"))
        written = self._journal.append(record, ends=ends)
        self._emit(self._journal.event(self._tag))
        return written

    def _ask(self, record: JournalRecord, trouble: JournalError) -> JournalRecord | None:
        """What was written meanwhile; None to try again."""
        written: list[JournalRecord] = []

        def try_again() -> bool:
            try:
                written.append(self.try_once(record))
            except JournalError:
                return False
            return True

        text = f"{trouble.message}. Nothing is done that is not written. Type {quote_for_typing(IN_MEMORY)} to go on"
        answer = self._questions.ask_until(
            AskRequest(
                kind="journal", text=text, step=record.step, block=record.block, expects=IN_MEMORY, options=OPTIONS
            ),
            try_again,
        )
        if answer is not None and answer.text.strip() == IN_MEMORY:
            said = f"{answer.who} lets the journal go on in memory"
            try:
                self._journal.fall_back()
                self.try_once(JournalRecord(kind="journal.allowed", text=said, who=answer.who))
            except JournalError:
                return None  # memory does not take it either: the question is put again, with what is wrong now
        return written[0] if written else None
