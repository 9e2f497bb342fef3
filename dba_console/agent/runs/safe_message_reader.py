"""The reading of a command's messages, kept apart from the command: what goes wrong in it costs what they tell.

Messages are other programs' text, of any version and language. A reader that stumbles over one is given up with a
sentence; the command is attended to its end, and its exit code alone then tells how that was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from dba_console.agent.runs.dump_messages import make_dump_messages
from dba_console.agent.runs.internal_errors import internal_error_text
from dba_console.archives.dump_plan import PHASES
from dba_console.clock import Clock
from dba_console.keeping.command_status import StampedLine
from dba_console.plans.plan import Block
from dba_console.runbook.requests import Outcome
from dba_console.sanitize import clean

MAX_ERROR_LENGTH = 300
"""Of what is said of an error: it may repeat the line that was stumbled over."""
EXIT_ZERO_MEANS_NO_ERRORS = frozenset({"pg_dump", "pg_restore"})
"""Exit 0 of these is none without errors (pg_dump.c, pg_restore.c: errors that were gone on over are exit 1); psql ends
with 0 after errors too."""


class MessageReader(Protocol):
    """As `reading.Reading` is one."""

    def feed(self, lines: Sequence[StampedLine]) -> None: ...

    def told(self) -> str: ...

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome: ...

    def close(self) -> None: ...


class SafeMessageReader:
    """A reader of the messages of one execution of `program`. Raises nothing. Used by the run's thread alone."""

    def __init__(self, reader: MessageReader, program: str) -> None:
        self._reader, self._program = reader, program
        self._failure = ""
        """What went wrong with the reader; nothing is asked of it any more then."""

    def feed(self, lines: Sequence[StampedLine]) -> None:
        """Whole lines in the order in which they came."""
        if not self._failure:
            try:
                self._reader.feed(lines)
            except Exception as error:  # a defect of ours, as in the two below
                self._give_up(error)

    def told(self) -> str:
        """How far it is, in a sentence; or that it cannot be told any more."""
        if not self._failure:
            try:
                return self._reader.told()
            except Exception as error:
                self._give_up(error)
        return self._failure

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome:
        """The end of the command, with what its messages say of it, or that they could not be read."""
        if not self._failure:
            try:
                return self._reader.ended(outcome, ended_us)
            except Exception as error:
                self._give_up(error)
        return outcome_without_messages(outcome, self._program, self._failure)

    def close(self) -> None:
        self._reader.close()

    def _give_up(self, error: Exception) -> None:
        words = _short(internal_error_text(error))
        self._failure = f"its messages are not followed to their end, by a defect of this program: {words}"


def make_safe_reader(
    block: Block, values: Mapping[str, Any], clock: Clock, share: Callable[[], str] = str
) -> SafeMessageReader | None:
    """None for a command whose messages are not followed; the rest as of `reading_of`."""
    reading = make_dump_messages(block, values, clock, share)
    return None if reading is None else SafeMessageReader(reading, str(block.settings["reads"]))


def outcome_without_messages(outcome: Outcome, program: str, why: str) -> Outcome:
    """An end of which the exit code alone tells. What needs the messages to count as success does not: an exit code
    other than 0 may be that of a program that went on over errors, or of one that did not get to its end.
    """
    state, text, code = outcome.state, outcome.text, outcome.values.get("exit")
    if state == "ok" and code != 0:
        state, text = "failed", f"{text}: whether it got to its end is not known"
    unknown = dict.fromkeys(name for phase in PHASES for name in (f"{phase}_s", f"{phase}_busy_s"))
    values: dict[str, Any] = {**outcome.values, **unknown, "objects": None}
    values["errors"] = 0 if code == 0 and program in EXIT_ZERO_MEANS_NO_ERRORS else None
    values["wall_s"] = outcome.values.get("seconds")
    return msgspec.structs.replace(outcome, state=state, text=f"{text}; {why}", values=values)


def _short(text: str) -> str:
    told = clean(text)
    return (
        told if len(told) <= MAX_ERROR_LENGTH else f"{told[: MAX_ERROR_LENGTH // 2]} … {told[-MAX_ERROR_LENGTH // 2 :]}"
    )
