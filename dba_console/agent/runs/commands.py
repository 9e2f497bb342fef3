"""A long command of a run, through a keeper: begun, attended line by line, and found again by another agent.

All that touches the session's disk is done in a lane: a disk that hangs makes what is shown late, and stops nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.runs.action_control import ActionControl
from dba_console.clock import Clock
from dba_console.errors import ConsoleError
from dba_console.keeping.command_spec import CommandSpec
from dba_console.keeping.command_status import (
    CommandStatus,
    ExitRecord,
    LogPosition,
    LogReader,
    StampedLine,
    read_status,
    stop,
    wait,
)
from dba_console.keeping.launch import START_TIMEOUT_S, KeeperError, StartUnknown, start
from dba_console.paths import private_dir
from dba_console.probes.deadline_lane import Lane, LaneTimeout
from dba_console.runbook.requests import Outcome
from dba_console.sanitize import clean

if TYPE_CHECKING:
    from dba_console.agent.runs.safe_message_reader import MessageReader

POLL_S = 0.25
"""Waited for the end between two looks at the output."""
DISK_S = 5.0
"""A look at the session's disk that takes longer is given up, said and tried again."""
DISK_RETRY_S = 1.0
"""Between two tries while the disk does not answer."""
TEXT_LIMIT = 500
POSITION_FILE = "shown"
"""File with the place up to which the output has been passed on: who attends next goes on from there."""

Feed = Callable[[list[StampedLine]], None]


