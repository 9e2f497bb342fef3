"""What the messages of a dump or restore tell of it: followed object by object while they come, summed up at its end.

A run's `reads=` names the program. Its lines come with the time at which the keeper had them; what the archive holds is
read from the archive itself, in a lane, for it may lie on a disk that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dba_console.agent.runs.course import LONGEST_TEXT, Course, share_told
from dba_console.archives.entries import Plan
from dba_console.archives.messages import read_lines
from dba_console.archives.place import open_archive
from dba_console.clock import Clock
from dba_console.errors import ConsoleError
from dba_console.keeping.look import Line
from dba_console.plans.plan import Block
from dba_console.probes.lane import Lane, LaneTimeout
from dba_console.runbook.requests import Outcome
from dba_console.runbook.values import filled

if TYPE_CHECKING:
    from dba_console.frames.model import Frame

OPEN_S = 20.0
"""To read what an archive holds: 50,000 objects take about a second. Without it phases have no shares, and that is
all."""
TOLD_US = 1_000_000
"""Between two words of how far it is."""
SHARED_US = 10_000_000
"""The panels, which see more than messages, are waited for so long before the share is told by messages alone: two
shares of one job, one after the other, would be no truth."""
MOST_BEFORE = 5_000
"""Lines kept until the first object comes."""
MOST_KEPT = 200_000
"""Lines of a dump: of 50,000 tables. Sizes of a longer one are not told."""
DUMP = "pg_dump"
BEGINS = frozenset({"start", "launch", "done"})
"""A message of this kind is about an object, and comes when the list of objects has been written."""


class Reading:
    """One execution of one command that dumps or restores. Used by the run's thread alone."""

    def __init__(
        self, program: str, archive: str | None, jobs: int | None, clock: Clock, share: Callable[[], str] = str
    ) -> None:
        self.archive, self.jobs = archive, jobs
        self._program, self._clock, self._share = program, clock, share
        self._lane = Lane("archive", clock)
        self._lines: list[Line] = []
        """What came before the first object, whose list need not be there before it. Of a dump all of it: what its
        objects take is known when it is over."""
        self._course: Course | None = None
        self._told, self._told_us = "", 0
        self._begun_us = clock.mono_us()
        self._shared = False
        """The panels have told its share."""

    def feed(self, lines: Sequence[Line]) -> None:
        """Whole lines in the order in which they came."""
        for line in lines:
            if not line.whole or line.stream == "k":
                continue
            if len(self._lines) < MOST_KEPT and (self._course is None or self._program == DUMP):
                self._lines.append(line)
            if self._course is not None:
                self._course.see(line.wall_us, line.text, line.stream)
            elif len(self._lines) >= MOST_BEFORE or any(one.kind in BEGINS for one in read_lines(line.text)):
                self._begun(self._opened())

    def told(self) -> str:
        """How far it is, in a sentence; empty as long as nothing is known of it."""
        if self._course is None:
            return ""
        now_us = self._clock.mono_us()
        if not self._told or now_us - self._told_us >= TOLD_US:
            self._told, self._told_us = self._course.told(self._clock.wall_us(), self._seen_share(now_us)), now_us
            self._told = self._told[:LONGEST_TEXT]
        return self._told

    def _seen_share(self, now_us: int) -> str | None:
        share = self._share()
        self._shared = self._shared or bool(share)
        return share if self._shared or now_us - self._begun_us < SHARED_US else None

    def ended(self, outcome: Outcome, ended_us: int) -> Outcome:
        """The end of the command, with what its messages say of it. `ended_us`: wall time by the keeper, 0 where it
        has not told."""
        if outcome.state == "unknown":
            return outcome
        course = self._course or self._begun(None)
        if self._program == DUMP and outcome.state == "ok" and len(self._lines) < MOST_KEPT:
            course = self._begun(self._opened(whole=True))
        course.ended(ended_us or self._clock.wall_us(), outcome.values.get("exit"))
        return judged(outcome, course, self._program)

    def close(self) -> None:
        self._lane.close()

    def _begun(self, plan: Plan | None) -> Course:
        """A course that has seen all that is kept."""
        course = self._course = Course(plan, self._program, self.jobs)
        for line in self._lines:
            course.see(line.wall_us, line.text, line.stream)
        if self._program != DUMP:
            self._lines.clear()
        return course

    def _opened(self, *, whole: bool = False) -> Plan | None:
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


def judged(outcome: Outcome, course: Course, program: str) -> Outcome:
    """An end is success only where the program says so: exit 1 of pg_restore, where it went on over errors and counted
    them, is an end with errors, which a person decides upon; any other is a failure.
    """
    text, state = outcome.text, outcome.state
    errors = course.errors
    if program == "pg_restore" and state == "ok" and outcome.values.get("exit") == 1 and course.ignored is None:
        state, text = "failed", f"{text}: it did not get to its end; {course.last_error or 'it does not say why'}"
    elif errors:
        text = f"{text.partition(': ')[0]}: {counted(errors)}: {course.first_errors()}"
    values = {**outcome.values, **course.values(), "errors": errors}
    if "seconds" in outcome.values:
        values["wall_s"] = outcome.values["seconds"]
    return msgspec.structs.replace(outcome, state=state, text=text, values=values, table=course.table())


def counted(errors: int) -> str:
    """
    >>> counted(1), counted(3)
    ('1 error', '3 errors')
    """
    return "1 error" if errors == 1 else f"{errors} errors"


def share_of(frame: Frame | None, run: str) -> str:
    """What the panels say of the command of this run: they see more than its messages. Empty where they say nothing."""
    rows = frame.progress.operations if frame is not None else []
    row = next((row for row in rows if row.run == run), None)
    if row is None or (row.scope != "whole" and row.pct is None):
        return ""
    part = {"file": "the file", "phase": row.phase or "this phase"}.get(row.scope, "")
    return share_told(row.pct, row.grade, row.eta_s, row.eta_grade, part)


def reading_of(block: Block, values: Mapping[str, Any], clock: Clock, share: Callable[[], str] = str) -> Reading | None:
    """None for a command whose messages are not followed."""
    program = block.settings.get("reads")
    if not program:
        return None
    archive = _said(block.settings.get("archive"), values)
    jobs = _said(block.settings.get("jobs"), values)
    return Reading(str(program), archive, int(jobs) if jobs and jobs.isdigit() else None, clock, share)


def _said(setting: Any, values: Mapping[str, Any]) -> str | None:
    """The value it stands for; of a command's result its first line."""
    try:
        value = filled(setting, values)
    except KeyError:
        return None
    if isinstance(value, Mapping):
        value = value.get("first_line")
    return None if value is None else str(value)
