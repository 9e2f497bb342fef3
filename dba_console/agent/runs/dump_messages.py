"""What the messages of a dump or restore tell of it: followed object by object while they come, summed up at its end.

A run's `reads=` names the program. Its lines come with the time at which the keeper had them; what the archive holds is
read from the archive itself, in a lane, for it may lie on a disk that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dba_console.agent.runs.message_progress import MAX_TEXT_LENGTH, MessageProgress, progress_text
from dba_console.agent.runs.run_context import internal_error_text
from dba_console.core.clock import Clock
from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import PHASES, DumpPlan
from dba_console.jobs.archives.program_messages import read_lines
from dba_console.keeper.command_status import StampedLine
from dba_console.recording.plan import Block
from dba_console.runbooks.requests import Outcome
from dba_console.runbooks.values import fill_references
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout

if TYPE_CHECKING:
    from dba_console.watch.frames.model import Frame

OPEN_S = 20.0
"""To read what an archive holds: 50,000 objects take about a second. Without it phases have no shares, and that is
all."""
PROGRESS_INTERVAL_US = 1_000_000
"""Between two words of how far it is."""
PANEL_WAIT_US = 10_000_000
"""The panels, which see more than messages, are waited for so long before the share is told by messages alone: two
shares of one job, one after the other, would be no truth."""
MAX_LINES_BEFORE_PLAN = 5_000
"""Lines kept until the first object comes."""
MAX_KEPT_LINES = 200_000
"""Lines of a dump: of 50,000 tables. Sizes of a longer one are not told."""
DUMP = "pg_dump"
OBJECT_MESSAGES = frozenset({"start", "launch", "done"})
"""A message of this kind is about an object, and comes when the list of objects has been written."""


class DumpMessages:
    """One execution of one command that dumps or restores. Used by the run's thread alone."""

    def __init__(
        self, program: str, archive: str | None, jobs: int | None, clock: Clock, share: Callable[[], str] = str
    ) -> None:
        self.archive, self.jobs = archive, jobs
        self._program, self._clock, self._share = program, clock, share
        self._lane = Lane("archive", clock)
        self._lines: list[StampedLine] = []
        """What came before the first object, whose list need not be there before it. Of a dump all of it: what its
        objects take is known when it is over."""
        self._progress: MessageProgress | None = None
        self._told, self._told_us = "", 0
        self._begun_us = clock.mono_us()
        self._shared = False
        """The panels have told its share."""

    def feed(self, lines: Sequence[StampedLine]) -> None:
        """Whole lines in the order in which they came."""
        for line in lines:
            if not line.whole or line.stream == "k":
                continue
            if len(self._lines) < MAX_KEPT_LINES and (self._progress is None or self._program == DUMP):
                self._lines.append(line)
            if self._progress is not None:
                self._progress.see(line.wall_us, line.text, line.stream)
            elif len(self._lines) >= MAX_LINES_BEFORE_PLAN or any(
                one.kind in OBJECT_MESSAGES for one in read_lines(line.text)
            ):
                self._start_progress(self._read_archive())

    def told(self) -> str:
        """How far it is, in a sentence; empty as long as nothing is known of it."""
        if self._progress is None:
            return ""
        now_us = self._clock.mono_us()
        if not self._told or now_us - self._told_us >= PROGRESS_INTERVAL_US:
            self._told, self._told_us = self._progress.told(self._clock.wall_us(), self._panel_progress(now_us)), now_us
            self._told = self._told[:MAX_TEXT_LENGTH]
        return self._told

    def _panel_progress(self, now_us: int) -> str | None:
        share = self._share()
        self._shared = self._shared or bool(share)
        return share if self._shared or now_us - self._begun_us < PANEL_WAIT_US else None

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome:
        """The end of the command, with what its messages say of it. `ended_us`: wall time by the keeper, 0 where it
        has not told."""
        if outcome.state == "unknown":
            return outcome
        course = self._progress or self._start_progress(None)
        if self._program == DUMP and outcome.state == "ok" and len(self._lines) < MAX_KEPT_LINES:
            course = self._start_progress(self._read_archive(whole=True))
        course.ended(ended_us or self._clock.wall_us(), outcome.values.get("exit"))
        return apply_messages(outcome, course, self._program)

    def close(self) -> None:
        self._lane.close()

    def _start_progress(self, plan: DumpPlan | None) -> MessageProgress:
        """A course that has seen all that is kept."""
        course = self._progress = MessageProgress(plan, self._program, self.jobs)
        for line in self._lines:
            course.see(line.wall_us, line.text, line.stream)
        if self._program != DUMP:
            self._lines.clear()
        return course

    def _read_archive(self, *, whole: bool = False) -> DumpPlan | None:
        """What the archive holds. Of a dump that is not `whole` without sizes: they are what was written until now."""
        if self.archive is None:
            return None
        path = self.archive
        try:
            plan = self._lane.call(lambda: open_archive(path), OPEN_S)
        except (LaneTimeout, ConsoleError, OSError):
            return None
        if self._program != DUMP or whole:
            return plan
        return msgspec.structs.replace(
            plan, entries=tuple(msgspec.structs.replace(entry, weight=None) for entry in plan.entries)
        )


