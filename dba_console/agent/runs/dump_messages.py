"""The messages of a dump or restore: followed object by object while they arrive, summarized at the end.

A run's `reads=` names the program. Lines have the keeper's time. The list of objects is read from the archive in a
lane, because it may be on a disk that hangs.
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
"""Timeout for reading an archive: 50,000 objects take about a second. Without it phases have no percentage; nothing
else is lost."""
PROGRESS_INTERVAL_US = 1_000_000
"""Minimum interval between two progress texts."""
PANEL_WAIT_US = 10_000_000
"""Wait this long for the panels, which know more than the messages, before the percentage is computed from messages
alone: two different percentages of one job, one after the other, would be misleading."""
MAX_LINES_BEFORE_PLAN = 5_000
"""Maximum lines kept until the first object."""
MAX_KEPT_LINES = 200_000
"""Maximum lines of a dump: enough for 50,000 tables. Sizes of a longer one are not shown."""
DUMP = "pg_dump"
OBJECT_MESSAGES = frozenset({"start", "launch", "done"})
"""Messages about an object; they come when the list of objects has been written."""


class DumpMessages:
    """The messages of one execution of a dump or restore command. Used only by the run's thread."""

    def __init__(
        self, program: str, archive: str | None, jobs: int | None, clock: Clock, share: Callable[[], str] = str
    ) -> None:
        self.archive, self.jobs = archive, jobs
        self._program, self._clock, self._share = program, clock, share
        self._lane = Lane("archive", clock)
        self._lines: list[StampedLine] = []
        """Lines before the first object, when the list of objects may not exist yet. Of a dump all lines, because the
        sizes of its objects are known only at its end."""
        self._progress: MessageProgress | None = None
        self._told, self._told_us = "", 0
        self._begun_us = clock.mono_us()
        self._shared = False
        """The panels have reported its percentage."""

    def feed(self, lines: Sequence[StampedLine]) -> None:
        """Add whole lines in the order of arrival."""
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
        """Return the progress as a sentence; empty while nothing is known."""
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
        """Return the outcome of the command with what its messages report. `ended_us`: wall time of the keeper, 0 if
        unknown."""
        if outcome.state == "unknown":
            return outcome
        progress = self._progress or self._start_progress(None)
        if self._program == DUMP and outcome.state == "ok" and len(self._lines) < MAX_KEPT_LINES:
            progress = self._start_progress(self._read_archive(whole=True))
        progress.ended(ended_us or self._clock.wall_us(), outcome.values.get("exit"))
        return apply_messages(outcome, progress, self._program)

    def close(self) -> None:
        self._lane.close()

    def _start_progress(self, plan: DumpPlan | None) -> MessageProgress:
        """Return the progress after all kept lines."""
        progress = self._progress = MessageProgress(plan, self._program, self.jobs)
        for line in self._lines:
            progress.see(line.wall_us, line.text, line.stream)
        if self._program != DUMP:
            self._lines.clear()
        return progress

    def _read_archive(self, *, whole: bool = False) -> DumpPlan | None:
        """Return the content of the archive. Of a dump, unless `whole`, without sizes, which are still growing."""
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


def apply_messages(outcome: Outcome, progress: MessageProgress, program: str) -> Outcome:
    """Return the outcome, a success only if the messages confirm it: exit 1 of pg_restore after errors that it counted
    and ignored is an end with errors, for the operator to decide; any other is a failure.
    """
    text, state = outcome.text, outcome.state
    errors = progress.errors
    if program == "pg_restore" and state == "ok" and outcome.values.get("exit") == 1 and progress.ignored is None:
        state, text = "failed", f"{text}: it did not finish; {progress.last_error or 'no reason was given'}"
    elif errors:
        text = f"{text.partition(': ')[0]}: {error_count_text(errors)}: {progress.first_errors_text()}"
    values = {**outcome.values, **progress.values(), "errors": errors}
    if "seconds" in outcome.values:
        values["wall_s"] = outcome.values["seconds"]
    return msgspec.structs.replace(outcome, state=state, text=text, values=values, table=progress.table())


def error_count_text(errors: int) -> str:
    """
    >>> error_count_text(1), error_count_text(3)
    ('1 error', '3 errors')
    """
    return "1 error" if errors == 1 else f"{errors} errors"


def panel_progress_text(frame: Frame | None, run: str) -> str:
    """Return the panels' progress of this run's command, which know more than its messages. Empty if unknown."""
    rows = frame.progress.operations if frame is not None else []
    row = next((row for row in rows if row.run == run), None)
    if row is None or (row.scope != "whole" and row.pct is None):
        return ""
    part = {"file": "the file", "phase": row.phase or "this phase"}.get(row.scope, "")
    return progress_text(row.pct, row.grade, row.eta_s, row.eta_grade, part)