class AttachedCommand:
    """One execution of one command. Used by the run's thread alone."""

    def __init__(
        self, directory: Path, clock: Clock, controls: ActionControl, feed: Feed, exits: tuple[int, ...],
        reading: MessageReader | None = None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self._clock, self._controls, self._feed, self._exits = clock, controls, feed, exits
        self._reading = reading
        self._lane = Lane("keeper", clock)
        self._tail: LogReader | None = None
        self._stop_sent = False
        self._first = self._last = self._last_stderr = ""
        self._begun_us = clock.mono_us()
        self._past: list[StampedLine] = []
        """What was passed on by who attended before, which `reading` has not had."""
        self._start_abandoned = False
        """It was told that it may not have begun, and what hung must not begin it any more."""

    def start(self, spec: CommandSpec) -> Outcome | None:
        """Start it. None where it runs; else what became of it."""

        def begun() -> None:
            private_dir(self.directory.parent)
            private_dir(self.directory)
            # Asked after its directory is there: whoever looks for it then finds one, and fences it (`_fenced`).
            if self._start_abandoned:
                raise KeeperError("not started: the disk of the session took too long")
            start(spec)

        try:
            self._lane.call(begun, START_TIMEOUT_S + DISK_S)
        except LaneTimeout:
            self._start_abandoned = True
            return Outcome(
                state="unknown", text="the disk of the session does not answer: whether it runs is not known"
            )
        except StartUnknown as error:
            return Outcome(state="unknown", text=error.message, evidence=error.hint or "")
        except (KeeperError, OSError) as error:
            why = error.message if isinstance(error, ConsoleError) else str(error)
            return Outcome(state="failed", text=f"it was not started: {why}")
        return None

    def follow(self) -> Outcome:
        """Pass on what it prints until it has ended."""
        while True:
            try:
                standing, lines = self._lane.call(self._read_status, POLL_S + DISK_S)
            except LaneTimeout:
                self._report_slow_disk()
                continue
            except OSError as error:
                return Outcome(state="unknown", text=f"its directory cannot be read: {error.strerror or error}")
            if self._past:
                self._follow(self._past)
                self._past = []
            self._pass_on(lines)
            if standing.state in ("ended", "lost") and not lines:
                return self._outcome(standing)
            if standing.state == "absent":
                return Outcome(state="unknown", text="its keeper has left no word of it")
            self._stop_if_asked()

    def settle(self) -> Outcome:
        """What became of one that another agent began; waited for where it runs still."""
        try:
            standing = self._lane.call(lambda: self._status_or_prevent_start(), DISK_S)
        except LaneTimeout:
            return Outcome(state="unknown", text="the disk of the session does not answer")
        except OSError as error:
            return Outcome(state="unknown", text=f"its directory cannot be read: {error.strerror or error}")
        if standing is None:
            evidence = "no keeper ever wrote of it"
            return Outcome(state="failed", text="it was never started", evidence=evidence, again=True)
        return self.follow()

    def close(self) -> None:
        self._lane.close()
        if self._reading is not None:
            self._reading.close()

    def _read_status(self) -> tuple[CommandStatus, list[StampedLine]]:
        """In the lane: wait a little, then read. The end is looked for before the output: what it printed is all there
        then."""
        standing = wait(self.directory, POLL_S)
        if self._tail is None:
            self._tail = LogReader(self.directory, _read_position(self.directory))
            if self._reading is not None:
                self._past = _lines_before(self.directory, self._tail.place)
        lines = self._tail.read()
        if lines:
            _write_position(self.directory, self._tail.place)
        return standing, lines

    def _status_or_prevent_start(self) -> CommandStatus | None:
        """In the lane: how it stands; None where no keeper ever began it, and none can any more.

        A keeper writes its record before it starts the command. Where there is none, its directory is moved out of its
        way: one that is only just about to write finds no place, and starts nothing.
        """
        if not self.directory.is_dir():
            return None
        standing = read_status(self.directory)
        if standing.state != "absent":
            return standing
        aside = self.directory.with_name(self.directory.name + ".never")
        os.rename(self.directory, aside)
        standing = read_status(aside)
        if standing.state == "absent":
            return None
        os.rename(aside, self.directory)
        return read_status(self.directory)

    def _pass_on(self, lines: list[StampedLine]) -> None:
        whole = [line for line in lines if line.whole and line.stream != "k" and line.text.strip()]
        if whole:
            self._first = self._first or whole[0].text
            self._last = whole[-1].text
            self._last_stderr = next((line.text for line in reversed(whole) if line.stream == "e"), self._last_stderr)
        self._follow(lines)
        told = self._reading.told() if self._reading is not None else ""
        if told or lines:
            self._controls.report_progress(clean(told or lines[-1].text[:TEXT_LIMIT]))
        if lines:
            self._feed([line for line in lines if line.whole])

    def _follow(self, lines: list[StampedLine]) -> None:
        if self._reading is not None:
            self._reading.feed(lines)

    def _report_slow_disk(self) -> None:
        self._controls.report_progress("the disk of the session does not answer: what it prints cannot be read now")
        self._controls.wait(DISK_RETRY_S)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if not self._controls.stop_requested() or self._stop_sent:
            return
        by = self._controls.stopped_by
        try:
            self._stop_sent = self._lane.call(lambda: stop(self.directory, by), DISK_S)
        except (LaneTimeout, OSError):
            self._controls.report_progress("it could not be asked to stop yet: the disk of the session does not answer")

    def _outcome(self, standing: CommandStatus) -> Outcome:
        took_s = (self._clock.mono_us() - self._begun_us) / 1e6
        if standing.exit is not None:
            outcome = outcome_of(standing.exit, self._exits, self._first, self._last, self._last_stderr)
            return outcome if self._reading is None else self._reading.ended(outcome, standing.exit.ended_us)
        alive = standing.child_alive
        what = "still runs, unattended" if alive else "is gone too" if alive is False else "may or may not run"
        text = f"its keeper was lost, so how it ended is not known; the command {what}"
        return Outcome(state="unknown", text=text, machine_s=took_s)


def outcome_of(
    ended: ExitRecord, exits: tuple[int, ...], first: str = "", last: str = "", complaint: str = ""
) -> Outcome:
    """The end of a command as the walk is told it. `complaint` is its last line on stderr, which says more of a failure
    than what it printed last: in a pipe that is another program's."""
    values = {
        "exit": ended.code, "signal": ended.signal, "lines": ended.out_lines, "bytes": ended.out_bytes,
        "seconds": round(ended.wall_s, 3), "first_line": first[:TEXT_LIMIT], "last_line": last[:TEXT_LIMIT],
    }  # fmt: skip
    why = complaint or last
    said = f": {why[:200]}" if why else ""
    used = f"{ended.out_lines} lines, {ended.user_s + ended.sys_s:.1f} s of CPU"
    lost = f"; {ended.dropped_lines} lines of its output are not kept" if ended.dropped_lines else ""
    evidence = f"the keeper's exit record ({used}){lost}"
    if ended.error is not None:
        return Outcome(state="failed", text=f"it was not started: {ended.error}", evidence=evidence)
    how = f"exit {ended.code}" if ended.code is not None else f"ended by signal {ended.signal}"
    if ended.stopped_by:
        return Outcome(
            state="stopped", text=f"stopped by {ended.stopped_by} ({how})", values=values, evidence=evidence,
            machine_s=ended.wall_s,
        )  # fmt: skip
    if ended.timed_out:
        text = f"it did not end in time and was ended ({how}){said}"
        return Outcome(state="failed", text=text, values=values, evidence=evidence, machine_s=ended.wall_s)
    ok = ended.code in exits
    left = ", ".join(f"{pid} ({clean(str(name))})" for pid, name in ended.left)
    still = f"; processes it started still run: {left}" if left and ended.code != 0 else ""
    return Outcome(
        state="ok" if ok else "failed", text=f"{how}{'' if ok else said}{still}", values=values, evidence=evidence,
        machine_s=ended.wall_s,
    )  # fmt: skip


def _lines_before(directory: Path, place: LogPosition) -> list[StampedLine]:
    """The lines before a place, as far as they are kept. Raises OSError."""
    tail, lines = LogReader(directory), list[StampedLine]()
    while tail.place.offset < place.offset and (read := tail.read()):
        lines += read
    return lines[: len(lines) - max(0, tail.place.line - place.line)]


def _read_position(directory: Path) -> LogPosition:
    try:
        offset, line = (directory / POSITION_FILE).read_text().split()
        return LogPosition(int(offset), int(line))
    except (OSError, ValueError):
        return LogPosition()


def _write_position(directory: Path, place: LogPosition) -> None:
    """Not synced: after a power failure some lines come twice, which is better than never."""
    try:
        descriptor = os.open(directory / POSITION_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{place.offset:020d} {place.line:020d}\n")
    except OSError:
        pass  # they come twice then