def apply_messages(outcome: Outcome, course: MessageProgress, program: str) -> Outcome:
    """An end is success only where the program says so: exit 1 of pg_restore, where it went on over errors and counted
    them, is an end with errors, which a person decides upon; any other is a failure.
    """
    text, state = outcome.text, outcome.state
    errors = course.errors
    if program == "pg_restore" and state == "ok" and outcome.values.get("exit") == 1 and course.ignored is None:
        state, text = "failed", f"{text}: it did not get to its end; {course.last_error or 'it does not say why'}"
    elif errors:
        text = f"{text.partition(': ')[0]}: {error_count_text(errors)}: {course.first_errors_text()}"
    values = {**outcome.values, **course.values(), "errors": errors}
    if "seconds" in outcome.values:
        values["wall_s"] = outcome.values["seconds"]
    return msgspec.structs.replace(outcome, state=state, text=text, values=values, table=course.table())


def error_count_text(errors: int) -> str:
    """
    >>> error_count_text(1), error_count_text(3)
    ('1 error', '3 errors')
    """
    return "1 error" if errors == 1 else f"{errors} errors"


def panel_progress_text(frame: Frame | None, run: str) -> str:
    """What the panels say of the command of this run: they see more than its messages. Empty where they say nothing."""
    rows = frame.progress.operations if frame is not None else []
    row = next((row for row in rows if row.run == run), None)
    if row is None or (row.scope != "whole" and row.pct is None):
        return ""
    part = {"file": "the file", "phase": row.phase or "this phase"}.get(row.scope, "")
    return progress_text(row.pct, row.grade, row.eta_s, row.eta_grade, part)


def make_dump_messages(
    block: Block, values: Mapping[str, Any], clock: Clock, share: Callable[[], str] = str
) -> DumpMessages | None:
    """None for a command whose messages are not followed."""
    program = block.settings.get("reads")
    if not program:
        return None
    archive = _setting_value(block.settings.get("archive"), values)
    jobs = _setting_value(block.settings.get("jobs"), values)
    return DumpMessages(str(program), archive, int(jobs) if jobs and jobs.isdigit() else None, clock, share)


def _setting_value(setting: Any, values: Mapping[str, Any]) -> str | None:
    """The value it stands for; of a command's result its first line."""
    try:
        value = fill_references(setting, values)
    except KeyError:
        return None
    if isinstance(value, Mapping):
        value = value.get("first_line")
    return None if value is None else str(value)


# The reading of a command's messages, kept apart from the command: what goes wrong in it costs what they tell.
#
# Messages are other programs' text, of any version and language. A reader that stumbles over one is given up with a
# sentence; the command is attended to its end, and its exit code alone then tells how that was.

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