def make_dump_messages(
    block: Block, values: Mapping[str, Any], clock: Clock, share: Callable[[], str] = str
) -> DumpMessages | None:
    """Return the reader, None for a command whose messages are not followed."""
    program = block.settings.get("reads")
    if not program:
        return None
    archive = _setting_value(block.settings.get("archive"), values)
    jobs = _setting_value(block.settings.get("jobs"), values)
    return DumpMessages(str(program), archive, int(jobs) if jobs and jobs.isdigit() else None, clock, share)


def _setting_value(setting: Any, values: Mapping[str, Any]) -> str | None:
    """Return the value of a setting; of a command's result its first line."""
    try:
        value = fill_references(setting, values)
    except KeyError:
        return None
    if isinstance(value, Mapping):
        value = value.get("first_line")
    return None if value is None else str(value)


# A guarded reader of a command's messages: an error in it only costs what the messages report.
#
# Messages are text of other programs, in any version and language. After an error the reader is abandoned with a
# sentence; the command is followed to its end, and the outcome depends on its exit code alone.

MAX_ERROR_LENGTH = 300
"""Maximum length of an error text, which may repeat the message that caused it."""
EXIT_ZERO_MEANS_NO_ERRORS = frozenset({"pg_dump", "pg_restore"})
"""Programs whose exit 0 means no errors (pg_dump.c, pg_restore.c: ignored errors are exit 1); psql exits with 0 after
errors too."""


class MessageReader(Protocol):
    """The interface of `DumpMessages`."""

    def feed(self, lines: Sequence[StampedLine]) -> None: ...

    def told(self) -> str: ...

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome: ...

    def close(self) -> None: ...


class SafeMessageReader:
    """A guarded reader of the messages of one execution of `program`. Never raises. Used only by the run's thread."""

    def __init__(self, reader: MessageReader, program: str) -> None:
        self._reader, self._program = reader, program
        self._failure = ""
        """The reader's error; the reader is not used any more then."""

    def feed(self, lines: Sequence[StampedLine]) -> None:
        """Add whole lines in the order of arrival."""
        if not self._failure:
            try:
                self._reader.feed(lines)
            except Exception as error:  # an internal error, as in the two below
                self._give_up(error)

    def told(self) -> str:
        """Return the progress as a sentence, or the reader's error."""
        if not self._failure:
            try:
                return self._reader.told()
            except Exception as error:
                self._give_up(error)
        return self._failure

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome:
        """Return the outcome with what the messages report, or with the reader's error."""
        if not self._failure:
            try:
                return self._reader.ended(outcome, ended_us)
            except Exception as error:
                self._give_up(error)
        return outcome_without_messages(outcome, self._program, self._failure)

    def close(self) -> None:
        self._reader.close()

    def _give_up(self, error: Exception) -> None:
        text = _short(internal_error_text(error))
        self._failure = f"its messages were not read to the end: internal error: {text}"


def make_safe_reader(
    block: Block, values: Mapping[str, Any], clock: Clock, share: Callable[[], str] = str
) -> SafeMessageReader | None:
    """Return a guarded reader, None for a command whose messages are not followed. See `make_dump_messages`."""
    reading = make_dump_messages(block, values, clock, share)
    return None if reading is None else SafeMessageReader(reading, str(block.settings["reads"]))


def outcome_without_messages(outcome: Outcome, program: str, why: str) -> Outcome:
    """Return the outcome by the exit code alone. An exit code other than 0 does not count as success: the program may
    have ignored errors, or may not have finished.
    """
    state, text, code = outcome.state, outcome.text, outcome.values.get("exit")
    if state == "ok" and code != 0:
        state, text = "failed", f"{text}: unknown whether it finished"
    unknown = dict.fromkeys(name for phase in PHASES for name in (f"{phase}_s", f"{phase}_busy_s"))
    values: dict[str, Any] = {**outcome.values, **unknown, "objects": None}
    values["errors"] = 0 if code == 0 and program in EXIT_ZERO_MEANS_NO_ERRORS else None
    values["wall_s"] = outcome.values.get("seconds")
    return msgspec.structs.replace(outcome, state=state, text=f"{text}; {why}", values=values)


def _short(text: str) -> str:
    cleaned = clean(text)
    return (
        cleaned
        if len(cleaned) <= MAX_ERROR_LENGTH
        else f"{cleaned[: MAX_ERROR_LENGTH // 2]} … {cleaned[-MAX_ERROR_LENGTH // 2 :]}"
    )
