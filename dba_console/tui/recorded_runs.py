"""Runs of a recorded session as they were at any time, replayed from their journals.

Journals and logs are read once, in a thread of the feed; the state at a time is computed from them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.protocol import OpenRun
from dba_console.runbooks.run_view import OutputLine
from dba_console.tui.known_runs import RUN_STREAM, SHOWN_RECORD_KINDS, KnownRun

if TYPE_CHECKING:
    from dba_console.recording.plan import JournalRecord, Plan
    from dba_console.runbooks.run_state import RunState

RECORDING_NOTICE = "this is a recording: runs cannot be answered"


@dataclass(slots=True, eq=False)
class RecordedRun:
    """One run: its plan, its records, its commands' output. After reading, used by the screen's thread only."""

    directory: Path
    plan: Plan
    records: tuple[JournalRecord, ...]
    output: tuple[OutputLine, ...]
    """In order of time, with the records that say what was done."""
    _count: int = -1
    """Number of records before the time last shown, and the state computed from them."""
    _state: RunState | None = None
    _known: KnownRun | None = None

    def at(self, wall_us: int) -> KnownRun | None:
        """Return the run as it was then; None if it did not exist yet or its records cannot be interpreted."""
        count = bisect_right(self.records, wall_us, key=lambda record: record.wall_us)
        try:
            if count != self._count:
                self._count, self._state, self._known = count, None, None
                self._state = self._replay(count)
            if self._state is None:
                return None
            # An ended run does not change with time alone.
            if self._known is None or not self._known.ended:
                self._known = self._known_run(self._state, wall_us)
        except Exception:  # of another version, or a bug: the other runs are shown
            return None
        self._known.output = list(self.output[: bisect_right(self.output, wall_us, key=lambda line: line.wall_us)])
        return self._known

    def _replay(self, count: int) -> RunState | None:
        from dba_console.runbooks.apply_records import replay_records

        state = replay_records(self.plan, self.records[:count])
        return state if state.run else None

    def _known_run(self, state: RunState, wall_us: int) -> KnownRun:
        from dba_console.core.decoding import convert
        from dba_console.runbooks.run_view import Question
        from dba_console.runbooks.view_builder import LiveStatus, run_view

        asked = state.asked
        question = None
        if asked is not None:
            question_fields = {
                "id": 0,
                "kind": asked.kind,
                "text": asked.text,
                "step": asked.step,
                "block": asked.block,
            }
            question = convert({**question_fields, "since_us": asked.since_us}, Question)
        now_us = self.records[self._count - 1].wall_us if state.ended else wall_us
        live = LiveStatus(now_us=now_us, directory=str(self.directory), question=question, driver=state.who)
        view = run_view(self.plan, state, live)
        summary = OpenRun(run=view.run, runbook=view.runbook, title=view.title, state=view.state, asks=bool(asked))
        known = KnownRun(summary)
        known.view, known.why_not = view, RECORDING_NOTICE
        return known


@dataclass(frozen=True, slots=True)
class RecordedRunsArrived:
    """The runs of the session, oldest first."""

    runs: tuple[RecordedRun, ...]


def read_runs(session: Path, put: Callable[[RecordedRunsArrived], None]) -> None:
    """Read the runs and pass them to `put`; unreadable ones are left out, `runbook runs` names them."""
    from dba_console.recording.run_paths import run_directories

    try:
        directories = sorted(run_directories(session))
    except OSError:
        return
    if directories:
        put(
            RecordedRunsArrived(
                tuple(run for directory in directories if (run := _read_recorded_run(directory)) is not None)
            )
        )


def _read_recorded_run(directory: Path) -> RecordedRun | None:
    from dba_console.core.errors import SessionError
    from dba_console.recording.plan import log_tag
    from dba_console.recording.run_reader import read_run

    try:
        stored_run = read_run(directory)
    except SessionError:
        return None
    if stored_run.plan is None:
        return None
    tag = log_tag(stored_run.plan)
    done = [
        OutputLine(one.wall_us, RUN_STREAM, tag, one.text)
        for one in stored_run.records
        if one.kind.startswith(SHOWN_RECORD_KINDS)
    ]
    output = sorted([*done, *_command_output(directory, tag)], key=lambda line: line.wall_us)
    return RecordedRun(directory, stored_run.plan, stored_run.records, tuple(output))


def _command_output(directory: Path, tag: str) -> list[OutputLine]:
    """Return the newest output lines of each command."""
    from dba_console.agent.runs.commands import read_newest_lines
    from dba_console.recording.run_paths import STEPS

    try:
        log_directories = sorted((directory / STEPS).iterdir())
    except OSError:
        return []  # no command of it ran
    found: list[OutputLine] = []
    for log_directory in log_directories:
        with suppress(OSError):  # its log is gone or not readable
            found += read_newest_lines(log_directory, tag)[0]
    return found
